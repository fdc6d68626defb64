/* SPDX-License-Identifier: GPL-2.0-only */
/* What the timer does: waits that are too long, and, while user space is silent, fair shares without it. */
#ifndef __AMP_FALLBACK_H
#define __AMP_FALLBACK_H

#define NO_LEAD (-0x7fffffffffffffffLL - 1)

/*
 * How far the thread that @cpu runs is ahead of the fallback's clock; NO_LEAD if it runs none that
 * takes part and may move to one of the core types @to.
 */
__noinline s64 fair_lead(u32 cpu, u32 to)
{
	struct amp_slot *s = slot_at(cpu_record(cpu)->slot);

	if (!s || s->cpu != cpu || s->clock != AMP_FAIR_CLOCK)
		return NO_LEAD;
	if (s->rotation != AMP_ANY || !(s->allowed & to))
		return NO_LEAD;
	return s->vtime - shared.clock[AMP_FAIR_CLOCK];
}

/* The same, if it may move to a slower core type. */
__noinline s64 fair_lead_down(u32 cpu)
{
	return fair_lead(cpu, 0xfe << type_of(cpu));
}

/*
 * The same, if @cpu is of a slower type than @fast and its thread may change places with the one
 * there.
 */
__noinline s64 fair_lead_up(u32 cpu, u32 fast)
{
	if (type_of(cpu) <= type_of(fast) || fair_lead(fast, 1 << type_of(cpu)) == NO_LEAD)
		return NO_LEAD;
	return fair_lead(cpu, 1 << type_of(fast));
}

/* Sends the thread that @cpu runs to the core type of CPU @to. */
__noinline int send(u32 cpu, u32 to)
{
	struct amp_slot *s = slot_at(cpu_record(cpu)->slot);

	if (s)
		s->rotation = type_of(to);
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

/*
 * With no more threads than CPUs nobody ever waits, so virtual time alone equalises nothing. The
 * foremost thread on a faster type and the hindmost on a slower one change places when they are too
 * far apart.
 */
__noinline bool rotate(void)
{
	u32 cpu, fast = 0, slow = 0;
	s64 lead, most = NO_LEAD, least = ~NO_LEAD;

	bpf_for(cpu, 0, nr_cpus) {
		lead = fair_lead_down(cpu);
		if (lead > most) {
			most = lead;
			fast = cpu;
		}
	}
	if (most == NO_LEAD)
		return false;
	bpf_for(cpu, 0, nr_cpus) {
		lead = fair_lead_up(cpu, fast);
		if (lead != NO_LEAD && lead < least) {
			least = lead;
			slow = cpu;
		}
	}
	if (least == ~NO_LEAD || most - least < (s64)rotate_ns)
		return false;
	send(slow, fast);
	send(fast, slow);
	shared.nr_rotations++;
	return true;
}

enum wait {
	WAITED_LITTLE,
	WAITED_ENOUGH,		/* for a slower CPU to take it; at once if unplaced */
	WAITED_TOO_LONG,
};

/*
 * How long the thread of @s may wait where @nr wait: not for what its weight brings late, and not
 * for what so many turns take. With one bound for all, a hundred light threads would take a whole
 * CPU by it, and in a long queue everybody would be rescued before the hindmost.
 */
static u64 longest_wait(const struct amp_slot *s, u64 nr)
{
	u64 longest = 2 * nr * slice_ns, limit = starve_ns > LONGEST_WAIT_NS ? starve_ns : LONGEST_WAIT_NS;

	if (longest < starve_ns)
		longest = starve_ns;
	if (s->weight < 100)
		longest = longest * 100 / (s->weight ?: 1);
	return longest < limit ? longest : limit;
}

__noinline enum wait waited(u32 index, u64 now, u64 nr)
{
	struct amp_slot *s = slot_at(index);

	if (!s || index == AMP_UNTRACKED)
		return WAITED_ENOUGH;
	if (time_after(now, s->queued_at + longest_wait(s, nr)))
		return WAITED_TOO_LONG;
	return placement_of(s) >= nr_types || steal_due(s->queued_at, now) ? WAITED_ENOUGH : WAITED_LITTLE;
}

/*
 * For whoever is rescued in slot @index: clocks follow those who begin to run. From the end of a long queue he would take his clock so
 * far that whoever wakes up would queue behind all others.
 */
__noinline int forgive_lead(u32 index)
{
	struct amp_slot *s = slot_at(index);
	u64 now;

	if (!s || index == AMP_UNTRACKED)
		return 0;
	now = shared.clock[s->clock & 15];
	/* but for a clock that does not follow him: there he would come back before those who have waited as long */
	if (!latest[s->clock & 15] && time_before(now, s->vtime))
		s->vtime = now;
	return 0;
}

/* By CPU: when somebody was put in front there, by bpf_ktime_get_ns(). */
static u64 rescued_at[AMP_MAX_CPUS];

/*
 * Whether somebody may be put in front on @cpu, if it is one: not more often than leaves time for those who are next by other rules. A turn
 * may take twice a slice, for it ends with a tick.
 */
static __always_inline bool may_rescue(s32 cpu, u64 now)
{
	return cpu >= 0 && elapsed(now, rescued_at[cpu & (AMP_MAX_CPUS - 1)]) >= 4 * slice_ns;
}

/*
 * A CPU that may run @p now: its last one unless a higher class has that; -EBUSY if a higher class
 * has all of them.
 */
__noinline s32 open_cpu(const struct task_struct *p __arg_trusted)
{
	s32 last = scx_bpf_task_cpu(p), cpu, found = -EBUSY;

	/* as in reachable_queue() */
	bpf_rcu_read_lock();
	if (bpf_cpumask_test_cpu(last, p->cpus_ptr) && !taken_away(last))
		found = last;
	else
		bpf_for(cpu, 0, nr_cpus)
			if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && !taken_away(cpu)) {
				found = cpu;
				break;
			}
	bpf_rcu_read_unlock();
	return found;
}

