/* SPDX-License-Identifier: GPL-2.0-only */
/* Which queue a thread waits in. */
#ifndef __AMP_PLACEMENT_H
#define __AMP_PLACEMENT_H

/* Where an unplaced thread waits least: the shortest queue for the capacity behind it. */
__noinline u32 shortest_type(u32 allowed)
{
	u32 t, best = AMP_ANY;
	u64 load, best_load = ~0ULL;

	bpf_for(t, 0, nr_types) {
		u32 q, nr = 1;

		if (t >= AMP_MAX_TYPES || !(allowed & 1 << t))
			continue;
		bpf_for(q, type_queue[t], type_queue[t + 1])
			nr += scx_bpf_dsq_nr_queued(q);
		load = (u64)nr * shared.load[t];
		if (load < best_load) {
			best_load = load;
			best = t;
		}
	}
	return best;
}

/*
 * The nearest type that @allowed has: @want itself, else the next slower one, else the next faster
 * one.
 */
__noinline u32 nearest_type(u32 want, u32 allowed)
{
	u32 d, t;

	bpf_for(d, 0, AMP_MAX_TYPES) {
		t = want + d;
		if (t < AMP_MAX_TYPES && allowed & 1 << t)
			return t;
	}
	bpf_for(d, 1, AMP_MAX_TYPES) {
		t = want - d;
		if (t < AMP_MAX_TYPES && allowed & 1 << t)
			return t;
	}
	return 0;
}

/* The queue of @type nearest to @cpu. */
static __always_inline u32 queue_near(u32 type, u32 cpu, u32 index)
{
	u32 first, nr;

	type &= AMP_MAX_TYPES - 1;
	if (type_of(cpu) == type)
		return queue_of(cpu);
	first = type_queue[type];
	nr = type_queue[type + 1] - first;
	return first + (nr > 1 ? index % nr : 0);
}

/*
 * @q if @p may use one of its CPUs, else the first queue of the same core type that has one: a type
 * has a queue per last-level cache.
 */
