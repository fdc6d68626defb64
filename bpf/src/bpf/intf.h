/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Everything that BPF and user space share. bindgen turns it into Rust; ../shared.rs asserts the
 * layout.
 */
#ifndef __AMP_INTF_H
#define __AMP_INTF_H

#ifndef __VMLINUX_H__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;
#endif

enum amp_consts {
	/* Core types a machine may have; type 0 is the fastest. */
	AMP_MAX_TYPES = 8,
	AMP_MAX_CPUS = 1024,
	/* Queues: one per (core type, last-level cache), and one more for the fallback. */
	AMP_MAX_QUEUES = 63,
	AMP_FAIR_QUEUE = 63,
	/* Virtual clocks: one per core type, one for the fallback. */
	AMP_FAIR_CLOCK = 8,
	AMP_NR_CLOCKS = 9,
	/* "No core type": an unplaced thread. */
	AMP_ANY = 0xff,
	/* Slot 0 stands for every thread that found the table full. */
	AMP_UNTRACKED = 0,
	/* The slot index is the low part of a task's dsq_vtime. */
	AMP_SLOT_BITS = 16,
	/* Swap latencies kept; a power of two. */
	AMP_NR_LATENCIES = 4096,
	/* Events that are read at a switch. */
	AMP_MAX_EVENTS = 8,
	/* Sets of events per CPU that are at hand, of which one counts. */
	AMP_MAX_BANKS = 16,
	/* Bytes for threads that have gone, until user space looks; a power of two, whole pages. */
	AMP_ENDED_BYTES = 256 * 1024,
	/* Bytes for the news that somebody has come; one page of any kernel. */
	AMP_ARRIVALS_BYTES = 64 * 1024,
	/* Limit i of control groups has queue 64 + i, for threads that wait for it, see limits.bpf.h. */
	AMP_HELD_QUEUES = 64,
	/* Control groups whose threads have another weight than their nice value says, or a limit of CPU time. */
	AMP_MAX_GROUPS = 4096,
	/* Limits of CPU time; 0 stands for none. A power of two. */
	AMP_MAX_LIMITS = 1024,
	/* The heaviest thread; the lightest one weighs 1. */
	AMP_MAX_WEIGHT = 10000,
};

/*
 * Going to sleep leaves no trace, to save a callback: a thread that began to run and is not what
 * its CPU runs any more has gone to sleep. See amp_cpu.slot.
 */
enum amp_thread_state {
	AMP_NEW = 0,
	AMP_QUEUED = 1,
	AMP_BEGAN = 2,
	AMP_HELD = 3,		/* its control group has had all its CPU time: to user space, it sleeps */
	AMP_LET_GO = 4,		/* the same as AMP_QUEUED, with a slice of its limit put aside */
	AMP_OVERDUE = 5,	/* the same without: it waited too long for its limit, or is on its way out */
};

/*
 * One thread. The array is mapped by user space, which writes only `placement`, `placed_at`, `weight` and `limit`;
 * BPF writes the first two of a thread that takes a seat (seats.bpf.h), and the last two of one that is new, or
 * has a new nice value or another control group (groups.bpf.h).
 * The first cache line is all that a context switch touches besides one entry of `runtime`.
 */
