/* SPDX-License-Identifier: GPL-2.0-only */
/* Which queue a thread waits in, and which queue a CPU takes from. */
#ifndef __AMP_PLACEMENT_H
#define __AMP_PLACEMENT_H

/*
 * The functions that are not static are verified once by themselves instead of once for every way to reach them, which
 * keeps loading fast.
 */

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
		load = (u64)nr * type_load[t];
		if (load < best_load) {
			best_load = load;
			best = t;
		}
	}
	return best;
}

/* The nearest type that @allowed has: @want itself, else the next slower one, else the next faster one. */
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

/* Chooses a queue for @p and moves its virtual time to that queue's clock. */
static __always_inline u32 choose_queue(const struct task_struct *p, struct amp_slot *s, u32 index, u32 cpu)
{
	u32 want = placement_of(s), allowed = s->allowed, type, q;

	if (index == AMP_UNTRACKED) {
		want = type_of(cpu);
		allowed = ~0U;
	} else if (shared.fallback && want >= nr_types) {
		set_clock(s, AMP_FAIR_CLOCK);
		return AMP_FAIR_QUEUE;
	}
	type = want < nr_types ? nearest_type(want, allowed) : shortest_type(allowed);
	if (type >= nr_types)
		type = type_of(cpu);
	q = queue_near(type, cpu, index);
	if (index != AMP_UNTRACKED)
		set_clock(s, clock_for(type));
	if (want >= nr_types && type + 1 < nr_types)
		__sync_fetch_and_or(&shared.relief, 1ULL << (q & 63));
	return q;
}

/*
 * A thread that wakes up to busy CPUs of @type takes one that does somebody else's work, or, if it has used less than its
 * share, the one that it ran on last.
 */
static __always_inline void preempt(const struct amp_slot *s, u32 type)
{
	u32 cpu, c = s->clock;

	type &= AMP_MAX_TYPES - 1;
	if (shared.foreign_cpu[type]) {
		cpu = shared.foreign_cpu[type] - 1;
		shared.foreign_cpu[type] = 0;
		if (cpu_record(cpu)->foreign) {
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
			return;
		}
	}
	if (c < AMP_NR_CLOCKS && type_of(s->cpu) == type && time_before(s->vtime + slice_ns / 2, shared.clock[c]))
		scx_bpf_kick_cpu(s->cpu, SCX_KICK_PREEMPT);
}

/* Makes the CPUs of @type that are idle or about to be look at their queues. Costs little for those that are not. */
__noinline int kick_idle(u32 type)
{
	u32 cpu;

	bpf_for(cpu, 0, nr_cpus)
		if (type_of(cpu) == type)
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return 0;
}

