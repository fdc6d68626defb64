/* Counts a loop of which every instruction is known, and times empty regions: `region [EVENTS [ROUNDS [direct|turns]]]`. With
 * `direct` counters are read without asking the kernel, where it permits that; with `turns` there may be more events than counters.
 *
 * tools/setup/build.sh builds it against libamp_measure.a. By hand, for this machine:
 *     cargo build --release -p amp-measure
 *     cc -Ilibs/measure/include libs/measure/examples/region.c target/release/libamp_measure.a -lm -lpthread -ldl -o region
 */
/* clock_gettime */
#define _POSIX_C_SOURCE 199309L

#include "amp_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Two instructions a round, one of them a branch. */
static void loop(uint64_t rounds)
{
#if defined(__aarch64__)
    __asm__ volatile("1: subs %0, %0, #1\n\tb.ne 1b" : "+r"(rounds) : : "cc");
#elif defined(__x86_64__)
    __asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(rounds) : : "cc");
#else
    for (volatile uint64_t i = 0; i < rounds; i++) {
    }
#endif
}

static int failed(const char *what)
{
    fprintf(stderr, "region: %s: %s\n", what, amp_measure_error());
    return 1;
}

/* Seconds that a start and a stop take, in the mean of `n`; negative when one fails. */
static double empty_region(amp_region *region, int n)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < n; i++)
        if (amp_region_start(region) != 0 || amp_region_stop(region) != 0)
            return -1;
    clock_gettime(CLOCK_MONOTONIC, &to);
    return ((double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9) / n;
}

int main(int argc, char **argv)
{
    const char *events = argc > 1 ? argv[1] : "instructions:u,cycles:u";
    uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000000;
    const char *how = argc > 3 ? argv[3] : "";
    unsigned flags = strcmp(how, "direct") == 0 ? AMP_DIRECT : strcmp(how, "turns") == 0 ? AMP_TURNS : 0;
    /* a region that is entered twice, or often */
    int times = flags == AMP_TURNS ? 200 : 2;
    amp_region *region;
    amp_count counts[32];
    double joules;

    /* energy where something tells it */
    int with_energy = amp_region_open(events, flags | AMP_ENERGY, &region) == 0;
    if (!with_energy && amp_region_open(events, flags, &region) != 0)
        return failed(events);
    printf("direct %d\n", amp_region_is_direct(region));

    int n = amp_region_overhead(region, counts, 32);
    if (n < 0)
        return failed("overhead");
    for (int i = 0; i < n && i < 32; i++)
        printf("overhead %s %s %llu\n", counts[i].pmu, counts[i].event, (unsigned long long)counts[i].count);

    for (int i = 0; i < times; i++) {
        if (amp_region_start(region) != 0)
            return failed("start");
        loop(rounds / times);
        if (amp_region_stop(region) != 0)
            return failed("stop");
        loop(2 * rounds / times); /* not counted */
    }

    n = amp_region_read(region, counts, 32);
    if (n < 0)
        return failed("read");
    for (int i = 0; i < n && i < 32; i++)
        printf("count %s %s %llu %.6f %g %.3f\n", counts[i].pmu, counts[i].event, (unsigned long long)counts[i].count,
               counts[i].seconds, counts[i].u, counts[i].coverage);
    if (with_energy && amp_region_energy(region, &joules) == 0)
        printf("energy %.9f\n", joules);
    amp_region_close(region);

    /* without energy, whose sensor is a file to read */
    if (amp_region_open(events, flags, &region) != 0)
        return failed(events);
    double seconds = empty_region(region, 2000);
    if (seconds < 0)
        return failed("an empty region");
    printf("empty %.9f\n", seconds);
    amp_region_close(region);
    return 0;
}
