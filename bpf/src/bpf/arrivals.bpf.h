/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads that have come, and go on running. User space looks once per interval: somebody who comes just after that would run
 * wherever he happens to be for all of it, which is a good part of a short program's life. So he is announced at the first tick of
 * his CPU by which he has run for arrival_ns; most processes are over before. How often user space looks because of that is its own
 * business.
 */
#ifndef __AMP_ARRIVALS_H
#define __AMP_ARRIVALS_H

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, AMP_ARRIVALS_BYTES);
} arrivals SEC(".maps");

/*
 * Whether somebody runs although user space has not decided for one and a half intervals: it looks less often at an idle machine. Said
 * once per silence.
 */
static __always_inline bool overslept(void)
{
	u64 heard = shared.heartbeat, every = shared.interval_ns;

	if (!every || shared.told == heard || elapsed(now_ns(), heard) < every + every / 2)
		return false;
	shared.told = heard;
	return true;
}

static __noinline int announce(struct amp_slot *s)
{
	u64 ran = 0;
	u32 t, *pid;

	if (!s)
		return 0;
	for (t = 0; t < AMP_MAX_TYPES; t++)
		ran += s->runtime[t];
	if (ran < arrival_ns)
		return 0;
	s->announced = 1;
	/* full: it has enough to look at */
	pid = bpf_ringbuf_reserve(&arrivals, sizeof(*pid), 0);
	if (!pid)
		return 0;
	*pid = s->pid;
	/* wakes whoever has read all before */
	bpf_ringbuf_submit(pid, 0);
	return 0;
}

#endif
