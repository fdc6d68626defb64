/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads that have gone. User space looks at the slots once per interval, and a slot is soon
 * another thread's: what a thread ran between the last look and its end would be lost, and with it
 * half an interval of every process, or all of one that lives for less.
 */
#ifndef __AMP_ENDED_H
#define __AMP_ENDED_H

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, AMP_ENDED_BYTES);
} ended SEC(".maps");

/* The thread of @s gives its slot back. */
static __noinline int tell_end(struct amp_slot *s, u32 index)
{
	struct amp_ended *e;
	u64 ran = 0;
	u32 t;

	if (!s)
		return 0;
	for (t = 0; t < AMP_MAX_TYPES; t++)
		ran += s->runtime[t];
	if (!ran)
		return 0;
	/* full: user space is silent or behind, and does without */
	e = bpf_ringbuf_reserve(&ended, sizeof(*e), 0);
	if (!e)
		return 0;
	e->slot = index;
	e->generation = s->generation;
	e->pid = s->pid;
	e->tgid = s->tgid;
	__builtin_memcpy(e->comm, s->comm, sizeof(e->comm));
	e->arguments = s->arguments;
	__builtin_memcpy(e->runtime, s->runtime, sizeof(e->runtime));
	/* it is read at the next look: nobody is woken */
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
