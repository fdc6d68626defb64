//! "Did you mean …": names close to one that does not exist.

/// The names of `known` that `asked` is most likely a slip for, best first; empty when none is near.
pub fn closest<'a>(asked: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    const MOST: usize = 3;
    let asked = asked.to_lowercase();
    // a third of the letters may be wrong, and one of a short name
    let limit = (asked.chars().count() / 3).max(1);
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .map(|k| (distance(&asked, &k.to_lowercase()), k))
        .filter(|(d, _)| *d <= limit)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(MOST).map(|(_, k)| k).collect()
}

/// Optimal string alignment distance: insertions, deletions, replacements and exchanges of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let differ = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + differ);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let names = ["hsp", "rr", "adwrr", "acfs", "threshold"];
        assert_eq!(closest("hps", names), ["hsp"]);
        assert_eq!(closest("ACFS", names), ["acfs"]);
        assert_eq!(closest("treshold", names), ["threshold"]);
        assert!(closest("lavd", names).is_empty());
        assert!(closest("", names).is_empty());
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("ab", "ba"), 1);
    }
}
