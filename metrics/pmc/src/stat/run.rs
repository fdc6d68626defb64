//! One run of `scx_amp pmc stat`.

use super::output::{self, Multiplexing, Report};
use super::{refused, Measurement, Shown};
use crate::counting::{Counting, Known, Missed, Order, Overflows, Rows, Scope, Window};
use crate::factors::Estimates;
use crate::target;
use crate::virtuals::Virtuals;
use crate::windows::{self, Windows};
use amp_host::bad_input;
use amp_metrics::group::GroupError;
use amp_metrics::multiplex::{by_name, Turns};
use amp_metrics::pmu::DURATION;
use anyhow::Result;
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How often counters are read to be cut into windows of instructions, or windows are fetched that
/// the kernel has cut.
const CUT: Duration = Duration::from_millis(5);
/// How long each set is on when no interval is given.
const TURN: Duration = Duration::from_millis(10);
/// What to do about a set that does not fit.
const ADVICE: &str = "Leave some out, or count by turns without --window";
/// Of the lengths of turns: the same every time.
const SEED: u64 = 1;
/// How often new threads are looked for.
const THREADS: Duration = Duration::from_millis(10);
/// After how many looks names of threads are read anew.
const NAMES: u32 = 32;

impl Measurement<'_> {
    /// Counts once, `virtuals` beside the events; prints intervals meanwhile.
    pub(super) fn count(
        &self,
        mut virtuals: Option<Virtuals>,
        out: &mut Shown,
        stop: &AtomicBool,
    ) -> Result<(Report, ExitCode)> {
        let (args, inventory, sets) = (self.args, &self.inventory, &self.sets);
        let strategy = by_name(&args.strategy, sets.len()).map_err(bad_input)?;
        let mut estimates = self.factors.as_ref().map(|f| f.begin(self.own_sets()));
        let (mut cutter, mut overflows) = (None, None);
        if let Some(size) = args.window.and_then(NonZeroU64::new) {
            if args.overflow {
                windows::counted(sets, inventory)?;
                overflows = Some(Overflows::new(size));
            } else {
                cutter = Some(Windows::new(size, sets, inventory)?);
            }
        }
        let by_overflow = overflows.is_some();
        let windowed = args.interval.is_some() || args.window.is_some();
        let keep = args.json.is_some() || args.html.is_some();
        let format = self.format();
        let quiet = super::is_to_stdout(&[&args.json, &args.html]);
        let chosen = args.target.choose(quiet)?;
        let scope = match args.target.all_cpus {
            true => Scope::Cpus(inventory.all_cpus()),
            false => Scope::Tasks(chosen.tids.clone()),
        };
        // the counter of a thread, or of a CPU, overflows, and no sum of them
        let by_thread = args.per_thread || by_overflow && !args.target.all_cpus;
        let by_cpu = args.per_cpu || by_overflow && args.target.all_cpus;
        let rows = match (by_cpu, by_thread) {
            (true, _) => Rows::Cpus,
            (_, true) => Rows::Threads,
            _ => Rows::Summed,
        };
        let on_exec = chosen.on_exec();
        let names = &inventory.counted_names();
        let order = Order {
            strategy,
            at_once: self.at_once,
        };
        let opened = Counting::open(sets, names, &scope, rows, on_exec, order, overflows);
        let mut counting = opened.map_err(|e| refused(inventory, sets, e, ADVICE))?;
        // a refusal stands alone
        if windowed && args.json.is_none() {
            out.show(&output::window_head(format));
        }
        let pid = chosen.pid.filter(|_| !args.target.all_cpus);
        if !on_exec {
            counting.start()?;
        }
        if let Some(v) = &mut virtuals {
            // where increments begin
            v.sample(0.0, pid);
        }
        let mut watched = chosen.release(stop)?;
        let begin = watched.begin;
        let mut found = Found::new(pid.filter(|_| by_thread), &scope);

        let turn = match (args.interval, sets.len()) {
            (Some(ms), _) => Some(Duration::from_millis(ms)),
            (None, _) if args.window.is_some() => Some(CUT),
            (None, 0 | 1) => None,
            (None, _) => Some(TURN),
        };
        let uneven = args.interval.is_none() && args.window.is_none();
        let mut turns = turn.map(|t| Turns::new(t, sets.len(), SEED));
        let mut length = || match (turn, &mut turns) {
            (Some(_), Some(turns)) if uneven => Some(turns.next()),
            (t, _) => t,
        };
        let mut windows: Vec<Window> = Vec::new();
        let mut next = length().map(|t| begin + t);
        loop {
            let look = found.when();
            // levels are sampled even where nothing is shown before the end
            let sampled = virtuals.as_ref().filter(|_| !windowed);
            let sample = sampled.map(|_| Instant::now() + target::LOOK);
            let last = watched.wait([next, look, sample].into_iter().flatten().min())?;
            found.look(&mut counting)?;
            let due = next.is_some_and(|n| Instant::now() >= n);
            if let (Some(v), false) = (&mut virtuals, windowed || last) {
                v.sample(begin.elapsed().as_secs_f64(), pid);
            }
            if last || due {
                let at_s = begin.elapsed().as_secs_f64();
                // what the kernel reads need not be read
                let mut w = match by_overflow && !last {
                    true => None,
                    false => Some(counting.turn(at_s, last)?),
                };
                if let (Some(v), true) = (&mut virtuals, windowed || last) {
                    let sampled = v.sample(at_s, pid);
                    if let Some(w) = &mut w {
                        w.virtual_counters = sampled;
                    }
                }
                if let (Some(e), Some(w)) = (&mut estimates, &mut w) {
                    let estimated = e.take(w);
                    w.virtual_counters.extend(estimated);
                }
                let done = match (w, &mut cutter) {
                    _ if by_overflow => counting.overflows(begin),
                    (Some(w), Some(cutter)) => cutter.take(&w),
                    (Some(w), None) if windowed => vec![w],
                    _ => Vec::new(),
                };
                for w in done {
                    if args.json.is_none() {
                        out.show(&output::window(&w, format));
                    }
                    if keep {
                        windows.push(w);
                    }
                }
            }
            if last {
                break;
            }
            if due {
                // not from when it was due: a turn that came late is to last as long as others
                next = length().map(|t| Instant::now() + t);
            }
        }
        let elapsed_s = begin.elapsed().as_secs_f64();
        for failure in virtuals.iter().flat_map(Virtuals::failed) {
            log::warn!("-V: {failure}");
        }
        let missed = counting.missed_overflows();
        if let Some(missed) = missed {
            warn_of(missed);
        }
        let mut known = virtuals.as_ref().map(Virtuals::known).unwrap_or_default();
        known.extend(estimates.iter().flat_map(Estimates::known));
        known.push(Known {
            name: DURATION.to_owned(),
            core_type: None,
            tid: None,
            value: elapsed_s,
            exact: true,
        });
        let mut others = virtuals.as_ref().map(Virtuals::totals).unwrap_or_default();
        others.extend(estimates.iter().flat_map(Estimates::totals));
        let (counts, metrics) = counting.totals(&self.formulas, &known)?;
        let report = Report {
            command: args.target.command(),
            pid: args.target.pid,
            system_wide: args.target.all_cpus,
            elapsed_s,
            sets: sets.iter().map(|s| s.text.clone()).collect(),
            multiplexing: turn.filter(|_| sets.len() > 1).map(|t| Multiplexing {
                strategy: counting.strategy(),
                interval_ms: t.as_millis() as u64,
                spread: uneven.then(Turns::spread),
                at_once: counting.at_once(),
                turns: counting.turns(),
            }),
            counts,
            metrics,
            virtual_counters: others,
            window: args.window,
            overflow: missed,
            intervals: windowed.then_some(windows),
            repeated: None,
        };
        Ok((report, watched.status()?))
    }
}

