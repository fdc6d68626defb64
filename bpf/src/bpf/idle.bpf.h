/* SPDX-License-Identifier: GPL-2.0-only */
/* Finding an idle CPU: on the thread's own core type first, then where it does no harm. */
#ifndef __AMP_IDLE_H
#define __AMP_IDLE_H

/* The core type a thread belongs on now, or AMP_ANY. */
static __always_inline u32 placement_of(const struct amp_slot *s)
{
	return shared.fallback ? s->rotation : s->placement;
}

/*
 * Claims an idle CPU of @type that @p may use; -EBUSY if there is none. @flags: SCX_PICK_IDLE_CORE
 * asks for a core of which no thread is busy; without, such a core is taken first.
 */
static s32 idle_cpu_of(struct task_struct *p, s32 prev_cpu, u64 wake_flags, u32 type, u64 flags)
{
	struct type_mask *m = bpf_map_lookup_elem(&type_masks, &type);

	if (!m || !m->mask)
		return -EBUSY;
	return scx_bpf_select_cpu_and(p, prev_cpu, wake_flags, cast_mask(m->mask), flags);
}

/*
 * A CPU of @type that runs a thread placed elsewhere and that @p may use; -EBUSY if there is none.
 * Who claims it is to displace that thread: nobody else will be told of it.
 */
__noinline s32 foreign_cpu(const struct task_struct *p __arg_trusted, u32 type, bool claim)
{
	bool any = false;
	u32 cpu;

	if (!(shared.foreign & 1 << type))
		return -EBUSY;
	bpf_for(cpu, 0, nr_cpus) {
		struct amp_cpu *c = cpu_record(cpu);

		if (type_of(cpu) != type || !c->foreign || !c->slot)
			continue;
		any = true;
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		if (!claim || __sync_lock_test_and_set(&c->foreign, 0))
			return cpu;
	}
	if (!any)
		__sync_fetch_and_and(&shared.foreign, ~(1U << type));
	return -EBUSY;
}

/*
 * A CPU of a faster type than @type, the one that @p is placed on, that has been idle for a slice
 * and that @p may use; -EBUSY if there is none. It is lent: the CPU's own threads displace @p as soon
 * as one wakes up. For less than a slice a thread does not leave its caches.
 */
