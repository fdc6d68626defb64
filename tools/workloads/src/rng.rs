//! A small generator of pseudo-random numbers whose sequence never changes: kernels and inputs must
//! be the same on every machine and after every upgrade, which no library's default generator
//! promises.

/// SplitMix64 [Steele, Lea, Flood, OOPSLA 2014].
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator that starts from `seed`.
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..n`; 0 when `n` is 0. The bias is below 2⁻³² for any `n` used here.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn sequence_is_the_published_one() {
        // the reference implementation's first outputs for seed 1234567
        let mut r = Rng::new(1_234_567);
        assert_eq!(r.next(), 6_457_827_717_110_365_317);
        assert_eq!(r.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_stays_below_and_reaches_both_ends() {
        let mut r = Rng::new(1);
        let v: Vec<u64> = (0..1000).map(|_| r.below(10)).collect();
        assert_eq!(v.iter().min(), Some(&0));
        assert_eq!(v.iter().max(), Some(&9));
        assert_eq!(r.below(0), 0);
    }
}