struct amp_slot {
	u32 generation;		/* odd while a thread owns the slot, changes at every turn */
	u32 pid;
	u32 tgid;
	u32 weight;		/* 100 is nice 0 where no control group says otherwise */
	u64 exec_seen;		/* of the task's sum_exec_runtime, what `runtime` and `vtime` contain */
	u64 vtime;		/* weighted run time in ns, on the clock named by `clock` */
	u64 queued_at;		/* bpf_ktime_get_ns() when it entered its queue */
	u32 cpu;		/* where it runs or ran last */
	u8 state;		/* enum amp_thread_state */
	u8 core_type;		/* of `cpu` */
	u8 allowed;		/* bit t: its affinity has a CPU of core type t */
	u8 clock;		/* which virtual clock `vtime` refers to */
	u64 placed_at;		/* CLOCK_MONOTONIC ns of a placement not in effect yet, or 0 */
	u32 placement;		/* core type, or AMP_ANY */
	u8 rotation;		/* the fallback's own placement, or AMP_ANY */
	u8 brief;		/* its last burst was so short that handing it a CPU cannot hurt */
	u8 announced;		/* user space was told that it has come, see arrivals.bpf.h */
	u8 run_again;		/* its program was run just before, see seats.bpf.h */
	u64 runtime[8];		/* ns on each core type, AMP_MAX_TYPES */
	u64 burst_start;	/* sum_exec_runtime at its last wake-up */
	u64 nr_stolen;		/* runs that began on a core type other than the one it is placed on */
	u64 nr_swaps;		/* placements that took effect */
	u8 comm[16];
	u64 arguments;		/* a hash of what its process was started with, see arguments.bpf.h; 0: not known */
	u32 next_free;
	u16 own_weight;		/* by its nice value alone */
	u16 limit;		/* of its control group or the nearest one above that has one, see limits.bpf.h; 0: none */
	u64 group;		/* id of its control group, see groups.bpf.h */
};

/*
 * A limit of CPU time that a control group has (cpu.max). User space writes it but for `until` and `left`; `quota`
 * last where it is new, and 0 where it is gone.
 */
struct amp_limit {
	u64 quota;		/* ns of CPU time in each period */
	u64 period;		/* ns */
	u64 most;		/* ns of CPU time that may be saved up: the quota, and a burst if there is one */
	u64 until;		/* bpf_ktime_get_ns() at the end of the present period */
	s64 left;		/* ns of CPU time; below 0: what was had in advance */
	u32 above;		/* the nearest limit of the groups above; 0: none */
	u32 pad32;
	u64 pad64[2];		/* a cache line */
};

/* What amp_create_limit() is told. */
struct amp_limit_index {
	u32 index;
};

/* A thread that has gone: how it was called, and what it had run by then. */
struct amp_ended {
	u32 slot;
	u32 generation;		/* of the slot while the thread owned it */
	u32 pid;
	u32 tgid;
	u8 comm[16];
	u64 arguments;
	u64 runtime[8];		/* ns on each core type, AMP_MAX_TYPES */
};

/*
 * What a CPU does, and its statistics: written by that CPU only, but for `foreign`, and by the timer
 * from `load` on.
 */
struct amp_cpu {
	u32 slot;		/* of the thread it runs; 0 when idle */
	u32 foreign;		/* that thread is placed on another core type, and nobody has come to displace it yet */
	u32 ticked;		/* that thread has run through a tick */
	u32 pad32;
	u64 nr_queued;		/* threads put into a queue */
	u64 nr_taken_up;	/* runs taken from the queue of a slower core type */
	u64 nr_taken_down;	/* runs taken from the queue of a faster core type */
	u64 nr_kicks;		/* CPUs made to reschedule */
	u64 nr_lent;		/* runs of threads placed on slower core types, here because this CPU was idle */
	u64 idle_since;		/* bpf_ktime_get_ns() when it last found nothing to run; kept where `lending` is on */
	u32 load;		/* how much of its fastest clock it needed lately, of 1024; kept where `follow` is on, as the next */
	u32 saturated;		/* timers in a row at which it ran somebody, see frequency.bpf.h */
	u32 clock;		/* what the kernel was asked for last, of 1024; at first the fastest */
	u32 clock_here;		/* the same, asked for on this CPU */
	u64 pad64[6];		/* whole cache lines */
};

/* What the events of one generation counted for a thread on one core type. */
struct amp_counts {
	u64 version;		/* odd while it is being written */
	u32 pid;		/* the slot's */
	u32 pad32;
	u64 generation;		/* of the meters of that core type; 0: nothing yet */
	u64 counted;		/* ns of CPU time that the values cover */
	u64 value[8];		/* by event, AMP_MAX_EVENTS */
};

