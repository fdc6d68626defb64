/* SPDX-License-Identifier: GPL-2.0-only */
/* User space's commit: whoever waits moves to the queue that he belongs in now, and whoever runs elsewhere is told. */
#ifndef __AMP_COMMIT_H
#define __AMP_COMMIT_H

static __always_inline u64 queue_id(u32 i)
{
	return i < nr_queues ? i : AMP_FAIR_QUEUE;
}

/* Wakes an idle CPU of each core type in @types, where there is one, to look at its queues. */
__noinline int wake_idle(u32 types)
{
	u32 t;

	bpf_for(t, 0, nr_types) {
		struct type_mask *m;
		s32 cpu = -1;
		u32 key = t;

		if (!(types & 1 << t))
			continue;
		m = bpf_map_lookup_elem(&type_masks, &key);
		bpf_rcu_read_lock();
		if (m && m->mask)
			cpu = scx_bpf_pick_idle_cpu(cast_mask(m->mask), 0);
		bpf_rcu_read_unlock();
		if (cpu >= 0)
			scx_bpf_kick_cpu(cpu, 0);
	}
	return 0;
}

#define STAYS 0xff

/*
 * The queue that the thread of slot @index, waiting in @q, belongs in; STAYS if it is there
 * already.
 */
__noinline u32 destination(u32 index, u32 q)
{
	struct amp_slot *s = slot_at(index);
	u32 want, type, to;

	if (!s || index == AMP_UNTRACKED)
		return STAYS;
	want = placement_of(s);
	/* unplaced: stay, or on the way out of the fallback go where it ran last */
	if (want >= nr_types)
		want = q == AMP_FAIR_QUEUE ? s->core_type : queue_type[q & 63];
	type = nearest_type(want, s->allowed);
	if (type >= nr_types || (q != AMP_FAIR_QUEUE && type == queue_type[q & 63]))
		return STAYS;
	to = queue_near(type, s->cpu, index);
	if (closed_queues() & 1ULL << (to & 63)) {
		/* nobody serves the fair queue any more, either */
		if (q != AMP_FAIR_QUEUE)
			return STAYS;
		to = open_queue(to, s->allowed);
		type = queue_type[to & 63];
	}
	set_clock(s, type, false);
	return to;
}

/* Moves the waiting threads of @q that belong elsewhere; returns whether there were any. */
__noinline bool sort_queue(u64 q)
{
	struct task_struct *p;
	bool moved = false;
	u32 seen = 0;

	if (!scx_bpf_dsq_nr_queued(q))
		return false;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, q, 0) {
		u32 index = slot_index(p), to = destination(index, q);
		struct amp_slot *s = slot_at(index);

		seen++;
		__sink(seen);
		if (seen > MAX_SCAN)
			break;
		if (to == STAYS || !s)
			continue;
		to = reachable_queue(p, to);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, queue_key(deadline(s), index));
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, to, 0);
		moved = true;
	}
	bpf_rcu_read_unlock();
	return moved;
}

/* Sets clock @c to what clock @other shows if that is later. */
static __always_inline void bring_clock(u32 c, u32 other)
{
	u64 at = shared.clock[other & 15];

	if (time_before(shared.clock[c & 15], at))
		shared.clock[c & 15] = at;
}

/*
 * User space has written placements into the slots: let them take effect now. Waiting threads
 * change queues; CPUs that run a thread placed elsewhere since the last commit reschedule.
 */
SEC("syscall")
int amp_commit(void *ctx)
{
	bool resumed = shared.fallback;
	bool moved = false;
	u32 i, cpu;

	shared.heartbeat = bpf_ktime_get_ns();
	/* whom it has sent to a core type waits there by its clock */
	if (resumed)
		bpf_for(i, 0, nr_types)
			bring_clock(i, AMP_FAIR_CLOCK);
	shared.fallback = 0;
	shared.nr_commits++;
	bpf_for(i, 0, nr_queues)
		moved |= sort_queue(i);
	if (resumed)
		moved |= sort_queue(AMP_FAIR_QUEUE);
	if (moved)
		wake_idle(~0U);
	bpf_for(cpu, 0, nr_cpus) {
		struct amp_cpu *c = cpu_record(cpu);
		struct amp_slot *s;

		if (!c->slot)
			continue;
		s = slot_at(c->slot);
		if (!s || s->cpu != cpu)
			continue;
		if (s->placement >= nr_types || s->placement == type_of(cpu) || !(s->allowed & 1 << s->placement))
			continue;
		if (!s->placed_at && !resumed)
			continue;
		c->nr_kicks++;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	return 0;
}

#endif
