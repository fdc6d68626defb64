/* Counters for programs that measure themselves (scx_amp, libs/measure). Linux; link libamp_measure.a or -lamp_measure.
 *
 *     amp_region *r;
 *     if (amp_region_open("instructions:u,cycles:u", 0, &r) < 0) {
 *         fprintf(stderr, "%s\n", amp_measure_error());
 *         return 1;
 *     }
 *     amp_region_start(r);
 *     work();
 *     amp_region_stop(r);
 *     uint64_t instructions;
 *     amp_region_total(r, "instructions:u", &instructions);
 *     amp_region_close(r);
 *
 * Every function that returns an int returns 0 (or a number of counts, where it says so), or a negative number of errno.h:
 *     -EINVAL   an argument is wrong                 -ENOENT  there is no such event
 *     -ENODEV   no PMU for cores; nothing measures the energy
 *     -EACCES   no permission                        -ENOSPC  the events do not fit the counters at once
 *     -ENOTSUP  the PMU does not count the event     -EMFILE  too many open files
 *     -EBUSY    another user has taken the counters  -EIO     anything else that the system refuses
 *     -ENOTRECOVERABLE  a fault of this library
 * amp_measure_error() then says what was wrong, and with what.
 *
 * Threads: a region counts the thread that opened it. It may be used by any thread, by one at a time; different regions may be used
 * at the same time. Not for signal handlers. After fork() the child must leave its parent's regions alone.
 */
#ifndef AMP_MEASURE_H
#define AMP_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A region of code. */
typedef struct amp_region amp_region;

/* What one PMU has counted of an event. On a machine with several core types each has a PMU. */
typedef struct amp_count {
    const char *event; /* as it was written; valid until the region is closed */
    const char *pmu;   /* its PMU, `software` for the kernel's own events; valid until the region is closed */
    uint64_t count;    /* extrapolated where coverage is below 1 */
    double seconds;    /* in the region for which this PMU counted: those spent on its cores */
    double u;          /* standard uncertainty of the count: 0 of what was counted all the time, NAN when unknown */
    double coverage;   /* part of the times in which the event was counted; below 1 only with AMP_TURNS */
} amp_count;

#define AMP_CHILDREN 1u /* threads and processes that the thread starts from now on, too */
#define AMP_ENERGY 2u   /* the machine's energy, too, whoever runs on it */
/* Counters are read without asking the kernel, where it permits that: amp_region_is_direct says whether. They are then in use from
 * amp_region_open on, not only between start and stop. */
#define AMP_DIRECT 4u
/* More events than a PMU counts at once: sets of them take turns, a set for each time that the region is entered, and counts are
 * extrapolated over all times. For regions that are entered often. Rules out AMP_DIRECT. */
#define AMP_TURNS 8u

/* Opens a region of the calling thread for events separated by commas, as perf writes them. They are counted at the same time, but
 * for AMP_TURNS. *out is NULL when it fails. */
int amp_region_open(const char *events, unsigned flags, amp_region **out);

/* 1 when counters are read without asking the kernel, else 0. */
int amp_region_is_direct(amp_region *region);

/* Counts from here to amp_region_stop, again and again: it is added up. What both do themselves is counted, too. */
int amp_region_start(amp_region *region);
int amp_region_stop(amp_region *region);

/* From 0 again. */
int amp_region_reset(amp_region *region);

/* Writes up to n counts to out, and returns how many there are; with n = 0 out may be NULL. */
int amp_region_read(amp_region *region, amp_count *out, size_t n);

/* The same of what starting and stopping alone count, at least; takes some milliseconds, and resets the region. */
int amp_region_overhead(amp_region *region, amp_count *out, size_t n);

/* The count of an event on all PMUs together. */
int amp_region_total(amp_region *region, const char *event, uint64_t *out);

/* The machine's energy while the region ran, in joules; for regions opened with AMP_ENERGY. */
int amp_region_energy(amp_region *region, double *out);

/* Closes a region. NULL is none. */
void amp_region_close(amp_region *region);

/* What was wrong in the last call on this thread that failed, or "". Valid until the next call on this thread. */
const char *amp_measure_error(void);

#ifdef __cplusplus
}
#endif

#endif
