//! Which events can be counted at the same time, where not all of them can.

/// Times that bins are filled once more, to see whether fewer do.
const AGAIN: usize = 2;

/// `n` events, by their numbers, in as few bins as are found, each of which `fits`. Those that nothing ties are put together in
/// the order in which they are given. One that does not fit anywhere, not even alone, has a bin of its own.
///
/// Where an event may use few counters, others must leave these to it. Which events those are no trial says. But the
/// bins say it: one that was closed with fewer events than another holds has events that are tied. The last bins hold
/// what found no room beside the rest, so the bins are filled once more, beginning with their events. That never makes
/// more bins: whatever is taken first from a bin fits into one. On sets of the shipped table of Golden Cove the result
/// is the fewest that there can be (`fit_x86_tests.rs` of amp-pmc).
pub fn bins(n: usize, fits: &dyn Fn(&[usize]) -> bool) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..n).collect();
    if n == 0 || fits(&all) {
        return Vec::from_iter((n > 0).then_some(all));
    }
    let written = first_fit(all, fits);
    let mut bins = written.clone();
    for _ in 0..AGAIN {
        let largest = bins.iter().map(Vec::len).max().unwrap_or(1);
        if bins.len() <= n.div_ceil(largest) {
            break;
        }
        let last_first = bins.iter().rev().flatten().copied().collect();
        bins = first_fit(last_first, fits);
    }
    // nothing is won, or others have taken counters meanwhile
    if bins.len() >= written.len() {
        return written;
    }
    bins.iter_mut().for_each(|bin| bin.sort_unstable());
    bins.sort_unstable();
    bins
}

/// Each of these goes to the first bin that has room for it.
pub fn first_fit(order: Vec<usize>, fits: &dyn Fn(&[usize]) -> bool) -> Vec<Vec<usize>> {
    let mut bins: Vec<Vec<usize>> = Vec::new();
    for i in order {
        let has_room = |bin: &&mut Vec<usize>| {
            let with: Vec<usize> = bin.iter().copied().chain([i]).collect();
            fits(&with)
        };
        match bins.iter_mut().find(has_room) {
            Some(bin) => bin.push(i),
            None => bins.push(vec![i]),
        }
    }
    bins
}

/// The largest number of `n` things of which every choice that is tried fits, at least 1: neighbours, and every second and
/// third one, from each of them on. `fits` is asked for some hundred choices at most where `n` is a few dozen.
pub fn largest_choice(n: usize, fits: &dyn Fn(&[usize]) -> bool) -> usize {
    let choice = |from: usize, stride: usize, size: usize| -> Vec<usize> {
        (0..size).map(|i| (from + i * stride) % n).collect()
    };
    let tried = |size: usize| {
        // no choice has one of them twice
        let mut strides = (1..=3).filter(|stride| stride * (size - 1) < n);
        strides.all(|stride| (0..n).all(|from| fits(&choice(from, stride, size))))
    };
    (2..=n).rev().find(|size| tried(*size)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_filled_in_the_order_of_writing() {
        // number 2 does not go with number 1, and no more than two go together
        let fits = |set: &[usize]| set.len() <= 2 && !(set.contains(&1) && set.contains(&2));
        assert_eq!(bins(5, &fits), [vec![0, 1], vec![2, 3], vec![4]]);
        assert_eq!(bins(5, &|_| false).len(), 5);
        assert_eq!(bins(3, &|_| true), [[0, 1, 2]]);
        assert!(bins(0, &|_| false).is_empty());
    }

    #[test]
    fn tied_events_are_left_their_counters() {
        // the last two may use one counter each, of three, and not the same bin
        let fits = |set: &[usize]| set.len() <= 3 && set.iter().filter(|i| **i >= 4).count() <= 1;
        let found = bins(6, &fits);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|b| fits(b)));
    }

    #[test]
    fn a_choice_fits_whichever_it_is() {
        assert_eq!(largest_choice(7, &|c| c.len() <= 4), 4);
        assert_eq!(largest_choice(7, &|_| true), 7);
        assert_eq!(largest_choice(7, &|_| false), 1);
        // two neighbours of these do not go together
        let apart = |c: &[usize]| !(c.contains(&3) && c.contains(&4)) && c.len() <= 3;
        assert_eq!(largest_choice(7, &apart), 1);
        // nor two with one between
        let apart = |c: &[usize]| !(c.contains(&3) && c.contains(&5)) && c.len() <= 3;
        assert_eq!(largest_choice(7, &apart), 1);
        assert_eq!(largest_choice(0, &|_| true), 1);
        let each_once = |c: &[usize]| {
            let mut sorted = c.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), c.len());
            true
        };
        for n in 1..9 {
            assert_eq!(largest_choice(n, &each_once), n);
        }
    }
}