/// Tells which windows there are not.
fn warn_of(Missed { lost, throttled }: Missed) {
    if throttled > 0 {
        log::warn!(
            "--overflow: the kernel paused the counters {throttled} times, because interrupts came too often; windows with a pause in them are left out. Choose a longer --window, or raise `sysctl kernel.perf_event_max_sample_rate` (with `kernel.perf_cpu_time_max_percent=0`, or the kernel lowers it again)"
        );
    }
    if lost > 0 {
        log::warn!(
            "--overflow: {lost} windows are lost: the ends of them were not written, or the counters were paused in them. Choose a longer --window, or a shorter -i; the counts of the whole run have them"
        );
    }
}

/// Threads of a process that turn up while it is counted thread by thread.
struct Found {
    /// The process, where there is something to look for.
    pid: Option<i32>,
    known: BTreeSet<i32>,
    next: Instant,
    /// Looks after which names are read anew.
    looks: u32,
    /// Whether there were no more files for the events of a thread.
    full: bool,
}

impl Found {
    fn new(pid: Option<i32>, scope: &Scope) -> Found {
        Found {
            pid,
            known: match scope {
                Scope::Tasks(tids) => tids.iter().copied().collect(),
                Scope::Cpus(_) => BTreeSet::new(),
            },
            next: Instant::now(),
            looks: 0,
            full: false,
        }
    }

    fn when(&self) -> Option<Instant> {
        self.pid.map(|_| self.next)
    }

    /// Says once that there were too few files.
    fn warn_of_files(&mut self, e: &dyn std::error::Error) {
        if !std::mem::replace(&mut self.full, true) {
            log::warn!("some threads are counted late, or not at all: {e}");
        }
    }

    fn look(&mut self, counting: &mut Counting) -> Result<()> {
        let (Some(pid), true) = (self.pid, Instant::now() >= self.next) else {
            return Ok(());
        };
        // not by the listing: what ends while it is read hides others
        let has_ended = |tid| !Path::new(&format!("/proc/{pid}/task/{tid}")).exists();
        let mut alive = target::task(pid);
        if alive.is_err() {
            // the events have all files
            counting.let_go_of(has_ended)?;
            alive = target::task(pid);
        }
        if let Err(e) = &alive {
            self.warn_of_files(e);
        }
        let alive: BTreeSet<i32> = alive.unwrap_or_default().into_iter().collect();
        // the process has ended, or there is no file left to look with
        if !alive.is_empty() {
            counting.keep_buffers_of(&alive);
        }
        for tid in alive {
            if !self.known.insert(tid) {
                continue;
            }
            let mut adopted = counting.adopt(tid, target::ran(tid));
            if let Err(GroupError::Files { .. }) = adopted {
                counting.let_go_of(has_ended)?;
                adopted = counting.adopt(tid, target::ran(tid));
            }
            match adopted {
                Err(e @ GroupError::Files { .. }) => {
                    self.warn_of_files(&e);
                    // others may end
                    self.known.remove(&tid);
                    break;
                }
                adopted => adopted?,
            }
        }
        // most threads name themselves as soon as they begin
        if self.looks % NAMES == 1 {
            counting.rename();
        }
        self.looks += 1;
        self.next = Instant::now() + THREADS;
        Ok(())
    }
}
