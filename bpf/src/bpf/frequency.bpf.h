/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What each CPU asks of the kernel's frequency scaling (governor schedutil), which takes all CPUs of
 * a sched_ext scheduler to be fully busy unless it is told otherwise.
 *
 * The timer samples whether a CPU runs one of our threads: a clock read at both ends of every run is
 * what accounting.bpf.h avoids. A sample of a CPU that runs counts what its clock is worth of the
 * fastest one, so that load is what it would be at that. Of a CPU that was never seen idle for a
 * while nobody knows what it would do with a faster clock: it gets the fastest.
 */
#ifndef __AMP_FREQUENCY_H
#define __AMP_FREQUENCY_H

#define FASTEST 1024
/* Timers in a row at which somebody ran, after which a CPU is taken to be saturated: 20 ms. */
#define SATURATED 4
/* A change below this is not worth telling. */
#define LEAST_STEP 32
/* Below this an idle CPU has no load: the timer is not kept for the rest of it. */
#define LEAST_LOAD 64

static __always_inline u32 clock_for_load(struct amp_cpu *c, u32 cpu)
{
	u32 load = c->load, now = 0;

	/* who found the table full is not seen to run */
	if (shared.untracked_now)
		return FASTEST;
	if (c->slot) {
		now = scx_bpf_cpuperf_cur(cpu);
		if (now > FASTEST)
			now = FASTEST;
		if (c->saturated < SATURATED)
			c->saturated++;
	} else {
		c->saturated = 0;
	}
	/* quick to rise, slow to fall: in doubt too fast a clock */
	load = now > load ? load + (now - load + 3) / 4 : load - (load - now + 7) / 8;
	if (!now && load < LEAST_LOAD)
		load = 0;
	c->load = load;
	if (c->saturated >= SATURATED)
		return FASTEST;
	/* with room for a quarter more, as schedutil leaves */
	load += load / 4;
	return load < FASTEST ? load : FASTEST;
}

/* Tells what @cpu is to be clocked at, if that has changed by much. */
static __always_inline void ask_clock(struct amp_cpu *c, u32 cpu, u32 want)
{
	u32 off = want > c->clock ? want - c->clock : c->clock - want;

	if (!off || (off < LEAST_STEP && want && want < FASTEST))
		return;
	c->clock = want;
	scx_bpf_cpuperf_set(cpu, want);
}

/* In the timer. Once nobody asks for it any more, all CPUs get their fastest clock again. */
__noinline int set_clocks(void)
{
	bool follow = shared.follow;
	u32 cpu;

	if (!follow && !shared.followed)
		return 0;
	shared.followed = follow;
	bpf_for(cpu, 0, nr_cpus) {
		struct amp_cpu *c = cpu_record(cpu);

		ask_clock(c, cpu, follow ? clock_for_load(c, cpu) : FASTEST);
	}
	return 0;
}

/*
 * At a tick: some drivers change a CPU's clock only when that is asked for on one of the CPUs that
 * share it.
 */
static __always_inline void repeat_clock(struct amp_cpu *c, u32 cpu)
{
	if (c->clock_here == c->clock)
		return;
	c->clock_here = c->clock;
	scx_bpf_cpuperf_set(cpu, c->clock);
}

/* Whether a CPU's clock is still to fall, for which the timer is needed. */
static __always_inline bool clock_falls(const struct amp_cpu *c)
{
	return shared.followed && c->clock;
}

#endif
