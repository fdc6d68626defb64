//! What `bpf/intf.h` defines, as Rust sees it, and the proof that both sides agree on the layout.

#[allow(
    non_upper_case_globals,
    non_camel_case_types,
    non_snake_case,
    dead_code,
    missing_docs,
    clippy::all
)]
mod intf {
    include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
}

#[allow(
    missing_docs,
    unsafe_op_in_unsafe_fn,
    dead_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
pub(crate) mod skel {
    include!(concat!(env!("OUT_DIR"), "/bpf_skel.rs"));
}

pub(crate) use intf::{
    amp_counts as Counts, amp_cpu as Cpu, amp_ended as RawEnded, amp_limit as RawLimit,
    amp_meter as Meter, amp_shared as Shared, amp_slot as Slot,
};
use std::mem::{offset_of, size_of};

pub(crate) const MAX_TYPES: usize = intf::amp_consts_AMP_MAX_TYPES as usize;
pub(crate) const MAX_CPUS: usize = intf::amp_consts_AMP_MAX_CPUS as usize;
pub(crate) const MAX_QUEUES: usize = intf::amp_consts_AMP_MAX_QUEUES as usize;
pub(crate) const ANY: u32 = intf::amp_consts_AMP_ANY;
pub(crate) const MAX_EVENTS: usize = intf::amp_consts_AMP_MAX_EVENTS as usize;
/// The heaviest thread.
pub(crate) const MAX_WEIGHT: u32 = intf::amp_consts_AMP_MAX_WEIGHT;
/// Control groups that can have a weight.
pub(crate) const MAX_GROUPS: usize = intf::amp_consts_AMP_MAX_GROUPS as usize;
/// Limits of control groups, the first of which is none.
pub(crate) const MAX_LIMITS: usize = intf::amp_consts_AMP_MAX_LIMITS as usize;
pub(crate) const MAX_BANKS: usize = intf::amp_consts_AMP_MAX_BANKS as usize;
pub(crate) const MAX_SLOTS: u32 = 1 << intf::amp_consts_AMP_SLOT_BITS;
pub(crate) const NR_LATENCIES: usize = intf::amp_consts_AMP_NR_LATENCIES as usize;
/// The same as [`QUEUED`] to user space, as the next.
pub(crate) const LET_GO: u8 = intf::amp_thread_state_AMP_LET_GO as u8;
pub(crate) const OVERDUE: u8 = intf::amp_thread_state_AMP_OVERDUE as u8;
pub(crate) const QUEUED: u8 = intf::amp_thread_state_AMP_QUEUED as u8;
pub(crate) const BEGAN: u8 = intf::amp_thread_state_AMP_BEGAN as u8;
#[cfg(test)]
pub(crate) const HELD: u8 = intf::amp_thread_state_AMP_HELD as u8;

// The array map has values of 8-byte multiples and no other padding; the fields that user space
// writes are where BPF looks for them; the arrays have the lengths of their constants.
const _: () = {
    assert!(size_of::<Slot>() == 192);
    assert!(offset_of!(Slot, generation) == 0);
    assert!(offset_of!(Slot, state) == 44);
    assert!(offset_of!(Slot, placed_at) == 48);
    assert!(offset_of!(Slot, placement) == 56);
    assert!(offset_of!(Slot, runtime) == 64);
    assert!(offset_of!(Slot, comm) == 152);
    assert!(offset_of!(Slot, own_weight) == 180);
    assert!(offset_of!(Slot, limit) == 182);
    assert!(size_of::<RawLimit>() == 64);
    assert!(size_of::<RawLimit>() == size_of::<skel::types::amp_limit>());
    assert!(size_of::<Cpu>() == 128);
    assert!(
        size_of::<[u64; MAX_TYPES]>() == offset_of!(Slot, burst_start) - offset_of!(Slot, runtime)
    );
    assert!(
        offset_of!(Shared, clock) - offset_of!(Shared, latency) == NR_LATENCIES * size_of::<u64>()
    );
    // the skeleton has its own types for the same C
    assert!(size_of::<Shared>() == size_of::<skel::types::amp_shared>());
    assert!(size_of::<Cpu>() == size_of::<skel::types::amp_cpu>());
    assert!(size_of::<Meter>() == size_of::<skel::types::amp_meter>());
    assert!(size_of::<Meter>() == 64 + 8 * MAX_EVENTS);
    assert!(offset_of!(Meter, generation) == 24);
    assert!(size_of::<RawEnded>() == 40 + 8 * MAX_TYPES);
    assert!(size_of::<Counts>() == 32 + 8 * MAX_EVENTS);
};