__noinline u32 reachable_queue(const struct task_struct *p __arg_trusted, u32 q)
{
	u32 type = queue_type[q & 63] & (AMP_MAX_TYPES - 1), cpu, other = q;

	if (nr_queues == nr_types || p->nr_cpus_allowed >= nr_cpus || type_queue[type + 1] - type_queue[type] < 2)
		return q;
	/* verified by itself, for programs that may sleep, too: that nobody who calls it does is not seen */
	bpf_rcu_read_lock();
	bpf_for(cpu, 0, nr_cpus) {
		if (type_of(cpu) != type || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		if (queue_of(cpu) == q) {
			other = q;
			break;
		}
		if (other == q)
			other = queue_of(cpu);
	}
	bpf_rcu_read_unlock();
	return other;
}

/* The queues that nobody serves, a bit each. */
static __always_inline u64 closed_queues(void)
{
	return shared.closed | shared.hogged;
}

/* Whether nobody serves any queue of @type. */
static __always_inline bool closed_type(u32 type)
{
	u64 queues;

	type &= AMP_MAX_TYPES - 1;
	queues = (1ULL << (type_queue[type + 1] & 63)) - (1ULL << (type_queue[type] & 63));
	return (closed_queues() & queues) == queues;
}

/* @q, or another one for a thread that may run on the core types @allowed, if nobody serves @q. */
__noinline u32 open_queue(u32 q, u32 allowed)
{
	u64 closed = closed_queues();
	u32 other;

	if (!(closed & 1ULL << (q & 63)))
		return q;
	bpf_for(other, 0, nr_queues)
		if (!(closed & 1ULL << (other & 63)) && allowed & 1 << (queue_type[other & 63] & (AMP_MAX_TYPES - 1)))
			return other;
	return q;
}

/*
 * @q, or another one for @p, which may run on the core types @allowed, if nobody serves @q. Behind another cache of the first type that is
 * served there may be nothing for it: then of another type.
 */
__noinline u32 served_queue(const struct task_struct *p __arg_trusted, u32 q, u32 allowed)
{
	u32 open = open_queue(q, allowed), other = reachable_queue(p, open);

	if (nr_queues == nr_types || other == open || !(closed_queues() & 1ULL << (other & 63)))
		return other;
	return reachable_queue(p, open_queue(q, allowed & ~(1 << (queue_type[open & 63] & (AMP_MAX_TYPES - 1)))));
}

/*
 * foreign_cpu() for @p, of the core type nearest to @want that @allowed has; for a thread that is placed on none, of the fastest type that
 * has one, but not of the slowest type.
 */
__noinline s32 foreign_cpu_for(const struct task_struct *p __arg_trusted, u32 want, u32 allowed, bool claim)
{
	s32 cpu;
	u32 t;

	if (want < nr_types)
		return foreign_cpu(p, nearest_type(want, allowed), claim);
	bpf_for(t, 0, nr_types - 1) {
		cpu = foreign_cpu(p, t, claim);
		if (cpu >= 0)
			return cpu;
	}
	return -EBUSY;
}

/*
 * Chooses a queue for @p and moves its virtual time to that queue's clock. @victim is a CPU that
 * has to give up somebody else's thread for it, or negative.
 */
static __always_inline u32 choose_queue(const struct task_struct *p, struct amp_slot *s, u32 index,
					u32 cpu, bool slept, s32 *victim)
{
	u32 want = placement_of(s), allowed = s->allowed, type, q;

	*victim = -EBUSY;
	if (index == AMP_UNTRACKED) {
		/*
		 * which types its affinity has is not known either: without any it may go anywhere,
		 * else it stays
		 */
		want = p->nr_cpus_allowed < nr_cpus ? type_of(cpu) : AMP_ANY;
	} else if (shared.fallback && want >= nr_types) {
		set_clock(s, AMP_FAIR_CLOCK, slept);
		return AMP_FAIR_QUEUE;
	}
	if (shared.foreign)
		*victim = foreign_cpu_for(p, want, allowed, true);
	if (*victim >= 0) {
		q = queue_of(*victim);
	} else {
		type = want < nr_types ? nearest_type(want, allowed) : shortest_type(allowed);
		if (type >= nr_types)
			type = type_of(cpu);
		q = reachable_queue(p, queue_near(type, cpu, index));
	}
	if (closed_queues())
		q = served_queue(p, q, allowed);
	type = queue_type[q & 63];
	if (index != AMP_UNTRACKED)
		set_clock(s, clock_for(type), slept);
	if (want >= nr_types && type + 1 < nr_types)
		__sync_fetch_and_or(&shared.relief, 1ULL << (q & 63));
	return q;
}

/* Whether the thread of @s has used more than its share. */
static __always_inline bool ahead(const struct amp_slot *s)
{
	return time_before(shared.clock[s->clock & 15] + slice_ns, s->vtime);
}

/*
 * Whether a thread that wakes up runs at once in place of the one that @cpu runs: because it has
 * used less than its share, or because the other's turn is over much later than its own would be.
 * Says to the other that it has had its turn, so that it queues.
 */
static __always_inline bool preempts(const struct amp_slot *s, u32 cpu)
{
	struct amp_cpu *c = cpu_record(cpu);
	u32 index = c->slot;
	struct amp_slot *r;
	u64 now;

	if (index == AMP_UNTRACKED)
		return false;
	r = slot_at(index);
	if (!r || r == s)
		return false;
	/*
	 * It is about to sleep, or whoever wakes up, of no more weight, goes on for long himself and so can wait until the
	 * other has run for a tick: to go on is cheaper than two switches.
	 */
	if (!c->ticked && (r->brief || (!s->brief && s->weight <= r->weight)))
		return false;
	/* each on its own clock: taken from another core type, a thread keeps that one's for a slice */
	now = shared.clock[s->clock & 15];
	if (!time_before(s->vtime + virtual_slice(s) / 2, now) &&
	    (s64)(deadline(s) - now + slice_ns / 4) >= (s64)(deadline(r) - shared.clock[r->clock & 15]))
		return false;
	c->ticked = 1;
	return true;
}

/*
 * Whether @p, which wakes up, belongs on @cpu's core type and runs there at once: the CPU itself and
 * not its queue, whose first thread may be another one.
 */
static bool wakes_on(const struct task_struct *p, struct amp_slot *s, u32 cpu)
{
	u32 want = placement_of(s), type = type_of(cpu);

	if (want < nr_types && nearest_type(want, s->allowed) != type)
		return false;
	if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr) || scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) ||
	    taken_away(cpu))
		return false;
	set_clock(s, clock_for(type), true);
	return preempts(s, cpu);
}

