/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The timer is off while nobody runs or waits: a CPU that it woke two hundred times a second would
 * never sleep deeply. fallback.bpf.h has what it does and when it rests; this is what starts it
 * again.
 */
#ifndef __AMP_REST_H
#define __AMP_REST_H

struct timer_cell {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer_cell);
} timers SEC(".maps");

/* Starts the timer, if nobody else does. */
static __noinline int stir(void)
{
	u32 key = 0;
	struct timer_cell *cell;

	if (!__sync_lock_test_and_set(&shared.resting, 0))
		return 0;
	cell = bpf_map_lookup_elem(&timers, &key);
	/* refused (it may be, where interrupts are off): whoever comes next tries again */
	if (cell && bpf_timer_start(&cell->timer, timer_ns, 0))
		__sync_lock_test_and_set(&shared.resting, 1);
	return 0;
}

/* To be called wherever somebody begins to wait or to run; and while he runs, for the timer may not
 * have seen him when it went to rest. */
static __always_inline void keep_watch(void)
{
	if (shared.resting)
		stir();
}

#endif
