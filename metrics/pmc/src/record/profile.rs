//! From samples to functions and basic blocks.

use super::blocks::{blocks, Block, Code};
use super::branches::Runs;
use super::executed::Executed;
use super::spe::OUTCOMES;
use amp_metrics::uncertainty::Measured;
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Functions that are larger are not cut into blocks.
const LARGEST: u64 = 4 << 20;

/// A function: its name, and the file it is from.
pub type Key = (String, String);

/// Where samples fell, and what they stand for.
#[derive(Debug, Default)]
pub struct Samples {
    /// What ran by the branches that came with them.
    pub runs: Runs,
    /// Samples by file and place in it.
    in_files: HashMap<PathBuf, BTreeMap<u64, Weight>>,
    /// In the kernel, by address.
    kernel: BTreeMap<u64, Weight>,
    /// In no file: just-in-time code, the vDSO.
    elsewhere: Weight,
}

/// Samples, and the events that they stand for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weight {
    samples: u64,
    events: u64,
    /// How many of the samples had each of [`OUTCOMES`].
    outcomes: [u64; OUTCOMES.len()],
}

impl Weight {
    fn add(&mut self, events: u64) -> &mut Weight {
        self.samples += 1;
        self.events += events;
        self
    }

    /// What happened to the operation of the sample that was added last.
    pub fn note(&mut self, happened: u64) {
        for ((_, bit), n) in OUTCOMES.iter().zip(&mut self.outcomes) {
            *n += u64::from(happened & bit != 0);
        }
    }

    fn with(self, w: Weight) -> Weight {
        let mut outcomes = self.outcomes;
        outcomes
            .iter_mut()
            .zip(w.outcomes)
            .for_each(|(a, b)| *a += b);
        Weight {
            samples: self.samples + w.samples,
            events: self.events + w.events,
            outcomes,
        }
    }

    /// By name, those that were seen.
    fn outcomes(&self) -> BTreeMap<&'static str, u64> {
        let named = OUTCOMES.iter().zip(self.outcomes);
        let seen = named.filter(|(_, n)| *n > 0);
        seen.map(|((name, _), n)| (*name, n)).collect()
    }
}

impl Samples {
    /// A sample at this place of a file, or in none.
    pub fn user(&mut self, place: Option<(&Path, u64)>, events: u64) -> &mut Weight {
        let Some((file, offset)) = place else {
            return self.elsewhere.add(events);
        };
        // a copy of the name only where it is new
        if !self.in_files.contains_key(file) {
            self.in_files.insert(file.to_owned(), BTreeMap::new());
        }
        match self.in_files.get_mut(file) {
            Some(f) => f.entry(offset).or_default().add(events),
            None => self.elsewhere.add(events),
        }
    }

    /// A sample in the kernel.
    pub fn kernel(&mut self, address: u64, events: u64) -> &mut Weight {
        self.kernel.entry(address).or_default().add(events)
    }

    fn total(&self) -> Weight {
        let files = self.in_files.values().flat_map(BTreeMap::values);
        files
            .chain(self.kernel.values())
            .fold(self.elsewhere, |a, w| a.with(*w))
    }

    /// The profile of the samples.
    pub fn profile(&self) -> Profile {
        let total = self.total();
        let symbolizer = Symbolizer::new();
        let mut functions: BTreeMap<Key, Vec<(u64, Weight)>> = BTreeMap::new();
        let mut shapes: HashMap<Key, Vec<Block>> = HashMap::new();
        for (file, at) in &self.in_files {
            let source = Source::Elf(Elf::new(file));
            let offsets: Vec<u64> = at.keys().copied().collect();
            let named = symbolizer.symbolize(&source, Input::FileOffset(&offsets));
            let named = named.unwrap_or_default();
            for (i, (offset, weight)) in at.iter().enumerate() {
                let (name, inside, size) = describe(named.get(i));
                let key = (name, file.display().to_string());
                shapes
                    .entry(key.clone())
                    .or_insert_with(|| code(file, offset - inside, size).unwrap_or_default());
                functions.entry(key).or_default().push((inside, *weight));
            }
        }
        let addresses: Vec<u64> = self.kernel.keys().copied().collect();
        let source = Source::Kernel(Kernel::default());
        let named = symbolizer.symbolize(&source, Input::AbsAddr(&addresses));
        let named = named.unwrap_or_default();
        for (i, weight) in self.kernel.values().enumerate() {
            let (name, inside, _) = describe(named.get(i));
            let key = (name, "[kernel]".to_owned());
            functions.entry(key).or_default().push((inside, *weight));
        }
        if self.elsewhere.samples > 0 {
            let key = (UNKNOWN.to_owned(), "[no file]".to_owned());
            functions.insert(key, vec![(0, self.elsewhere)]);
        }
        let executed = Executed::of(&self.runs, &symbolizer, &mut shapes);
        for key in executed.functions() {
            functions.entry(key.clone()).or_default();
        }
        let share = |w: Weight| share(w, total);
        let mut out: Vec<Function> = functions
            .into_iter()
            .map(|(key, at)| {
                let weight = at.iter().fold(Weight::default(), |a, (_, w)| a.with(*w));
                let mut of_blocks = Vec::new();
                let shape = shapes.get(&key).map_or(&[][..], Vec::as_slice);
                for (i, b) in shape.iter().enumerate() {
                    let ran = executed.of_block(&key, shape, i);
                    let inside = at.iter().filter(|(o, _)| b.range.contains(o));
                    let w = inside.fold(Weight::default(), |a, (_, w)| a.with(*w));
                    if w.samples > 0 || ran.is_some_and(|(times, _)| times > 0) {
                        of_blocks.push(BlockShare {
                            offset: b.range.start,
                            bytes: b.range.end - b.range.start,
                            instructions: b.instructions,
                            samples: w.samples,
                            events: w.events,
                            share: share(w),
                            executions: ran.map(|r| r.0),
                            executed: ran.map(|r| r.1),
                        });
                    }
                }
                Function {
                    function: key.0,
                    file: key.1,
                    samples: weight.samples,
                    events: weight.events,
                    share: share(weight),
                    outcomes: weight.outcomes(),
                    blocks: of_blocks,
                }
            })
            .collect();
        out.sort_by(|a, b| b.events.cmp(&a.events).then(a.function.cmp(&b.function)));
        Profile {
            samples: total.samples,
            events: total.events,
            branches: (self.runs.stacks() > 0).then(|| Branches {
                stacks: self.runs.stacks(),
                runs: self.runs.runs(),
                odd: self.runs.odd(),
                unplaced: executed.unplaced,
            }),
            functions: out,
        }
    }
}

