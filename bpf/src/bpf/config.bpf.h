/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What user space fixes before the load. The verifier sees constants and drops what a machine does
 * not need.
 */
#ifndef __AMP_CONFIG_H
#define __AMP_CONFIG_H

#define MSEC 1000000ULL
/* the kernel's: priorities below it are real-time or deadline; sched_setscheduler()'s number */
#define MAX_RT_PRIO 100
#define SCHED_EXT_POLICY 7

const volatile u32 nr_cpus = 1;
const volatile u32 nr_types = 1;
const volatile u32 nr_queues = 1;
const volatile u32 nr_slots = 2;
const volatile u8 cpu_type[AMP_MAX_CPUS];
const volatile u8 cpu_queue[AMP_MAX_CPUS];
/* queues of type t: type_queue[t] .. type_queue[t + 1] */
const volatile u32 type_queue[AMP_MAX_TYPES + 1];
const volatile u8 queue_type[AMP_MAX_QUEUES + 1];
/* whether some cores run several hardware threads */
const volatile bool smt = false;
/* the next CPU of the same core, round in a circle */
const volatile u16 cpu_sibling[AMP_MAX_CPUS];
/* threads that do not ask for us are in the kernel's fair class, which comes before ours */
const volatile bool partial = false;
/*
 * SCX_ENQ_IMMED where the kernel has it (7.1), else 0: what goes to a CPU to run at once comes back
 * to amp_enqueue() if a higher class has or takes that CPU. Older kernels call amp_cpu_release().
 */
const volatile u64 enq_immed = 0;
/* whether user space may ever set counters */
const volatile bool may_count = false;

const volatile u64 slice_ns = 5 * MSEC;
/*
 * a slower CPU takes work placed on a faster type before it, or others in the same queue by turns,
 * have waited this long
 */
const volatile u64 steal_ns = 12 * MSEC;
/*
 * nobody of nice 0 waits longer than this for a turn in a short queue, whatever else is pinned to
 * his CPUs; see longest_wait()
 */
const volatile u64 starve_ns = 500 * MSEC;
/* a wake-up after a burst shorter than this may go to any idle CPU */
const volatile u64 short_run_ns = 1 * MSEC;
/* run time of a thread from which on it has come to stay */
const volatile u64 arrival_ns = 5 * MSEC;
/* silence of user space before the fallback; 0: never */
const volatile u64 heartbeat_ns = 0;
/* fallback: scaled time by which a thread on a fast CPU may lead one on a slow CPU */
const volatile u64 rotate_ns = 20 * MSEC;
const volatile u64 timer_ns = 5 * MSEC;

/*
 * The flags of the hot paths, as immediates that libbpf fits to the running kernel. The scx
 * headers' own names stand for loads from memory.
 */
#pragma push_macro("SCX_ENQ_WAKEUP")
#pragma push_macro("SCX_ENQ_LAST")
#pragma push_macro("SCX_DSQ_LOCAL")
#pragma push_macro("SCX_WAKE_SYNC")
#undef SCX_ENQ_WAKEUP
#undef SCX_ENQ_LAST
#undef SCX_DSQ_LOCAL
#undef SCX_WAKE_SYNC
static __always_inline u64 enq_wakeup(void)
{
	return bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_WAKEUP);
}

static __always_inline u64 enq_last(void)
{
	return bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_LAST);
}

static __always_inline u64 dsq_local(void)
{
	return bpf_core_enum_value(enum scx_dsq_id_flags, SCX_DSQ_LOCAL);
}

static __always_inline u64 wake_sync(void)
{
	return bpf_core_enum_value(enum scx_wake_flags, SCX_WAKE_SYNC);
}
#pragma pop_macro("SCX_WAKE_SYNC")
#pragma pop_macro("SCX_DSQ_LOCAL")
#pragma pop_macro("SCX_ENQ_LAST")
#pragma pop_macro("SCX_ENQ_WAKEUP")

/*
 * The time by which waits are measured. Not scx_bpf_now(): in a timer on an idle CPU it may say the
 * same for many milliseconds (seen on 7.2: the run queue's clock, cached and not marked as out of
 * date), and slower cores helped out too late.
 */
static __always_inline u64 now_ns(void)
{
	return bpf_ktime_get_ns();
}

/*
 * How long ago @then was at @now, or 0: another CPU may have written it since @now was read, and the
 * difference of the two would be a very long time.
 */
static __always_inline u64 elapsed(u64 now, u64 then)
{
	return time_before(now, then) ? 0 : now - then;
}

/* The longest wait of anybody who can be helped, well below ops.timeout_ms. */
#define LONGEST_WAIT_NS (4000 * MSEC)

/* A queue that none of its CPUs could serve is closed for so long. */
#define CLOSED_NS (50 * MSEC)

struct amp_shared shared;
struct amp_cpu cpus[AMP_MAX_CPUS] __attribute__((aligned(64)));

/* AMP_MAX_CPUS is a power of two: a mask is all that the verifier wants for an index */
static __always_inline u32 type_of(u32 cpu)
{
	return cpu_type[cpu & (AMP_MAX_CPUS - 1)] & (AMP_MAX_TYPES - 1);
}

static __always_inline u32 queue_of(u32 cpu)
{
	return cpu_queue[cpu & (AMP_MAX_CPUS - 1)];
}

static __always_inline struct amp_cpu *cpu_record(u32 cpu)
{
	return &cpus[cpu & (AMP_MAX_CPUS - 1)];
}

/* task_cpu() without a call */
static __always_inline u32 cpu_of_task(const struct task_struct *p)
{
	return p->thread_info.cpu;
}

/* Whether @cpu runs a thread of a class above ours. To be called under RCU's lock. */
static __always_inline bool taken_away(s32 cpu)
{
	const struct task_struct *p = __COMPAT_scx_bpf_cpu_curr(cpu);

	return p && (p->prio < MAX_RT_PRIO || (partial && p->pid && p->policy != SCHED_EXT_POLICY));
}

#define count(cpu, field) (cpu_record(cpu)->field++)

#endif
