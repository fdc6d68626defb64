//! Kernels: loops that do a known amount of one kind of work.
//!
//! ```text
//! Spec (name, size, probability) ──prepare(seed)──► Box<dyn Kernel> ──run(units)──► checksum
//! Job  (one Spec, or several with threads)  ──prepare()──► Prepared ──run()──► checksum
//! ```
//!
//! The amount of work is given in *units*, never in time; [`SIMPLE`] says what a unit of each
//! kernel is. A kernel's result depends on its parameters, its seed and the number of units only:
//! not on the machine, the number of calls that the units are split over, or the time it takes.

mod arithmetic;
mod branch;
mod job;
mod memory;
mod mixed;
mod spec;

pub use job::{Build, Interactive, Job, JobError, Pipeline, Prepared, Queue, Server};
pub use spec::{Info, Simple, Spec, SpecError, SIMPLE};

/// A kernel with its data in place.
pub trait Kernel: Send {
    /// Does `units` more units of work.
    fn run(&mut self, units: u64);

    /// A digest of everything done so far.
    fn checksum(&self) -> u64;
}

/// Makes `x` opaque to the compiler without sending it through memory, as `std::hint::black_box`
/// does on every call: that store and load would be half of a small kernel. Being a side effect, it
/// also keeps a branch a branch.
#[inline(always)]
fn keep(mut x: u64) -> u64 {
    // SAFETY: the template is empty but for a comment; it reads and writes the one register it
    // names.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) x, options(nomem, nostack, preserves_flags));
    }
    x
}
