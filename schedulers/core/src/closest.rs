//! "Did you mean …": names close to one that does not exist.

/// The names of `known` that `asked` is most likely a slip for, best first; empty when none is
/// near.
pub fn closest<'a>(asked: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    const MOST: usize = 3;
    let asked = asked.to_lowercase();
    // a third of the letters may be wrong, and one of a short name
    let limit = (asked.chars().count() / 3).max(1);
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .map(|k| (strsim::osa_distance(&asked, &k.to_lowercase()), k))
        .filter(|(d, _)| *d <= limit)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(MOST).map(|(_, k)| k).collect()
}

/// The end of a message: names that may have been meant; empty when there are none.
pub fn did_you_mean<S: AsRef<str>>(names: &[S]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = names.iter().map(|n| format!("`{}`", n.as_ref())).collect();
    format!("; did you mean {}?", quoted.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strsim::osa_distance;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let names = ["hsp", "rr", "adwrr", "acfs", "threshold"];
        assert_eq!(closest("hps", names), ["hsp"]);
        assert_eq!(closest("ACFS", names), ["acfs"]);
        assert_eq!(closest("treshold", names), ["threshold"]);
        assert!(closest("lavd", names).is_empty());
        assert!(closest("", names).is_empty());
        assert_eq!(osa_distance("", "abc"), 3);
        assert_eq!(osa_distance("kitten", "sitting"), 3);
        assert_eq!(osa_distance("ab", "ba"), 1);
        assert_eq!(
            did_you_mean(&closest("hps", names)),
            "; did you mean `hsp`?"
        );
        assert_eq!(did_you_mean(&["a", "b"]), "; did you mean `a` or `b`?");
        assert_eq!(did_you_mean::<&str>(&[]), "");
    }
}
