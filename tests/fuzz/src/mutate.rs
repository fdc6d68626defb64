//! Changes to bytes: single bits, numbers, words, lines and pieces.

use chacha20::ChaCha8Rng;
use rand::{Rng, RngExt};

/// Longest input that is made, bytes.
const LONGEST: usize = 256 << 10;
/// Values that are near the bounds of a type or of what makes sense.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1",
    "255",
    "256",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "-1e308",
    "5e-324",
    "1e999",
    "nan",
    "inf",
    "-0.0",
    "0.1",
    "1e-9",
    "0x7fffffffffffffff",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "[[]]",
];

/// Words, numbers and punctuation of the seeds of a kind, for insertion into others.
#[derive(Debug, Default)]
pub struct Words(Vec<Vec<u8>>);

impl Words {
    /// Those of some seeds.
    pub fn of(seeds: &[Vec<u8>]) -> Words {
        let mut all: Vec<Vec<u8>> = seeds.iter().flat_map(|s| pieces(s)).collect();
        all.sort();
        all.dedup();
        all.truncate(20_000);
        Words(all)
    }
}

/// Runs of letters and digits; everything else byte by byte.
fn pieces(text: &[u8]) -> Vec<Vec<u8>> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b"_.-+".contains(&b);
    let mut out: Vec<Vec<u8>> = Vec::new();
    for run in text.chunk_by(|a, b| word(*a) && word(*b)) {
        if run.len() < 64 {
            out.push(run.to_vec());
        }
    }
    out
}

/// Changes `input` in one to eight places.
pub fn mutate(input: &mut Vec<u8>, others: &[Vec<u8>], words: &Words, random: &mut ChaCha8Rng) {
    // few changes reach further into a parser than many
    let changes = 1 + random
        .random_range(0..8u32)
        .min(random.random_range(0..8u32));
    for _ in 0..changes {
        change(input, others, words, random);
        input.truncate(LONGEST);
    }
}

fn change(input: &mut Vec<u8>, others: &[Vec<u8>], words: &Words, random: &mut ChaCha8Rng) {
    let n = input.len();
    match random.random_range(0..14u32) {
        0 if n > 0 => {
            let at = random.random_range(0..n);
            input[at] ^= 1 << random.random_range(0..8u32);
        }
        1 if n > 0 => {
            let at = random.random_range(0..n);
            input[at] = random.next_u32() as u8;
        }
        2 => {
            let piece = [random.next_u32() as u8; 4];
            let length = random.random_range(1..=4usize);
            insert(input, &piece[..length], random);
        }
        3 if n > 0 => {
            let range = range(n, random);
            input.drain(range);
        }
        4 if n > 0 => {
            let piece = input[range(n, random)].to_vec();
            insert(input, &piece, random);
        }
        5 if n > 0 => input.truncate(random.random_range(0..n)),
        6 | 7 => number(input, random),
        8 | 9 => word(input, words, random),
        10 => lines(input, random),
        11 => {
            let other = &others[random.random_range(0..others.len())];
            if !other.is_empty() {
                let piece = other[range(other.len(), random)].to_vec();
                insert(input, &piece, random);
            }
        }
        12 if n > 0 => {
            // much of the same, such as brackets or digits
            let from = random.random_range(0..n);
            let piece = input[from..(from + random.random_range(1..=4usize)).min(n)].to_vec();
            let times = 1usize << random.random_range(2..14u32);
            insert(input, &piece.repeat(times), random);
        }
        _ => {
            let signs = b"[]{}\",=.:#'-\\\n\0 \t";
            let sign = signs[random.random_range(0..signs.len())];
            insert(input, &[sign], random);
        }
    }
}

/// A piece of `0..n`, mostly a short one; `n` > 0.
fn range(n: usize, random: &mut ChaCha8Rng) -> std::ops::Range<usize> {
    let from = random.random_range(0..n);
    let longest = match random.random_range(0..4u32) {
        0 => n,
        _ => 32,
    };
    from..(from + random.random_range(1..=longest)).min(n)
}

fn insert(input: &mut Vec<u8>, piece: &[u8], random: &mut ChaCha8Rng) {
    let at = random.random_range(0..=input.len());
    input.splice(at..at, piece.iter().copied());
}

/// Puts another number in place of one.
fn number(input: &mut Vec<u8>, random: &mut ChaCha8Rng) {
    let begins = |i: &usize| {
        input[*i].is_ascii_digit() && (*i == 0 || !input[*i - 1].is_ascii_alphanumeric())
    };
    let places: Vec<usize> = (0..input.len()).filter(begins).collect();
    if places.is_empty() {
        return;
    }
    let from = places[random.random_range(0..places.len())];
    let digit = |b: &&u8| b.is_ascii_alphanumeric() || b"._".contains(b);
    let length = input[from..].iter().take_while(digit).count();
    let new = NUMBERS[random.random_range(0..NUMBERS.len())];
    input.splice(from..from + length, new.bytes());
}

/// Puts a word of the seeds in place of one.
fn word(input: &mut Vec<u8>, words: &Words, random: &mut ChaCha8Rng) {
    if words.0.is_empty() {
        return;
    }
    let new = &words.0[random.random_range(0..words.0.len())];
    let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let begins = |i: &usize| letter(input[*i]) && (*i == 0 || !letter(input[*i - 1]));
    let places: Vec<usize> = (0..input.len()).filter(begins).collect();
    if places.is_empty() {
        return;
    }
    let from = places[random.random_range(0..places.len())];
    let length = input[from..].iter().take_while(|b| letter(**b)).count();
    input.splice(from..from + length, new.iter().copied());
}

/// Takes a line out, doubles it, or puts it elsewhere.
fn lines(input: &mut Vec<u8>, random: &mut ChaCha8Rng) {
    let mut all: Vec<Vec<u8>> = input
        .split_inclusive(|b| *b == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    if all.is_empty() {
        return;
    }
    let at = random.random_range(0..all.len());
    match random.random_range(0..3u32) {
        0 => drop(all.remove(at)),
        1 => all.insert(at, all[at].clone()),
        _ => {
            let line = all.remove(at);
            all.insert(random.random_range(0..=all.len()), line);
        }
    }
    *input = all.concat();
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_seed_gives_the_same_mutants_again_and_they_stay_short() {
        let seeds = vec![b"key = 1\n[table]\nother = \"x\"\n".to_vec(), vec![]];
        let words = Words::of(&seeds);
        let go = |seed| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut input = seeds[0].clone();
            let mut all = Vec::new();
            for _ in 0..2000 {
                mutate(&mut input, &seeds, &words, &mut random);
                assert!(input.len() <= LONGEST);
                all.push(input.clone());
            }
            all
        };
        assert_eq!(go(1), go(1));
        assert_ne!(go(1), go(2));
    }
}
