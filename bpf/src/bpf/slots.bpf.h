/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The slot of a thread: taken when the thread enters sched_ext, given back when it leaves or dies.
 *
 * The index lives in the low bits of p->scx.dsq_vtime, so that finding the slot costs one load
 * instead of a task storage look-up at every switch. The queues order by that word; the virtual
 * time sits above the index, in units of 256 ns, and the index only breaks ties.
 */
#ifndef __AMP_SLOTS_H
#define __AMP_SLOTS_H

/* linux/sched.h: forked, and no exec since */
#ifndef PF_FORKNOEXEC
#define PF_FORKNOEXEC 0x40
#endif

#define SLOT_MASK ((1ULL << AMP_SLOT_BITS) - 1)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);	/* user space sets nr_slots */
	__type(key, u32);
	__type(value, struct amp_slot);
} slots SEC(".maps");

struct type_mask {
	struct bpf_cpumask __kptr *mask;
};

/* the CPUs of each core type */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, AMP_MAX_TYPES);
	__type(key, u32);
	__type(value, struct type_mask);
} type_masks SEC(".maps");

static __always_inline u32 slot_index(const struct task_struct *p)
{
	return p->scx.dsq_vtime & SLOT_MASK;
}

static __always_inline u64 queue_key(u64 vtime, u32 index)
{
	return (vtime >> 8) << AMP_SLOT_BITS | index;
}

/*
 * The virtual time in @key, which lacks the topmost bits: those of what is nearest to @clock. A nice-19 thread by itself takes the clock
 * past what is left of it in eight days.
 */
static __always_inline u64 key_vtime(u64 key, u64 clock)
{
	u64 ahead = (key >> AMP_SLOT_BITS << 8) - clock;

	return clock + ((s64)(ahead << (AMP_SLOT_BITS - 8)) >> (AMP_SLOT_BITS - 8));
}

static __always_inline struct amp_slot *slot_at(u32 index)
{
	return bpf_map_lookup_elem(&slots, &index);
}

static __always_inline struct amp_slot *slot_of(const struct task_struct *p)
{
	return slot_at(slot_index(p));
}

/* counters.bpf.h */
static int own_counts(u32 index, u32 pid, bool forget);

/* An index that nobody owns, AMP_UNTRACKED when there is none. */
static __noinline u32 slot_take(void)
{
	u32 i, index;

	bpf_for(i, 0, 128) {
		u64 head = shared.free_head;
		struct amp_slot *s;

		index = head;
		if (!index)
			break;
		s = slot_at(index);
		if (!s)
			break;
		if (__sync_val_compare_and_swap(&shared.free_head, head,
						((head >> 32) + 1) << 32 | s->next_free) == head)
			return index;
	}
	if (shared.nr_used < nr_slots) {
		index = __sync_fetch_and_add(&shared.nr_used, 1);
		if (index < nr_slots)
			return index;
		__sync_fetch_and_sub(&shared.nr_used, 1);
	}
	return AMP_UNTRACKED;
}

static __noinline void slot_give(u32 index)
{
	struct amp_slot *s = slot_at(index);
	u32 i;

	if (!s)
		return;
	bpf_for(i, 0, 1024) {
		u64 head = shared.free_head;

		s->next_free = head;
		if (__sync_val_compare_and_swap(&shared.free_head, head,
						((head >> 32) + 1) << 32 | index) == head)
			return;
	}
}

/* Core types of which @mask has a CPU. */
static u32 allowed_types(const struct cpumask *mask)
{
	u32 t, allowed = 0;

	bpf_for(t, 0, nr_types) {
		u32 key = t;
		struct type_mask *m = bpf_map_lookup_elem(&type_masks, &key);

		if (m && m->mask && bpf_cpumask_intersects(cast_mask(m->mask), mask))
			allowed |= 1 << t;
	}
	return allowed;
}

/* NUL-padded: names are compared as a whole. */
static __always_inline void set_comm(struct amp_slot *s, const char *comm)
{
	char padded[sizeof(s->comm)] = {};

	bpf_probe_read_kernel_str(padded, sizeof(padded), comm);
	__builtin_memcpy(s->comm, padded, sizeof(padded));
}

/* Those of @p, which begins, as far as they are known: it does not have its own before an exec. */
static __always_inline u64 inherited_arguments(const struct task_struct *p)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	struct amp_slot *s = slot_of(parent);
	bool same = parent->tgid == p->tgid;
	bool child = p->flags & PF_FORKNOEXEC && p->real_parent && p->real_parent->tgid == parent->tgid;

	if (!s || !slot_index(parent) || s->pid != parent->pid || (!same && !child))
		return 0;
	return s->arguments;
}