/*
 * Whether choose_queue() has a thread placed elsewhere give way to @p. One that is in nobody's way
 * here must not count: on a machine with more work than fast CPUs there is nearly always one.
 */
static __always_inline bool displaces(const struct task_struct *p, const struct amp_slot *s)
{
	u32 want = placement_of(s);

	if (!shared.foreign || (shared.fallback && want >= nr_types))
		return false;
	return foreign_cpu_for(p, want, s->allowed, false) >= 0;
}

/*
 * Makes the CPUs of @type that are idle or about to be look at their queues. Costs little for those
 * that are not.
 */
__noinline int kick_idle(u32 type)
{
	u32 cpu;

	bpf_for(cpu, 0, nr_cpus)
		if (type_of(cpu) == type)
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return 0;
}

/* Wakes a CPU that has gone idle since the search for one and that may take @p from queue @q. */
static __always_inline void rouse(struct task_struct *p, const struct amp_slot *s, u32 q)
{
	s32 cpu;

	/* whoever takes an unplaced thread may be of any type */
	if (placement_of(s) >= nr_types)
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	else
		cpu = idle_cpu_of(p, cpu_of_task(p), 0, queue_type[q & 63], 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, 0);
}

/* Threads in a queue from which on turns are shorter: the kernel takes a wait of ten seconds for a stall, and ends us. */
#define CROWD 256
/* Bit q: so many wait in queue q, by the timer's last look. */
static u64 crowds;

/* How long a thread from queue @q runs before others there have their turn; a tick ends it. */
static __always_inline u64 turn_in(u64 q)
{
	return crowds & 1ULL << (q & 63) ? slice_ns / 4 : slice_ns;
}

/*
 * Where a thread without a slot of its own queues: behind where it was by what it has used of its
 * slice, and not further behind the clock than others.
 */
static __always_inline u64 untracked_vtime(const struct task_struct *p, u64 q, u32 type)
{
	u64 left = p->scx.slice, all = turn_in(q), used = left < all ? all - left : 0, weight = p->scx.weight ?: 1;
	u64 clock = shared.clock[clock_for(type) & 15];
	u64 vtime = key_vtime(p->scx.dsq_vtime, clock) + used * 100 / weight;
	u64 least = clock - slice_ns, most = least + MAX_LEAD * slice_ns;

	if (time_before(vtime, least))
		return least;
	return time_before(most, vtime) ? most : vtime;
}

/*
 * Whether @p must not leave its CPU for now: it has disabled migration. BPF's own entry disables it
 * too, for the current thread; twice when a higher class takes the CPU from that thread, because
 * amp_cpu_release() leads to amp_enqueue().
 */
static __always_inline bool stuck(const struct task_struct *p, u64 enq_flags)
{
	u32 own = enq_flags & SCX_ENQ_REENQ && !enq_immed ? 2 : 1;

	if (p != bpf_get_current_task_btf() || !__scx_prolog_disables_migration)
		return true;
	return p->migration_disabled > own;
}

#define NOBODY (~0ULL >> 1)

/* The clock of queue @q. */
static __always_inline u32 clock_of(u64 q)
{
	return q == AMP_FAIR_QUEUE ? AMP_FAIR_CLOCK : queue_type[q & 63] & (AMP_MAX_TYPES - 1);
}

/* The deadline of the first thread of @q, NOBODY if it is empty. */
static u64 head_of(u64 q)
{
	struct task_struct *p;
	u64 at = NOBODY;

	bpf_for_each(scx_dsq, p, q, 0) {
		at = key_vtime(p->scx.dsq_vtime, shared.clock[clock_of(q) & 15]);
		break;
	}
	return at;
}

/*
 * Bit q: somebody may wait in queue q. Looking there costs much at every switch between two threads
 * that yield. A bit that is cleared while a thread is on its way is set again by the timer.
 */
u64 waiting;

