/* SPDX-License-Identifier: GPL-2.0-only */
/* Which thread a CPU runs next. */
#ifndef __AMP_DISPATCH_H
#define __AMP_DISPATCH_H

/* Threads looked at per queue and call; the rest gets its turn at the next one. */
#define MAX_SCAN 64

/* Whether a CPU of @type is idle that @p may use; @idle is the kernel's mask of idle CPUs. */
static bool idle_for(const struct task_struct *p, u32 type, const struct cpumask *idle)
{
	struct type_mask *m = bpf_map_lookup_elem(&type_masks, &type);
	u32 cpu;

	if (!m || !m->mask || !bpf_cpumask_intersects(cast_mask(m->mask), idle))
		return false;
	if (p->nr_cpus_allowed >= nr_cpus)
		return true;
	bpf_for(cpu, 0, nr_cpus)
		if (type_of(cpu) == type && bpf_cpumask_test_cpu(cpu, idle) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			return true;
	return false;
}

/* Whether anybody waits for a CPU of @type. */
static bool somebody_waits(u32 type)
{
	u32 q;

	type &= AMP_MAX_TYPES - 1;
	bpf_for(q, type_queue[type], type_queue[type + 1])
		if (scx_bpf_dsq_nr_queued(q))
			return true;
	return false;
}

/* Whether anybody waits in @q who may run on @cpu. Who is kept on other CPUs is no reason to take this one from anybody. */
static bool waits_for(u64 q, s32 cpu)
{
	struct task_struct *p;
	bool any = false;
	u32 seen = 0;

	if (!scx_bpf_dsq_nr_queued(q))
		return false;
	bpf_for_each(scx_dsq, p, q, 0) {
		seen++;
		__sink(seen);
		if (seen > MAX_SCAN)
			break;
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && !p->migration_disabled) {
			any = true;
			break;
		}
	}
	return any;
}

/*
 * Whether @p, whose slice is over, may go on running on a CPU of @type if nobody has waited longer.
 */
