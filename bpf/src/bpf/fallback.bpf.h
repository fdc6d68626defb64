/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What happens beside the threads' own paths: user space's commit, and a timer that stands in for it.
 */
#ifndef __AMP_FALLBACK_H
#define __AMP_FALLBACK_H

/* Threads looked at per queue and call; the rest gets its turn at the next one. */
#define MAX_SCAN 64

struct timer_cell {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer_cell);
} timers SEC(".maps");

static __always_inline u64 queue_id(u32 i)
{
	return i < nr_queues ? i : AMP_FAIR_QUEUE;
}

/* Wakes an idle CPU of @type, if there is one, to look at its queues. */
static bool wake_idle(u32 type)
{
	struct type_mask *m = bpf_map_lookup_elem(&type_masks, &type);
	s32 cpu;

	if (!m || !m->mask)
		return false;
	cpu = scx_bpf_pick_idle_cpu(cast_mask(m->mask), 0);
	if (cpu < 0)
		return false;
	scx_bpf_kick_cpu(cpu, 0);
	return true;
}

/* Moves the waiting threads of @q that belong elsewhere. */
static void sort_queue(u64 q)
{
	struct task_struct *p;
	u32 seen = 0;

	if (!scx_bpf_dsq_nr_queued(q))
		return;
	bpf_for_each(scx_dsq, p, q, 0) {
		u32 index = slot_index(p), want, type, to;
		struct amp_slot *s = slot_at(index);

		if (!s || ++seen > MAX_SCAN)
			break;
		if (index == AMP_UNTRACKED)
			continue;
		want = placement_of(s);
		if (want < nr_types)
			type = nearest_type(want, s->allowed);
		else if (q == AMP_FAIR_QUEUE)
			type = shortest_type(s->allowed);
		else
			continue;
		if (type >= nr_types || (q != AMP_FAIR_QUEUE && type == queue_type[q & 63]))
			continue;
		to = queue_near(type, s->cpu, index);
		set_clock(s, type);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, queue_key(s->vtime, index));
		if (scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, to, 0))
			wake_idle(type);
	}
}

/*
 * User space has written placements into the slots: let them take effect now. Waiting threads change queues; CPUs that run
 * a thread placed elsewhere since the last commit reschedule.
 */
SEC("syscall")
int amp_commit(void *ctx)
{
	bool resumed = shared.fallback;
	u32 i, cpu;

	shared.heartbeat = bpf_ktime_get_ns();
	shared.fallback = 0;
	shared.nr_commits++;
	bpf_rcu_read_lock();
	bpf_for(i, 0, nr_queues)
		sort_queue(i);
	if (resumed)
		sort_queue(AMP_FAIR_QUEUE);
	bpf_rcu_read_unlock();
	bpf_for(cpu, 0, nr_cpus) {
		struct amp_cpu *c = cpu_record(cpu);
		struct amp_slot *s;

		if (!c->slot)
			continue;
		s = slot_at(c->slot);
		if (!s || s->cpu != cpu || s->state != AMP_RUNNING)
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

/* The thread that @cpu runs, if it takes part in the fallback's sharing. */
static struct amp_slot *fair_runner(u32 cpu)
{
	struct amp_cpu *c = cpu_record(cpu);
	struct amp_slot *s;

	if (!c->slot)
		return NULL;
	s = slot_at(c->slot);
	if (!s || s->cpu != cpu || s->state != AMP_RUNNING || s->clock != AMP_FAIR_CLOCK || s->rotation != AMP_ANY)
		return NULL;
	return s;
}

/*
 * With no more threads than CPUs nobody ever waits, so virtual time alone equalises nothing. The foremost thread on a
 * faster type and the hindmost on a slower one change places when they are too far apart.
 */
static bool rotate(void)
{
	u32 cpu, fast = ~0U, slow = ~0U;
	u64 most = 0, least = 0;
	struct amp_slot *a, *b;

	bpf_for(cpu, 0, nr_cpus) {
		struct amp_slot *s = fair_runner(cpu);
		u32 type = type_of(cpu);

		if (!s)
			continue;
		if (type + 1 < nr_types && s->allowed >> (type + 1) && (fast == ~0U || time_before(most, s->vtime))) {
			fast = cpu;
			most = s->vtime;
		}
	}
	if (fast == ~0U)
		return false;
	bpf_for(cpu, 0, nr_cpus) {
		struct amp_slot *s = fair_runner(cpu);

		if (!s || type_of(cpu) <= type_of(fast) || !(s->allowed & 1 << type_of(fast)))
			continue;
		if (slow == ~0U || time_before(s->vtime, least)) {
			slow = cpu;
			least = s->vtime;
		}
	}
	if (slow == ~0U || (s64)(most - least) < (s64)rotate_ns)
		return false;
	a = fair_runner(fast);
	b = fair_runner(slow);
	if (!a || !b || !(a->allowed & 1 << type_of(slow)))
		return false;
	a->rotation = type_of(slow);
	b->rotation = type_of(fast);
	scx_bpf_kick_cpu(slow, SCX_KICK_PREEMPT);
	scx_bpf_kick_cpu(fast, SCX_KICK_PREEMPT);
	shared.nr_rotations++;
	return true;
}

/*
 * Looks at the threads that wait in @q: those that a CPU of a slower type may take by now, those that have waited too long
 * altogether (their CPUs may be full of pinned or real-time threads), and those that a CPU gone idle at the wrong moment
 * has overlooked.
 */
static void relieve_queue(u64 q, u32 type, u64 now)
{
	struct task_struct *p;
	bool relief = false;
	u32 seen = 0, t;

	if (!scx_bpf_dsq_nr_queued(q))
		return;
	bpf_for_each(scx_dsq, p, q, 0) {
		struct amp_slot *s = slot_of(p);

		if (!s || ++seen > MAX_SCAN)
			break;
		if (slot_index(p) != AMP_UNTRACKED && time_after(now, s->queued_at + starve_ns)) {
			if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | scx_bpf_task_cpu(p), SCX_ENQ_HEAD)) {
				shared.nr_rescued++;
				break;
			}
		}
		if (placement_of(s) >= nr_types || time_after(now, s->queued_at + steal_ns))
			relief = true;
	}
	wake_idle(type);
	if (q == AMP_FAIR_QUEUE) {
		bpf_for(t, 1, nr_types)
			wake_idle(t);
	} else if (relief && type + 1 < nr_types) {
		__sync_fetch_and_or(&shared.relief, 1ULL << (q & 63));
		bpf_for(t, type + 1, nr_types)
			wake_idle(t);
	}
}

static int amp_timer(void *map, int *key, struct timer_cell *cell)
{
	u64 now = scx_bpf_now(), silent = bpf_ktime_get_ns() - shared.heartbeat;
	u32 i;

	if (heartbeat_ns && !shared.fallback && silent > heartbeat_ns) {
		shared.fallback = 1;
		shared.nr_fallbacks++;
	}
	bpf_rcu_read_lock();
	bpf_for(i, 0, nr_queues)
		relieve_queue(i, queue_type[i & 63], now);
	if (shared.fallback)
		relieve_queue(AMP_FAIR_QUEUE, 0, now);
	else
		sort_queue(AMP_FAIR_QUEUE);
	bpf_rcu_read_unlock();
	if (shared.fallback) {
		bpf_for(i, 0, 4)
			if (!rotate())
				break;
	}
	bpf_timer_start(&cell->timer, timer_ns, 0);
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
