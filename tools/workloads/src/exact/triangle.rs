//! Upper triangular matrix times vector, the rows in halves for two threads: the first does three
//! times as much as the second [VAL].
//!
//! Rows begin with the line of their diagonal element, so that there are whole lines only, and lie
//! one behind the other: nothing of the matrix is kept that is not read. A square with an unread
//! half fills some sets of a physically indexed cache twice as much as others.

use super::partner::Shared;
use super::LINE;
use std::ops::Range;

/// Rows that begin with the same line.
const BLOCK: usize = LINE / 8;

/// Instructions per line of the matrix, and beside those per row, per block of rows and per pass.
#[cfg(target_arch = "aarch64")]
pub(super) const PER: [u64; 4] = [28, 8, 5, 7];
/// Instructions per line of the matrix, and beside those per row, per block of rows and per pass.
#[cfg(target_arch = "x86_64")]
pub(super) const PER: [u64; 4] = [26, 7, 5, 5];

/// Matrix, vector and product, one behind the other, lest they meet in a cache's sets.
#[derive(Debug)]
pub(super) struct Triangle {
    data: Vec<Shared>,
    /// Lines of a row, and of each vector.
    lines: usize,
}

impl Triangle {
    /// One whose rows have about so many bytes when whole, at least two blocks of rows; about half
    /// of it is kept.
    pub fn new(bytes: usize) -> Triangle {
        let side = ((bytes / 8) as f64).sqrt() as usize;
        let lines = (side / BLOCK / 2 * 2).max(2);
        Triangle {
            data: Shared::lines(lines_before(lines, lines) + 2 * lines, 1.0),
            lines,
        }
    }

    /// Blocks of rows of the first thread or the second.
    pub fn half(&self, first: bool) -> Range<usize> {
        let middle = self.lines / 2;
        if first {
            0..middle
        } else {
            middle..self.lines
        }
    }

    /// Lines of the matrix in these blocks of rows.
    pub fn lines_in(&self, blocks: &Range<usize>) -> u64 {
        let before = |b| lines_before(self.lines, b) as u64;
        before(blocks.end) - before(blocks.start)
    }

    /// Lines of a vector.
    pub fn vector(&self) -> u64 {
        self.lines as u64
    }

    /// Rows of a block.
    pub fn block(&self) -> u64 {
        BLOCK as u64
    }

    /// The product, of these blocks of rows.
    #[cfg(test)]
    fn product(&self, blocks: &Range<usize>) -> Vec<f64> {
        let matrix = lines_before(self.lines, self.lines);
        let y = self.data.iter().skip(matrix + self.lines);
        let words = y.skip(blocks.start).take(blocks.len()).flat_map(|l| &l.0);
        words
            .map(|w| f64::from_bits(w.load(std::sync::atomic::Ordering::Relaxed)))
            .collect()
    }

    /// Multiplies these blocks of rows so many times (at least once); nothing when there are no
    /// such blocks.
    pub fn multiply(&self, blocks: &Range<usize>, passes: u64) {
        let l = self.lines;
        if blocks.is_empty()
            || blocks.end > l
            || passes == 0
            || self.data.len() < lines_before(l, l) + 2 * l
        {
            return;
        }
        let base = self.data.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: the matrix has l blocks of 8 rows, of l lines to 1, `x` and the product have l
        // lines each, all of which is there, as was checked, and is made of atomics, which may be
        // written through a shared reference. Who else reads or writes the product's lines of these
        // blocks does so before or after.
        unsafe { rows(base, l, blocks, passes) };
    }
}

/// Lines of a matrix of `l` blocks that lie before block `b`, at most `l`: each row of block `b` has
/// `l - b`.
fn lines_before(l: usize, b: usize) -> usize {
    // b · (2l − b + 1) is even for every b
    BLOCK * (b * (2 * l - b + 1) / 2)
}

