/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The core type of a program that ends, for the next one of its name. Loops, make and benches run a
 * program again at once. User space sees that at its next decision only, and for a program of half
 * a second the way there is a good part of its life: it begins where the last run was instead.
 *
 * Only first threads of processes leave and take seats. A seat that user space may have given to
 * somebody else by now is gone.
 */
#ifndef __AMP_SEATS_H
#define __AMP_SEATS_H

struct seat_name {
	u8 comm[16];
	u64 arguments;		/* 0: of the one of this name that left last, whatever its arguments were */
};

struct seat {
	u64 commits;		/* of user space, when it was left */
	u64 arguments;		/* of the one who left it */
	u32 core_type;
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct seat_name);
	__type(value, struct seat);
} seats SEC(".maps");

/* @s is about to end. */
static __noinline int leave_seat(const struct amp_slot *s)
{
	struct seat seat = {};
	struct seat_name name = {};

	if (!s || s->placement >= nr_types || s->pid != s->tgid)
		return 0;
	seat.commits = shared.nr_commits;
	seat.arguments = s->arguments;
	seat.core_type = s->placement;
	__builtin_memcpy(name.comm, s->comm, sizeof(name.comm));
	bpf_map_update_elem(&seats, &name, &seat, BPF_ANY);
	name.arguments = s->arguments;
	return name.arguments ? bpf_map_update_elem(&seats, &name, &seat, BPF_ANY) : 0;
}

/*
 * The seat that was left for @name, which is nobody else's from now on: by one of the same arguments,
 * or, as compilers have others each time, by the last one of that command name.
 */
static __noinline int seat_for(struct seat_name *name, struct seat *seat)
{
	u64 own = name ? name->arguments : 0;
	struct seat *left;

	if (!name || !seat)
		return 0;
	left = bpf_map_lookup_elem(&seats, name);
	/* one that is too old does not hide that of another one of its name */
	if (own && (!left || shared.nr_commits - left->commits > 2)) {
		name->arguments = 0;
		left = bpf_map_lookup_elem(&seats, name);
	}
	if (!left)
		return 0;
	*seat = *left;
	/* there is one seat, however many come for it */
	if (bpf_map_delete_elem(&seats, name))
		return 0;
	/* and it is in the map by two names */
	if (name->arguments) {
		name->arguments = 0;
		left = bpf_map_lookup_elem(&seats, name);
		if (left && left->arguments == own)
			bpf_map_delete_elem(&seats, name);
	} else if (seat->arguments) {
		name->arguments = seat->arguments;
		bpf_map_delete_elem(&seats, name);
	}
	return 1;
}

/*
 * @s, which runs, has a name from now on. Where somebody of that name has left a seat it is placed
 * there, like by user space.
 */
static __noinline int take_seat(struct amp_slot *s, u32 index)
{
	struct seat_name name = {};
	struct seat left = {};
	u32 type;

	if (!s || shared.fallback || s->placement < nr_types || s->pid != s->tgid)
		return 0;
	__builtin_memcpy(name.comm, s->comm, sizeof(name.comm));
	name.arguments = s->arguments;
	if (!seat_for(&name, &left))
		return 0;
	type = left.core_type;
	/* an interval has one commit, two if somebody was placed: user space keeps seats that long */
	if (shared.nr_commits - left.commits > 2 || type >= nr_types || !(s->allowed & 1 << type))
		return 0;
	s->placement = type;
	shared.nr_seats++;
	if (s->core_type == type)
		return 0;
	s->placed_at = bpf_ktime_get_ns();
	if (cpu_record(s->cpu)->slot == index)
		scx_bpf_kick_cpu(s->cpu, SCX_KICK_PREEMPT);
	return 0;
}

#endif
