/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPU time that control groups may have (cpu.max): a quota in each period, for all threads of a group and of those below it
 * together.
 *
 * The kernel leaves quotas to the scheduler that is loaded. User space reads them and writes them to `limits`; who is under
 * one has its index in the slot. What a thread runs is taken from its limit and from those above. Threads of a group that has
 * nothing left wait in a queue of their limit's own until its next period, whatever user space does meanwhile; the timer lets
 * as many of them go as there is time for, in the order in which they came. A thread stops at a tick at the latest; what it ran
 * too long is taken from the periods to come, so that over many of them a group has no more than its quota.
 */
#ifndef __AMP_LIMITS_H
#define __AMP_LIMITS_H

/* linux/sched.h: on its way out */
#ifndef PF_EXITING
#define PF_EXITING 0x4
#endif

/* linux/sched/signal.h: the process ends */
#ifndef SIGNAL_GROUP_EXIT
#define SIGNAL_GROUP_EXIT 0x4
#endif

/* Groups with a limit above each other that are looked at. */
#define MAX_NESTED 8
/* Timers after somebody was held for which they go on looking: he comes to his queue only after amp_enqueue() is through with him. */
#define HELD_LATELY 200
/*
 * Nobody is held for longer, whatever his group has had, and nothing is owed for longer: the kernel takes a wait of ten seconds for a stall, and
 * ends us.
 */
#define MAX_HELD_NS (4000 * MSEC)

struct amp_limit limits[AMP_MAX_LIMITS] __attribute__((aligned(64)));

/* The nearest limit that is on the threads of a group, by the id of the group. Groups that are not here have none. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, AMP_MAX_GROUPS);
	__type(key, u64);
	__type(value, u32);
} group_limits SEC(".maps");

static __always_inline struct amp_limit *limit_at(u32 i)
{
	return &limits[i & (AMP_MAX_LIMITS - 1)];
}

/* More periods than that pass for as many: nobody has saved up, or owes, so much. */
#define MAX_PERIODS 4096

/* Begins the period of @l in which @now is, if nobody has. */
static __always_inline void refill(struct amp_limit *l, u64 now)
{
	u64 until = l->until, period = l->period, quota = l->quota, periods;
	s64 left, due, least;

	if (!period || time_before(now, until))
		return;
	periods = (now - until) / period + 1;
	if (__sync_val_compare_and_swap(&l->until, until, until + periods * period) != until)
		return;
	if (periods > MAX_PERIODS)
		periods = MAX_PERIODS;
	left = l->left;
	due = left + (s64)(periods * quota);
	least = -(s64)(quota * (MAX_HELD_NS / period));
	if (due > (s64)l->most)
		due = l->most;
	if (due < least)
		due = least;
	/* others may charge meanwhile */
	__sync_fetch_and_add(&l->left, due - left);
}

/* Whether the groups under limit @i, or one above, have had all the time that they may for now. */
__noinline bool exhausted(u32 i, u64 now)
{
	u32 level;

	bpf_for(level, 0, MAX_NESTED) {
		struct amp_limit *l = limit_at(i);

		if (!i)
			break;
		refill(l, now);
		if (l->quota && l->left <= 0)
			return true;
		i = l->above;
	}
	return false;
}

/* Takes what a thread under limit @i ran from that limit, and from those above. */
__noinline int charge(u32 i, u64 ran)
{
	u32 level;

	bpf_for(level, 0, MAX_NESTED) {
		struct amp_limit *l = limit_at(i);

		if (!i)
			break;
		__sync_fetch_and_sub(&l->left, ran);
		i = l->above;
	}
	return 0;
}

/*
 * Whether @p is on its way out, alone, with its process, or because another thread of that starts another program: it is let go, so that
 * nobody waits for its end.
 */
static __always_inline bool leaves(const struct task_struct *p)
{
	const struct task_struct *stays = p->signal->group_exec_task;

	return p->flags & PF_EXITING || p->signal->flags & SIGNAL_GROUP_EXIT || (stays && stays != p);
}

/* Whether @p has to wait for a new period. */
static __always_inline bool held(const struct task_struct *p, const struct amp_slot *s)
{
	/* once: user space may write it */
	u32 limit = shared.limited ? READ_ONCE(s->limit) : 0;

	return limit && !leaves(p) && exhausted(limit, now_ns());
}

/*
 * Gives back what was put aside for the thread of @s when it was let go, now that it runs: from here on it is charged as everybody is.
 */
static __always_inline void settle(struct amp_slot *s)
{
	if (s->limit)
		charge(s->limit, -slice_ns);
}

/* User space wants to write a limit where none was before. */
SEC("syscall")
int amp_create_limit(struct amp_limit_index *limit)
{
	return scx_bpf_create_dsq(AMP_HELD_QUEUES + (limit->index & (AMP_MAX_LIMITS - 1)), -1);
}

/* Finds the limit that is on the group of @s. */
static __noinline int find_limit(struct amp_slot *s)
{
	u64 group;
	u32 *limit;

	if (!s)
		return 0;
	group = s->group;
	limit = shared.limited ? bpf_map_lookup_elem(&group_limits, &group) : NULL;
	s->limit = limit ? *limit : 0;
	return 0;
}

#endif
