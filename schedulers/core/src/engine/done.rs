//! What threads have done, measured by what they would have needed alone.

use crate::policy::speedups;
use crate::utility::Utility;
use crate::view::{ThreadView, View};
use std::ops::AddAssign;

/// What a thread has done so far, in seconds. The engine keeps it, so that it outlives policies.
///
/// `alone / rated` is the thread's progress relative to running alone with all fast cores, over all phases it went through:
/// the inverse of its slowdown, as far as core types are to blame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// CPU time in which its speedup factors were known.
    pub rated: f64,
    /// CPU time that the same work would have taken with the fast cores for the application alone: per second on core type t,
    /// SP_t/SP_fastest, SP being the application-wide speedup [TR5028 §4] at the time.
    pub alone: f64,
}

impl AddAssign for Done {
    fn add_assign(&mut self, o: Done) {
        self.rated += o.rated;
        self.alone += o.alone;
    }
}

/// What `th` did in this interval; `None` when its speedup factors are not known.
pub(super) fn of(view: &View<'_>, th: &ThreadView) -> Option<Done> {
    let sp = speedups::of(view, th, Utility::Speedup)?;
    let mut done = Done::default();
    for t in view.core_types() {
        let ran = th.ran[t.index()].as_secs_f64();
        done += Done {
            rated: ran,
            alone: ran * sp[t.index()] / sp[0],
        };
    }
    Some(done)
}
