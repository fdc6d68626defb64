//! Placements by pinned threads: the reference that no policy needs to know anything for.
//!
//! A pinned placement gives every program a core type for the whole run. The best one is what
//! somebody reaches who knows the programs and has the time to try. A policy can beat it where
//! programs have phases, or where sharing a core pays.

use crate::evaluation::MachineFacts;
use crate::workload::{App, Workload};
use amp_metrics::CoreTypeId;
use amp_sched::policy::exchange;

/// Placements that are all tried; where there are more, the order of speedup factors chooses one.
pub const MOST: usize = 30;

/// Further runs of the best placements: of many that are tried once each, the best one is partly the
/// luckiest one.
pub const FINALS: usize = 2;

/// How many of `n` placements are tried again: the best third, and at least two.
pub fn finalists(n: usize) -> usize {
    match n {
        0 | 1 => 0,
        n => n.div_ceil(3).max(2),
    }
}

/// Runs that it takes to choose among `n` placements.
pub fn trial_runs(n: usize) -> usize {
    n + finalists(n) * FINALS
}

/// A core type per application, as its position in the machine's list, fastest first. `None` lets
/// the application use all of them.
pub type Placement = Vec<Option<usize>>;

/// Every placement of `workload` that fills the fast cores first: single-threaded programs on the
/// core types in order, as many on each as it has CPUs; parallel programs on one type or anywhere.
/// Programs beyond the number of CPUs are spread in proportion. Of placements that differ only in
/// which of two like programs is where, there is one. Nothing when there are more than `most`.
pub fn placements(
    workload: &Workload,
    machine: &MachineFacts,
    most: usize,
) -> Option<Vec<Placement>> {
    let single = |i: &usize| workload.apps[*i].threads <= 1;
    let (singles, parallel): (Vec<usize>, Vec<usize>) =
        (0..workload.apps.len()).partition(|i| single(i));
    let room = room(singles.len(), machine);
    let mut out: Vec<Placement> = Vec::new();
    let start: Placement = vec![None; workload.apps.len()];
    let like = like(workload);
    choose(&start, &singles, &room, 0, &like, most, &mut out)?;
    for app in parallel {
        let types = 0..machine.core_types.len();
        let choices = || types.clone().map(Some).chain([None]);
        if out.len() * choices().count() > most {
            return None;
        }
        let with = |p: &Placement| {
            let p = p.clone();
            choices().map(move |choice| {
                let mut p = p.clone();
                p[app] = choice;
                p
            })
        };
        out = out.iter().flat_map(with).collect();
    }
    Some(out)
}

/// The placement of the largest sum of speeds: single-threaded programs one on a CPU, fast cores
/// first, by the speedup factors `sf` of each program, per core type but the slowest; parallel ones
/// anywhere.
pub fn by_speedup(workload: &Workload, machine: &MachineFacts, sf: &[Vec<f64>]) -> Placement {
    let mut singles: Vec<usize> = (0..workload.apps.len())
        .filter(|i| workload.apps[*i].threads <= 1)
        .collect();
    let factor = |i: usize, t: usize| sf.get(i).and_then(|sf| sf.get(t)).copied().unwrap_or(1.0);
    singles.sort_by(|a, b| factor(*b, 0).total_cmp(&factor(*a, 0)));
    let mut to: Vec<Option<CoreTypeId>> = Vec::new();
    for (t, room) in room(singles.len(), machine).into_iter().enumerate() {
        // a machine has few core types
        to.resize(to.len() + room, Some(CoreTypeId(t as u8)));
    }
    let value = |i: usize, t: CoreTypeId| Some(factor(singles[i], t.index()));
    exchange::improve(&mut to, machine.core_types.len(), &value);
    let mut out: Placement = vec![None; workload.apps.len()];
    for (app, to) in singles.into_iter().zip(to) {
        out[app] = to.map(CoreTypeId::index);
    }
    out
}

/// How many of `n` single-threaded programs go on each core type.
fn room(n: usize, machine: &MachineFacts) -> Vec<usize> {
    let cpus: Vec<usize> = machine.core_types.iter().map(|t| t.cpus).collect();
    let all: usize = cpus.iter().sum();
    let mut left = n;
    let last = cpus.len().saturating_sub(1);
    let mut out = Vec::with_capacity(cpus.len());
    for (t, c) in cpus.iter().enumerate() {
        let here = match (t == last, n > all) {
            (true, _) => left,
            (false, true) => (n * c).div_ceil(all.max(1)).min(left),
            (false, false) => (*c).min(left),
        };
        out.push(here);
        left -= here;
    }
    out
}

/// For each program the first one that is like it in everything but its label.
fn like(workload: &Workload) -> Vec<usize> {
    let unnamed = |app: &App| App {
        name: String::new(),
        ..app.clone()
    };
    let all: Vec<App> = workload.apps.iter().map(unnamed).collect();
    let first = |app: &App| all.iter().position(|other| other == app);
    all.iter().filter_map(first).collect()
}

