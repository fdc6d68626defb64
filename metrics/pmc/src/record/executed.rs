//! How often basic blocks ran, from runs of them between branches.

use super::blocks::Block;
use super::branches::Runs;
use super::profile::{code, describe, Key};
use amp_metrics::uncertainty::Measured;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};
use std::collections::{HashMap, HashSet};

/// Executions of the blocks of functions.
#[derive(Debug, Default)]
pub struct Executed {
    /// In the order of the function's blocks.
    blocks: HashMap<Key, Vec<u64>>,
    /// Instructions in all of them.
    instructions: u64,
    stacks: u64,
    /// Runs in code whose function or size is not known.
    pub unplaced: u64,
}

impl Executed {
    /// Gives `runs` to blocks; functions whose blocks are not in `shapes` yet are put there. What
    /// runs on beyond the end of its function is counted up to there.
    pub fn of(
        runs: &Runs,
        symbolizer: &Symbolizer,
        shapes: &mut HashMap<Key, Vec<Block>>,
    ) -> Executed {
        let mut out = Executed {
            stacks: runs.stacks(),
            ..Executed::default()
        };
        for (file, starts) in runs.files() {
            let source = Source::Elf(Elf::new(file));
            let named = symbolizer.symbolize(&source, Input::FileOffset(&starts));
            let named = named.unwrap_or_default();
            let places = starts.iter().enumerate().map(|(i, start)| {
                let (name, inside, size) = describe(named.get(i));
                (*start, ((name, file.display().to_string()), inside, size))
            });
            let places: HashMap<u64, (Key, u64, Option<u64>)> = places.collect();
            for (first, last, times) in runs.of(file) {
                let Some((key, inside, size)) = places.get(&first) else {
                    continue;
                };
                let function = first.saturating_sub(*inside);
                let shape = shapes
                    .entry(key.clone())
                    .or_insert_with(|| code(file, function, *size).unwrap_or_default());
                if shape.is_empty() {
                    out.unplaced += times;
                    continue;
                }
                let of = out.blocks.entry(key.clone());
                let of = of.or_insert_with(|| vec![0; shape.len()]);
                out.instructions += count(shape, *inside, last - function, times, of);
            }
        }
        out
    }

    /// Functions of which something ran.
    pub fn functions(&self) -> HashSet<&Key> {
        self.blocks.keys().collect()
    }

    /// How often block `i` of a function of `shape` ran in all that was seen, and its part of all
    /// instructions; `None` when nothing was seen. Its standard uncertainty is √(p(1−p)/n) for n
    /// samples: as if all runs of a sample were of the same block or none, so no less than it is.
    pub fn of_block(&self, key: &Key, shape: &[Block], i: usize) -> Option<(u64, Measured)> {
        if self.instructions == 0 {
            return None;
        }
        let times = self.blocks.get(key).and_then(|b| b.get(i)).copied();
        let times = times.unwrap_or(0);
        let size = shape.get(i).map_or(0, |b| u64::from(b.instructions));
        let p = times.saturating_mul(size) as f64 / self.instructions as f64;
        let u = (p * (1.0 - p) / self.stacks as f64).sqrt();
        Some((times, Measured::new(p, u)))
    }
}

/// Adds a run from the instruction at `first` to that at `last`, bytes from the beginning of the
/// function, to each block that it went through; instructions in it. A block that is entered in its
/// midst, by a jump table for example, counts as one.
fn count(shape: &[Block], first: u64, last: u64, times: u64, blocks: &mut [u64]) -> u64 {
    let mut instructions = 0;
    for (b, n) in shape.iter().zip(blocks) {
        if b.range.start <= last && b.range.end > first {
            *n += times;
            instructions += times * u64::from(b.instructions);
        }
    }
    instructions
}

