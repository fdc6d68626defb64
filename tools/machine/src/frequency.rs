//! Registers by which a guest sets the clock of a core type, where the machine has operating points.
//!
//! They are those of the hardware that Linux's `qcom-cpufreq-hw` drives: a table of clocks and
//! voltages to read, and a word to write the wanted row to. They lie in memory that the guest's
//! kernel is told to leave alone; the plugin fills the tables and looks at the words.

use crate::file::Board;
use crate::model::OperatingPoint;

/// Clocks are multiples of this, MHz: the driver multiplies a number of eight bits with the rate of
/// a reference clock, which is this.
pub const STEP_MHZ: u32 = 25;
/// Most operating points of a core type: the driver takes 40 rows, the last of which says that the
/// table has ended.
pub const MAX_POINTS: usize = 39;
/// Bytes of memory that the registers take from the end of the guest's, and so their alignment.
pub const BYTES: u64 = 1 << 20;
/// Bytes of registers of a core type.
pub const DOMAIN_BYTES: u64 = 0x1000;
/// Where the wanted row is written to, in a core type's registers.
pub const WANTED: usize = 0x920;
/// Where a guest's memory begins.
const MEMORY: u64 = 0x4000_0000;

const ENABLED: usize = 0;
const CLOCKS: usize = 0x110;
const VOLTAGES: usize = 0x114;
const ROW_BYTES: usize = 32;
/// A row's clock is a multiple of the reference clock.
const OF_REFERENCE: u32 = 1 << 30;

// A core type's registers fit, all core types' do, and the table ends before the word that is written.
const _: () = {
    assert!(VOLTAGES + MAX_POINTS * ROW_BYTES + 4 <= WANTED);
    assert!(WANTED + 4 <= DOMAIN_BYTES as usize);
    assert!(crate::check::MAX_CORE_TYPES as u64 * DOMAIN_BYTES <= BYTES);
};

/// Physical address of the registers; those of core type `i` begin `i` times [`DOMAIN_BYTES`] later.
pub fn address(board: &Board) -> u64 {
    MEMORY + (u64::from(board.memory_mib) << 20) - BYTES
}

/// What a core type's registers hold when the guest boots: offset and value, each of 32 bits. The
/// clock is the fastest.
pub fn at_boot(points: &[OperatingPoint]) -> Vec<(usize, u32)> {
    let fastest = points.len().saturating_sub(1);
    let mut words = vec![(ENABLED, 1), (WANTED, fastest as u32)];
    // a row like the one before it ends the table
    for (i, p) in points.iter().chain(points.last()).enumerate() {
        words.push((CLOCKS + i * ROW_BYTES, OF_REFERENCE | (p.mhz / STEP_MHZ)));
        words.push((VOLTAGES + i * ROW_BYTES, p.mv));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_ends_with_a_row_like_the_last() {
        let points = [(450, 820), (1100, 1000)].map(|(mhz, mv)| OperatingPoint { mhz, mv });
        let words = at_boot(&points);
        let at = |offset| words.iter().find(|w| w.0 == offset).map(|w| w.1);
        assert_eq!((at(ENABLED), at(WANTED)), (Some(1), Some(1)));
        let clock = |row| at(CLOCKS + row * ROW_BYTES).map(|w| (w & 0xff) * STEP_MHZ);
        assert_eq!(
            (clock(0), clock(1), clock(2)),
            (Some(450), Some(1100), Some(1100))
        );
        assert_eq!(at(VOLTAGES + ROW_BYTES), Some(1000));
        assert_eq!(clock(3), None);
    }
}