void BPF_STRUCT_OPS(amp_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 index, cpu, q, weight = p->scx.weight;
	struct amp_slot *s;
	u64 key;
	s32 idle;

	/*
	 * A thread with one CPU has nothing to choose: straight to that CPU's own queue. That queue is in order of arrival,
	 * so a heavier thread gets a longer turn; a lighter one, whose turn cannot be cut below a tick, waits by virtual time.
	 */
	if (p->nr_cpus_allowed == 1 && (weight >= 100 || p->flags & PF_KTHREAD)) {
		u64 slice = slice_ns;

		if (weight > 100)
			slice = slice * (weight < 2000 ? weight : 2000) / 100;
		if (p->flags & PF_KTHREAD)
			enq_flags |= SCX_ENQ_PREEMPT;
		if (enq_flags & SCX_ENQ_WAKEUP) {
			s = slot_of(p);
			if (s)
				s->state = AMP_QUEUED;
		}
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice, enq_flags);
		return;
	}

	index = slot_index(p);
	s = slot_at(index);
	if (!s)
		return;
	cpu = cpu_of_task(p);
	if (index != AMP_UNTRACKED)
		fold(p, s);
	/* the CPU is about to go idle for want of anything else: have it look once more at what may have come meanwhile */
	if (enq_flags & SCX_ENQ_LAST)
		scx_bpf_kick_cpu(cpu, 0);
	if (!__COMPAT_is_enq_cpu_selected(enq_flags)) {
		idle = pick_idle(p, s, cpu, 0, false);
		if (idle >= 0) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | idle, slice_ns, enq_flags);
			return;
		}
	}
	q = choose_queue(p, s, index, cpu);
	s->queued_at = scx_bpf_now();
	s->state = AMP_QUEUED;
	count(cpu, nr_queued);
	/* untracked: charged for the part of its slice that is gone */
	key = index ? queue_key(s->vtime, index) :
		      p->scx.dsq_vtime + ((slice_ns - p->scx.slice) >> 8 << AMP_SLOT_BITS);
	scx_bpf_dsq_insert_vtime(p, q, slice_ns, key, enq_flags);
	if (enq_flags & SCX_ENQ_WAKEUP)
		preempt(s, queue_type[q & 63]);
	/*
	 * A CPU may have found the queue empty a moment ago and be going idle now. A thread on its way to another core type
	 * is in a hurry, so all of them are asked; otherwise only the likeliest, and the timer catches the rest.
	 */
	if (s->placed_at || s->rotation != AMP_ANY)
		kick_idle(queue_type[q & 63]);
	else
		scx_bpf_kick_cpu(s->cpu, SCX_KICK_IDLE);
}

/* Threads looked at per queue and call; the rest gets its turn at the next one. */
#define MAX_SCAN 64