static s32 lent_cpu(const struct task_struct *p, u32 type, bool claim)
{
	const struct cpumask *idle;
	s32 found = -EBUSY;
	u64 now;
	u32 cpu;

	if (!shared.lending || shared.fallback || !type)
		return -EBUSY;
	now = now_ns();
	idle = smt ? scx_bpf_get_idle_smtmask() : scx_bpf_get_idle_cpumask();
	bpf_for(cpu, 0, nr_cpus) {
		struct amp_cpu *c = cpu_record(cpu);

		if (type_of(cpu) >= type || c->slot || elapsed(now, c->idle_since) < slice_ns)
			continue;
		if (!bpf_cpumask_test_cpu(cpu, idle) || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		if (claim && !scx_bpf_test_and_clear_cpu_idle(cpu))
			continue;
		found = cpu;
		break;
	}
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/*
 * A placed thread: its own type, then faster ones (they have nothing better to do), then, if it
 * runs only for moments, slower ones too. An unplaced thread: any, fastest first, but none slower
 * than one that it can take from a thread placed elsewhere.
 */
static __always_inline s32 pick_idle_with(struct task_struct *p, const struct amp_slot *s, s32 prev_cpu,
					  u64 wake_flags, bool short_run, u64 flags)
{
	u32 want = placement_of(s), t;
	s32 cpu;

	if (want < nr_types && s->allowed & 1 << want) {
		cpu = idle_cpu_of(p, prev_cpu, wake_flags, want, flags);
		if (cpu >= 0)
			return cpu;
	} else {
		want = AMP_ANY;
	}
	bpf_for(t, 0, nr_types) {
		if (t == want || !(s->allowed & 1 << t))
			continue;
		if (t > want && !short_run) {
			/*
			 * a slow core for itself is better than a part of a fast one, unless somebody
			 * has a fast one who belongs elsewhere
			 */
			if (!flags || foreign_cpu(p, want, false) >= 0)
				break;
		} else if (smt && !flags && want != AMP_ANY && !short_run) {
			/*
			 * two that change places would both end up on a part of the fast core: it
			 * waits for the moment until the other has gone
			 */
			continue;
		}
		cpu = idle_cpu_of(p, prev_cpu, wake_flags, t, flags);
		if (cpu >= 0)
			return cpu;
		if (want == AMP_ANY && !short_run && foreign_cpu(p, t, false) >= 0)
			break;
	}
	return -EBUSY;
}

/* Hardware threads of a core that are looked at: POWER has eight. */
#define MAX_SIBLINGS 8

/*
 * Claims another CPU of the core of @prev_cpu for @p, which may stay on that core type; -EBUSY if
 * there is none. Whoever makes way for a moment's work of the kernel's own keeps his core and its
 * caches so.
 */
static s32 idle_sibling(const struct task_struct *p, const struct amp_slot *s, u32 prev_cpu)
{
	u32 want = placement_of(s), other = prev_cpu, i;

	if (want < nr_types && s->allowed & 1 << want && type_of(prev_cpu) != want)
		return -EBUSY;
	/* itself first: it may have gone idle while another thread of the core is busy */
	bpf_for(i, 0, MAX_SIBLINGS) {
		if (bpf_cpumask_test_cpu(other, p->cpus_ptr) && scx_bpf_test_and_clear_cpu_idle(other))
			return other;
		other = cpu_sibling[other & (AMP_MAX_CPUS - 1)];
		if (other == prev_cpu)
			break;
	}
	return -EBUSY;
}

/* As pick_idle_with(); with SMT whole cores of any type before a CPU that shares its core with a busy one. */
__noinline s32 pick_idle(struct task_struct *p __arg_trusted, u32 index, s32 prev_cpu, u64 wake_flags, bool short_run)
{
	const struct amp_slot *s = slot_at(index);
	u32 want;
	s32 cpu;

	if (!s)
		return -EBUSY;
	want = placement_of(s);
	if (smt) {
		cpu = pick_idle_with(p, s, prev_cpu, wake_flags, short_run, SCX_PICK_IDLE_CORE);
		if (cpu >= 0)
			return cpu;
		/* choose_queue() has who belongs elsewhere give way */
		if (want < nr_types && s->allowed & 1 << want && !short_run && foreign_cpu(p, want, false) >= 0)
			return -EBUSY;
		cpu = idle_sibling(p, s, prev_cpu);
		if (cpu >= 0)
			return cpu;
	}
	return pick_idle_with(p, s, prev_cpu, wake_flags, short_run, 0);
}

/*
 * Whether @p, which runs on @cpu, could have a core for itself, of any type, instead of sharing this
 * one with a thread of ours on another of its CPUs: one that has been running for a tick, because
 * nobody leaves a core for a moment's work.
 */
static bool core_is_free_for(const struct task_struct *p, u32 cpu)
{
	const struct cpumask *idle;
	u32 other = cpu, i;
	bool found = false;

	idle = scx_bpf_get_idle_cpumask();
	bpf_for(i, 1, MAX_SIBLINGS) {
		other = cpu_sibling[other & (AMP_MAX_CPUS - 1)];
		if (other == cpu)
			break;
		if (cpu_record(other)->slot && cpu_record(other)->ticked && !bpf_cpumask_test_cpu(other, idle)) {
			found = true;
			break;
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	if (!found)
		return false;
	idle = scx_bpf_get_idle_smtmask();
	found = bpf_cpumask_intersects(p->cpus_ptr, idle);
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/*
 * Most wake-ups find the CPU the thread slept on idle and of the right type: one call instead of a
 * search. With SMT the sibling may be busy, so the search has to look for a whole core.
 */
static __always_inline bool claim_prev(const struct amp_slot *s, s32 prev_cpu)
{
	u32 want = placement_of(s);

	if (smt || type_of(prev_cpu) != (want == AMP_ANY ? 0 : want))
		return false;
	return scx_bpf_test_and_clear_cpu_idle(prev_cpu);
}

/*
 * A waker that says it is about to sleep hands its CPU over: no search, no other CPU to wake. Only
 * if both are known for short bursts, because a waker that goes on after all makes the wakee wait;
 * and on one CPU a burst is short only when the two really go by turns. A writer that runs ahead of
 * its reader fills the pipe first, has a long burst, and the reader gets a CPU of its own. Never
 * while somebody waits in a queue: the pair would keep that CPU from everybody else. A CPU faster
 * than the wakee is placed on will do, as it would if it were idle.
 */
static __always_inline bool hand_over(struct task_struct *p, const struct amp_slot *s, s32 cpu, s32 prev_cpu)
{
	u32 want = placement_of(s), waker = cpu_record(cpu)->slot;
	const struct amp_slot *w;

	if (shared.crowded || !s->brief || type_of(cpu) > (want == AMP_ANY ? 0 : want))
		return false;
	/* an interrupt, or a thread that is not ours, promises nothing */
	if (waker == AMP_UNTRACKED || slot_index(bpf_get_current_task_btf()) != waker)
		return false;
	w = slot_at(waker);
	if (!w || !w->brief || (cpu != prev_cpu && !bpf_cpumask_test_cpu(cpu, p->cpus_ptr)))
		return false;
	return !scx_bpf_dsq_nr_queued(dsq_local());
}

/* Notes that @p wakes up; returns whether it is known to run only for moments. */
static __always_inline bool note_wakeup(const struct task_struct *p, struct amp_slot *s)
{
	u64 exec = p->se.sum_exec_runtime, burst;

	/* of a new thread nothing is known: not that it is a short runner, either */
	burst = s->state == AMP_NEW ? short_run_ns : exec - s->burst_start;
	s->burst_start = exec;
	s->brief = burst < short_run_ns / 4;
	/* it slept before its turn on a new core type: there is no latency to measure */
	s->placed_at = 0;
	if (slot_index(p) != AMP_UNTRACKED)
		forget_sleep(s);
	return burst < short_run_ns;
}

s32 BPF_STRUCT_OPS(amp_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	u32 index = slot_index(p);
	struct amp_slot *s = slot_at(index);
	s32 cpu = bpf_get_smp_processor_id();
	bool short_run;
	u64 immed = 0;

	if (!s)
		return prev_cpu;
	/*
	 * its affinity has changed while it slept: the CPU must not be claimed for it, for the kernel would put it elsewhere, and
	 * nobody would wake that CPU
	 */
	if (p->nr_cpus_allowed < nr_cpus && !bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr)) {
		s32 other = bpf_cpumask_any_distribute(p->cpus_ptr);

		if (other >= 0 && other < nr_cpus)
			prev_cpu = other;
	}
	short_run = note_wakeup(p, s);
	/* amp_enqueue() has it wait */
	if (held(p, s))
		return prev_cpu;
	if (!(wake_flags & wake_sync()) || !hand_over(p, s, cpu, prev_cpu)) {
		if (claim_prev(s, prev_cpu)) {
			cpu = prev_cpu;
		} else {
			/*
			 * not SCX_WAKE_SYNC, which here was refused or not said: the kernel's own
			 * search would hand the waker's CPU over all the same
			 */
			cpu = pick_idle(p, index, prev_cpu, wake_flags & ~wake_sync(), short_run);
			if (cpu < 0)
				return prev_cpu;
		}
		immed = enq_immed;
	}
	s->state = AMP_QUEUED;
	scx_bpf_dsq_insert(p, dsq_local(), slice_ns, immed);
	return cpu;
}

#endif
