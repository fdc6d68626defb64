//! Last-branch records: the hardware keeps the latest taken branches, each as an address from and
//! one to, and the kernel puts them into a sample.
//!
//! Between the target of a branch and the source of the next one nothing was taken: every block in
//! between was executed, once [TRUST §3.2]. So a sample of n records shows n − 1 such runs,
//! whatever made the sample late, and its own address is not needed. How often a block ran is told
//! without bias when taken branches are what is sampled; samples of another event come more often
//! from where that event happens.
//!
//! Tried on records made by hand only: no machine that has any was at hand.

use perf_event::data::Sample;
use perf_event::{Builder, SampleBranchFlag, SampleFlag};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Straight code is not longer than this, in bytes; what seems to be has a record missing.
const LONGEST: u64 = 1 << 20;

/// How many records the PMU keeps, by its own account; 0 for one that keeps none.
pub fn depth(pmu: &str) -> u32 {
    let file = format!("/sys/bus/event_source/devices/{pmu}/caps/branches");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Asks for the branches of user mode that were taken before a sample.
pub fn ask(b: &mut Builder<'_>) {
    b.branch_sample_type(SampleBranchFlag::USER | SampleBranchFlag::ANY);
    // A word that means nothing to us (0 without transactions) stands behind the records:
    // perf-event-data 0.1.8 takes a sample that ends with an empty list of them for one that was
    // cut off.
    b.sample(SampleFlag::BRANCH_STACK | SampleFlag::TRANSACTION);
}

/// A branch that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Address of the branch.
    pub from: u64,
    /// Target of the branch.
    pub to: u64,
}

/// The records of a sample, latest first; none where none were asked for.
pub fn of_sample(s: &Sample<'_>) -> Vec<Branch> {
    let records = s.lbr().unwrap_or_default().iter();
    let branch = |r: &perf_event::data::BranchEntry| Branch {
        from: r.from(),
        to: r.to(),
    };
    records.map(branch).collect()
}

/// Runs that were executed, by file, first and last instruction: how often.
#[derive(Debug, Default)]
pub struct Runs {
    in_files: BTreeMap<PathBuf, BTreeMap<(u64, u64), u64>>,
    /// Samples with records.
    stacks: u64,
    runs: u64,
    odd: u64,
}

