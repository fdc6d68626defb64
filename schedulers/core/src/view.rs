//! What a policy sees.

use crate::done::{Done, Unrated};
use crate::machine::Topology;
use crate::utility::Utility;
use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, Cost, Estimate, MetricId, Nanos, ProgramId, Provider, Quality,
    ThreadKey, MAX_CORE_TYPES,
};
use std::ops::Range;

/// A thread that wants a core now.
#[derive(Clone, Copy, Debug)]
pub struct ThreadView {
    /// Its name.
    pub key: ThreadKey,
    /// Kernel thread id.
    pub tid: i32,
    /// Its application.
    pub app_id: AppId,
    /// Index of its application in [`View::apps`].
    pub app: usize,
    /// Scheduling weight, 100 = default; never 0.
    pub weight: u32,
    /// Core types it may run on; only types that the machine has.
    pub allowed: CoreTypeSet,
    /// Core type it is placed on now.
    pub placed: Option<CoreTypeId>,
    /// Core type it ran on last.
    pub core_type: CoreTypeId,
    /// CPU time per core type since it was first seen.
    pub runtime: [Nanos; MAX_CORE_TYPES],
    /// CPU time per core type in this interval; where it goes on in the place of another, and is offered
    /// for the first time, that included which no decision has counted of the one before.
    pub ran: [Nanos; MAX_CORE_TYPES],
    /// What it had done before this interval, under whatever policies there were.
    pub done: Done,
    /// What it did before its speedup factor was known; told at the decision at which it is known
    /// first, nothing at any other.
    pub unrated: Unrated,
    /// The thread in whose place it goes on: the same program, run again.
    pub succeeds: Option<ThreadKey>,
}

impl ThreadView {
    /// CPU time in this interval on core types up to and including `t`, in seconds.
    pub fn ran_up_to(&self, t: CoreTypeId) -> f64 {
        self.ran
            .iter()
            .take(t.index() + 1)
            .copied()
            .sum::<Nanos>()
            .as_secs_f64()
    }

    /// CPU time per core type that a policy by factors charges now, in seconds: that in this interval, and that
    /// before the factors were known.
    pub fn rated_now(&self) -> [f64; MAX_CORE_TYPES] {
        std::array::from_fn(|t| (self.ran[t] + self.unrated.ran[t]).as_secs_f64())
    }

    /// Whether it is placed on `t` or on a faster type.
    pub fn holds(&self, t: CoreTypeId) -> bool {
        self.placed.is_some_and(|p| p <= t)
    }
}

/// An application with at least one thread in the view.
#[derive(Clone, Debug)]
pub struct AppView {
    /// Its name.
    pub id: AppId,
    /// The application in whose place it goes on, the same program run again; told when it appears.
    pub succeeds: Option<AppId>,
    /// Its threads in [`View::threads`].
    pub threads: Range<usize>,
    /// Runnable threads, N of the speedup formulas; ≥ 1. Counts those too that are not offered yet.
    pub runnable: usize,
    /// CPU time that one of its threads had on each core type while it was placed there, over that of
    /// one on the slowest type, 0 to 1; 1 where nothing is known. Less than 1: those on fast cores
    /// wait for the others.
    pub busy: [f64; MAX_CORE_TYPES],
}

/// How many CPUs' worth of work these threads have: CPU time in this interval, in intervals. Whoever had
/// none because others did not let him, and whoever has come in it, counts as if he worked all the time. On
/// a desktop dozens of threads wake up in any interval for a moment, and need no core each: what they do
/// together counts from three quarters of a CPU on.
fn demand(threads: &[ThreadView], interval: Nanos) -> usize {
    // a thread's time is noted at ticks, now and then: nearly all is all
    const NEARLY: f64 = 0.9;
    let all = interval.as_secs_f64();
    let of = |th: &ThreadView| {
        let ran: Nanos = th.ran.iter().copied().sum();
        let ever: Nanos = th.runtime.iter().copied().sum();
        match ran.as_secs_f64() / all {
            part if part > 0.0 && part < NEARLY && ever > ran => part,
            _ => 1.0,
        }
    };
    (threads.iter().map(of).sum::<f64>() + 0.25) as usize // small and positive
}

/// Part of the time of its siblings up to which a thread on a fast core does not count as waiting for them.
const UNDISTURBED: f64 = 0.92;

