//! What a thread did in one interval, from its speedup factors.

use crate::done::Done;
use crate::policy::speedups;
use crate::utility::Utility;
use crate::view::{ThreadView, View};

/// What `th` did in this interval, and before it was known; `None` when its speedup factors are not known.
pub(super) fn of(view: &View<'_>, th: &ThreadView) -> Option<Done> {
    let sp = speedups::of(view, th, Utility::Auto)?;
    let slowed = view.slowed(th);
    let mut done = Done::default();
    let all = th.rated_now();
    for t in view.core_types() {
        let ran = all[t.index()];
        done += Done {
            rated: ran,
            alone: slowed * ran * sp[t.index()] / sp[0],
        };
    }
    Some(done)
}
