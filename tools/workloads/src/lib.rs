//! Workloads whose behaviour is known.
//!
//! * [`kernels`]: small loops with a fixed amount of work each, which the static program
//!   `amp-workload` runs.
//! * [`exact`]: loops in assembly whose every event is known, to hold hardware counters against.
//! * [`blocks`]: the same whose every basic block is known, to hold sampled profiles against.
//! * [`busy`]: work that keeps a core busy and costs its emulator little.
//! * [`patterns`]: programs of several threads that have a performance pattern, and twins that do
//!   not.
//! * [`catalogue`]: real programs out of Debian packages, and what a guest needs to run the
//!   commands of a mix.
//! * [`inputs`]: makes the input files of those programs.
//!
//! Ready mixes stand under `mixes/`, in the workload format of the scheduler.

pub mod blocks;
pub mod busy;
pub mod catalogue;
pub mod exact;
pub mod inputs;
pub mod kernels;
pub mod patterns;
pub mod quantity;
mod rng;
