/* SPDX-License-Identifier: GPL-2.0-only */
/* Who was held for his control group's limit goes on: limits.bpf.h has what the limit is, placement.bpf.h who is held. */
#ifndef __AMP_RELEASE_H
#define __AMP_RELEASE_H

/*
 * The queue for the thread of slot @index, which waits for limit @i and may go on: there is time for a slice of its, which is put aside,
 * or it has waited too long, or is on its way out (@gone). It has saved up no virtual time meanwhile. STAYS if it has to wait.
 */
__noinline u32 queue_after_hold(u32 index, u32 i, bool gone, u64 now)
{
	struct amp_slot *s = slot_at(index);
	u64 clock, waited;
	bool paid;
	u32 to;

	if (!s)
		return STAYS;
	waited = elapsed(now, s->queued_at);
	paid = !exhausted(i, now);
	if (!paid && !gone && waited < MAX_HELD_NS)
		return STAYS;
	to = destination(index, AMP_FAIR_QUEUE);
	if (shared.fallback && placement_of(s) >= nr_types) {
		to = AMP_FAIR_QUEUE;
		set_clock(s, AMP_FAIR_CLOCK, true);
	} else if (to == STAYS) {
		to = queue_of(s->cpu);
	}
	clock = shared.clock[s->clock & 15];
	if (time_before(s->vtime, clock))
		s->vtime = clock;
	/* to the kernel both waits are one */
	s->queued_at = waited > MAX_HELD_NS / 2 ? now - MAX_HELD_NS / 2 : now;
	s->state = paid ? AMP_LET_GO : AMP_OVERDUE;
	if (paid)
		charge(s->limit, slice_ns);
	return to;
}

/*
 * Lets as many go on who wait for limit @i as it has a slice for, each into the queue that it would be in, and everybody who is on his
 * way out. Returns the core types of these queues.
 */
__noinline u32 let_go(u32 i, u64 now)
{
	struct task_struct *p;
	u32 seen = 0, types = 0;

	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, AMP_HELD_QUEUES + i, 0) {
		u32 index = slot_index(p), to;
		struct amp_slot *s = slot_at(index);

		seen++;
		__sink(seen);
		if (seen > MAX_SCAN)
			break;
		to = queue_after_hold(index, i, leaves(p), now);
		if (to == STAYS || !s)
			continue;
		if (to != AMP_FAIR_QUEUE)
			to = reachable_queue(p, to);
		types |= 1 << (queue_type[to & 63] & (AMP_MAX_TYPES - 1));
		__sync_fetch_and_or(&waiting, 1ULL << (to & 63));
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, queue_key(deadline(s), index));
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, to, 0);
	}
	bpf_rcu_read_unlock();
	return types;
}

/* The limit whose threads were let go last: others below the same limit are next. */
static u32 served;

/* Lets everybody go whose control group has CPU time again, and has idle CPUs look for them. */
__noinline int let_all_go(u64 now)
{
	u32 types = 0, seen = shared.holding, nr = shared.nr_limits, after = served, n;
	bool any = false;

	if (!seen || nr < 2)
		return 0;
	bpf_for(n, 0, nr - 1) {
		u32 i = 1 + (after + n) % (nr - 1), of;

		if (scx_bpf_dsq_nr_queued(AMP_HELD_QUEUES + i) <= 0)
			continue;
		any = true;
		of = let_go(i, now);
		if (of)
			served = i;
		types |= of;
	}
	/* who is held just now may not be in his queue yet */
	if (any)
		shared.holding = HELD_LATELY;
	else
		__sync_val_compare_and_swap(&shared.holding, seen, seen - 1);
	bpf_for(n, 0, nr_types)
		if (types & 1 << n)
			kick_idle(n);
	return 0;
}

#endif
