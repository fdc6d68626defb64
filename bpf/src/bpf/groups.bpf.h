/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Control groups: which one a thread is in, and what a thread weighs there. limits.bpf.h has what they may use.
 *
 * The kernel gives weight to groups and shares it among the threads in each of them. We have no
 * queue per group: user space works out what that comes to for a single thread, from who is busy
 * in which group, and writes it to the slots. Here is what becomes of those that it has not seen
 * yet, which in a group of short processes is everybody.
 */
#ifndef __AMP_GROUPS_H
#define __AMP_GROUPS_H

/* What a thread of nice 0 weighs, by the id of its group. Groups that are not here: 100. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, AMP_MAX_GROUPS);
	__type(key, u64);
	__type(value, u32);
} group_weights SEC(".maps");

/*
 * The id of the group that the CPU controller has @p in: its inode number below /sys/fs/cgroup. 0 for an
 * automatic group of a session, and where the kernel knows no groups.
 */
static __always_inline u64 group_of(const struct task_struct *p)
{
	if (!bpf_core_field_exists(p->sched_task_group))
		return 0;
	return p->sched_task_group->css.cgroup->kn->id;
}

/* Sets the weight of @s by its nice value and its group. */
static __noinline int weigh(struct amp_slot *s)
{
	u64 group, weight;
	u32 *each;

	if (!s)
		return 0;
	weight = s->own_weight;
	group = s->group;
	each = shared.weighted ? bpf_map_lookup_elem(&group_weights, &group) : NULL;
	if (each)
		weight = weight * *each / 100;
	s->weight = weight < 1 ? 1 : weight > AMP_MAX_WEIGHT ? AMP_MAX_WEIGHT : weight;
	return 0;
}

/* Threads go from one group to another, at an exec mostly. */
static __always_inline void follow_group(const struct task_struct *p, struct amp_slot *s)
{
	u64 group = group_of(p);

	if (s->group == group)
		return;
	s->group = group;
	weigh(s);
	find_limit(s);
}

#endif
