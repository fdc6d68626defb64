//! End-to-end tests: real kernels with sched_ext in guests of this machine, the virtual AMP board
//! first of all.
//!
//! One program, so that guests of different tests run beside each other ([`amp_tests::Lab`]):
//! virtual time does not mind.

mod affinity;
mod bench;
mod caches;
mod collect;
mod complaints;
mod counters;
mod counts;
mod crowd;
mod daily;
mod derived;
mod dvfs;
mod factors;
mod groups;
mod higher_class;
mod hot_change;
mod hotplug;
mod idle;
mod lifecycle;
mod limits;
mod machines;
mod measure;
mod mechanism;
mod memory;
mod mrc;
mod only_cgroup;
mod package;
mod patterns;
mod peers;
mod pmc;
mod recording;
mod repeatability;
mod scenarios;
mod service;
mod setup;
mod smt;
mod soak;
mod survival;
mod taken;
mod validate;
mod waiting;
mod wakeups;
mod weights;