/// # Safety
/// From `base` on there are a matrix of `l` blocks of 8 rows, of `l` lines in the first block to one
/// in the last, and two vectors of `l` lines, which may be read, the second also written, by nobody else meanwhile where `blocks` are. Those
/// are within `0..l` and not empty; `passes` is at least 1.
unsafe fn rows(base: *mut u8, l: usize, blocks: &Range<usize>, passes: u64) {
    let x = base.wrapping_add(lines_before(l, l) * LINE);
    let y = x.wrapping_add((l + blocks.start) * LINE);
    let first = base.wrapping_add(lines_before(l, blocks.start) * LINE);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {row}, {first}", "mov {xq}, {x}", "mov {yp}, {y}", "mov {k}, {k0}", "mov {b}, {blocks}",
            "3:", "mov {r}, #8",
            "4:", "mov {p}, {row}", "mov {q}, {xq}", "mov {n}, {k}", "fmov {sum:d}, xzr",
            "5:", ".irp o,0,8,16,24,32,40,48,56",
            "ldr {t:d}, [{p}, #\\o]", "ldr {u:d}, [{q}, #\\o]", "fmadd {sum:d}, {t:d}, {u:d}, {sum:d}",
            ".endr",
            "add {p}, {p}, #64", "add {q}, {q}, #64", "subs {n}, {n}, #1", "b.ne 5b",
            "str {sum:d}, [{yp}], #8", "mov {row}, {p}", "subs {r}, {r}, #1", "b.ne 4b",
            "add {xq}, {xq}, #64", "sub {k}, {k}, #1", "subs {b}, {b}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            first = in(reg) first, x = in(reg) x.wrapping_add(blocks.start * LINE),
            y = in(reg) y, k0 = in(reg) l - blocks.start, blocks = in(reg) blocks.len(),
            passes = inout(reg) passes => _,
            row = out(reg) _, xq = out(reg) _, yp = out(reg) _, k = out(reg) _, b = out(reg) _, r = out(reg) _,
            p = out(reg) _, q = out(reg) _, n = out(reg) _, sum = out(vreg) _, t = out(vreg) _, u = out(vreg) _,
            options(nostack),
        );
    }
    // x86 has fewer registers: rows and vector are addressed from their ends, by an offset that
    // goes up to zero
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        let bytes = |b: usize| -(((l - b) * LINE) as isize);
        std::arch::asm!(
            "2:", "mov {row}, {first}", "mov {yp}, {y}", "mov {k}, {k0}",
            "3:", "mov {r}, 8",
            "4:", "mov {j}, {k}", "xorps {sum}, {sum}",
            "5:", ".irp o,0,8,16,24,32,40,48,56",
            "movsd {t}, qword ptr [{row} + {j} + \\o]", "mulsd {t}, qword ptr [{x} + {j} + \\o]", "addsd {sum}, {t}",
            ".endr",
            "add {j}, 64", "jnz 5b",
            "movsd qword ptr [{yp}], {sum}", "add {yp}, 8", "sub {row}, {k}", "dec {r}", "jnz 4b",
            // rows of the next block are a line shorter
            "sub {row}, 64", "add {k}, 64", "cmp {k}, {end}", "jne 3b",
            "dec {passes}", "jnz 2b",
            first = in(reg) first.wrapping_add((l - blocks.start) * LINE), x = in(reg) x.wrapping_add(l * LINE), y = in(reg) y,
            k0 = in(reg) bytes(blocks.start), end = in(reg) bytes(blocks.end),
            passes = inout(reg) passes => _,
            row = out(reg) _, yp = out(reg) _, k = out(reg) _, r = out(reg) _, j = out(reg) _,
            sum = out(xmm_reg) _, t = out(xmm_reg) _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn products_by_hand() {
        let t = Triangle::new(32 * 32 * 8 + 100);
        assert_eq!((t.lines, t.vector(), t.block()), (4, 4, 8));
        // x = 0, 1, 2, …; the matrix is all ones from the diagonal's line on
        let x = 8 * (4 + 3 + 2 + 1);
        for i in 0..32 {
            t.data[x + i / 8].0[i % 8].store((i as f64).to_bits(), Relaxed);
        }
        let sum = |from: usize| (from..32).sum::<usize>() as f64;
        let (first, second) = (t.half(true), t.half(false));
        t.multiply(&first, 2);
        assert!(t.product(&first)[..8].iter().all(|v| *v == sum(0)));
        assert!(t.product(&first)[8..].iter().all(|v| *v == sum(8)));
        assert_eq!(t.product(&second), [1.0; 16], "not touched");
        t.multiply(&second, 1);
        assert!(t.product(&second)[..8].iter().all(|v| *v == sum(16)));
        assert!(t.product(&second)[8..].iter().all(|v| *v == sum(24)));
        assert!(t.product(&first)[8..].iter().all(|v| *v == sum(8)));
        // matrix and vector are as they were
        assert!(t.data[..x]
            .iter()
            .all(|l| l.0.iter().all(|w| w.load(Relaxed) == 1.0f64.to_bits())));
        t.multiply(&(3..5), 1);
        t.multiply(&(0..0), 1);
    }

    #[test]
    fn the_first_half_has_three_times_the_work() {
        let t = Triangle::new(512 * 512 * 8);
        let [a, b] = [true, false].map(|first| t.lines_in(&t.half(first)) as f64);
        assert!((a / b - 3.0).abs() < 0.1, "{a} {b}");
        assert_eq!(a + b, 64.0 * 65.0 / 2.0 * 8.0);
    }
}
