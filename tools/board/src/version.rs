//! Debian version order (deb-version(7)).

use std::cmp::Ordering;

/// Compares two Debian versions.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (ea, a) = epoch(a);
    let (eb, b) = epoch(b);
    let (ua, ra) = a.rsplit_once('-').unwrap_or((a, "0"));
    let (ub, rb) = b.rsplit_once('-').unwrap_or((b, "0"));
    ea.cmp(&eb)
        .then_with(|| part(ua, ub))
        .then_with(|| part(ra, rb))
}

fn epoch(v: &str) -> (u64, &str) {
    match v.split_once(':') {
        Some((e, rest)) => (e.parse().unwrap_or(0), rest),
        None => (0, v),
    }
}

/// Alternates between the longest non-digit prefix, in a modified ASCII order, and the longest
/// number.
fn part(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let (na, ra) = split(a, |c| !c.is_ascii_digit());
        let (nb, rb) = split(b, |c| !c.is_ascii_digit());
        let text = non_digits(na, nb);
        let (da, ra) = split(ra, |c| c.is_ascii_digit());
        let (db, rb) = split(rb, |c| c.is_ascii_digit());
        let (ta, tb) = (da.trim_start_matches('0'), db.trim_start_matches('0'));
        // Numbers of any length: the longer is the larger, then digit by digit.
        let number = ta.len().cmp(&tb.len()).then_with(|| ta.cmp(tb));
        let order = text.then(number);
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (ra, rb);
    }
    Ordering::Equal
}

fn split(s: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    s.split_at(s.find(|c| !keep(c)).unwrap_or(s.len()))
}

fn non_digits(a: &str, b: &str) -> Ordering {
    let weight = |c: Option<char>| match c {
        Some('~') => -1,
        None => 0,
        Some(c) if c.is_ascii_alphabetic() => c as i64,
        Some(c) => c as i64 + 0x11_0000,
    };
    let (mut a, mut b) = (a.chars(), b.chars());
    loop {
        let (x, y) = (a.next(), b.next());
        let order = weight(x).cmp(&weight(y));
        if order != Ordering::Equal || (x.is_none() && y.is_none()) {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_orders() {
        let ascending = [
            "6.18.15-1~bpo13+1",
            "6.19.14-1~bpo13+1",
            "7.0.9-1~bpo13+1",
            "7.0.13-1~bpo13+1",
            "7.2.12-1~bpo13+1",
            "7.2.12-1",
            "7.2.13-1",
            "1:0.1-1",
        ];
        for w in ascending.windows(2) {
            assert_eq!(compare(w[0], w[1]), Ordering::Less, "{} {}", w[0], w[1]);
        }
        assert_eq!(
            compare("10.0.2+ds-2~bpo12+1", "1:10.0.2+ds-1"),
            Ordering::Less
        );
        assert_eq!(compare("1.0", "1.0-0"), Ordering::Equal);
        assert_eq!(compare("1.0a", "1.0+"), Ordering::Less);
        assert_eq!(compare("1.007", "1.7"), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn an_order(a in "[0-9a-z.+~:-]{0,12}", b in "[0-9a-z.+~:-]{0,12}") {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            prop_assert_eq!(compare(&a, &a), Ordering::Equal);
        }
    }
}
