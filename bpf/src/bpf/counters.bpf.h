/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hardware counters of threads: what the counters of a CPU went up by while a thread ran there.
 *
 * Perf events count per CPU, each on the PMU of the CPU's core type, and are read once per switch: the difference to the
 * CPU's last reading belongs to the thread that ran meanwhile. A thread that never switches is charged at ticks. The cost of a
 * switch thus depends on the number of events only, not on the number of threads.
 *
 * Perf itself accumulates in 64 bits whatever the width of a hardware counter is.
 *
 * A set of events is a generation. Its events are in one of two banks of the map, so that a switch under way on another CPU
 * still finds those of the generation that it knows; the first reading of a generation on a CPU charges nobody.
 */
#ifndef __AMP_COUNTERS_H
#define __AMP_COUNTERS_H

/* event i of CPU c in bank b: (c * 2 + b) * AMP_MAX_EVENTS + i */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);	/* user space sets the size of both */
	__type(key, u32);
	__type(value, u32);
} events SEC(".maps");

/* of the thread in slot s on core type t: s * nr_types + t */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct amp_counts);
} counts SEC(".maps");

struct amp_counting counting;

/* What a CPU's counters showed last. */
struct amp_meter {
	u64 generation;			/* 0: nothing that a difference could be taken to */
	u64 exec;			/* the running thread's sum_exec_runtime then */
	u64 last[AMP_MAX_EVENTS];
	u64 pad[6];			/* whole cache lines */
} meters[AMP_MAX_CPUS] __attribute__((aligned(64)));

static __always_inline struct amp_counts *counts_of(u32 index, u32 type)
{
	u32 key = index * nr_types + type;

	return bpf_map_lookup_elem(&counts, &key);
}

/* The counter behind @key. Only tracing programs have the cheaper helper, which does not tell whether it counted all along. */
static __always_inline bool read_event(u32 key, u64 *value, bool tracing)
{
	struct bpf_perf_event_value v = {};
	s64 r;

	if (tracing) {
		r = bpf_perf_event_read(&events, key);
		*value = r;
		return r >= 0 || r < -4095;
	}
	if (bpf_perf_event_read_value(&events, key, &v, sizeof(v)))
		return false;
	*value = v.counter;
	if (v.running < v.enabled)
		counting.nr_multiplexed++;
	return true;
}

/* Reads the counters of @cpu, the present one, and charges what they went up by to @c, if not NULL, for @ran ns of CPU time. */
static __always_inline void read_meter(u32 cpu, u64 generation, struct amp_counts *c, u64 ran, bool tracing)
{
	struct amp_meter *m = &meters[cpu & (AMP_MAX_CPUS - 1)];
	u32 bank = generation & 1, first = (cpu * 2 + bank) * AMP_MAX_EVENTS, i;
	u32 nr = counting.nr_events[bank][type_of(cpu)];
	u64 now[AMP_MAX_EVENTS] = {};
	bool known = true;

	if (m->generation != generation)
		c = NULL;
#pragma unroll
	for (i = 0; i < AMP_MAX_EVENTS; i++) {
		if (i < nr && !read_event(first + i, &now[i], tracing))
			known = false;
	}
	if (!known) {
		/* not counting on this CPU: nothing is known of this time, nor of the next */
		m->generation = 0;
		counting.nr_dropped++;
		return;
	}
	if (c && c->generation != generation) {
		c->generation = 0;
		c->counted = 0;
		__builtin_memset(c->value, 0, sizeof(c->value));
		barrier();
		c->generation = generation;
	}
	if (c)
		c->counted += ran;
#pragma unroll
	for (i = 0; i < AMP_MAX_EVENTS; i++) {
		if (i < nr && c)
			c->value[i] += now[i] - m->last[i];
		m->last[i] = now[i];
	}
	m->generation = generation;
}

/* Attached only while something is counted. */
SEC("tp_btf/sched_switch")
int BPF_PROG(amp_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 cpu = bpf_get_smp_processor_id(), index = slot_index(prev);
	struct amp_meter *m = &meters[cpu & (AMP_MAX_CPUS - 1)];
	u64 generation = counting.generation, ran = prev->se.sum_exec_runtime - m->exec;
	struct amp_counts *c = NULL;
	struct amp_slot *s;

	if (!may_count || !generation)
		return 0;
	m->exec = next->se.sum_exec_runtime;
	if (index) {
		/* a thread that is not ours may carry any index */
		s = slot_at(index);
		if (s && s->pid == prev->pid)
			c = counts_of(index, type_of(cpu));
	}
	read_meter(cpu, generation, c, ran, true);
	return 0;
}

/* Charges the running thread. */
static __always_inline void count_tick(const struct task_struct *p, u32 index)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct amp_meter *m = &meters[cpu & (AMP_MAX_CPUS - 1)];
	u64 generation = counting.generation, exec = p->se.sum_exec_runtime, ran = exec - m->exec;

	/* the tick of a CPU that has none is another CPU's work */
	if (!generation || cpu_of_task(p) != cpu || m->generation != generation)
		return;
	m->exec = exec;
	read_meter(cpu, generation, counts_of(index, type_of(cpu)), ran, false);
}

/* A slot changes hands: its next owner starts from nothing. */
static __noinline void forget_counts(u32 index)
{
	u32 t;

	if (!counting.generation)
		return;
	bpf_for(t, 0, nr_types) {
		struct amp_counts *c = counts_of(index, t);

		if (c)
			c->generation = 0;
	}
}

#endif
