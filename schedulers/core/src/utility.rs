//! What an application as a whole gains from fast cores, given how many runnable threads it has.

/// How the gain of one thread's speedup factor is spread over its application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Utility {
    /// As [`Utility::Speedup`], by the factor that arrives at the application: what its threads get done
    /// on fast cores while others of them are on slow ones
    /// ([`View::arriving`](crate::view::View::arriving)).
    Auto,
    /// Speedup with the fast cores fair-shared among the threads [TR5028 §4].
    #[default]
    Speedup,
    /// Utility factor of CAMP.
    Camp,
    /// Speedup of threads with equal shares of the work that wait for each other at barriers.
    Barrier,
}

impl Utility {
    /// The gain of an application of `runnable` threads of speedup factor `sf` from `cores` fast
    /// cores. A ratio; 1 is no gain.
    pub fn of(self, sf: f64, runnable: usize, cores: usize) -> f64 {
        match self {
            Utility::Auto | Utility::Speedup => application_speedup(sf, runnable, cores),
            Utility::Camp => camp_utility(sf, runnable, cores),
            Utility::Barrier => barrier_speedup(sf, runnable, cores),
        }
    }
}

impl Utility {
    /// What one fast core adds while it runs one of the application's threads: the gain of them all
    /// by the fast cores that the application can fill, (SP − 1)/min(N, NB). In this order, fast
    /// cores add most in all. The utility factor of CAMP is such a rank by itself.
    pub fn per_core(self, sf: f64, runnable: usize, cores: usize) -> f64 {
        let filled = match self {
            Utility::Camp => 1,
            _ => runnable.min(cores).max(1),
        };
        (self.of(sf, runnable, cores) - 1.0) / filled as f64
    }
}

/// Application-wide speedup SP = (min(NB, N)/N)·(SF − 1) + 1 [TR5028 §4]: N runnable threads of
/// speedup factor SF, NB fast cores. With N ≤ NB it is the SF itself. No runnable thread counts as
/// one.
pub fn application_speedup(sf: f64, runnable: usize, cores: usize) -> f64 {
    let n = runnable.max(1) as f64;
    (cores as f64).min(n) / n * (sf - 1.0) + 1.0
}

/// Utility factor UF = (SF − 1)/max(1, N − (NB − 1))² + 1 of CAMP, as ALGORITHMS.md gives it; could
/// not be checked against the original paper \[M\].
pub fn camp_utility(sf: f64, runnable: usize, cores: usize) -> f64 {
    let surplus = (runnable as f64 - (cores as f64 - 1.0)).max(1.0);
    (sf - 1.0) / (surplus * surplus) + 1.0
}

/// Speedup of N threads that each do the same work up to a barrier: the last one decides. All on
/// fast cores they gain SF; with one of them on a slow core, nothing. Our own; fast cores that
/// threads take by turns between two barriers would be worth [`application_speedup`].
pub fn barrier_speedup(sf: f64, runnable: usize, cores: usize) -> f64 {
    if runnable <= cores {
        sf
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_threads_get_the_whole_factor() {
        for u in [Utility::Speedup, Utility::Camp, Utility::Barrier] {
            assert_eq!(u.of(2.5, 1, 2), 2.5);
            assert_eq!(u.of(2.5, 2, 2), 2.5);
        }
        assert_eq!(application_speedup(2.5, 0, 2), 2.5);
    }

    #[test]
    fn a_core_adds_its_thread_s_part() {
        let per_core = |u: Utility, sf, n| u.per_core(sf, n, 2);
        for u in [Utility::Speedup, Utility::Camp, Utility::Barrier] {
            assert_eq!(per_core(u, 2.5, 1), 1.5);
        }
        assert_eq!(per_core(Utility::Speedup, 3.0, 2), 1.0);
        assert_eq!(per_core(Utility::Speedup, 3.0, 4), 0.5);
        assert_eq!(per_core(Utility::Barrier, 3.0, 2), 1.0);
        assert_eq!(per_core(Utility::Barrier, 3.0, 3), 0.0);
        assert_eq!(per_core(Utility::Camp, 3.0, 2), 2.0);
    }

    #[test]
    fn many_threads_dilute_it() {
        assert_eq!(application_speedup(3.0, 4, 2), 2.0);
        assert_eq!(camp_utility(3.0, 3, 2), 1.5);
        assert_eq!(barrier_speedup(3.0, 3, 2), 1.0);
        assert!(camp_utility(3.0, 8, 2) < application_speedup(3.0, 8, 2));
    }
}
