//! How many events lie between two samples.
//!
//! A program whose loops take as many events as a period, or a divisor of it, is always sampled at
//! the same place [TRUST §3]. Primes have no divisors to share; drawn anew now and then they do not
//! even stay the same.

use super::source::Periods;
use clap::ValueEnum;
use rand::RngExt;

/// How periods are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The period as it is
    Fixed,
    /// The first prime from it on
    Prime,
    /// Primes around it, drawn anew for each CPU every tenth of a second
    Random,
}

/// Random periods lie within this part of the nominal one, above and below.
const SPREAD: f64 = 0.125;

/// The period to begin with, one of `can`. Where those are multiples of more than 1, so many times a
/// prime.
pub fn first(method: Method, nominal: u64, can: Periods, rng: &mut impl RngExt) -> u64 {
    match method {
        Method::Fixed => nominal.clamp(can.least, can.most),
        Method::Prime => times_prime(nominal, can),
        Method::Random => next(nominal, can, rng),
    }
}

/// Draws the next random period.
pub fn next(nominal: u64, can: Periods, rng: &mut impl RngExt) -> u64 {
    let width = (nominal as f64 * SPREAD) as u64;
    times_prime(rng.random_range(nominal - width..=nominal + width), can)
}

/// The first period from `n` on, or from the shortest, that is a prime times the grain.
fn times_prime(n: u64, can: Periods) -> u64 {
    let times = n.max(can.least).div_ceil(can.grain);
    (prime_from(times) * can.grain).min(can.most)
}

/// The first prime that is not below `n`.
fn prime_from(n: u64) -> u64 {
    (n.max(2)..).find(|n| is_prime(*n)).unwrap_or(n)
}

fn is_prime(n: u64) -> bool {
    let odd_divisors = (3..).step_by(2).take_while(|d| d * d <= n);
    n == 2 || n > 2 && n % 2 == 1 && odd_divisors.into_iter().all(|d| !n.is_multiple_of(d))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::SeedableRng;

    #[test]
    fn primes_are_found() {
        for (n, prime) in [
            (0, 2),
            (2, 2),
            (4, 5),
            (24, 29),
            (1_000_000, 1_000_003),
            (50_021, 50_021),
        ] {
            assert_eq!(prime_from(n), prime);
        }
        assert!(!is_prime(49) && !is_prime(1));
    }

    #[test]
    fn random_periods_are_primes_around_the_nominal_one() {
        let mut rng = SmallRng::seed_from_u64(1);
        let all: Vec<u64> = (0..50)
            .map(|_| first(Method::Random, 10_000, Periods::ANY, &mut rng))
            .collect();
        assert!(all
            .iter()
            .all(|p| (8_750..=11_300).contains(p) && is_prime(*p)));
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert!(different.len() > 25, "{all:?}");
        let any = Periods::ANY;
        assert_eq!(first(Method::Fixed, 10_000, any, &mut rng), 10_000);
        assert_eq!(first(Method::Prime, 10_000, any, &mut rng), 10_007);
    }

    #[test]
    fn periods_are_those_that_the_source_can_have() {
        let can = Periods {
            grain: 16,
            least: 144,
            most: 4096,
        };
        let mut rng = SmallRng::seed_from_u64(1);
        for nominal in [144, 1000, 4096] {
            for method in [Method::Fixed, Method::Prime, Method::Random] {
                for _ in 0..50 {
                    let p = first(method, nominal / 16 * 16, can, &mut rng);
                    assert!(p % 16 == 0 && (144..=4096).contains(&p), "{method:?} {p}");
                    assert!(
                        method == Method::Fixed || p == 4096 || is_prime(p / 16),
                        "{p}"
                    );
                }
            }
        }
    }
}
