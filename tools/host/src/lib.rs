//! What every command needs of the machine it runs on, whatever it does there.
//!
//! ```text
//! topology  core types, last-level caches, SMT, from sysfs
//! affinity  on which CPUs a thread runs
//! launch    programs: started, held before their first instruction, watched, ended
//! limits    how many files may be open
//! memory    no huge pages: nobody waits for the kernel to make them
//! user      who stands behind `sudo`
//! realtime  a thread that measures or decides
//! rights    capabilities that are given up for good
//! clock     monotonic time
//! progress  a bar, nothing in a pipe, or lines for a host
//! printer   lines from a thread that must not wait for their reader
//! input     bad input: exit status 2
//! output    a file, or standard output, and how wide that is
//! signals   a flag that an interrupt sets
//! ```
//!
//! This crate knows neither scheduling nor counters nor BPF, and needs no toolchain but Rust's.

pub mod affinity;
pub mod clock;
pub mod input;
pub mod launch;
pub mod limits;
pub mod memory;
pub mod output;
pub mod printer;
pub mod progress;
pub mod realtime;
pub mod rights;
pub mod signals;
pub mod topology;
pub mod user;

pub use input::{bad_input, BadInput};
pub use output::{check_out, print, printable, tell, terminal_width, write_out};
pub use signals::{on_signal, stop_flag};