/*
 * Whether the turn of somebody who waits in the queue of @cpu is before that of @p, which may run
 * there only. What goes to a CPU directly is before all queues, and while there is any the kernel
 * asks for nothing else: two threads that wake each other up by turns, and so never wait, would
 * keep everybody else from that CPU.
 */
__noinline bool others_first(const struct task_struct *p __arg_trusted, u32 index, u32 cpu)
{
	struct amp_slot *s = slot_at(index);
	u32 clock = clock_for(type_of(cpu));
	u64 q = clock == AMP_FAIR_CLOCK ? AMP_FAIR_QUEUE : queue_of(cpu);

	if (!s || !(waiting & 1ULL << (q & 63)))
		return false;
	if (!scx_bpf_dsq_nr_queued(q)) {
		__sync_fetch_and_and(&waiting, ~(1ULL << (q & 63)));
		return false;
	}
	if (index == AMP_UNTRACKED)
		return true;
	fold(p, s);
	set_clock(s, clock, false);
	return time_before(head_of(q), deadline(s));
}

/*
 * Has @p, whose state was @was, wait until its group may run again, if it has had all its time. Not one that has disabled
 * migration: others may wait for what it does. Nor one that was let go and comes back before it has run. Whoever is held and comes
 * back, because his affinity or his weight changed, has waited all that time.
 */
static __always_inline bool hold(struct task_struct *p, struct amp_slot *s, u32 was, u64 enq_flags)
{
	u32 limit;
	u64 now;

	if (!shared.limited || !s->limit || was == AMP_LET_GO || was == AMP_OVERDUE || leaves(p))
		return false;
	fold(p, s);
	follow_group(p, s);
	/* once: user space may write it */
	limit = READ_ONCE(s->limit);
	now = now_ns();
	if (!limit || !exhausted(limit, now))
		return false;
	if (was != AMP_HELD) {
		s->queued_at = now;
	} else if (elapsed(now, s->queued_at) >= MAX_HELD_NS) {
		s->state = AMP_OVERDUE;
		return false;
	}
	s->state = AMP_HELD;
	s->placed_at = 0;
	/* before it can be found there: the timer must not rest meanwhile, or is started again */
	__sync_lock_test_and_set(&shared.holding, HELD_LATELY);
	keep_watch();
	scx_bpf_dsq_insert(p, AMP_HELD_QUEUES + limit, slice_ns, enq_flags);
	return true;
}