/* Whether @p, whose slice is over, may go on running on a CPU of @type if nobody has waited longer. */
static bool may_stay(struct task_struct *p, struct amp_slot *s, u32 index, u32 type)
{
	u32 want, t;
	const struct cpumask *idle;
	bool better = false;

	if (p->nr_cpus_allowed == 1 || index == AMP_UNTRACKED)
		return true;
	want = placement_of(s);
	if (want < nr_types && s->allowed & 1 << want)
		return want == type;
	/* unplaced: not here if a faster CPU is idle */
	if (type == 0)
		return true;
	idle = scx_bpf_get_idle_cpumask();
	bpf_for(t, 0, type) {
		u32 key = t;
		struct type_mask *m = bpf_map_lookup_elem(&type_masks, &key);

		if (m && m->mask && s->allowed & 1 << t && bpf_cpumask_intersects(cast_mask(m->mask), idle)) {
			better = true;
			break;
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	return better ? false : true;
}

/* Whether the first thread of @q comes before @s, which would otherwise go on. */
static bool head_first(u32 q, struct amp_slot *s, u32 clock)
{
	struct task_struct *head = __COMPAT_scx_bpf_dsq_peek(q);

	if (!head)
		return false;
	if (s->clock != clock)
		set_clock(s, clock);
	return time_before((head->scx.dsq_vtime & ~SLOT_MASK), queue_key(s->vtime, 0));
}

/* Whether a CPU of another type than @p waits for may take it now. */
static __always_inline bool may_take(const struct task_struct *p, s32 cpu, bool down, u64 now)
{
	const struct amp_slot *s = slot_of(p);

	if (!s || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return false;
	/* on its way there by user space's order */
	if (s->placed_at && now - s->queued_at < slice_ns)
		return false;
	return !down || placement_of(s) >= nr_types || now - s->queued_at >= steal_ns;
}

/*
 * Takes the first thread of @q, another type's queue, that a CPU of this type may have: from a faster type's only one that
 * is unplaced or has waited past the bound.
 */
static bool take(u32 q, s32 cpu, bool down)
{
	u64 now = scx_bpf_now();
	struct task_struct *p;
	bool taken = false;
	u32 seen = 0;

	bpf_for_each(scx_dsq, p, q, 0) {
		seen++;
		__sink(seen);
		if (seen > MAX_SCAN)
			break;
		if (may_take(p, cpu, down, now) && scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0)) {
			taken = true;
			break;
		}
	}
	return taken;
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

void BPF_STRUCT_OPS(amp_dispatch, s32 cpu, struct task_struct *prev)
{
	u32 type = type_of(cpu), own = queue_of(cpu), index;
	struct amp_slot *s;

	if (prev && prev->scx.flags & SCX_TASK_QUEUED) {
		index = slot_index(prev);
		s = slot_at(index);
		if (s && may_stay(prev, s, index, type)) {
			if (index != AMP_UNTRACKED)
				fold(prev, s);
			if (head_first(own, s, clock_for(type)) && scx_bpf_dsq_move_to_local(own, 0))
				return;
			if (shared.fallback && head_first(AMP_FAIR_QUEUE, s, AMP_FAIR_CLOCK) &&
			    scx_bpf_dsq_move_to_local(AMP_FAIR_QUEUE, 0))
				return;
			scx_bpf_task_set_slice(prev, slice_ns);
			return;
		}
	}
	if (scx_bpf_dsq_move_to_local(own, 0))
		return;
	if (shared.fallback && scx_bpf_dsq_move_to_local(AMP_FAIR_QUEUE, 0))
		return;
	take_other(cpu, type, own);
	/*
	 * A misplaced @prev that finds nothing in exchange goes through amp_enqueue() with SCX_ENQ_LAST, which moves it to an
	 * idle CPU of its own type or to its own queue.
	 */
}

/* The first run after a switch of core type: a swap took effect, or a thread was taken by a CPU of another type. */
static __noinline int note_placement(struct amp_slot *s, u32 cpu, u32 type)
{
	u32 want;
	struct amp_cpu *c = cpu_record(cpu);

	if (!s)
		return 0;
	want = placement_of(s);
	c->foreign = 0;
	if (want < nr_types && want != type) {
		c->foreign = 1;
		s->nr_stolen++;
		shared.foreign_cpu[type & (AMP_MAX_TYPES - 1)] = cpu + 1;
		/* its own work arrived while the CPU was reaching for this */
		if (scx_bpf_dsq_nr_queued(queue_of(cpu)))
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	} else if (s->placed_at && want == type) {
		u64 now = bpf_ktime_get_ns();
		u64 n = __sync_fetch_and_add(&shared.nr_latencies, 1);

		shared.latency[n & (AMP_NR_LATENCIES - 1)] = now - s->placed_at;
		s->placed_at = 0;
		s->nr_swaps++;
	}
	s->rotation = AMP_ANY;
	return 0;
}

void BPF_STRUCT_OPS(amp_running, struct task_struct *p)
{
	u32 index = slot_index(p), cpu = cpu_of_task(p), type = type_of(cpu);
	struct amp_slot *s = slot_at(index);
	struct amp_cpu *c = cpu_record(cpu);

	if (!s)
		return;
	c->slot = index;
	if (index == AMP_UNTRACKED) {
		c->foreign = 0;
		return;
	}
	fold(p, s);
	s->cpu = cpu;
	s->core_type = type;
	s->state = AMP_RUNNING;
	if (s->placed_at || c->foreign || s->placement != AMP_ANY || s->rotation != AMP_ANY)
		note_placement(s, cpu, type);
}

void BPF_STRUCT_OPS(amp_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct amp_slot *s;

	if (!(deq_flags & SCX_DEQ_SLEEP))
		return;
	s = slot_of(p);
	if (!s)
		return;
	s->state = AMP_SLEEPING;
	/* it went to sleep before its turn on the new core type: no latency to measure */
	if (s->placed_at)
		s->placed_at = 0;
}

/* Threads that never stop must show up too. */
void BPF_STRUCT_OPS(amp_tick, struct task_struct *p)
{
	u32 index = slot_index(p);
	struct amp_slot *s = slot_at(index);

	if (!s || index == AMP_UNTRACKED)
		return;
	fold(p, s);
	if ((s->clock == AMP_FAIR_CLOCK) != !!shared.fallback)
		set_clock(s, clock_for(s->core_type));
	advance_clock(s);
}

#endif