/*
 * Rescues one of those at the end of @q that have waited too long. There are the light threads, and
 * where many wait in front of them, a look from the front does not get that far.
 */
__noinline bool rescue_last(u64 q, u64 now, u64 nr)
{
	struct task_struct *p;
	bool rescued = false;
	u32 seen = 0;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, q, SCX_DSQ_ITER_REV) {
		s32 cpu;

		seen++;
		__sink(seen);
		if (seen > MAX_SCAN)
			break;
		if (waited(slot_index(p), now, nr) != WAITED_TOO_LONG)
			continue;
		cpu = open_cpu(p);
		if (may_rescue(cpu, now) && scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, SCX_ENQ_HEAD)) {
			rescued_at[cpu & (AMP_MAX_CPUS - 1)] = now;
			forgive_lead(slot_index(p));
			shared.nr_rescued++;
			rescued = true;
			break;
		}
	}
	bpf_rcu_read_unlock();
	return rescued;
}

/* Threads in a queue from which on its clock is held against the first of them. */
#define LONG_QUEUE 16

/*
 * Takes the clock of the long queue @q back to the first who waits there. A clock that ran away from those who wait, by
 * somebody who had not waited in order, would have whoever wakes up queue behind all of them until they have caught up: a thousand threads
 * need seconds for that. Nor does it go on before them: threads that may use other CPUs only are not to be compared by a clock that jumps
 * to and fro.
 */
__noinline int hold_clock(u64 q)
{
	u32 c = clock_of(q);
	u64 *clock = &shared.clock[c & 15], first;

	bpf_rcu_read_lock();
	first = head_of(q);
	bpf_rcu_read_unlock();
	if (first == NOBODY)
		return 0;
	/* another long queue of this core type is farther behind */
	if (latest[c & 15] && held_by[c & 15] != q && time_before(latest[c & 15], first + slice_ns))
		return 0;
	if (time_before(first + slice_ns, *clock))
		*clock = first;
	held_by[c & 15] = q;
	latest[c & 15] = first + slice_ns;
	return 0;
}