/// Everything a policy may base one decision on.
pub struct View<'a> {
    /// The machine's cores.
    pub topology: &'a Topology,
    /// End of the interval, in the machine's time.
    pub now: Nanos,
    /// Length of the interval; zero at the first decision.
    pub interval: Nanos,
    /// Time between two decisions as a rule. The interval is shorter where something became known before
    /// its end.
    pub period: Nanos,
    /// Threads that want a core, those of one application side by side, in a reproducible order.
    pub threads: &'a [ThreadView],
    /// Their applications, ascending by id.
    pub apps: &'a [AppView],
    seats: [usize; MAX_CORE_TYPES],
    smt: bool,
    metrics: &'a dyn Provider,
}

impl<'a> View<'a> {
    /// A view of these threads and applications; metrics come from `metrics`.
    pub fn new(
        topology: &'a Topology,
        now: Nanos,
        interval: Nanos,
        threads: &'a [ThreadView],
        apps: &'a [AppView],
        metrics: &'a dyn Provider,
    ) -> View<'a> {
        // without it seats are CPUs, however much there is to do
        let smt = topology.smt();
        View {
            topology,
            now,
            interval,
            period: interval,
            threads,
            apps,
            seats: topology.seats(if smt { demand(threads, interval) } else { 0 }),
            smt,
            metrics,
        }
    }

    /// How many threads of this view core type `t` runs at a time ([`Topology::seats`]): its cores,
    /// and their other hardware threads where there is more work than cores.
    pub fn nr_seats(&self, t: CoreTypeId) -> usize {
        self.seats.get(t.index()).copied().unwrap_or(0)
    }

    /// Core types, fastest first.
    pub fn core_types(&self) -> impl DoubleEndedIterator<Item = CoreTypeId> + ExactSizeIterator {
        let n = self.topology.core_types().len() as u8; // at most MAX_CORE_TYPES
        (0..n).map(CoreTypeId)
    }

    /// The core types that threads gain something on: all but the slowest, or the only one.
    pub fn fast_types(&self) -> impl DoubleEndedIterator<Item = CoreTypeId> + ExactSizeIterator {
        let types = self.core_types();
        let fast = types.len().saturating_sub(1).max(1);
        types.take(fast)
    }

    /// Seats of core type `t` and of all faster ones.
    pub fn seats_up_to(&self, t: CoreTypeId) -> usize {
        let up_to = self.core_types().take_while(|f| *f <= t);
        up_to.map(|f| self.nr_seats(f)).sum()
    }

    /// An estimate of any metric, when there is an honest one: positive, finite, not partial.
    pub fn estimate(&self, thread: &ThreadView, metric: MetricId) -> Option<Estimate> {
        let e = self.metrics.estimate(thread.key, metric)?;
        (e.value.is_finite() && e.value > 0.0 && e.quality != Quality::Partial).then_some(e)
    }

    /// The speedup factor of `thread` on `t` relative to the slowest type. It is 1 on the slowest
    /// one itself.
    pub fn speedup_factor(&self, thread: &ThreadView, t: CoreTypeId) -> Option<f64> {
        if t == self.topology.slowest() {
            return Some(1.0);
        }
        self.estimate(thread, MetricId::SpeedupFactor(t))
            .map(|e| e.value)
    }

    /// The core type on which the source of metrics would like to see `thread`
    /// ([`Provider::wanted_on`]).
    pub fn wanted_on(&self, thread: &ThreadView) -> Option<CoreTypeId> {
        self.metrics.wanted_on(thread.key)
    }

    /// Number of the phase that `thread` is in ([`Provider::phase`]), where the source of metrics follows phases.
    pub fn phase(&self, thread: &ThreadView) -> Option<u32> {
        self.metrics.phase(thread.key).map(|p| p.number)
    }

    /// What programs are known to cost each other.
    pub fn costs(&self) -> &[Cost] {
        self.metrics.costs()
    }

    /// The program of `thread`, as [`View::costs`] names it.
    pub fn program(&self, thread: &ThreadView) -> Option<ProgramId> {
        self.metrics.program(thread.key)
    }

    /// What neighbours left of the speed of `thread` in this interval, 0 to 1.
    pub fn slowed(&self, thread: &ThreadView) -> f64 {
        let slowed = self.metrics.slowed(thread.key);
        if slowed.is_finite() {
            slowed.clamp(0.0, 1.0)
        } else {
            1.0
        }
    }

    /// What the application of `thread` gains on `t` when its threads have speedup factor `sf`, N
    /// being its runnable threads now.
    pub fn utility(&self, thread: &ThreadView, t: CoreTypeId, sf: f64, rule: Utility) -> f64 {
        let n = self.apps.get(thread.app).map_or(1, |a| a.runnable);
        let sf = self.arriving(thread.app, t, sf, rule);
        rule.of(sf, n, self.cores_alone(t, n))
    }

    /// What the application of `thread` would gain alone from all faster core types, by its speedup
    /// factors `sf`: threads for which the fastest type has no room are on the next one, and so on.
    /// On two core types that is [`View::utility`] of the fastest; by rules other than `auto` and
    /// `speedup` on more of them, too.
    pub fn utility_alone(
        &self,
        thread: &ThreadView,
        sf: &[f64; MAX_CORE_TYPES],
        rule: Utility,
    ) -> f64 {
        let fastest = CoreTypeId::FASTEST;
        let mut gain = self.utility(thread, fastest, sf[fastest.index()], rule);
        if !matches!(rule, Utility::Auto | Utility::Speedup) {
            return gain;
        }
        let n = self.apps.get(thread.app).map_or(1, |a| a.runnable.max(1));
        let mut left = n.saturating_sub(self.cores_alone(fastest, n));
        let slowest = self.topology.slowest();
        for t in self.core_types().skip(1).filter(|t| *t != slowest) {
            let here = self.cores_alone(t, n).min(left);
            left -= here;
            let sf = self.arriving(thread.app, t, sf[t.index()], rule);
            gain += here as f64 / n as f64 * (sf - 1.0);
        }
        gain
    }

    /// Cores of type `t` that an application of `n` runnable threads has where it is alone, NB of the
    /// speedup formulas.
    pub fn cores_alone(&self, t: CoreTypeId, n: usize) -> usize {
        // asked for each thread: without SMT there is nothing to work out
        match self.smt {
            false => self.topology.nr_cpus(t),
            true => self.topology.seats(n).get(t.index()).copied().unwrap_or(0),
        }
    }

    /// What arrives at application `app` (index in [`View::apps`]) of the speedup factor `sf` that its
    /// threads have on `t`: with [`Utility::Auto`], what a thread gets done there over what its
    /// siblings get done on slow cores, where there are more threads than cores of type `t`.
    pub fn arriving(&self, app: usize, t: CoreTypeId, sf: f64, rule: Utility) -> f64 {
        let known = self.apps.get(app).filter(|_| rule == Utility::Auto);
        let waits = known.filter(|a| a.runnable > self.cores_alone(t, a.runnable));
        let busy = waits.and_then(|a| a.busy.get(t.index()));
        match busy {
            Some(busy) if *busy < UNDISTURBED && sf > 1.0 => (sf * busy).max(1.0),
            _ => sf,
        }
    }

    /// The speedup factor of `thread` on `t` with its standard uncertainty, 0 where none is stated.
    pub fn uncertain_factor(&self, thread: &ThreadView, t: CoreTypeId) -> Option<(f64, f64)> {
        let e = self.estimate(thread, MetricId::SpeedupFactor(t))?;
        let u = e.uncertainty.filter(|u| u.is_finite() && *u > 0.0);
        Some((e.value, u.unwrap_or(0.0)))
    }

    /// What a core of type `t` adds while it runs `thread`, of speedup factor `sf` there
    /// ([`Utility::per_core`]).
    pub fn gain_per_core(&self, thread: &ThreadView, t: CoreTypeId, sf: f64, rule: Utility) -> f64 {
        let n = self.apps.get(thread.app).map_or(1, |a| a.runnable);
        let sf = self.arriving(thread.app, t, sf, rule);
        rule.per_core(sf, n, self.cores_alone(t, n))
    }

    /// The application-wide speedup of `app` on `t` [TR5028 §4], from the mean speedup factor of
    /// its threads that have one; `None` when none has.
    pub fn application_speedup(&self, app: &AppView, t: CoreTypeId, rule: Utility) -> Option<f64> {
        let threads = self.threads.get(app.threads.clone()).unwrap_or(&[]);
        let (n, sum) = threads
            .iter()
            .filter_map(|th| self.speedup_factor(th, t))
            .fold((0usize, 0.0), |(n, sum), sf| (n + 1, sum + sf));
        (n > 0).then(|| {
            rule.of(
                sum / n as f64,
                app.runnable,
                self.cores_alone(t, app.runnable),
            )
        })
    }
}
