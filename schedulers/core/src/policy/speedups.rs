//! Application-wide speedups, as the fairness policies need them.

use crate::utility::Utility;
use crate::view::{ThreadView, View};
use amp_metrics::{CoreTypeId, MAX_CORE_TYPES};

/// Estimates outside of this range are taken as its ends, so that one wild value cannot swallow all
/// accounts.
const SANE: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// Application-wide speedup per core type over the slowest one, which has 1.
pub type Speedups = [f64; MAX_CORE_TYPES];

/// The speedups of the application of `th` by its own speedup factors; `None` unless there is one
/// for every core type but the slowest.
pub fn of(view: &View<'_>, th: &ThreadView, rule: Utility) -> Option<Speedups> {
    factors(view, th).map(|mut s| {
        for t in view.core_types() {
            s[t.index()] = view.utility(th, t, s[t.index()], rule);
        }
        s
    })
}

/// The speedup factors of `th` per core type; `None` unless there is one for every core type but
/// the slowest.
pub fn factors(view: &View<'_>, th: &ThreadView) -> Option<Speedups> {
    let mut s = [1.0; MAX_CORE_TYPES];
    for t in view.core_types() {
        s[t.index()] = view
            .speedup_factor(th, t)?
            .clamp(*SANE.start(), *SANE.end());
    }
    Some(s)
}

/// The speedup factor of `th` on the fastest type.
pub fn fastest(view: &View<'_>, th: &ThreadView) -> Option<f64> {
    let sf = view.speedup_factor(th, CoreTypeId::FASTEST)?;
    Some(sf.clamp(*SANE.start(), *SANE.end()))
}

/// Which rule the word chosen for a `utility` knob means.
pub fn rule(word: &str) -> Utility {
    match word {
        "camp" => Utility::Camp,
        "barrier" => Utility::Barrier,
        "speedup" => Utility::Speedup,
        _ => Utility::Auto,
    }
}
