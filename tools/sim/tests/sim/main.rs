//! The simulator's integration tests, in one binary.

mod bench;
mod caches;
mod common;
mod comparisons;
mod complaints;
mod fused;
mod machine;
mod memory;
mod mixes;
mod oracle;
mod properties;
mod provider;
mod restarts;
mod waits;
