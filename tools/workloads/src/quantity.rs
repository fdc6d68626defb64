//! Amounts as people write them: `40M` units of work, `512K` bytes.

/// An amount of work: digits with an optional `k`, `M` or `G` (powers of 1000), a decimal point
/// allowed.
///
/// # Errors
/// Says what was expected when `s` is not such a number, is negative, or does not fit.
pub fn parse_count(s: &str) -> Result<u64, String> {
    parse(s, 1000.0).ok_or_else(|| format!("`{s}` is not an amount such as 500k, 40M or 1.5G"))
}

/// A size in bytes: digits with an optional `K`, `M` or `G` (powers of 1024).
///
/// # Errors
/// Says what was expected when `s` is not such a number, is negative, or does not fit.
pub fn parse_size(s: &str) -> Result<u64, String> {
    parse(s, 1024.0).ok_or_else(|| format!("`{s}` is not a size such as 32K or 8M"))
}

fn parse(s: &str, base: f64) -> Option<u64> {
    let s = s.trim();
    let (digits, factor) = match s.char_indices().last()? {
        (i, 'k' | 'K') => (&s[..i], base),
        (i, 'm' | 'M') => (&s[..i], base * base),
        (i, 'g' | 'G') => (&s[..i], base * base * base),
        _ => (s, 1.0),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let v = digits.parse::<f64>().ok()? * factor;
    // 2^53: beyond it an f64 no longer holds every integer
    (v.is_finite() && (0.0..9.0e15).contains(&v)).then_some(v.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::{parse_count, parse_size};

    #[test]
    fn amounts_and_sizes() {
        assert_eq!(parse_count("40M"), Ok(40_000_000));
        assert_eq!(parse_count("1.5k"), Ok(1500));
        assert_eq!(parse_count("7"), Ok(7));
        assert_eq!(parse_size("8M"), Ok(8 << 20));
        assert_eq!(parse_size("32k"), Ok(32 << 10));
    }

    #[test]
    fn nonsense_is_named() {
        for bad in ["", "M", "-1", "4X", "1e400", "inf", "NaN", "é"] {
            let e = parse_count(bad).unwrap_err();
            assert!(e.contains(&format!("`{bad}`")), "{e}");
        }
    }
}