void BPF_STRUCT_OPS(amp_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 index = slot_index(p), cpu = cpu_of_task(p), q, was;
	struct amp_slot *s = slot_at(index);
	s32 idle, victim;
	u64 vtime;

	if (!s)
		return;
	keep_watch();
	was = s->state;
	if (was != AMP_LET_GO && was != AMP_OVERDUE)
		s->state = AMP_QUEUED;
	if (p->migration_disabled && stuck(p, enq_flags)) {
		if (index != AMP_UNTRACKED)
			fold(p, s);
		scx_bpf_dsq_insert(p, dsq_local(), slice_ns, enq_flags);
		return;
	}
	if (hold(p, s, was, enq_flags))
		return;
	/*
	 * From amp_cpu_release(), where the kernel's search below takes the thread for one that
	 * cannot migrate, see stuck().
	 */
	if (!enq_immed && enq_flags & SCX_ENQ_REENQ) {
		idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (idle >= 0) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | idle, slice_ns, enq_flags);
			return;
		}
	}

	/*
	 * A thread with one CPU has nothing to choose. Waking up or yielding it goes straight to
	 * that CPU's own queue, which is in order of arrival and comes before all others, unless
	 * somebody else's turn is before its own; having used up its time it waits its turn like
	 * everybody else.
	 */
	if (p->nr_cpus_allowed == 1 && (enq_flags & enq_wakeup() || !cpu_record(cpu)->ticked)) {
		bool local = true;

		if (enq_flags & enq_wakeup()) {
			s->placed_at = 0;
			/* the kernel's own work for this CPU does not wait for a slice to end */
			if (p->flags & PF_KTHREAD) {
				enq_flags |= SCX_ENQ_PREEMPT;
			} else if (index != AMP_UNTRACKED) {
				/* amp_select_cpu() is not asked for such a thread */
				s->brief = p->se.sum_exec_runtime - s->burst_start < short_run_ns / 4;
				s->burst_start = p->se.sum_exec_runtime;
				fold(p, s);
				set_clock(s, clock_for(type_of(cpu)), true);
				if (preempts(s, cpu))
					enq_flags |= SCX_ENQ_PREEMPT;
				else
					local = !ahead(s);
			}
		}
		if (local && waiting && !(enq_flags & SCX_ENQ_PREEMPT) && !(p->flags & PF_KTHREAD))
			local = !others_first(p, index, cpu);
		if (local) {
			scx_bpf_dsq_insert(p, dsq_local(), slice_ns, enq_flags);
			return;
		}
	}
	if (index != AMP_UNTRACKED)
		fold(p, s);
	/*
	 * the CPU is about to go idle for want of anything else: have it look once more at what may
	 * have come meanwhile
	 */
	if (enq_flags & enq_last()) {
		/* or leaves it for a faster one that nobody uses */
		if (index != AMP_UNTRACKED && placement_of(s) == type_of(cpu)) {
			idle = lent_cpu(p, type_of(cpu), true);
			if (idle >= 0) {
				scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | idle, slice_ns, enq_flags | enq_immed);
				return;
			}
		}
		scx_bpf_kick_cpu(cpu, 0);
	}
	/*
	 * Whoever waits and may no longer use his CPU is about to be moved off it by the kernel, and queues there: a CPU
	 * claimed for him now would be forgotten, and taken for busy.
	 */
	if (!__COMPAT_is_enq_cpu_selected(enq_flags) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
		/*
		 * Woken up before it had left its CPU, which is left to that CPU: amp_select_cpu() is
		 * not asked. A waker that waited for the switch would burn as much time as it takes.
		 */
		bool short_run = enq_flags & enq_wakeup() && p->nr_cpus_allowed > 1 && note_wakeup(p, s);

		idle = pick_idle(p, index, cpu, 0, short_run);
		if (idle >= 0) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | idle, slice_ns, enq_flags | enq_immed);
			return;
		}
	}
	if (!shared.crowded)
		shared.crowded = 1;
	/* no CPU is idle: it may run where it ran last, unless a thread placed elsewhere is in its way */
	if (enq_flags & enq_wakeup() && index != AMP_UNTRACKED && !displaces(p, s) && wakes_on(p, s, s->cpu)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | s->cpu, slice_ns, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	q = choose_queue(p, s, index, cpu, enq_flags & enq_wakeup(), &victim);
	s->queued_at = now_ns();
	if (!shared.backlog_since[q & 63])
		shared.backlog_since[q & 63] = s->queued_at;
	if (!(waiting & 1ULL << (q & 63)))
		__sync_fetch_and_or(&waiting, 1ULL << (q & 63));
	count(cpu, nr_queued);
	vtime = deadline(s);
	/* on its way to another core type: at once, whatever its turn */
	if (s->placed_at || s->rotation != AMP_ANY)
		vtime = shared.clock[s->clock & 15] - 2 * slice_ns;
	/* untracked: charged for the part of its slice that is gone */
	if (index == AMP_UNTRACKED)
		vtime = untracked_vtime(p, q, queue_type[q & 63]);
	scx_bpf_dsq_insert_vtime(p, q, turn_in(q), queue_key(vtime, index), enq_flags);
	if (victim >= 0)
		scx_bpf_kick_cpu(victim, SCX_KICK_PREEMPT);
	/*
	 * A CPU may have found the queue empty a moment ago and be going idle now. A thread on its
	 * way to another core type is in a hurry, so all of them are asked; otherwise only one that
	 * has gone idle by now, and the timer catches the rest. Its own CPU needs no kick: a
	 * wake-up has the kernel reschedule it if it is idle, and otherwise it is switching now.
	 */
	if (s->placed_at || s->rotation != AMP_ANY) {
		kick_idle(queue_type[q & 63]);
	} else {
		if (!(enq_flags & enq_wakeup()) && cpu != bpf_get_smp_processor_id())
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		if (victim < 0 && p->nr_cpus_allowed > 1)
			rouse(p, s, q);
	}
}

#endif
