//! Windows of the same program matched across core types by instruction position: true SF and EF.
//!
//! Every run is a cumulative function of the instructions retired so far, linear within a window,
//! for its cycles, time, energy and events. The windows of the first run on the slowest core type
//! are the grid; what any run says of a window of the grid is the difference of its functions at
//! the two ends. So runs whose windows do not begin at the very same instruction are still compared
//! over the same instructions [PMCTrack §4.1.2], and event sets from different runs come together.

use crate::data::{Dataset, Run};
use std::collections::BTreeMap;

/// What one core type did in a window of the grid: means over the runs that cover it.
#[derive(Clone, Debug, PartialEq)]
pub struct OnCoreType {
    /// Cycles.
    pub cycles: f64,
    /// CPU time in seconds.
    pub time_s: f64,
    /// Energy in joules, where every run has it and it is above 0.
    pub energy_j: Option<f64>,
    /// Count of each event of the core type, in the order of [`crate::data::CoreType::events`].
    pub counts: Vec<f64>,
}

/// A window of instructions and what each core type did in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Matched {
    /// Instructions of the program before it.
    pub position: f64,
    /// Instructions in it.
    pub instructions: f64,
    /// Per core type, fastest first.
    pub on: Vec<OnCoreType>,
}

impl Matched {
    /// Speedup factor of core type `of` relative to the slowest: the ratio of instructions per
    /// second, frequency included (`ALGORITHMS.md`, SF). `None` when there is no such core type.
    pub fn speedup(&self, of: usize) -> Option<f64> {
        let (fast, slow) = (self.on.get(of)?, self.on.last()?);
        usable(slow.time_s / fast.time_s)
    }

    /// Efficiency factor of core type `of`: EDP on the slowest over EDP on it, = SF / (energy on it
    /// / energy on the slowest) over the same instructions [PMCTrack eq. 3-7]. `None` where energy
    /// is not known.
    pub fn efficiency(&self, of: usize) -> Option<f64> {
        let (fast, slow) = (self.on.get(of)?, self.on.last()?);
        usable(self.speedup(of)? * slow.energy_j? / fast.energy_j?)
    }
}

fn usable(x: f64) -> Option<f64> {
    Some(x).filter(|x| x.is_finite() && *x > 0.0)
}

/// The matched windows of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its windows, in order.
    pub windows: Vec<Matched>,
    /// Share of the instructions of its longest run that no matched window covers, 0 to 1.
    pub unmatched: f64,
}

/// The matched windows of every program that has all that is needed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchedData {
    /// Programs with at least one window.
    pub programs: Vec<Program>,
    /// Programs that were left out, and why.
    pub left_out: BTreeMap<String, String>,
}

/// The cumulative functions of a run.
struct Curve<'a> {
    run: &'a Run,
    /// Instructions before each window, and after the last one.
    at: Vec<f64>,
}