/// Name of a function without one.
const UNKNOWN: &str = "[unknown]";

/// Name, place in it and size.
pub fn describe(s: Option<&Symbolized<'_>>) -> (String, u64, Option<u64>) {
    match s {
        Some(Symbolized::Sym(s)) => (
            s.name.to_string(),
            s.offset as u64,
            s.size.map(|s| s as u64),
        ),
        _ => (UNKNOWN.to_owned(), 0, None),
    }
}

/// The share of events, and its standard uncertainty from the number of samples: each of n samples
/// falls there with probability p, so u = √(p(1−p)/n). That samples fall where the hardware lets
/// them is not in it.
fn share(w: Weight, total: Weight) -> Measured {
    if total.events == 0 {
        return Measured::exact(0.0);
    }
    let p = w.events as f64 / total.events as f64;
    Measured::new(p, (p * (1.0 - p) / total.samples as f64).sqrt())
}

/// The blocks of the function at `offset` of a file; `None` where its size is not known or its code
/// not to be had.
pub fn code(file: &Path, offset: u64, size: Option<u64>) -> Option<Vec<Block>> {
    let size = size.filter(|s| *s > 0 && *s <= LARGEST)?;
    let f = amp_machine::open_regular(file).ok()?.0;
    let mut header = [0u8; 20];
    f.read_exact_at(&mut header, 0).ok()?;
    let code = Code::of_elf(&header)?;
    let mut bytes = vec![0u8; usize::try_from(size).ok()?];
    f.read_exact_at(&mut bytes, offset).ok()?;
    Some(blocks(code, &bytes))
}

/// Functions by what was sampled in them, most first.
#[derive(Debug, Serialize)]
pub struct Profile {
    /// Samples.
    pub samples: u64,
    /// Events that they stand for.
    pub events: u64,
    /// What last-branch records told; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branches: Option<Branches>,
    /// Functions that the samples fell in.
    pub functions: Vec<Function>,
}

/// Coverage of the last-branch records.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Branches {
    /// Samples that had any.
    pub stacks: u64,
    /// Runs of blocks between two of them.
    pub runs: u64,
    /// Pairs with no straight line between them: something is missing there.
    pub odd: u64,
    /// Runs in code that belongs to no function of known size.
    pub unplaced: u64,
}

/// A function.
#[derive(Debug, Serialize)]
pub struct Function {
    /// Its name, demangled; `[unknown]` without one.
    pub function: String,
    /// The file it is from; `[kernel]`.
    pub file: String,
    /// Samples in it.
    pub samples: u64,
    /// Events that they stand for.
    pub events: u64,
    /// Part of all events.
    pub share: Measured,
    /// How many samples were of operations to which this happened, by SPE.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Its basic blocks with samples or executions, by address; none where its code or size are not
    /// known.
    pub blocks: Vec<BlockShare>,
}

/// A basic block.
#[derive(Debug, Serialize)]
pub struct BlockShare {
    /// From the beginning of the function, in bytes.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
    /// Instructions in it.
    pub instructions: u32,
    /// Samples in it.
    pub samples: u64,
    /// Events that they stand for.
    pub events: u64,
    /// Part of all events.
    pub share: Measured,
    /// How often it ran in what last-branch records show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executions: Option<u64>,
    /// Part of the instructions that they show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executed: Option<Measured>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    extern "C" fn sampled_function(n: u64) -> u64 {
        (0..n).fold(1, |a, b| std::hint::black_box(a ^ b) + 1)
    }

    #[test]
    fn samples_are_given_to_functions_and_blocks() {
        assert!(sampled_function(3) > 0);
        let mut maps = super::super::maps::Maps::default();
        maps.read(std::process::id() as i32).unwrap();
        let mut s = Samples::default();
        let at = sampled_function as extern "C" fn(u64) -> u64 as usize as u64;
        for i in [0, 0, 0, 4] {
            s.user(maps.find(std::process::id(), at + i), 100);
        }
        s.user(None, 50);
        s.kernel(0xffff_8000_0000_0000, 50);
        let p = s.profile();
        assert_eq!((p.samples, p.events), (6, 500));
        let f = &p.functions[0];
        assert!(f.function.contains("sampled_function"), "{f:?}");
        assert_eq!((f.samples, f.events), (4, 400));
        assert!((f.share.value - 0.8).abs() < 1e-12);
        assert!((f.share.u.unwrap() - (0.8f64 * 0.2 / 6.0).sqrt()).abs() < 1e-12);
        assert_eq!(f.blocks[0].offset, 0);
        assert_eq!(f.blocks.iter().map(|b| b.samples).sum::<u64>(), 4);
        let files: Vec<&str> = p.functions[1..].iter().map(|f| f.file.as_str()).collect();
        assert!(
            files.contains(&"[kernel]") && files.contains(&"[no file]"),
            "{files:?}"
        );
    }
}