/*
 * The counters of a CPU. User space writes what is to be counted: first `first` and `nr_events`
 * where the lowest bit of the next generation selects them, then the generation. `every` it may
 * write at any time. Structures fill whole cache lines.
 */
struct amp_meter {
	u64 wanted;		/* generation; 0: nothing is counted */
	u32 first[2];		/* the set's first event in the map */
	u32 nr_events[2];
	u64 generation;		/* of `last`; 0: nothing that a difference could be taken to */
	u64 exec;		/* the running thread's sum_exec_runtime then */
	u64 last[8];		/* what they showed last, AMP_MAX_EVENTS */
	u64 nr_dropped;		/* readings that failed, with what they would have told */
	u32 core_type;		/* of the CPU, and how many there are: at hand without a look-up */
	u32 nr_types;
	u64 every;		/* ns of CPU time after which a thread that goes on running is read at a tick */
};

/*
 * The rest of the shared state. User space only reads it, but for `lending`, `follow`, `weighted`, `limited`, `nr_limits`, `capacity`,
 * `load` and `interval_ns`.
 */
struct amp_shared {
	u64 free_head;		/* list of free slots: tag in the high half against ABA, index in the low */
	u32 nr_used;		/* slots below this index have been used */
	u32 crowded;		/* somebody waits in a queue, or did at the last timer */
	u32 foreign;		/* bit t: a CPU of core type t may run another type's thread */
	u32 fallback;		/* user space has been silent: share fairly without it */
	u32 lending;		/* an idle CPU may run what is placed, and runs, on slower core types */
	u32 resting;		/* nobody runs or waits, and the timer is off until somebody does */
	u32 follow;		/* clocks follow load, where the kernel's frequency scaling listens */
	u32 followed;		/* they do, by the last timer */
	u32 weighted;		/* some control groups have a weight in `group_weights` */
	u32 limited;		/* some control groups have a limit in `group_limits` */
	u32 nr_limits;		/* limits below this index may be in use */
	u32 holding;		/* timers until nobody has waited for CPU time of his control group for a second; 0: so it is */
	u32 capacity[8];	/* by core type: of one CPU at present, 1024 for the fastest type at its best; AMP_MAX_TYPES */
	u32 load[8];		/* 2^20 / (number of CPUs * capacity): weight of one waiting thread in the choice of a queue */
	u64 heartbeat;		/* bpf_ktime_get_ns() of the last commit */
	u64 told;		/* the heartbeat whose silence user space was told of */
	u64 nr_fallbacks;
	u64 nr_untracked;	/* threads that found the table full */
	u64 untracked_now;	/* those of them that are there yet */
	u64 nr_rotations;	/* pairs that the fallback swapped */
	u64 nr_rescued;		/* threads that waited past the starvation bound and were put in front */
	u64 nr_commits;
	u64 nr_seats;		/* programs that began where the last one of their name was */
	u64 interval_ns;		/* an interval of user space: it keeps the seat of a program that is run again for so long after it was left */
	u64 relief;		/* bit q: queue q may hold work for CPUs of slower core types */
	u64 backlog_since[64];	/* by queue: bpf_ktime_get_ns() from which on somebody was in it; 0: nobody at the last timers */
	u64 closed;		/* bit q: none of the CPUs that serve queue q can, as it goes offline; others do it */
	u64 closed_at;		/* bpf_ktime_get_ns() when that was seen last */
	u64 hogged;		/* bit q: a higher class has all CPUs that serve queue q; others do it */
	u64 backlog_gone;	/* bit q: the last timer found nobody in queue q */
	u64 nr_latencies;	/* recorded so far, also the next index modulo AMP_NR_LATENCIES */
	u64 latency[4096];	/* ns from placement to running there, AMP_NR_LATENCIES */
	u64 clock[16];		/* virtual clocks, AMP_NR_CLOCKS */
};

#endif
