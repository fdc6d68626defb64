/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The core type of a program that ends, for the next one of its name. Loops, make and benches run a
 * program again at once. User space sees that at its next decision only, and for a program of half
 * a second the way there is a good part of its life: it begins where the last run was instead.
 *
 * Only first threads of processes leave and take seats. A seat that user space may have given to
 * somebody else by now is gone: that of a program that has been run again before is kept by user space
 * for an interval, however many decisions fall into it; others are good for two commits.
 */
#ifndef __AMP_SEATS_H
#define __AMP_SEATS_H

/*
 * A seat is in the map by command name and arguments; by the arguments, for programs that call
 * themselves something else once they run; and by the command name, for compilers, which have other
 * arguments each time.
 */
#define SEAT_NAMES 3

/* A program that comes within that of the end of its last run is run again. */
#define RUN_AGAIN_NS (1000 * MSEC)

struct seat_name {
	u8 comm[16];		/* all 0: whatever its command name was */
	u64 arguments;		/* 0: whatever its arguments were */
};

struct seat {
	struct seat_name who;	/* left it */
	u64 commits;		/* of user space, when it was left */
	u64 at;			/* bpf_ktime_get_ns() then */
	u32 core_type;
	u32 run_again;		/* it had been run again before */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct seat_name);
	__type(value, struct seat);
} seats SEC(".maps");

/*
 * Whether user space may have given it to somebody else: an interval has one commit, two if somebody
 * was placed, and more if threads have come.
 */
static __always_inline bool given_away(const struct seat *left)
{
	return shared.nr_commits - left->commits > 2 &&
	       (!left->run_again || elapsed(now_ns(), left->at) >= shared.interval_ns);
}

/*
 * The @n-th name that the seat of @who is in the map by; false if it has no such name. 0 and 1 are no
 * hash of arguments, see own_arguments().
 */
static __always_inline bool nth_name(struct seat_name *name, const struct seat_name *who, u32 n)
{
	bool own = who->arguments > 1;

	*name = *who;
	if (n == 1)
		__builtin_memset(name->comm, 0, sizeof(name->comm));
	if (n == 2)
		name->arguments = 0;
	return own || n == 2;
}

/* @s is about to end. */
static __noinline int leave_seat(const struct amp_slot *s)
{
	struct seat seat = {};
	struct seat_name name;
	u32 n;

	if (!s || s->placement >= nr_types || s->pid != s->tgid)
		return 0;
	__builtin_memcpy(seat.who.comm, s->comm, sizeof(seat.who.comm));
	seat.who.arguments = s->arguments;
	seat.commits = shared.nr_commits;
	seat.at = now_ns();
	seat.core_type = s->placement;
	seat.run_again = s->run_again;
	for (n = 0; n < SEAT_NAMES; n++)
		if (nth_name(&name, &seat.who, n))
			bpf_map_update_elem(&seats, &name, &seat, BPF_ANY);
	return 0;
}

/*
 * The seat that was left for @who, which is nobody else's from now on: by one of the same command name
 * and arguments, of the same arguments, or of that command name, whichever there is first.
 * @seat->run_again: whether there was one lately, be it given away.
 */
static __noinline int seat_for(const struct seat_name *who, struct seat *seat)
{
	struct seat_name name;
	struct seat *left;
	bool found = false;
	u32 n, again = 0;

	if (!who || !seat)
		return 0;
	for (n = 0; n < SEAT_NAMES; n++) {
		if (!nth_name(&name, who, n))
			continue;
		left = bpf_map_lookup_elem(&seats, &name);
		if (!left)
			continue;
		if (elapsed(now_ns(), left->at) < RUN_AGAIN_NS)
			again = 1;
		/* one that is too old does not hide another one */
		if (given_away(left))
			continue;
		*seat = *left;
		/* there is one seat, however many come for it */
		found = !bpf_map_delete_elem(&seats, &name);
		break;
	}
	seat->run_again = again;
	if (!found)
		return 0;
	/* and it is in the map by more names, unless somebody has left another one by them since */
	for (n = 0; n < SEAT_NAMES; n++) {
		if (!nth_name(&name, &seat->who, n))
			continue;
		left = bpf_map_lookup_elem(&seats, &name);
		if (left && left->at == seat->at)
			bpf_map_delete_elem(&seats, &name);
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
	if (!seat_for(&name, &left)) {
		s->run_again |= !!left.run_again;
		return 0;
	}
	s->run_again = 1;
	type = left.core_type;
	if (type >= nr_types || !(s->allowed & 1 << type))
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