/* Wakes an idle CPU for somebody in @q who has waited enough and may use some CPUs only: wake_idle() may choose one that he may not use. */
__noinline int wake_for_some(u64 q, u64 now, u64 nr)
{
	struct task_struct *p;
	u32 seen = 0;
	s32 cpu;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, q, 0) {
		seen++;
		__sink(seen);
		if (seen > MAX_SCAN)
			break;
		if (p->nr_cpus_allowed == 1 || p->nr_cpus_allowed >= nr_cpus || waited(slot_index(p), now, nr) == WAITED_LITTLE)
			continue;
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (cpu >= 0) {
			scx_bpf_kick_cpu(cpu, 0);
			break;
		}
	}
	bpf_rcu_read_unlock();
	return 0;
}

/*
 * Looks at the threads that wait in @q: those that a CPU of a slower type may take by now, those
 * that have waited too long altogether (their CPUs may be full of pinned or real-time threads), and
 * those that a CPU gone idle at the wrong moment has overlooked. Returns the core types whose idle
 * CPUs should look at it.
 */
__noinline u32 relieve_queue(u64 q, u32 type, u64 now)
{
	s64 nr = scx_bpf_dsq_nr_queued(q);
	struct task_struct *p;
	bool relief;
	u32 seen = 0, some = 0;

	if (nr < LONG_QUEUE && held_by[clock_of(q) & 15] == q)
		latest[clock_of(q) & 15] = 0;
	if (nr < CROWD)
		crowds &= ~(1ULL << (q & 63));
	else
		crowds |= 1ULL << (q & 63);
	if (nr <= 0) {
		/* once may be the moment in which two threads change places */
		if (shared.backlog_gone & 1ULL << (q & 63))
			shared.backlog_since[q & 63] = 0;
		shared.backlog_gone |= 1ULL << (q & 63);
		return 0;
	}
	shared.backlog_gone &= ~(1ULL << (q & 63));
	__sync_fetch_and_or(&waiting, 1ULL << (q & 63));
	shared.crowded = 1;
	relief = backlog_due(q, now);
	/* first, for whoever is next in turn needs no help but where his CPUs are full of others */
	if (nr > MAX_SCAN)
		rescue_last(q, now, nr);
	if (nr >= LONG_QUEUE)
		hold_clock(q);
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, q, 0) {
		enum wait w = waited(slot_index(p), now, nr);

		seen++;
		__sink(seen);
		if (seen > MAX_SCAN)
			break;
		if (w == WAITED_TOO_LONG) {
			s32 cpu = open_cpu(p);

			if (may_rescue(cpu, now) && scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, SCX_ENQ_HEAD)) {
				rescued_at[cpu & (AMP_MAX_CPUS - 1)] = now;
				forgive_lead(slot_index(p));
				shared.nr_rescued++;
				break;
			}
		}
		if (w != WAITED_LITTLE) {
			relief = true;
			some |= p->nr_cpus_allowed > 1 && p->nr_cpus_allowed < nr_cpus;
		}
	}
	bpf_rcu_read_unlock();
	if (some)
		wake_for_some(q, now, nr);
	if (q == AMP_FAIR_QUEUE)
		return ~0U;
	/* faster CPUs may take it at any time */
	if (!relief || type + 1 >= nr_types)
		return (2U << type) - 1;
	__sync_fetch_and_or(&shared.relief, 1ULL << (q & 63));
	return ~0U;
}

/*
 * Takes back what waits on a CPU that a higher class has, on kernels that can from here. Not all
 * that goes to a CPU is inserted with enq_immed. Nor does such a CPU run one of our threads, which
 * amp_cpu_release() is not there to note: if the last one went to sleep as the other class came,
 * amp_dispatch() was not asked for the next. Should one begin to run there just now, its first tick
 * notes it.
 */
__noinline int take_back(void)
{
	u32 cpu;

	bpf_rcu_read_lock();
	bpf_for(cpu, 0, nr_cpus) {
		struct amp_cpu *c = cpu_record(cpu);
		bool queued = scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) > 0;

		if ((!queued && !c->slot) || !taken_away(cpu))
			continue;
		c->slot = 0;
		if (queued)
			scx_bpf_dsq_reenq(SCX_DSQ_LOCAL_ON | cpu, 0);
	}
	bpf_rcu_read_unlock();
	return 0;
}

