//! The sched_ext mechanism of scx_amp: BPF programs behind a small safe wrapper.
