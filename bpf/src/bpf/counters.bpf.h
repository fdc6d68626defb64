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
 * The events of a CPU are in banks, one per set, of which one counts. Which one, and since when, is a generation of the core
 * type: the first reading of a generation on a CPU charges nobody.
 */
#ifndef __AMP_COUNTERS_H
#define __AMP_COUNTERS_H

/* event i of CPU c in bank b: (c * AMP_MAX_BANKS + b) * AMP_MAX_EVENTS + i */
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

/* The counter behind @key. Only tracing programs have the cheaper helper. Both fail where it does not count. */
static __always_inline bool read_event(u32 key, u64 *value, bool tracing)
{
	struct bpf_perf_event_value v;

	if (tracing) {
		*value = bpf_perf_event_read(&events, key);
		/* a count of so many would have taken centuries */
		return (s64)*value >= 0 || (s64)*value < -4095;
	}
	if (bpf_perf_event_read_value(&events, key, &v, sizeof(v)))
		return false;
	*value = v.counter;
	return true;
}

/*
 * Reads the counters of @cpu, the present one, and charges what they went up by to @c, if not NULL, for @ran ns of CPU time.
 * @generation is the present one of the CPU's core type @type.
 */
static __always_inline void read_meter(u32 cpu, u32 type, u64 generation, struct amp_counts *c, u64 ran, bool tracing)
{
	struct amp_meter *m = &meters[cpu & (AMP_MAX_CPUS - 1)];
	u32 which = generation & 1, nr = counting.nr_events[which][type];
	u32 first = (cpu * AMP_MAX_BANKS + counting.bank[which][type]) * AMP_MAX_EVENTS, i;
	bool known = true;

	if (m->generation != generation)
		c = NULL;
	if (c) {
		__sync_fetch_and_add(&c->version, 1);
		if (c->generation != generation) {
			c->generation = generation;
			c->counted = 0;
			__builtin_memset(c->value, 0, sizeof(c->value));
		}
		c->counted += ran;
	}
	for (i = 0; i < AMP_MAX_EVENTS && i < nr; i++) {
		u64 now;

		if (!read_event(first + i, &now, tracing)) {
			known = false;
			break;
		}
		if (c)
			c->value[i] += now - m->last[i];
		m->last[i] = now;
	}
	if (c) {
		/* the events of a set count together or not at all: there is no knowing which part of the time this was */
		if (!known)
			c->generation = 0;
		__sync_fetch_and_add(&c->version, 1);
	}
	m->generation = known ? generation : 0;
	if (!known)
		counting.nr_dropped++;
}

/* Attached only while something is counted. */
SEC("tp_btf/sched_switch")
int BPF_PROG(amp_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 cpu = bpf_get_smp_processor_id(), type = type_of(cpu), index;
	struct amp_meter *m = &meters[cpu & (AMP_MAX_CPUS - 1)];
	u64 generation = counting.generation[type], ran;
	struct amp_counts *c = NULL;
	struct amp_slot *s;

	if (!may_count || !generation)
		return 0;
	ran = prev->se.sum_exec_runtime - m->exec;
	m->exec = next->se.sum_exec_runtime;
	index = slot_index(prev);
	if (index) {
		/* a thread that is not ours may carry any index */
		s = slot_at(index);
		if (s && s->pid == prev->pid)
			c = counts_of(index, type);
	}
	read_meter(cpu, type, generation, c, ran, true);
	return 0;
}

/* Charges the running thread. */
static __noinline int count_tick(u32 cpu, u32 index, u64 exec)
{
	u32 type = type_of(cpu);
	struct amp_meter *m = &meters[cpu & (AMP_MAX_CPUS - 1)];
	u64 generation = counting.generation[type], ran = exec - m->exec;

	/* the tick of a CPU that has none is another CPU's work */
	if (!generation || cpu != bpf_get_smp_processor_id())
		return 0;
	m->exec = exec;
	read_meter(cpu, type, generation, counts_of(index, type), ran, false);
	return 0;
}

/* A slot changes hands: its next owner starts from nothing. */
static __noinline void forget_counts(u32 index)
{
	u32 t;

	bpf_for(t, 0, nr_types) {
		struct amp_counts *c = counts_of(index, t);

		if (c)
			c->generation = 0;
	}
}

#endif
