/* SPDX-License-Identifier: GPL-2.0-only */
/* Finding an idle CPU: on the thread's own core type first, then where it does no harm. */
#ifndef __AMP_IDLE_H
#define __AMP_IDLE_H

/* The core type a thread belongs on now, or AMP_ANY. */
static __always_inline u32 placement_of(const struct amp_slot *s)
{
	return shared.fallback ? s->rotation : s->placement;
}

/* Claims an idle CPU of @type that @p may use; -EBUSY if there is none. */
static s32 idle_cpu_of(struct task_struct *p, s32 prev_cpu, u64 wake_flags, u32 type)
{
	struct type_mask *m = bpf_map_lookup_elem(&type_masks, &type);

	if (!m || !m->mask)
		return -EBUSY;
	return scx_bpf_select_cpu_and(p, prev_cpu, wake_flags, cast_mask(m->mask), 0);
}

/*
 * A placed thread: its own type, then faster ones (they have nothing better to do), then, if it runs only for moments,
 * slower ones too. An unplaced thread: any, fastest first.
 */
static __always_inline s32 pick_idle(struct task_struct *p, const struct amp_slot *s, s32 prev_cpu,
				     u64 wake_flags, bool short_run)
{
	u32 want = placement_of(s), t;
	s32 cpu;

	if (want < nr_types && s->allowed & 1 << want) {
		cpu = idle_cpu_of(p, prev_cpu, wake_flags, want);
		if (cpu >= 0)
			return cpu;
	} else {
		want = AMP_ANY;
	}
	bpf_for(t, 0, nr_types) {
		if (t == want || !(s->allowed & 1 << t))
			continue;
		if (t > want && !short_run)
			break;
		cpu = idle_cpu_of(p, prev_cpu, wake_flags, t);
		if (cpu >= 0)
			return cpu;
	}
	return -EBUSY;
}

/*
 * Most wake-ups find the CPU the thread slept on idle and of the right type: one call instead of a search. With SMT the
 * sibling may be busy, so the search has to look for a whole core.
 */
static __always_inline bool claim_prev(const struct amp_slot *s, s32 prev_cpu)
{
	u32 want = placement_of(s);

	if (smt || type_of(prev_cpu) != (want == AMP_ANY ? 0 : want))
		return false;
	return scx_bpf_test_and_clear_cpu_idle(prev_cpu);
}

s32 BPF_STRUCT_OPS(amp_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct amp_slot *s = slot_of(p);
	u64 exec = p->se.sum_exec_runtime;
	bool short_run;
	s32 cpu;

	if (!s)
		return prev_cpu;
	short_run = exec - s->burst_start < short_run_ns;
	s->burst_start = exec;
	if (claim_prev(s, prev_cpu)) {
		cpu = prev_cpu;
	} else {
		cpu = pick_idle(p, s, prev_cpu, wake_flags, short_run);
		if (cpu < 0)
			return prev_cpu;
	}
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

#endif