/// Adds to `out` every way to give the programs from number `t` on their types: `room[t]` of `left`
/// are of type `t`. Of like programs the first ones get the faster type.
fn choose(
    so_far: &Placement,
    left: &[usize],
    room: &[usize],
    t: usize,
    like: &[usize],
    most: usize,
    out: &mut Vec<Placement>,
) -> Option<()> {
    let Some(&here) = room.get(t) else {
        out.push(so_far.clone());
        return (out.len() <= most).then_some(());
    };
    // each subset of the right size, as bits; a mix has few programs, or too many subsets anyway
    if left.len() >= 24 {
        return None;
    }
    for subset in 0u32..1 << left.len() {
        if subset.count_ones() as usize != here {
            continue;
        }
        let mut p = so_far.clone();
        let mut rest: Vec<usize> = Vec::new();
        let mut another = false;
        for (bit, &app) in left.iter().enumerate() {
            match subset >> bit & 1 {
                1 => {
                    another |= rest.iter().any(|r| like[*r] == like[app]);
                    p[app] = Some(t);
                }
                _ => rest.push(app),
            }
        }
        if !another {
            choose(&p, &rest, room, t + 1, like, most, out)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_sched::testing::topology;
    use std::path::Path;

    fn workload(threads: &[u32]) -> Workload {
        let app = |(i, t): (usize, &u32)| {
            format!("[[app]]\nname = \"a{i}\"\nthreads = {t}\ncommand = [\"true\", \"{i}\"]\n")
        };
        let apps: Vec<String> = threads.iter().enumerate().map(app).collect();
        let text = format!("name = \"mix\"\n{}", apps.concat());
        Workload::parse(Path::new("mix.toml"), &text).unwrap()
    }

    fn machine(cpus: &[u32]) -> MachineFacts {
        MachineFacts::of("m", &topology(cpus))
    }

    fn number(threads: &[u32], cpus: &[u32]) -> Option<usize> {
        placements(&workload(threads), &machine(cpus), MOST).map(|p| p.len())
    }

    #[test]
    fn every_way_to_fill_the_fast_cores() {
        // two of six, two of four, one of three and one of the two others
        assert_eq!(number(&[1; 6], &[2, 4]), Some(15));
        assert_eq!(number(&[1; 4], &[2, 2]), Some(6));
        assert_eq!(number(&[1; 3], &[1, 1, 1]), Some(6));
        // fewer programs than fast cores; too many ways
        assert_eq!(number(&[1, 1], &[4, 4]), Some(1));
        assert_eq!(number(&[1; 12], &[2, 10]), None);
        assert_eq!(number(&[1; 40], &[2, 10]), None);
        // a parallel one beside them: on either type, or anywhere
        assert_eq!(number(&[1, 1, 1, 3], &[2, 4]), Some(9));
        let all = placements(&workload(&[1; 4]), &machine(&[2, 2]), MOST).unwrap();
        let big = |p: &Placement| p.iter().filter(|t| **t == Some(0)).count();
        assert!(all.iter().all(|p| big(p) == 2));
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), 6);
        // twice as many programs as CPUs: in proportion
        let all = placements(&workload(&[1; 6]), &machine(&[1, 2]), MOST).unwrap();
        assert!(all.iter().all(|p| big(p) == 2) && all.len() == 15);
    }

    /// Programs `i` and `j` are like each other where `kinds[i] == kinds[j]`.
    fn of_kinds(kinds: &[u32], cpus: &[u32]) -> Option<Vec<Placement>> {
        let app = |(i, kind): (usize, &u32)| {
            format!("[[app]]\nname = \"a{i}\"\ncommand = [\"true\", \"{kind}\"]\n")
        };
        let apps: Vec<String> = kinds.iter().enumerate().map(app).collect();
        let text = format!("name = \"mix\"\n{}", apps.concat());
        let workload = Workload::parse(Path::new("mix.toml"), &text).unwrap();
        placements(&workload, &machine(cpus), MOST)
    }

    #[test]
    fn like_programs_change_places_with_nobody() {
        // two of six kinds, or both of one
        let twelve = [0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0];
        let all = of_kinds(&twelve, &[2, 10]).unwrap();
        assert_eq!(all.len(), 6 * 5 / 2 + 6);
        let kinds_on_fast = |p: &Placement| -> Vec<u32> {
            let fast = (0..12).filter(|i| p[*i] == Some(0));
            let mut kinds: Vec<u32> = fast.map(|i| twelve[i]).collect();
            kinds.sort_unstable();
            kinds
        };
        let different: std::collections::HashSet<_> = all.iter().map(kinds_on_fast).collect();
        assert_eq!(different.len(), all.len());
        assert!(different.iter().all(|kinds| kinds.len() == 2));
        // three types, and all alike
        assert_eq!(of_kinds(&[7; 3], &[1, 1, 1]).unwrap().len(), 1);
        assert_eq!(of_kinds(&[7, 8, 7], &[1, 1, 1]).unwrap().len(), 3);
    }

    #[test]
    fn largest_factors_on_the_fastest_cores() {
        let sf = [1.5, 9.0, 3.0, 2.0].map(|sf| vec![sf]);
        let p = by_speedup(&workload(&[1, 4, 1, 1]), &machine(&[1, 4]), &sf);
        assert_eq!(p, [Some(1), None, Some(0), Some(1)]);
    }

    /// Who gains most on the fastest core may lose least on the next.
    #[test]
    fn the_largest_sum_of_speeds_on_three_core_types() {
        let sf = [
            vec![5.0, 4.8],
            vec![1.2, 1.1],
            vec![4.5, 2.0],
            vec![1.5, 1.2],
        ];
        let p = by_speedup(&workload(&[1; 4]), &machine(&[1, 1, 2]), &sf);
        assert_eq!(p, [Some(1), Some(2), Some(0), Some(2)]);
        // more programs than CPUs: as many on each type as are in proportion
        let sf: Vec<Vec<f64>> = (1..=8).map(|i| vec![f64::from(i), 1.0]).collect();
        let p = by_speedup(&workload(&[1; 8]), &machine(&[1, 1, 2]), &sf);
        let on = |t: usize| p.iter().filter(|p| **p == Some(t)).count();
        assert_eq!((on(0), on(1), on(2), p[7]), (2, 2, 4, Some(0)));
    }
}