#[cfg(test)]
mod tests {
    use super::super::branches::Branch;
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};
    use std::collections::VecDeque;
    use std::path::Path;

    fn shape() -> Vec<Block> {
        [(0, 4, 1), (4, 16, 3), (16, 20, 1), (20, 28, 2)]
            .map(|(start, end, instructions)| Block {
                range: start..end,
                instructions,
            })
            .into()
    }

    #[test]
    fn every_block_of_a_run_ran() {
        let (shape, mut n) = (shape(), vec![0; 4]);
        // from the loop's head to its branch, nine times; once on to the call
        assert_eq!(count(&shape, 4, 12, 9, &mut n), 27);
        assert_eq!(count(&shape, 4, 16, 1, &mut n), 4);
        assert_eq!(n, [0, 10, 1, 0]);
        // into the midst of a block, and beyond the end
        assert_eq!(count(&shape, 8, 100, 1, &mut n), 6);
        assert_eq!(n, [0, 11, 2, 1]);
    }

    /// A walk through [`shape`]: its second block branches back to itself, its third one and its
    /// last one to the first; stacks of 16 at every 31st taken branch.
    #[test]
    fn sampled_branches_tell_executions_without_bias() {
        let (shape, file) = (shape(), Path::new("f"));
        let mut rng = SmallRng::seed_from_u64(1);
        let mut known = [0u64; 4];
        let mut stack: VecDeque<Branch> = VecDeque::new();
        let mut runs = Runs::default();
        let (mut at, mut taken) = (0, 0u32);
        for _ in 0..300_000 {
            known[at] += 1;
            let branch = match at {
                1 if rng.random_bool(0.75) => Some((12, 1)),
                2 if rng.random_bool(0.5) => Some((16, 0)),
                3 => Some((24, 0)),
                _ => None,
            };
            at = branch.map_or(at + 1, |(_, to)| to);
            let Some((from, to)) = branch else { continue };
            let to = shape[to].range.start;
            stack.push_front(Branch { from, to });
            stack.truncate(16);
            taken += 1;
            if taken % 31 == 0 {
                runs.add(stack.make_contiguous(), |a| Some((file, a)));
            }
        }
        let mut seen = vec![0; 4];
        for (first, last, times) in runs.of(file) {
            count(&shape, first, last, times, &mut seen);
        }
        let shares = |n: &[u64]| -> Vec<f64> {
            let size = |(n, b): (&u64, &Block)| *n as f64 * f64::from(b.instructions);
            let all: Vec<f64> = n.iter().zip(&shape).map(size).collect();
            let sum: f64 = all.iter().sum();
            all.iter().map(|x| x / sum).collect()
        };
        let pairs = shares(&seen).into_iter().zip(shares(&known));
        let error: f64 = pairs.map(|(a, b)| (a - b).abs()).sum();
        assert!(error < 0.01, "{error}: {seen:?} of {known:?}");
        assert_eq!(runs.odd(), 0);
    }

    /// Not the same as any other function: a compiler keeps only one of two that are.
    #[inline(never)]
    extern "C" fn executed_function(n: u64) -> u64 {
        (0..n).fold(2, |a, b| std::hint::black_box(a ^ b) + 3)
    }

    #[test]
    fn runs_are_given_to_functions_and_their_blocks() {
        assert!(executed_function(3) > 0);
        let at = executed_function as extern "C" fn(u64) -> u64 as usize as u64;
        let mut maps = super::super::maps::Maps::default();
        maps.read(std::process::id() as i32).unwrap();
        let find = |a: u64| maps.find(std::process::id(), a);
        let mut runs = Runs::default();
        // entered, and left again in its first instruction: made up, but of code that is there
        let stack = [Branch { from: at, to: 1 }, Branch { from: 1, to: at }];
        for _ in 0..3 {
            runs.add(&stack, find);
        }
        // a page without a name
        runs.add(
            &[Branch { from: 2, to: 1 }, Branch { from: 1, to: 2 }],
            |a| Some((Path::new("/no/such/file"), a)),
        );
        let mut shapes = HashMap::new();
        let e = Executed::of(&runs, &Symbolizer::new(), &mut shapes);
        let functions = e.functions();
        let [key] = functions.iter().collect::<Vec<_>>()[..] else {
            panic!("{functions:?}")
        };
        assert!(key.0.contains("executed_function"), "{key:?}");
        let shape = &shapes[*key];
        let (times, share) = e.of_block(key, shape, 0).unwrap();
        assert_eq!((times, share.value, e.unplaced), (3, 1.0, 1));
        assert_eq!(share.u, Some(0.0));
        assert_eq!(e.of_block(key, shape, shape.len()).unwrap().0, 0);
        assert!(Executed::default().of_block(key, shape, 0).is_none());
    }
}