static bool may_stay(struct task_struct *p, struct amp_slot *s, u32 index, u32 type)
{
	u32 want, t, first = 0, end = type, displaceable = shared.foreign;
	const struct cpumask *idle;
	bool better = false;

	if (p->nr_cpus_allowed == 1 || index == AMP_UNTRACKED)
		return true;
	want = placement_of(s);
	if (smt && core_is_free_for(p, cpu_of_task(p)))
		return false;
	if (want < nr_types && s->allowed & 1 << want) {
		if (want == type)
			return lent_cpu(p, type, false) < 0;
		/* on a CPU that is lent to it, until somebody comes who belongs here */
		if (want > type && shared.lending && !shared.fallback && !s->placed_at)
			return !waits_for(queue_of(cpu_of_task(p)), cpu_of_task(p));
		/*
		 * Taken from a backlog, it would go back there. It stays a few slices, for the sake
		 * of its caches, and then takes turns with the others, unless user space has just
		 * sent it or a CPU of its own type is idle.
		 */
		if (want > type || s->placed_at)
			return false;
		/* with SMT it may be here for want of a whole core, and not from a backlog */
		if (elapsed(now_ns(), s->queued_at) > 2 * steal_ns && (!smt || somebody_waits(want)))
			return false;
		first = want;
		end = want + 1;
		/*
		 * who runs there without belonging there leaves by himself, but not what is lent to him, and
		 * with SMT perhaps only to a part of another core
		 */
		if (!shared.lending && !smt)
			displaceable = 0;
	}
	/* unplaced: not here if a faster CPU is idle, or runs what is placed elsewhere */
	if (type == 0)
		return true;
	/* a core whose other thread is busy is not worth it */
	idle = smt ? scx_bpf_get_idle_smtmask() : scx_bpf_get_idle_cpumask();
	bpf_for(t, first, end) {
		if (!(s->allowed & 1 << t))
			continue;
		if ((displaceable & 1 << t && foreign_cpu(p, t, false) >= 0) || idle_for(p, t, idle)) {
			better = true;
			break;
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	return better ? false : true;
}

/*
 * Whether somebody in @q who can run on @cpu comes before the thread of slot @index, which would
 * otherwise go on.
 */
__noinline bool comes_first(u64 q, s32 cpu, u32 index, u32 clock)
{
	struct amp_slot *s = slot_at(index);
	struct task_struct *p;
	bool first = false;
	u32 seen = 0;
	u64 key;

	if (!s)
		return false;
	if (index != AMP_UNTRACKED)
		set_clock(s, clock, false);
	key = queue_key(deadline(s), 0);
	bpf_for_each(scx_dsq, p, q, 0) {
		seen++;
		__sink(seen);
		/*
		 * behind so many who may not, the kernel's own search finds whoever may. Whose turn it is nobody knows then: a
		 * heavy thread does not give way
		 */
		if (seen > MAX_SCAN) {
			first = index == AMP_UNTRACKED || s->weight <= 100;
			break;
		}
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		/* an untracked thread's time is not known until it stops: it gives way */
		first = index == AMP_UNTRACKED || !time_before(key, (p->scx.dsq_vtime & ~SLOT_MASK));
		break;
	}
	return first;
}

/*
 * Whether the bound after which slower CPUs help out is over, or will be before the next timer, for
 * what began @since.
 */
static __always_inline bool steal_due(u64 since, u64 now)
{
	return elapsed(now, since) + timer_ns >= steal_ns;
}

/* Whether somebody has been waiting in @q all that long, be it each for one slice only. */
static __always_inline bool backlog_due(u32 q, u64 now)
{
	u64 since = shared.backlog_since[q & 63];

	return since && steal_due(since, now);
}

/*
 * Whether a CPU of another type than @p waits for may take it now; @any: whatever it is placed on.
 */
static __always_inline bool may_take(const struct task_struct *p, s32 cpu, bool any, u64 now)
{
	const struct amp_slot *s = slot_of(p);

	if (!s || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return false;
	/* on its way there by user space's order */
	if (s->placed_at && elapsed(now, s->queued_at) < slice_ns)
		return false;
	return any || placement_of(s) >= nr_types || steal_due(s->queued_at, now);
}

/*
 * Takes the first thread of @q, another type's queue, that a CPU of this type may have: from a
 * faster type's only one that is unplaced or has waited to the bound, unless the queue has been in
 * use all that time.
 */
__noinline bool take(u32 q, s32 cpu, bool down)
{
	u64 now = now_ns();
	bool any = !down || backlog_due(q, now), taken = false;
	struct task_struct *p;
	u32 seen = 0;

	bpf_for_each(scx_dsq, p, q, 0) {
		seen++;
		__sink(seen);
		if (seen > MAX_SCAN)
			break;
		if (may_take(p, cpu, any, now) && scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, enq_immed)) {
			taken = true;
			break;
		}
	}
	return taken;
}

/* How far a queue may fall behind another one of its type, in slices. */
#define MAX_BEHIND 4

/*
 * Takes a thread from another queue of the same core type if that queue has fallen far behind the
 * deadline @mine: the CPUs behind one cache have more to do than those behind the other. All queues
 * of a type are on one virtual clock.
 */
static bool take_behind(s32 cpu, u32 type, u32 own, u64 mine)
{
	u32 q, first = type_queue[type & (AMP_MAX_TYPES - 1)], end = type_queue[(type & (AMP_MAX_TYPES - 1)) + 1];

	if (nr_queues == nr_types || end - first < 2 || mine == NOBODY)
		return false;
	bpf_for(q, first, end) {
		if (q == own || !scx_bpf_dsq_nr_queued(q))
			continue;
		if (time_before(head_of(q) + MAX_BEHIND * slice_ns, mine) && take(q, cpu, false))
			return true;
	}
	return false;
}

/* The work of other queues, for a CPU whose own are empty. */
static bool take_other(s32 cpu, u32 type, u32 own)
{
	u32 q, first = type_queue[type & (AMP_MAX_TYPES - 1)];

	/* the same type behind other caches, then slower types */
	bpf_for(q, first, nr_queues) {
		if (q != own && scx_bpf_dsq_nr_queued(q) && take(q, cpu, false)) {
			count(cpu, nr_taken_up);
			return true;
		}
	}
	if (!shared.relief)
		return false;
	bpf_for(q, 0, first) {
		if (!(shared.relief & 1ULL << (q & 63)))
			continue;
		if (take(q, cpu, true)) {
			count(cpu, nr_taken_down);
			return true;
		}
		/* nothing to have: no need to look again until the timer or an enqueue says so */
		__sync_fetch_and_and(&shared.relief, ~(1ULL << (q & 63)));
	}
	return false;
}

/* By CPU: bpf_ktime_get_ns() when it last could not have who waits for it; 0: never. */
static u64 refused_at[AMP_MAX_CPUS];

/*
 * Whether @cpu can have nobody of @q, its own queue, although somebody waits there who may run on it.
 * So it is with a CPU that goes offline, from long before we are told of it: the kernel waits for
 * threads in between, and they could be in that queue.
 */
static bool refused(s32 cpu, u32 q)
{
	struct task_struct *p;
	bool may = false;

	bpf_for_each(scx_dsq, p, q, 0) {
		may = bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && !p->migration_disabled;
		break;
	}
	return may;
}

/* Whether none of the CPUs that serve queue @q can. */
__noinline bool nobody_serves(u32 q, u64 now)
{
	/* those that are not there are in the last type's first queue */
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	bool nobody = true;
	u32 cpu;

	bpf_for(cpu, 0, nr_cpus) {
		u64 at = refused_at[cpu & (AMP_MAX_CPUS - 1)];

		if (queue_of(cpu) == q && (!at || elapsed(now, at) > CLOSED_NS) && bpf_cpumask_test_cpu(cpu, online)) {
			nobody = false;
			break;
		}
	}
	scx_bpf_put_cpumask(online);
	return nobody;
}

/* @cpu cannot have who waits in @q, its own queue. */
static void note_refusal(s32 cpu, u32 q)
{
	u64 now = now_ns();

	refused_at[cpu & (AMP_MAX_CPUS - 1)] = now;
	if (!nobody_serves(q, now))
		return;
	shared.closed_at = now;
	if (!(shared.closed & 1ULL << (q & 63)))
		__sync_fetch_and_or(&shared.closed, 1ULL << (q & 63));
}

/* Takes somebody who waits where no CPU can have him. */
static bool take_closed(s32 cpu, u32 own)
{
	u64 closed = closed_queues();
	u32 q;

	/* first come those whom only this CPU serves */
	if (closed & 1ULL << (own & 63))
		return false;
	bpf_for(q, 0, nr_queues)
		if (closed & 1ULL << (q & 63) && q != own && scx_bpf_dsq_nr_queued(q) && take(q, cpu, false))
			return true;
	return false;
}

void BPF_STRUCT_OPS(amp_dispatch, s32 cpu, struct task_struct *prev)
{
	u32 type = type_of(cpu), own = queue_of(cpu), index;
	struct amp_slot *s;

	if (closed_queues() && take_closed(cpu, own))
		return;
	if (prev && prev->scx.flags & SCX_TASK_QUEUED) {
		index = slot_index(prev);
		s = slot_at(index);
		if (s && !held(prev, s) && may_stay(prev, s, index, type)) {
			if (index != AMP_UNTRACKED)
				fold(prev, s);
			if (nr_queues != nr_types && take_behind(cpu, type, own, deadline(s)))
				return;
			if (comes_first(own, cpu, index, clock_for(type)) && scx_bpf_dsq_move_to_local(own, enq_immed))
				return;
			if (shared.fallback && comes_first(AMP_FAIR_QUEUE, cpu, index, AMP_FAIR_CLOCK) &&
			    scx_bpf_dsq_move_to_local(AMP_FAIR_QUEUE, enq_immed))
				return;
			if (index != AMP_UNTRACKED)
				advance_clock(s);
			scx_bpf_task_set_slice(prev, slice_ns);
			return;
		}
	}
	if (nr_queues != nr_types && take_behind(cpu, type, own, head_of(own)))
		return;
	if (scx_bpf_dsq_move_to_local(own, enq_immed))
		return;
	/* whoever was queued in between can be had */
	if (waiting & 1ULL << (own & 63) && scx_bpf_dsq_nr_queued(own) && refused(cpu, own)) {
		if (scx_bpf_dsq_move_to_local(own, enq_immed))
			return;
		if (refused(cpu, own))
			note_refusal(cpu, own);
	}
	if (shared.fallback && scx_bpf_dsq_move_to_local(AMP_FAIR_QUEUE, enq_immed))
		return;
	if (!take_other(cpu, type, own)) {
		cpu_record(cpu)->slot = 0;
		if (shared.lending && type + 1 < nr_types)
			cpu_record(cpu)->idle_since = now_ns();
	}
	/*
	 * A misplaced @prev that finds nothing in exchange goes through amp_enqueue() with
	 * SCX_ENQ_LAST, which moves it to an idle CPU of its own type or to its own queue.
	 */
}

#endif