impl Runs {
    /// Takes the records of a sample, latest first; `find` gives file and place of an address.
    pub fn add<'a>(&mut self, records: &[Branch], find: impl Fn(u64) -> Option<(&'a Path, u64)>) {
        self.stacks += u64::from(!records.is_empty());
        for pair in records.windows(2) {
            let [later, earlier] = pair else { continue };
            // A record may be missing, where the kernel was entered or left for example; then it is
            // no straight line.
            let straight = later.from.checked_sub(earlier.to).filter(|l| *l < LONGEST);
            let places = (find(earlier.to), find(later.from));
            match (straight, places) {
                (Some(length), (Some((file, first)), Some((same, last))))
                    if file == same && last.checked_sub(first) == Some(length) =>
                {
                    self.runs += 1;
                    if !self.in_files.contains_key(file) {
                        self.in_files.insert(file.to_owned(), BTreeMap::new());
                    }
                    if let Some(f) = self.in_files.get_mut(file) {
                        *f.entry((first, last)).or_default() += 1;
                    }
                }
                _ => self.odd += 1,
            }
        }
    }

    /// Samples that had records.
    pub fn stacks(&self) -> u64 {
        self.stacks
    }

    /// Runs that were taken in.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Pairs of records between which there is no straight line of one file.
    pub fn odd(&self) -> u64 {
        self.odd
    }

    /// Runs in a file: first and last instruction, and how often.
    pub fn of(&self, file: &Path) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let runs = self.in_files.get(file).into_iter().flatten();
        runs.map(|((first, last), n)| (*first, *last, *n))
    }

    /// The files, and where each run in them begins.
    pub fn files(&self) -> impl Iterator<Item = (&Path, Vec<u64>)> {
        self.in_files.iter().map(|(file, runs)| {
            let mut starts: Vec<u64> = runs.keys().map(|(first, _)| *first).collect();
            starts.dedup();
            (file.as_path(), starts)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event::data::endian::Native;
    use perf_event::data::parse::{ParseConfig, Parser};
    use perf_event_open_sys::bindings;

    fn branch(from: u64, to: u64) -> Branch {
        Branch { from, to }
    }

    /// A sample as the kernel writes it: address, process and thread, time, period, number of
    /// records, records, transaction.
    fn bytes(records: &[(u64, u64)]) -> Vec<u8> {
        let ids = u64::from(7u32) | u64::from(8u32) << 32;
        let mut words = vec![0x4000, ids, 99, 1000, records.len() as u64];
        for (from, to) in records {
            // mispredicted, predicted, cycles: not for us
            words.extend([*from, *to, 0b10 | 12 << 4]);
        }
        words.push(0);
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    fn parse(bytes: &[u8]) -> Option<Vec<Branch>> {
        let mut attr = bindings::perf_event_attr::default();
        attr.sample_type = u64::from(
            bindings::PERF_SAMPLE_IP
                | bindings::PERF_SAMPLE_TID
                | bindings::PERF_SAMPLE_TIME
                | bindings::PERF_SAMPLE_PERIOD
                | bindings::PERF_SAMPLE_BRANCH_STACK
                | bindings::PERF_SAMPLE_TRANSACTION,
        );
        let config: ParseConfig<Native> = attr.into();
        let s: Sample<'_> = Parser::new(bytes, config).parse().ok()?;
        assert_eq!(
            (s.ip(), s.pid(), s.period()),
            (Some(0x4000), Some(7), Some(1000))
        );
        Some(of_sample(&s))
    }

    #[test]
    fn records_are_read_out_of_a_sample() {
        let two = [(0x4010, 0x4800), (0x4808, 0x4000)];
        assert_eq!(
            parse(&bytes(&two)).unwrap(),
            [branch(0x4010, 0x4800), branch(0x4808, 0x4000)]
        );
        assert_eq!(parse(&bytes(&[])).unwrap(), []);
        // cut off in the midst of a record
        let whole = bytes(&two);
        assert_eq!(parse(&whole[..whole.len() - 16]), None);
    }

    fn find(address: u64) -> Option<(&'static Path, u64)> {
        match address {
            0x40_0000..0x50_0000 => Some((Path::new("a"), address - 0x40_0000)),
            0x50_0000..0x60_0000 => Some((Path::new("b"), address - 0x50_0000)),
            _ => None,
        }
    }

    #[test]
    fn a_run_is_from_a_target_to_the_next_source() {
        let mut r = Runs::default();
        // latest first: a loop 10..20 twice, entered from 4
        let stack = [
            branch(0x40_0020, 0x40_0010),
            branch(0x40_0020, 0x40_0010),
            branch(0x40_0004, 0x40_0010),
        ];
        r.add(&stack, find);
        r.add(&stack[..1], find);
        r.add(&[], find);
        assert_eq!((r.stacks(), r.runs(), r.odd()), (2, 2, 0));
        assert_eq!(r.of(Path::new("a")).collect::<Vec<_>>(), [(0x10, 0x20, 2)]);
        let files: Vec<_> = r.files().collect();
        assert_eq!(files, [(Path::new("a"), vec![0x10])]);
    }

    #[test]
    fn what_is_no_straight_line_is_counted_apart() {
        let mut r = Runs::default();
        for (target, source) in [
            (0x40_0020, 0x40_0010), // backwards
            (0x40_0020, 0x50_0010), // into another file
            (0x70_0020, 0x70_0030), // in none
            (0x40_0020, u64::MAX),  // too far, and nowhere
            (0, 0),
        ] {
            r.add(&[branch(source, 1), branch(1, target)], find);
        }
        assert_eq!((r.stacks(), r.runs(), r.odd()), (5, 0, 5));
        assert_eq!(r.files().count(), 0);
    }

    #[test]
    fn a_pmu_that_says_nothing_keeps_none() {
        assert_eq!(depth("no-such-pmu"), 0);
    }
}