void BPF_STRUCT_OPS(amp_enable, struct task_struct *p)
{
	u32 index = slot_take(), type = type_of(cpu_of_task(p));
	struct amp_slot *s = slot_at(index);
	u64 vtime = shared.clock[type];

	if (!index) {
		__sync_fetch_and_add(&shared.nr_untracked, 1);
		__sync_fetch_and_add(&shared.untracked_now, 1);
	}
	scx_bpf_task_set_dsq_vtime(p, queue_key(vtime, index));
	if (!index || !s)
		return;
	s->pid = p->pid;
	s->tgid = p->tgid;
	s->own_weight = p->scx.weight;
	s->group = group_of(p);
	weigh(s);
	find_limit(s);
	s->exec_seen = p->se.sum_exec_runtime;
	s->vtime = vtime;
	s->queued_at = 0;
	s->cpu = cpu_of_task(p);
	s->state = AMP_NEW;
	s->core_type = type;
	s->allowed = allowed_types(p->cpus_ptr);
	s->clock = type;
	s->placed_at = 0;
	s->placement = AMP_ANY;
	s->rotation = AMP_ANY;
	s->brief = 0;
	s->announced = 0;
	s->run_again = 0;
	__builtin_memset(s->runtime, 0, sizeof(s->runtime));
	if (may_count)
		own_counts(index, p->pid, true);
	s->burst_start = s->exec_seen;
	s->nr_stolen = 0;
	s->nr_swaps = 0;
	/* the parent's until an exec or prctl, see amp_task_rename() */
	set_comm(s, p->comm);
	s->arguments = inherited_arguments(p);
	/* odd: readers may believe what they see */
	__sync_fetch_and_add(&s->generation, 1);
}

void BPF_STRUCT_OPS(amp_disable, struct task_struct *p)
{
	u32 index = slot_index(p);
	struct amp_slot *s = slot_at(index);

	scx_bpf_task_set_dsq_vtime(p, 0);
	if (!index)
		__sync_fetch_and_sub(&shared.untracked_now, 1);
	if (!index || !s)
		return;
	/* since its last start or tick: all that a short process ran */
	fold(p, s);
	tell_end(s, index);
	__sync_fetch_and_add(&s->generation, 1);
	s->pid = 0;
	if (may_count)
		own_counts(index, 0, false);
	s->placed_at = 0;
	slot_give(index);
}

void BPF_STRUCT_OPS(amp_set_weight, struct task_struct *p, u32 weight)
{
	struct amp_slot *s = slot_of(p);

	if (!s)
		return;
	s->own_weight = weight;
	weigh(s);
}

void BPF_STRUCT_OPS(amp_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	struct amp_slot *s = slot_of(p);

	if (s && slot_index(p))
		s->allowed = allowed_types(mask);
}

static __always_inline bool in_exec(const struct task_struct *task)
{
	return BPF_CORE_READ_BITFIELD(task, in_execve);
}

/*
 * exec and prctl rename a thread; following them here keeps the name out of every switch. A thread
 * that is not ours may carry any index, and an exec off the main thread takes over the leader's
 * pid: hence the two comparisons. At an exec the arguments are still the old ones, so that the seat
 * has to wait for amp_process_exec().
 */
SEC("tp_btf/task_rename")
int BPF_PROG(amp_task_rename, struct task_struct *p, const char *comm)
{
	u32 index = slot_index(p);
	struct amp_slot *s = slot_at(index);

	if (!index || !s || (s->pid != p->pid && s->tgid != p->tgid))
		return 0;
	if (may_count && s->pid != p->pid)
		own_counts(index, p->pid, false);
	s->pid = p->pid;
	s->tgid = p->tgid;
	/* who has a new name and old arguments is no program */
	if (in_exec(p))
		s->arguments = 0;
	set_comm(s, comm);
	if (!in_exec(p))
		take_seat(s, index);
	return 0;
}

/* @p runs another program from now on. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(amp_process_exec, struct task_struct *p)
{
	u32 index = slot_index(p);
	struct amp_slot *s = slot_at(index);

	if (!index || !s || s->pid != p->pid)
		return 0;
	s->arguments = own_arguments(s->pid);
	s->announced = 0;
	s->run_again = 0;
	follow_group(p, s);
	take_seat(s, index);
	return 0;
}

/* Before whoever waits for it knows, so that its seat is there for the next of its name. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(amp_process_exit, struct task_struct *p)
{
	u32 index = slot_index(p);
	struct amp_slot *s = slot_at(index);

	if (index && s && s->pid == p->pid)
		leave_seat(s);
	return 0;
}

#endif
