/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Run time per core type and weighted virtual time.
 *
 * The kernel already measures every run in p->se.sum_exec_runtime. What has been added since we
 * last looked belongs to the core type that the thread was on, so one subtraction when it next
 * starts to run, and one at the tick for threads that never stop, replaces a clock read at both
 * ends of every run.
 */
#ifndef __AMP_ACCOUNTING_H
#define __AMP_ACCOUNTING_H

/*
 * How far a thread may be ahead of others when it joins a queue, and behind without having slept,
 * in slices.
 */
#define MAX_LEAD 200
#define MAX_LAG 16
/* What queues tell apart, in ns of virtual time, see queue_key(). */
#define QUEUE_STEP 256

/*
 * Where clocks begin, in ns: 20 s before what queues order by wraps around (queue_key()), so that it does so wherever somebody
 * tries it out, and not in some months on somebody's machine.
 */
#define FIRST_CLOCK ((1ULL << (64 - AMP_SLOT_BITS + 8)) - 20000 * MSEC)

/* By clock: where it goes no further than, because of those in the queue `held_by`; 0: no bound. */
static u64 latest[16], held_by[16];
/* By clock: the virtual time of who was as far ahead as may be last. */
static u64 foremost[16];

/* Adds what @p has run since the last call to its slot. Not for AMP_UNTRACKED. */
static __always_inline void fold(const struct task_struct *p, struct amp_slot *s)
{
	u64 exec = p->se.sum_exec_runtime;
	u64 ran = exec - s->exec_seen;
	u32 type = s->core_type & (AMP_MAX_TYPES - 1);

	if (!ran)
		return;
	s->exec_seen = exec;
	s->runtime[type] += ran;
	if (shared.limited && s->limit)
		charge(s->limit, ran);
	if (s->clock == AMP_FAIR_CLOCK)
		ran = ran * shared.capacity[type] >> 10;
	if (s->weight != 100)
		ran = ran * 100 / (s->weight ?: 1);
	s->vtime += ran;
}

/* What a slice adds to the virtual time of @s. */
static __always_inline u64 virtual_slice(const struct amp_slot *s)
{
	return s->weight == 100 ? slice_ns : slice_ns * 100 / (s->weight ?: 1);
}

/*
 * The virtual time by which @s is to have had a slice, which queues are in order of. Heavy threads
 * come early by it, and a light one that wakes up does not get in the way of a heavy one.
 */
static __always_inline u64 deadline(const struct amp_slot *s)
{
	return s->vtime + virtual_slice(s);
}

/* What a thread that slept is owed at most: one slice, in its own time or in that of weight 100. */
static __always_inline u64 sleep_credit(const struct amp_slot *s)
{
	u64 own = virtual_slice(s);

	return own < slice_ns ? own : slice_ns;
}

/*
 * The lead on clock @to of a thread of @weight that is as far ahead as may be. Those who are take turns in order of arrival. Rare, and verified
 * once for all who call it.
 */
__noinline s64 foremost_lead(u32 to, u32 weight)
{
	s64 lead = MAX_LEAD * slice_ns;
	u64 at, last;

	if (to >= AMP_NR_CLOCKS || weight != 100)
		return lead;
	at = shared.clock[to] + lead;
	last = foremost[to];
	if (!time_before(last, at) && time_before(last, at + slice_ns))
		lead += last - at + QUEUE_STEP;
	foremost[to] = shared.clock[to] + lead;
	return lead;
}

/*
 * Lets @s live on virtual clock @to, keeping its lead or lag within bounds. Sleep is not saved up,
 * see sleep_credit().
 */
static __always_inline void set_clock(struct amp_slot *s, u32 to, bool slept)
{
	s64 lead, max_lag = slept ? sleep_credit(s) : MAX_LAG * slice_ns + rotate_ns;
	u32 from = s->clock;

	if (from >= AMP_NR_CLOCKS || to >= AMP_NR_CLOCKS)
		return;
	lead = s->vtime - shared.clock[from];
	if (lead < -max_lag)
		lead = -max_lag;
	else if (lead > (s64)(MAX_LEAD * slice_ns))
		lead = foremost_lead(to, s->weight);
	s->vtime = shared.clock[to] + lead;
	s->clock = to;
}

/* Takes from @s what it saved up asleep, for a wake-up that goes past the queues. */
static __always_inline void forget_sleep(struct amp_slot *s)
{
	u64 least = shared.clock[s->clock & 15] - sleep_credit(s);

	if (time_before(s->vtime, least))
		s->vtime = least;
}

/*
 * Lets a virtual clock follow the threads that begin to run, or go on after a slice: those had
 * waited longest, so that hardly anybody in a queue is behind the clock. Where they are at the end
 * of a slice would be too far, by 100 slices for a thread of weight 1, and whoever wakes up would
 * queue behind them.
 */
static __always_inline void advance_clock(const struct amp_slot *s)
{
	u64 to = s->vtime;
	u32 c = s->clock;

	if (c >= AMP_NR_CLOCKS)
		return;
	if (latest[c] && time_before(latest[c], to))
		to = latest[c];
	if (time_before(shared.clock[c], to))
		shared.clock[c] = to;
}

/* The clock of a thread that runs or waits on core type @type. */
static __always_inline u32 clock_for(u32 type)
{
	return shared.fallback ? AMP_FAIR_CLOCK : type;
}

#endif
