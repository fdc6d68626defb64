//! Additions that wait for each other: cycles.
//!
//! A core that can add the result of an addition in the next cycle does a chain of *n* additions in
//! *n* cycles, whatever its clock. All cores that we know of can, but for the Pentium 4 (half a
//! cycle). Both summands are registers: cores since Intel's Golden Cove add small constants while
//! they rename registers, which takes no time.
//!
//! Two chains side by side take as long as one, on cores that begin two additions per cycle. They
//! tell an event that counts cycles from one that counts instructions.

use amp_machine::page::Page;

/// Additions in each round of the loop: 4 KiB of code, which fits any instruction cache.
pub(super) const ADDITIONS: u64 = 1024;
/// Instructions of a round beside those.
pub(super) const PER_ROUND: u64 = 2;

/// What additions cost on a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdditionCost {
    /// Cycles of an addition that takes the result of the one right before it.
    pub in_chain: f64,
    /// Cycles of two that do not depend on each other, each on the one of the pair before.
    pub of_pair: f64,
}

impl AdditionCost {
    /// That of real cores: a cycle for either.
    pub const ONE: AdditionCost = AdditionCost {
        in_chain: 1.0,
        of_pair: 1.0,
    };

    /// That of a CPU of the virtual board, which its machine file says; `None` where the page does
    /// not have it.
    pub fn on_board(page: &Page, cpu: u32) -> Option<AdditionCost> {
        let core_type = page.cpu(cpu).ok()?.core_type;
        let (alone, in_chain) = page.addition(core_type)?;
        Some(AdditionCost {
            in_chain,
            of_pair: 2.0 * alone,
        })
    }
}

/// `rounds`, at least 1, of one chain of additions or two (`abreast`).
pub(super) fn add(rounds: u64, abreast: bool) {
    let one = std::hint::black_box(1u64);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: adds registers and counts one down, at least from 1; touches nothing else but the
    // flags.
    unsafe {
        if abreast {
            std::arch::asm!(
                "2:", ".rept 512", "add {x}, {x}, {y}", "add {z}, {z}, {y}", ".endr",
                "subs {n}, {n}, #1", "b.ne 2b",
                n = inout(reg) rounds => _, x = inout(reg) one => _, z = inout(reg) one => _, y = in(reg) one,
                options(nomem, nostack),
            );
        } else {
            std::arch::asm!(
                "2:", ".rept 1024", "add {x}, {x}, {y}", ".endr",
                "subs {n}, {n}, #1", "b.ne 2b",
                n = inout(reg) rounds => _, x = inout(reg) one => _, y = in(reg) one,
                options(nomem, nostack),
            );
        }
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: adds registers and counts one down, at least from 1; touches nothing else but the
    // flags.
    unsafe {
        if abreast {
            std::arch::asm!(
                "2:", ".rept 512", "add {x}, {y}", "add {z}, {y}", ".endr",
                "dec {n}", "jnz 2b",
                n = inout(reg) rounds => _, x = inout(reg) one => _, z = inout(reg) one => _, y = in(reg) one,
                options(nomem, nostack),
            );
        } else {
            std::arch::asm!(
                "2:", ".rept 1024", "add {x}, {y}", ".endr",
                "dec {n}", "jnz 2b",
                n = inout(reg) rounds => _, x = inout(reg) one => _, y = in(reg) one,
                options(nomem, nostack),
            );
        }
    }
}
