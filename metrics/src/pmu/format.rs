//! `format/` files: which bits of the event's code a field occupies.
//!
//! `perf-event2` reads these files too, but only a single range per field; AMD's event select has
//! two (`config:0-7,32-35`), and it has no injected sysfs root.

use crate::event::EventAttr;
use std::str::FromStr;
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Config,
    Config1,
    Config2,
    /// A word newer than this program (`config3`): known by name, refused when used.
    Other,
}

/// Where a field lies: bits of one word, low to high.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    word: Word,
    /// Inclusive bit ranges, in the order in which the value's bits fill them.
    ranges: Vec<(u32, u32)>,
}

/// A text that is no field description.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not a field such as `config:0-7` or `config1:0-7,32-35`")]
pub struct FormatError(String);

impl Format {
    /// Width in bits.
    pub fn bits(&self) -> u32 {
        self.ranges.iter().map(|(lo, hi)| hi - lo + 1).sum()
    }

    /// Puts `value` in its place in `attr`, replacing what was there.
    ///
    /// # Errors
    /// The width of the field when the value does not fit (0 where the word is one this program
    /// does not know).
    pub fn put(&self, attr: &mut EventAttr, value: u64) -> Result<(), u32> {
        let bits = self.bits();
        if bits < 64 && value >> bits != 0 {
            return Err(bits);
        }
        let word = match self.word {
            Word::Config => &mut attr.config,
            Word::Config1 => &mut attr.config1,
            Word::Config2 => &mut attr.config2,
            Word::Other => return if value == 0 { Ok(()) } else { Err(0) },
        };
        let mut rest = value;
        for &(lo, hi) in &self.ranges {
            let width = hi - lo + 1;
            let mask = if width == 64 {
                u64::MAX
            } else {
                (1 << width) - 1
            };
            *word = *word & !(mask << lo) | (rest & mask) << lo;
            rest = rest.checked_shr(width).unwrap_or(0);
        }
        Ok(())
    }
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(s: &str) -> Result<Format, FormatError> {
        let bad = || FormatError(s.to_owned());
        let (word, bits) = s.split_once(':').ok_or_else(bad)?;
        let word = match word.trim() {
            "config" => Word::Config,
            "config1" => Word::Config1,
            "config2" => Word::Config2,
            w if w.starts_with("config") => Word::Other,
            _ => return Err(bad()),
        };
        let mut ranges = Vec::new();
        let mut used = 0u64;
        for part in bits.split(',') {
            let (lo, hi) = part.split_once('-').unwrap_or((part, part));
            let lo: u32 = lo.trim().parse().map_err(|_| bad())?;
            let hi: u32 = hi.trim().parse().map_err(|_| bad())?;
            if lo > hi || hi > 63 {
                return Err(bad());
            }
            let mask = (u64::MAX >> (63 - (hi - lo))) << lo;
            // overlapping ranges would lose bits of the value
            if used & mask != 0 {
                return Err(bad());
            }
            used |= mask;
            ranges.push((lo, hi));
        }
        Ok(Format { word, ranges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_field_in_two_ranges() {
        let f: Format = "config:0-7,32-35".parse().unwrap();
        let mut a = EventAttr::default();
        f.put(&mut a, 0x18e).unwrap();
        assert_eq!(a.config, 0x1_0000_008e);
        assert_eq!(f.put(&mut a, 0x1000), Err(12));
    }

    #[test]
    fn extensions_and_single_bits() {
        let mut a = EventAttr::default();
        "config1:0-15"
            .parse::<Format>()
            .unwrap()
            .put(&mut a, 3)
            .unwrap();
        "config2:63"
            .parse::<Format>()
            .unwrap()
            .put(&mut a, 1)
            .unwrap();
        "config:0-63"
            .parse::<Format>()
            .unwrap()
            .put(&mut a, u64::MAX)
            .unwrap();
        assert_eq!((a.config, a.config1, a.config2), (u64::MAX, 3, 1 << 63));
        assert_eq!(
            "config3:0-7".parse::<Format>().unwrap().put(&mut a, 1),
            Err(0)
        );
    }

    #[test]
    fn refusals_show_the_text() {
        for s in [
            "",
            "config",
            "config:",
            "config:8-7",
            "config:0-64",
            "config:0-7,4",
            "conf:1",
        ] {
            assert!(s.parse::<Format>().is_err(), "{s}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(s in "(config|\\PC{0,3})?:?[0-9,-]{0,12}") {
            let _ = s.parse::<Format>();
        }

        #[test]
        fn a_value_that_fits_can_be_read_back(lo in 0u32..60, width in 1u32..5, v in 0u64..16, noise: u64) {
            let hi = (lo + width - 1).min(63);
            let f: Format = format!("config:{lo}-{hi}").parse().unwrap();
            let mut a = EventAttr { config: noise, ..EventAttr::default() };
            let mask = (1u64 << (hi - lo + 1)) - 1;
            if v <= mask {
                f.put(&mut a, v).unwrap();
                prop_assert_eq!(a.config >> lo & mask, v);
                prop_assert_eq!(a.config & !(mask << lo), noise & !(mask << lo));
            } else {
                prop_assert!(f.put(&mut a, v).is_err());
            }
        }
    }
}
