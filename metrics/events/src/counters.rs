//! Which counters of a PMU can count an event.

use std::str::FromStr;

/// Counters that can count an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counters {
    /// One of these general counters: bit *n* for counter *n*.
    General(u64),
    /// A fixed counter of this number.
    Fixed(u32),
    /// A counter that counts nothing else and is always there, as some of uncore units.
    FreeRunning,
}

impl FromStr for Counters {
    type Err = String;

    /// As tables write it: `0,1,2,3`, `Fixed counter 1`, `FIXED`.
    fn from_str(s: &str) -> Result<Counters, String> {
        let bad = || format!("`{s}` is not a list of counters such as `0,1`, or `Fixed counter 0`");
        if s.trim().eq_ignore_ascii_case("fixed") {
            return Ok(Counters::FreeRunning);
        }
        if let Some(n) = s.trim().strip_prefix("Fixed counter ") {
            return n.trim().parse().map(Counters::Fixed).map_err(|_| bad());
        }
        let mut mask = 0;
        for n in s.split(',') {
            let n: u32 = n.trim().parse().map_err(|_| bad())?;
            mask |= 1u64.checked_shl(n).ok_or_else(bad)?;
        }
        Ok(Counters::General(mask))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_tables_write_them() {
        let parse = |s: &str| s.parse::<Counters>();
        assert_eq!(parse("0,1,2,3"), Ok(Counters::General(0b1111)));
        assert_eq!(parse("4, 5"), Ok(Counters::General(0b11_0000)));
        assert_eq!(parse("63"), Ok(Counters::General(1 << 63)));
        assert_eq!(parse("Fixed counter 3"), Ok(Counters::Fixed(3)));
        assert_eq!(parse("FIXED"), Ok(Counters::FreeRunning));
        for s in ["", "0,", "64", "Fixed counter", "a"] {
            assert!(parse(s).is_err(), "{s}");
        }
    }
}
