//! One of several parts of a campaign.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Most parts.
const MOST: usize = 100_000;

/// The `index`-th of `of` parts of the jobs of a campaign. Every process works out the same parts
/// by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the part, from 1.
    index: usize,
    /// Parts in all, ≥ `index`.
    of: usize,
}

/// A text names no part.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no part: want I/N with I from 1 to N and N up to {MOST}, such as 3/8")]
pub struct NoShard(String);

impl Shard {
    /// Everything.
    pub const ALL: Shard = Shard { index: 1, of: 1 };

    /// Which jobs are in this part, by their position in `costs`, in ascending order. The parts are
    /// of about the same cost: no two differ by more than the largest job costs.
    pub fn of(self, costs: &[u64]) -> Vec<usize> {
        let mut by_cost: Vec<usize> = (0..costs.len()).collect();
        by_cost.sort_by_key(|i| Reverse(costs[*i]));
        let mut loads = vec![0u64; self.of];
        let mut mine = Vec::new();
        for i in by_cost {
            // the first of those with the smallest load
            let least = (0..self.of).min_by_key(|s| loads[*s]).unwrap_or(0);
            loads[least] = loads[least].saturating_add(costs[i].max(1));
            if least + 1 == self.index {
                mine.push(i);
            }
        }
        mine.sort_unstable();
        mine
    }
}

impl FromStr for Shard {
    type Err = NoShard;

    fn from_str(text: &str) -> Result<Shard, NoShard> {
        let number = |t: &str| t.parse::<usize>().ok();
        let parts = text.split_once('/');
        let parts = parts.and_then(|(i, n)| Some((number(i)?, number(n)?)));
        match parts {
            Some((index, of)) if (1..=of).contains(&index) && of <= MOST => Ok(Shard { index, of }),
            _ => Err(NoShard(text.to_owned())),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_part_is_read_as_it_is_shown() {
        for text in ["1/1", "3/8", "100000/100000"] {
            assert_eq!(text.parse::<Shard>().unwrap().to_string(), text);
        }
        for text in [
            "0/3", "4/3", "3", "/", "1/", "-1/3", "1/0", "a/b", "1/100001", "1/2/3",
        ] {
            let said = text.parse::<Shard>().unwrap_err().to_string();
            assert!(said.contains(text) && said.contains("3/8"), "{said}");
        }
    }

    proptest! {
        #[test]
        fn every_job_is_in_one_part_and_the_parts_are_even(
            costs in prop::collection::vec(0u64..50, 0..60),
            of in 1usize..9,
        ) {
            let parts: Vec<Vec<usize>> =
                (1..=of).map(|index| Shard { index, of }.of(&costs)).collect();
            let mut all: Vec<usize> = parts.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..costs.len()).collect::<Vec<_>>());
            let load = |p: &Vec<usize>| p.iter().map(|i| costs[*i].max(1)).sum::<u64>();
            let loads: Vec<u64> = parts.iter().map(load).collect();
            let largest = costs.iter().map(|c| (*c).max(1)).max().unwrap_or(0);
            let most = loads.iter().max().copied().unwrap_or(0);
            let least = loads.iter().min().copied().unwrap_or(0);
            prop_assert!(most - least <= largest, "{loads:?}");
        }
    }
}