impl<'a> Curve<'a> {
    fn new(run: &'a Run) -> Curve<'a> {
        let mut sum = 0.0;
        let ends = run.windows.iter().map(|w| {
            sum += w.instructions as f64;
            sum
        });
        Curve {
            run,
            at: std::iter::once(0.0).chain(ends).collect(),
        }
    }

    fn end(&self) -> f64 {
        self.at.last().copied().unwrap_or(0.0)
    }

    /// Calls `f` with each window between the positions `a` and `b`, and the share of it that lies
    /// there.
    fn between(&self, a: f64, b: f64, mut f: impl FnMut(&crate::data::Window, f64)) {
        let first = self.at.partition_point(|x| *x <= a).saturating_sub(1);
        for (w, ends) in self.run.windows.iter().zip(self.at.windows(2)).skip(first) {
            let (begin, end) = (ends[0], ends[1]);
            if begin >= b {
                break;
            }
            let share = (end.min(b) - begin.max(a)) / (end - begin);
            if share > 0.0 {
                f(w, share);
            }
        }
    }
}

/// Matches the windows of every program.
///
/// A program is left out when it lacks a core type or an event set. Windows beyond the end of the
/// shortest run are not matched ([`Program::unmatched`]).
pub fn matched(data: &Dataset) -> MatchedData {
    let mut out = MatchedData::default();
    for (name, runs) in &data.programs {
        match program(data, name, runs) {
            Ok(p) => out.programs.push(p),
            Err(why) => {
                out.left_out.insert(name.clone(), why);
            }
        }
    }
    out
}

fn program(data: &Dataset, name: &str, runs: &[Vec<Run>]) -> Result<Program, String> {
    let types = &data.header.core_types;
    for (t, runs) in types.iter().zip(runs) {
        for set in 0..t.sets.len() {
            if !runs.iter().any(|r| r.set == set) {
                return Err(format!("no run of event set {set} on `{}`", t.name));
            }
        }
    }
    let curves: Vec<Vec<Curve<'_>>> = runs
        .iter()
        .map(|runs| runs.iter().map(Curve::new).collect())
        .collect();
    let all = || curves.iter().flatten().map(Curve::end);
    let (shortest, longest) = (
        all().fold(f64::INFINITY, f64::min),
        all().fold(0.0, f64::max),
    );
    let grid = curves.last().and_then(|c| c.first());
    let grid = grid.ok_or_else(|| "no runs".to_owned())?;
    let mut windows = Vec::new();
    let mut covered = 0.0;
    for ends in grid.at.windows(2) {
        let (a, b) = (ends[0], ends[1]);
        if b > shortest {
            break;
        }
        covered += b - a;
        windows.push(Matched {
            position: a,
            instructions: b - a,
            on: types
                .iter()
                .zip(&curves)
                .map(|(t, curves)| on_core_type(t, curves, a, b))
                .collect(),
        });
    }
    if windows.is_empty() {
        return Err("no window is covered by its runs on every core type".to_owned());
    }
    Ok(Program {
        name: name.to_owned(),
        windows,
        unmatched: 1.0 - covered / longest,
    })
}

fn on_core_type(t: &crate::data::CoreType, curves: &[Curve<'_>], a: f64, b: f64) -> OnCoreType {
    let n = curves.len() as f64;
    let (mut cycles, mut time, mut energy) = (0.0, 0.0, Some(0.0));
    let mut counts: Vec<f64> = Vec::new();
    for c in curves {
        c.between(a, b, |w, share| {
            cycles += share * w.cycles as f64 / n;
            time += share * w.time_ns as f64 / n;
            energy = energy.zip(w.energy_j).map(|(e, j)| e + share * j / n);
        });
    }
    for (s, set) in t.sets.iter().enumerate() {
        let first = counts.len();
        counts.resize(first + set.len(), 0.0);
        let of_set = || curves.iter().filter(|c| c.run.set == s);
        let n = of_set().count() as f64;
        for c in of_set() {
            c.between(a, b, |w, share| {
                for (to, from) in counts[first..].iter_mut().zip(&w.counts) {
                    *to += share * *from as f64 / n;
                }
            });
        }
    }
    OnCoreType {
        cycles,
        time_s: time * 1e-9,
        energy_j: energy.filter(|e| *e > 0.0),
        counts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{CoreType, Header, Row, FORMAT, VERSION};
    use proptest::prelude::*;

    fn empty(sets: &[&[&str]]) -> Dataset {
        let core_type = |name: &str| CoreType {
            name: name.to_owned(),
            pmu: None,
            instructions: None,
            cycles: None,
            events_per_set: 2,
            sets: sets
                .iter()
                .map(|s| s.iter().map(|e| (*e).to_owned()).collect())
                .collect(),
        };
        Dataset::new(Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            platform: "p".to_owned(),
            machine: None,
            kernel: None,
            date: None,
            core_types: vec![core_type("big"), core_type("little")],
        })
        .unwrap()
    }

    #[allow(clippy::too_many_arguments)]
    fn add(
        d: &mut Dataset,
        t: &str,
        run: u32,
        set: usize,
        w: u64,
        n: u64,
        time: u64,
        e: Option<f64>,
        counts: &[u64],
    ) {
        let row = Row(
            "x".to_owned(),
            t.to_owned(),
            run,
            set,
            w,
            n,
            2 * time,
            time,
            e,
            counts.to_vec(),
        );
        d.add(row).unwrap();
    }

    #[test]
    fn equal_windows_give_the_ratio_of_their_speeds() {
        let mut d = empty(&[&["a"]]);
        add(&mut d, "big", 0, 0, 0, 100, 10, Some(3.0), &[7]);
        add(&mut d, "big", 0, 0, 1, 100, 20, Some(4.0), &[8]);
        add(&mut d, "little", 0, 0, 0, 100, 30, Some(1.0), &[70]);
        add(&mut d, "little", 0, 0, 1, 100, 30, None, &[80]);
        let m = matched(&d);
        let x = &m.programs[0];
        assert_eq!((x.windows.len(), x.unmatched), (2, 0.0));
        let factors = |w: &Matched| (w.speedup(0), w.speedup(1), w.efficiency(0));
        // SF 3; the big core takes 3 times the energy: EF 1 [PMCTrack eq. 7]
        let close = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-12;
        assert!(close(x.windows[0].speedup(0), 3.0) && close(x.windows[0].efficiency(0), 1.0));
        assert_eq!(factors(&x.windows[1]).2, None);
        assert!(close(x.windows[1].speedup(0), 1.5) && close(x.windows[1].speedup(1), 1.0));
        assert_eq!(
            (x.windows[1].on[1].counts[0], x.windows[1].on[0].cycles),
            (80.0, 40.0)
        );
        assert_eq!(x.windows[1].speedup(9), None);
    }

    #[test]
    fn windows_of_other_sizes_are_interpolated() {
        let mut d = empty(&[&["a"], &["b"]]);
        // big: 150 instructions in 15 ns, then 50 in 10 ns; little: 100 in 30 ns, twice
        add(&mut d, "big", 0, 0, 0, 150, 15, None, &[30]);
        add(&mut d, "big", 0, 0, 1, 50, 10, None, &[40]);
        add(&mut d, "big", 1, 1, 0, 210, 0x15, None, &[21]);
        for (run, set) in [(0, 0), (1, 1)] {
            add(&mut d, "little", run, set, 0, 100, 30, None, &[5]);
            add(&mut d, "little", run, set, 1, 100, 30, None, &[6]);
            add(&mut d, "little", run, set, 2, 100, 30, None, &[7]);
        }
        let m = matched(&d);
        let x = &m.programs[0];
        // the third window of little ends beyond big's run
        assert_eq!(x.windows.len(), 2);
        assert!((x.unmatched - 1.0 / 3.0).abs() < 1e-12);
        let second = &x.windows[1].on[0];
        // run 0: a third of the first window, all of the second; run 1: 100 of 210
        assert!((second.counts[0] - 50.0).abs() < 1e-9 && (second.counts[1] - 10.0).abs() < 1e-9);
        assert!(
            (second.time_s - (15.0 + 10.0) / 2.0 * 1e-9).abs() < 1e-18,
            "{second:?}"
        );
    }

    #[test]
    fn what_is_not_complete_is_left_out_with_a_reason() {
        let mut d = empty(&[&["a"], &["b"]]);
        add(&mut d, "big", 0, 0, 0, 100, 10, None, &[1]);
        let m = matched(&d);
        assert!(m.programs.is_empty() && m.left_out["x"].contains("event set 1 on `big`"));
        let mut d = empty(&[&["a"]]);
        add(&mut d, "big", 0, 0, 0, 100, 10, None, &[1]);
        add(&mut d, "little", 0, 0, 0, 101, 10, None, &[1]);
        assert!(matched(&d).left_out["x"].contains("no window"));
    }

    proptest! {
        /// However the instructions are cut into windows: a program with a steady speed on each
        /// core type has that SF in every matched window, and the windows never overlap.
        #[test]
        fn cutting_does_not_matter(
            big in proptest::collection::vec(1u64..1000, 1..20),
            little in proptest::collection::vec(1u64..1000, 1..20),
            sf in 2u64..6,
        ) {
            let mut d = empty(&[&["a"]]);
            for (t, sizes, pace) in [("big", &big, 1), ("little", &little, sf)] {
                for (w, n) in (0u64..).zip(sizes) {
                    add(&mut d, t, 0, 0, w, *n, n * 12 * pace, Some(*n as f64), &[n * 3]);
                }
            }
            let m = matched(&d);
            let mut end = 0.0;
            for w in m.programs.iter().flat_map(|p| &p.windows) {
                prop_assert!((w.speedup(0).unwrap() / sf as f64 - 1.0).abs() < 1e-9);
                prop_assert!((w.efficiency(0).unwrap() / sf as f64 - 1.0).abs() < 1e-9);
                prop_assert!((w.on[0].counts[0] / w.instructions - 3.0).abs() < 1e-9);
                prop_assert_eq!(w.position, end);
                end += w.instructions;
            }
            prop_assert!(m.programs.len() + m.left_out.len() == 1);
        }
    }
}
