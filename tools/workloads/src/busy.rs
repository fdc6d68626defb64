//! Work that keeps a core busy and costs its emulator little.

use amp_machine::page::pass_hint;
use std::num::NonZeroU64;

/// Work for those who only want a core to be busy: on the board up to half a millisecond, which an interrupt ends, costs its emulator next
/// to nothing. Then, and elsewhere alone, [`divide`].
pub fn pass() {
    pass_hint();
    divide();
}

/// Four hundred divisions, each of the one before: some five thousand cycles of the board's big cores, seven thousand of
/// its little ones. An emulator has few instructions to follow meanwhile.
pub fn divide() {
    const TOP: u64 = 1 << 63;
    let by = std::hint::black_box(NonZeroU64::MIN.saturating_add(2));
    let once = |x: u64| (x / by) | TOP;
    let four = |x| once(once(once(once(x))));
    let mut x = TOP;
    for _ in 0..25 {
        x = four(four(four(four(x))));
    }
    std::hint::black_box(x);
}
