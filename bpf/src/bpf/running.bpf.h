/* SPDX-License-Identifier: GPL-2.0-only */
/* What is noted of a thread when it begins to run, and at each tick. */
#ifndef __AMP_RUNNING_H
#define __AMP_RUNNING_H

/*
 * The first run after a switch of core type: a swap took effect, or a thread was taken by a CPU of
 * another type. @leaves: it may go to another CPU.
 */
static __noinline int note_placement(struct amp_slot *s, u32 cpu, u32 type, bool leaves)
{
	u32 want;
	bool instead = false;
	struct amp_cpu *c = cpu_record(cpu);

	if (!s)
		return 0;
	want = placement_of(s);
	/* its affinity may exclude that type: then it belongs where it can be, and is in nobody's way */
	if (want < nr_types)
		want = nearest_type(want, s->allowed);
	/* nor where nobody serves that type */
	if (want < nr_types && want != type && closed_queues() && closed_type(want)) {
		want = type;
		instead = true;
	}
	c->foreign = 0;
	if (want < nr_types && want != type) {
		c->foreign = 1;
		s->nr_stolen++;
		if (want > type)
			c->nr_lent++;
		__sync_fetch_and_or(&shared.foreign, 1U << (type & (AMP_MAX_TYPES - 1)));
		/*
		 * its own work arrived while the CPU was reaching for this, which can leave: what cannot would be
		 * here again at once
		 */
		if (leaves && waits_for(queue_of(cpu), cpu))
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	} else if (instead) {
		s->placed_at = 0;
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
	c->ticked = 0;
	keep_watch();
	/* the queue was not as long yet when he came, or his slice is from elsewhere: from his group's limit, or from here, where he went on */
	if (crowds && p->scx.slice > turn_in(clock_for(type) == AMP_FAIR_CLOCK ? AMP_FAIR_QUEUE : queue_of(cpu)))
		scx_bpf_task_set_slice(p, slice_ns / 4);
	if (index == AMP_UNTRACKED) {
		c->foreign = 0;
		return;
	}
	fold(p, s);
	s->cpu = cpu;
	s->core_type = type;
	if (s->state == AMP_LET_GO)
		settle(s);
	/*
	 * its group has had the rest of its time while it waited: it goes, and waits again, unless it cannot be held and would be back
	 * at once
	 */
	else if (s->state != AMP_OVERDUE && !p->migration_disabled && held(p, s))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	s->state = AMP_BEGAN;
	advance_clock(s);
	if (s->placed_at || c->foreign || s->placement != AMP_ANY || s->rotation != AMP_ANY)
		note_placement(s, cpu, type, !p->migration_disabled);
}

/* Threads that never stop must show up too. */
void BPF_STRUCT_OPS(amp_tick, struct task_struct *p)
{
	u32 index = slot_index(p), cpu = cpu_of_task(p);
	struct amp_slot *s = slot_at(index);
	struct amp_cpu *c = cpu_record(cpu);
	bool again = c->ticked;

	/* take_back() may have cleared it just as this thread began */
	c->slot = index;
	c->ticked = 1;
	keep_watch();
	repeat_clock(c, cpu);
	if (!s || index == AMP_UNTRACKED)
		return;
	/* not any more, whatever its last burst was */
	s->brief = 0;
	/* it was there before us, or they could not be read */
	if (!s->arguments)
		s->arguments = own_arguments(s->pid);
	fold(p, s);
	follow_group(p, s);
	if (held(p, s))
		scx_bpf_task_set_slice(p, 0);
	if (!s->announced || overslept())
		announce(s);
	/*
	 * whoever is at his first tick was charged by a switch not long ago, and will be by another
	 */
	if (may_count && again)
		count_tick(cpu, index, p->se.sum_exec_runtime);
	if ((s->clock == AMP_FAIR_CLOCK) != !!shared.fallback)
		set_clock(s, clock_for(s->core_type), false);
}

#endif
