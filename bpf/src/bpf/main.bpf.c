// SPDX-License-Identifier: GPL-2.0-only
/*
 * scx_amp, the mechanism: threads wait in one queue per core type; user space says which core type
 * each belongs on.
 *
 * accounting.bpf.h  run time and virtual time
 * limits.bpf.h      CPU time that control groups may have
 * groups.bpf.h      what control groups make a thread weigh
 * slots.bpf.h       the record of a thread, shared with user space
 * ended.bpf.h       threads that have gone
 * arrivals.bpf.h    threads that have come
 * seats.bpf.h       the core type of a program that is run again
 * counters.bpf.h    hardware counters per thread
 * rest.bpf.h        no timer on an idle machine
 * idle.bpf.h        wake-up: which idle CPU
 * placement.bpf.h   otherwise: which queue
 * dispatch.bpf.h    which thread next
 * running.bpf.h     which thread runs where
 * frequency.bpf.h   the clocks of CPUs
 * commit.bpf.h      placements from user space
 * release.bpf.h     who was held for his control group's limit goes on
 * fallback.bpf.h    the timer: waits that are too long, and when user space is silent
 *
 * Functions that are not static are verified once by themselves, in each program that has them, instead of once for every way to reach
 * them, which keeps loading fast. Of their callers nothing is known there, nor of what they return afterwards.
 */
#include <scx/common.bpf.h>
#include "intf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

#include "config.bpf.h"
#include "ended.bpf.h"
#include "arrivals.bpf.h"
#include "arguments.bpf.h"
#include "seats.bpf.h"
#include "limits.bpf.h"
#include "accounting.bpf.h"
#include "groups.bpf.h"
#include "slots.bpf.h"
#include "counters.bpf.h"
#include "rest.bpf.h"
#include "idle.bpf.h"
#include "placement.bpf.h"
#include "dispatch.bpf.h"
#include "frequency.bpf.h"
#include "running.bpf.h"
#include "commit.bpf.h"
#include "release.bpf.h"
#include "fallback.bpf.h"

static s32 create_mask(u32 type)
{
	struct type_mask *m = bpf_map_lookup_elem(&type_masks, &type);
	struct bpf_cpumask *mask;
	u32 cpu;

	if (!m)
		return -ENOENT;
	mask = bpf_cpumask_create();
	if (!mask)
		return -ENOMEM;
	bpf_for(cpu, 0, nr_cpus)
		if (type_of(cpu) == type)
			bpf_cpumask_set_cpu(cpu, mask);
	mask = bpf_kptr_xchg(&m->mask, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(amp_init)
{
	struct amp_slot *s = slot_at(AMP_UNTRACKED);
	s32 err;
	u32 i;

	if (s) {
		s->allowed = 0xff;
		s->placement = AMP_ANY;
		s->rotation = AMP_ANY;
	}
	shared.nr_used = 1;
	bpf_for(i, 0, AMP_NR_CLOCKS)
		shared.clock[i & 15] = FIRST_CLOCK;
	shared.heartbeat = bpf_ktime_get_ns();
	bpf_for(i, 0, nr_cpus)
		cpu_record(i)->clock = cpu_record(i)->clock_here = FASTEST;
	bpf_for(i, 0, nr_types) {
		err = create_mask(i);
		if (err)
			return err;
	}
	bpf_for(i, 0, nr_queues + 1) {
		err = scx_bpf_create_dsq(queue_id(i), -1);
		if (err)
			return err;
	}
	return start_timer();
}

/*
 * A higher class takes @cpu: what was put there, or was running, goes where it can run. Not called
 * where enq_immed does it.
 */
void BPF_STRUCT_OPS(amp_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	cpu_record(cpu)->slot = 0;
	scx_bpf_reenqueue_local();
}

void BPF_STRUCT_OPS(amp_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(amp_ops,
	       .select_cpu	= (void *)amp_select_cpu,
	       .enqueue		= (void *)amp_enqueue,
	       .dispatch	= (void *)amp_dispatch,
	       .running		= (void *)amp_running,
	       .tick		= (void *)amp_tick,
	       .cpu_release	= (void *)amp_cpu_release,
	       .set_weight	= (void *)amp_set_weight,
	       .set_cpumask	= (void *)amp_set_cpumask,
	       .enable		= (void *)amp_enable,
	       .disable		= (void *)amp_disable,
	       .init		= (void *)amp_init,
	       .exit		= (void *)amp_exit,
	       .timeout_ms	= 10000U,
	       .name		= "amp");