/*
 * Whether nobody runs or waits. Who found the table full is not seen to run: while there is one, it is
 * never so.
 */
__noinline int at_rest(void)
{
	bool busy = shared.untracked_now || shared.holding;
	u32 i;

	bpf_for(i, 0, nr_queues + 1) {
		u64 q = queue_id(i);

		/* a later backlog is not to begin with this one's time */
		if (scx_bpf_dsq_nr_queued(q) || shared.backlog_since[q & 63])
			busy = true;
	}
	bpf_for(i, 0, nr_cpus)
		if (cpu_record(i)->slot || clock_falls(cpu_record(i)) || scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | i) > 0)
			busy = true;
	return !busy;
}

/* Timers in a row at which a higher class had every CPU of a queue, after which others serve it: 20 ms. */
#define HOGGED 4
static u8 hogged[64];

/* Notes the queues whose CPUs a higher class has: nobody there asks for who waits in them. */
__noinline int note_hogged(void)
{
	/* those that are not there are in the last type's first queue */
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	u64 open = 0, all = 0;
	u32 i;

	bpf_rcu_read_lock();
	bpf_for(i, 0, nr_cpus) {
		u64 bit = 1ULL << (queue_of(i) & 63);

		if (!(open & bit) && bpf_cpumask_test_cpu(i, online) && !taken_away(i))
			open |= bit;
	}
	bpf_rcu_read_unlock();
	scx_bpf_put_cpumask(online);
	bpf_for(i, 0, nr_queues) {
		if (open & 1ULL << (i & 63))
			hogged[i & 63] = 0;
		else if (hogged[i & 63] < HOGGED)
			hogged[i & 63]++;
		else
			all |= 1ULL << (i & 63);
	}
	shared.hogged = all;
	return 0;
}

static int amp_timer(void *map, int *key, struct timer_cell *cell)
{
	u64 now = now_ns(), silent = elapsed(now, shared.heartbeat);
	u32 i, types = 0;

	if (heartbeat_ns && !shared.fallback && silent > heartbeat_ns) {
		/* whoever waits for a core type is before whoever runs there, on either clock */
		bpf_for(i, 0, nr_types)
			bring_clock(AMP_FAIR_CLOCK, i);
		shared.fallback = 1;
		shared.nr_fallbacks++;
	}
	shared.crowded = 0;
	/* whoever still goes offline is seen to at the next turn of somebody who waits for it */
	if (shared.closed && elapsed(now, shared.closed_at) > CLOSED_NS)
		shared.closed = 0;
	note_hogged();
	let_all_go(now);
	bpf_for(i, 0, nr_queues)
		types |= relieve_queue(i, queue_type[i & 63], now);
	if (shared.fallback) {
		types |= relieve_queue(AMP_FAIR_QUEUE, 0, now);
		bpf_for(i, 0, 4)
			if (!rotate())
				break;
	} else if (sort_queue(AMP_FAIR_QUEUE)) {
		types = ~0U;
	}
	if (types)
		wake_idle(types);
	if (enq_immed)
		take_back();
	set_clocks();
	if (at_rest()) {
		__sync_lock_test_and_set(&shared.resting, 1);
		/* somebody may have come between: whoever takes the flag back starts the timer */
		if (at_rest() || !__sync_lock_test_and_set(&shared.resting, 0))
			return 0;
	}
	if (bpf_timer_start(&cell->timer, timer_ns, 0))
		__sync_lock_test_and_set(&shared.resting, 1);
	return 0;
}

static s32 start_timer(void)
{
	u32 key = 0;
	struct timer_cell *cell = bpf_map_lookup_elem(&timers, &key);

	if (!cell)
		return -ENOENT;
	bpf_timer_init(&cell->timer, &timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&cell->timer, amp_timer);
	return bpf_timer_start(&cell->timer, timer_ns, 0);
}

#endif
