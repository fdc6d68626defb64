//! What threads have done, measured by what they would have needed alone.

use std::ops::AddAssign;

/// What a thread has done so far, in seconds. The engine keeps it, so that it outlives policies.
///
/// `alone / rated` is the thread's progress relative to running alone with all fast cores, over all
/// phases it went through: the inverse of its slowdown, as far as core types are to blame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// CPU time in which its speedup factors were known.
    pub rated: f64,
    /// CPU time that the same work would have taken with the fast cores for the application alone:
    /// per second on core type t, SP_t/SP_fastest, SP being the application-wide speedup
    /// [TR5028 §4] at the time.
    pub alone: f64,
}

impl AddAssign for Done {
    fn add_assign(&mut self, o: Done) {
        self.rated += o.rated;
        self.alone += o.alone;
    }
}
