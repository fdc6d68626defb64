/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hardware counters of threads: what the counters of a CPU went up by while a thread ran there.
 *
 * Perf events count per CPU, each on the PMU of the CPU's core type, and are read once per switch:
 * the difference to the CPU's last reading belongs to the thread that ran meanwhile. A thread that
 * never switches is charged at ticks. The cost of a switch thus depends on the number of events
 * only, not on the number of threads.
 *
 * Perf itself accumulates in 64 bits whatever the width of a hardware counter is.
 *
 * The events of a CPU are in banks, one per set, of which one counts. Which one, and since when, is
 * a generation of the core type: the first reading of a generation on a CPU charges nobody.
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

struct amp_meter meters[AMP_MAX_CPUS] __attribute__((aligned(64)));

static __always_inline struct amp_counts *counts_of(u32 index, u32 type)
{
	u32 key = index * nr_types + type;

	return bpf_map_lookup_elem(&counts, &key);
}

/*
 * The counter behind @key. Only tracing programs have the cheaper helper. Both fail where it does
 * not count.
 */
static __always_inline bool read_event(u32 key, u64 *value, bool tracing)
{
	struct bpf_perf_event_value v = {};
	bool known;

	if (tracing) {
		*value = bpf_perf_event_read(&events, key);
		/* a count of so many would have taken centuries */
		return (s64)*value >= 0 || (s64)*value < -4095;
	}
	known = !bpf_perf_event_read_value(&events, key, &v, sizeof(v));
	*value = v.counter;
	return known;
}

static __always_inline void take_reading(struct amp_meter *m, u32 i, u64 now, struct amp_counts *c)
{
	if (c)
		c->value[i] += now - m->last[i];
	m->last[i] = now;
}

/* One that follows another of its set. */
static __always_inline void read_next(struct amp_meter *m, u32 first, u32 i, struct amp_counts *c, bool tracing)
{
	u64 now;

	read_event(first + i, &now, tracing);
	take_reading(m, i, now, c);
}

/*
 * Reads the @nr events from @first on, and adds what they went up by to @c, unless it is NULL. The
 * events of a set count together or not at all (user space opens them as one pinned group), so the
 * first one tells: false when it cannot be read. Spelt out, for this is where most of the time of a
 * switch goes.
 */
static __always_inline bool read_events(struct amp_meter *m, u32 first, u64 nr, struct amp_counts *c, bool tracing)
{
	u64 now;

	_Static_assert(AMP_MAX_EVENTS == 8, "one line each");
	if (nr < 1)
		return true;
	if (!read_event(first, &now, tracing))
		return false;
	take_reading(m, 0, now, c);
	if (nr < 2)
		return true;
	read_next(m, first, 1, c, tracing);
	if (nr < 3)
		return true;
	read_next(m, first, 2, c, tracing);
	if (nr < 4)
		return true;
	read_next(m, first, 3, c, tracing);
	if (nr < 5)
		return true;
	read_next(m, first, 4, c, tracing);
	if (nr < 6)
		return true;
	read_next(m, first, 5, c, tracing);
	if (nr < 7)
		return true;
	read_next(m, first, 6, c, tracing);
	if (nr < 8)
		return true;
	read_next(m, first, 7, c, tracing);
	return true;
}

/*
 * Reads @m, the present CPU's, and charges what it went up by to @c, if not NULL, for @ran ns of
 * CPU time.
 */
static __always_inline void read_meter(struct amp_meter *m, u64 generation, struct amp_counts *c, u64 ran, bool tracing)
{
	u32 which = generation & 1, first = m->first[which];
	u64 nr = m->nr_events[which];
	bool known;

	if (c && m->generation == generation) {
		/* taking the value makes it a full barrier */
		u64 version = __sync_fetch_and_add(&c->version, 1);

		__sink(version);
		if (c->generation != generation) {
			c->generation = generation;
			c->counted = 0;
			__builtin_memset(c->value, 0, sizeof(c->value));
		}
		c->counted += ran;
		known = read_events(m, first, nr, c, tracing);
		/* there is no knowing which part of the time this was */
		if (!known)
			c->generation = 0;
		version = __sync_fetch_and_add(&c->version, 1);
		__sink(version);
	} else {
		known = read_events(m, first, nr, NULL, tracing);
		m->generation = generation;
	}
	if (!known) {
		m->generation = 0;
		m->nr_dropped++;
	}
}

/* Attached only while there is something to count. */
SEC("tp_btf/sched_switch")
int BPF_PROG(amp_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct amp_meter *m = &meters[bpf_get_smp_processor_id() & (AMP_MAX_CPUS - 1)];
	u64 generation = m->wanted, ran;
	struct amp_counts *c = NULL;
	u32 index, key;

	if (!generation)
		return 0;
	ran = prev->se.sum_exec_runtime - m->exec;
	m->exec = next->se.sum_exec_runtime;
	index = slot_index(prev);
	if (index) {
		key = index * m->nr_types + m->core_type;
		c = bpf_map_lookup_elem(&counts, &key);
		/* a thread that is not ours may carry any index */
		if (c && c->pid != prev->pid)
			c = NULL;
	}
	read_meter(m, generation, c, ran, true);
	return 0;
}

/*
 * Charges the running thread, unless that was done less than m->every ago: read at every tick, five
 * or six events cost a slow core a hundredth of its time. The first reading of a generation is where
 * counting begins, and cannot wait.
 */
static __noinline int count_tick(u32 cpu, u32 index, u64 exec)
{
	struct amp_meter *m = &meters[cpu & (AMP_MAX_CPUS - 1)];
	u64 generation = m->wanted, ran = exec - m->exec;

	/* the tick of a CPU that has none is another CPU's work */
	if (!generation || cpu != bpf_get_smp_processor_id())
		return 0;
	if (m->generation == generation && ran < m->every)
		return 0;
	m->exec = exec;
	read_meter(m, generation, counts_of(index, type_of(cpu)), ran, false);
	return 0;
}

/*
 * A slot changes hands, with @forget: its next owner starts from nothing; or its owner is another
 * @pid now.
 */
static __noinline int own_counts(u32 index, u32 pid, bool forget)
{
	u32 t;

	bpf_for(t, 0, nr_types) {
		struct amp_counts *c = counts_of(index, t);

		if (!c)
			break;
		if (forget)
			c->generation = 0;
		c->pid = pid;
	}
	return 0;
}

#endif
