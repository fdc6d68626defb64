//! Intervals of time turned into windows of a fixed number of instructions.

use super::counting::{Row, Window, WindowCount};
use super::inventory::CounterInventory;
use super::sets::Set;
use amp_host::bad_input;
use amp_metrics::windows::Cutter;
use anyhow::Result;
use std::collections::HashMap;
use std::num::NonZeroU64;

/// Nanoseconds of a second: times go through the cutter as whole numbers.
const NANOS: f64 = 1e9;

/// A PMU's, a CPU's, or a thread's, cumulative counts.
struct Stream {
    pmu: Option<String>,
    row: Row,
    cutter: Cutter,
    /// Instructions so far.
    instructions: u64,
    /// When the reading was, nanoseconds since counting began; time counted so far; the other
    /// events so far.
    counts: Vec<u64>,
}

/// Cuts what each PMU counts into windows.
pub struct Windows {
    size: NonZeroU64,
    /// Which event counts instructions, by PMU.
    instructions: HashMap<String, String>,
    streams: Vec<Stream>,
}

impl Windows {
    /// Windows of `size` instructions, for what `sets` counts.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] unless it is one set with instructions on each of its PMUs;
    /// [`super::inventory::NoPmu`] where nothing counts instructions.
    pub fn new(size: NonZeroU64, sets: &[Set], inventory: &CounterInventory) -> Result<Windows> {
        Ok(Windows {
            size,
            instructions: counted(sets, inventory)?,
            streams: Vec::new(),
        })
    }

    /// Takes an interval; the windows that are complete with it, in order.
    pub fn take(&mut self, interval: &Window) -> Vec<Window> {
        let mut out = Vec::new();
        let counted = interval.counts.iter().filter(|c| c.count.is_some());
        let counted: Vec<&WindowCount> = counted.collect();
        let mut rest = &counted[..];
        while let Some(first) = rest.first() {
            let same = |c: &&&WindowCount| c.pmu == first.pmu && c.row.same(&first.row);
            let (of, others) = rest.split_at(rest.iter().take_while(same).count());
            self.feed(interval, of, &mut out);
            rest = others;
        }
        out.sort_by(|a: &Window, b| a.at_s.total_cmp(&b.at_s));
        out
    }

    fn feed(&mut self, interval: &Window, of: &[&WindowCount], out: &mut Vec<Window>) {
        let counts_them = |c: &&WindowCount| {
            let event = c.pmu.as_ref().and_then(|p| self.instructions.get(p));
            event == Some(&c.event)
        };
        let Some(at) = of.iter().position(counts_them) else {
            return;
        };
        let (pmu, row) = (&of[at].pmu, &of[at].row);
        let known = self
            .streams
            .iter()
            .position(|s| s.pmu == *pmu && s.row.same(row));
        let i = known.unwrap_or_else(|| {
            let mut s = Stream {
                pmu: pmu.clone(),
                row: row.clone(),
                cutter: Cutter::new(self.size),
                instructions: 0,
                counts: vec![0; of.len() + 1],
            };
            s.cutter.read(0, 0, &s.counts, |_| ());
            self.streams.push(s);
            self.streams.len() - 1
        });
        let s = &mut self.streams[i];
        s.instructions += of[at].count.unwrap_or(0);
        s.counts[0] = s.counts[0].max((interval.at_s * NANOS) as u64);
        s.counts[1] += (of[at].seconds * NANOS) as u64;
        let others: Vec<&WindowCount> = (of.iter().enumerate())
            .filter_map(|(i, c)| (i != at).then_some(*c))
            .collect();
        for (sum, c) in s.counts[2..].iter_mut().zip(&others) {
            *sum += c.count.unwrap_or(0);
        }
        let mut cut = Vec::new();
        s.cutter.read(0, s.instructions, &s.counts, |w| {
            cut.push((w.instructions, w.counts.to_vec()))
        });
        // from the last reading back to the first cut
        let left: u64 = s.cutter.rest().1.take(1).sum();
        let windows: u64 = cut.iter().map(|(_, c): &(u64, Vec<u64>)| c[0]).sum();
        let mut ns = s.counts[0] - left - windows;
        for (instructions, counts) in cut {
            ns += counts[0];
            let seconds = counts[1] as f64 / NANOS;
            let count = |c: &WindowCount, count| WindowCount {
                count: Some(count),
                seconds,
                ..c.clone()
            };
            let mut all: Vec<WindowCount> = others
                .iter()
                .zip(&counts[2..])
                .map(|(c, n)| count(c, *n))
                .collect();
            all.insert(at, count(of[at], instructions));
            out.push(Window {
                at_s: ns as f64 / NANOS,
                set: interval.set,
                counts: all,
                virtual_counters: Vec::new(),
            });
        }
    }
}

/// Which event counts instructions, by PMU.
///
/// # Errors
/// As [`Windows::new`].
pub fn counted(sets: &[Set], inventory: &CounterInventory) -> Result<HashMap<String, String>> {
    let [set] = sets else {
        return Err(bad_input(
            "--window: give one -e; sets that take turns have gaps between them",
        ));
    };
    inventory.need_pmu()?;
    let mut instructions = HashMap::new();
    for u in &set.units {
        let Some(event) = u.instructions.and_then(|i| u.events.get(i)) else {
            return Err(bad_input(format!(
                "--window: `{}` counts no instructions on PMU `{}`: add `instructions`, and count software events without --window",
                set.text, u.pmu
            )));
        };
        instructions.insert(u.pmu.clone(), event.name.clone());
    }
    Ok(instructions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(event: &str, pmu: &str, count: u64) -> WindowCount {
        WindowCount {
            event: event.into(),
            pmu: Some(pmu.into()),
            core_type: None,
            row: Row::default(),
            count: Some(count),
            seconds: 0.5,
        }
    }

    fn windows(size: u64) -> Windows {
        Windows {
            size: NonZeroU64::new(size).unwrap(),
            instructions: [
                ("big", "instructions:u"),
                ("little", "armv8/inst_retired/u"),
            ]
            .map(|(pmu, event)| (pmu.to_owned(), event.to_owned()))
            .into(),
            streams: Vec::new(),
        }
    }

    #[test]
    fn intervals_are_cut_by_pmu() {
        let mut w = windows(100);
        let interval = |at_s: f64, a: u64, b: u64| Window {
            at_s,
            set: 1,
            counts: vec![
                count("cycles:u", "big", 3 * a),
                count("instructions:u", "big", a),
                count("armv8/inst_retired/u", "little", b),
                WindowCount {
                    count: None,
                    ..count("nobody's", "little", 0)
                },
            ],
            virtual_counters: Vec::new(),
        };
        assert_eq!(w.take(&interval(1.0, 50, 0)), []);
        let got = w.take(&interval(2.0, 200, 100));
        let seen: Vec<(f64, &str, Vec<u64>)> = (got.iter())
            .map(|w| {
                (
                    w.at_s,
                    w.counts[0].pmu.as_deref().unwrap(),
                    w.counts.iter().map(|c| c.count.unwrap()).collect(),
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (1.25, "big", vec![300, 100]),
                (1.75, "big", vec![300, 100]),
                (2.0, "little", vec![100]),
            ]
        );
        assert!((got[0].counts[0].seconds - 0.625).abs() < 1e-9);
    }
}
