//! Arrays walked in order, element by element.

use super::partner::Shared;
use super::{Line, SHIFT};

/// What is done with the arrays, element by element of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Loads of one array.
    Load,
    /// Stores to one.
    Store,
    /// `a[i] = b[i]`.
    Copy,
    /// `a[i] = b[i] + s·c[i]`, in double precision.
    Triad,
    /// `a[i] = b[i] + c[i]·d[i]`, in double precision.
    VectorTriad,
    /// The sum of `a[i]·b[i]`, in double precision.
    Dot,
}

impl Traffic {
    /// All kinds of traffic.
    pub const ALL: [Traffic; 6] = [
        Traffic::Load,
        Traffic::Store,
        Traffic::Copy,
        Traffic::Triad,
        Traffic::VectorTriad,
        Traffic::Dot,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Traffic::Load => "load",
            Traffic::Store => "store",
            Traffic::Copy => "copy",
            Traffic::Triad => "triad",
            Traffic::VectorTriad => "vector triad",
            Traffic::Dot => "dot product",
        }
    }

    /// Whether each element is multiplied and added (1) or not (0).
    pub(super) fn calculates(self) -> u64 {
        match self {
            Traffic::Load | Traffic::Store | Traffic::Copy => 0,
            Traffic::Triad | Traffic::VectorTriad | Traffic::Dot => 1,
        }
    }

    /// Arrays, loads and stores per element, instructions per line, instructions per pass beside
    /// those.
    pub(super) fn facts(self) -> (u64, u64, u64, u64, u64) {
        match self {
            Traffic::Load => (1, 1, 0, 11, 4),
            Traffic::Store => (1, 0, 1, 11, 4),
            Traffic::Copy => (2, 1, 1, 20, 5),
            Traffic::Triad => (3, 2, 1, 37, 6),
            // x86 multiplies and adds out of memory, in one instruction each
            Traffic::VectorTriad if cfg!(target_arch = "x86_64") => (4, 3, 1, 38, 7),
            Traffic::VectorTriad => (4, 3, 1, 46, 7),
            Traffic::Dot => (2, 2, 0, 28, 5),
        }
    }
}

/// Walks arrays of `lines` lines each, [`SHIFT`] apart, so many times; nothing when `data` is too
/// short.
pub(super) fn walk(traffic: Traffic, data: &mut [Line], lines: usize, passes: u64) {
    let arrays = traffic.facts().0 as usize;
    let needed = (lines + SHIFT) * arrays - SHIFT;
    if lines == 0 || passes == 0 || data.len() < needed {
        return;
    }
    let base = data.as_mut_ptr();
    // the last may be one past the end for a kernel that does not use it
    let at = |i: usize| base.wrapping_add(i * (lines + SHIFT));
    let (a, b, c, d) = (at(0), at(1), at(2), at(3));
    match traffic {
        // SAFETY: `a` has `lines` lines of 64 bytes, as was checked.
        Traffic::Load => unsafe { load(a.cast(), lines, passes) },
        // SAFETY: as above, borrowed for writing; every bit pattern is a `u64`.
        Traffic::Store => unsafe { store(a.cast(), lines, passes) },
        // SAFETY: `a` and `b` have `lines` lines each, as was checked, without overlap.
        Traffic::Copy => unsafe { copy(a.cast(), b.cast(), lines, passes) },
        // SAFETY: the same of `a`, `b` and `c`.
        Traffic::Triad => unsafe { triad(a.cast(), b.cast(), c.cast(), lines, passes) },
        // SAFETY: the same of all four.
        Traffic::VectorTriad => unsafe {
            vector_triad([a, b, c, d].map(<*mut Line>::cast), lines, passes);
        },
        // SAFETY: `a` and `b` have `lines` lines each, as was checked.
        Traffic::Dot => unsafe { dot(a.cast(), b.cast(), lines, passes) },
    }
}

/// Loads all words of lines that others may store to before or after.
pub(super) fn load_from(lines: &[Shared]) {
    if !lines.is_empty() {
        // SAFETY: that is the slice, of at least one line.
        unsafe { load(lines.as_ptr().cast(), lines.len(), 1) };
    }
}

/// Stores to all words of lines that others may read before or after.
pub(super) fn store_to(lines: &[Shared]) {
    if !lines.is_empty() {
        // SAFETY: that is the slice, of at least one line, made of atomics, which may be written
        // through a shared reference.
        unsafe { store(lines.as_ptr().cast_mut().cast(), lines.len(), 1) };
    }
}

/// The offsets of the eight words of a line, for the assembler's `.irp`.
macro_rules! words {
    () => {
        ".irp o,0,8,16,24,32,40,48,56"
    };
}

/// # Safety
/// `a` can be read for `lines` (at least 1) times 64 bytes; `passes` is at least 1.
unsafe fn load(a: *const u8, lines: usize, passes: u64) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {n}, {lines}",
            "3:", words!(), "ldr {t}, [{p}, #\\o]", ".endr",
            "add {p}, {p}, #64", "subs {n}, {n}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            a = in(reg) a, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, n = out(reg) _, t = out(reg) _,
            options(readonly, nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {n}, {lines}",
            "3:", words!(), "mov {t}, qword ptr [{p} + \\o]", ".endr",
            "add {p}, 64", "dec {n}", "jnz 3b",
            "dec {passes}", "jnz 2b",
            a = in(reg) a, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, n = out(reg) _, t = out(reg) _,
            options(readonly, nostack),
        );
    }
}

/// # Safety
/// `a` can be written for `lines` (at least 1) times 64 bytes; `passes` is at least 1.
unsafe fn store(a: *mut u8, lines: usize, passes: u64) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {n}, {lines}",
            "3:", words!(), "str {n}, [{p}, #\\o]", ".endr",
            "add {p}, {p}, #64", "subs {n}, {n}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            a = in(reg) a, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, n = out(reg) _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {n}, {lines}",
            "3:", words!(), "mov qword ptr [{p} + \\o], {n}", ".endr",
            "add {p}, 64", "dec {n}", "jnz 3b",
            "dec {passes}", "jnz 2b",
            a = in(reg) a, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, n = out(reg) _,
            options(nostack),
        );
    }
}

/// # Safety
/// `a` can be written and `b` read for `lines` (at least 1) times 64 bytes; `passes` is at least 1.
unsafe fn copy(a: *mut u8, b: *const u8, lines: usize, passes: u64) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {n}, {lines}",
            "3:", words!(), "ldr {t}, [{q}, #\\o]", "str {t}, [{p}, #\\o]", ".endr",
            "add {p}, {p}, #64", "add {q}, {q}, #64", "subs {n}, {n}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            a = in(reg) a, b = in(reg) b, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, n = out(reg) _, t = out(reg) _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {n}, {lines}",
            "3:", words!(), "mov {t}, qword ptr [{q} + \\o]", "mov qword ptr [{p} + \\o], {t}", ".endr",
            "add {p}, 64", "add {q}, 64", "dec {n}", "jnz 3b",
            "dec {passes}", "jnz 2b",
            a = in(reg) a, b = in(reg) b, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, n = out(reg) _, t = out(reg) _,
            options(nostack),
        );
    }
}

/// # Safety
/// `a` can be written, `b` and `c` read for `lines` (at least 1) times 64 bytes; `passes` is at
/// least 1.
unsafe fn triad(a: *mut u8, b: *const u8, c: *const u8, lines: usize, passes: u64) {
    let s = 0.5f64;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {r}, {c}", "mov {n}, {lines}",
            "3:", words!(),
            "ldr {x:d}, [{q}, #\\o]", "ldr {y:d}, [{r}, #\\o]",
            "fmadd {x:d}, {y:d}, {s:d}, {x:d}", "str {x:d}, [{p}, #\\o]",
            ".endr",
            "add {p}, {p}, #64", "add {q}, {q}, #64", "add {r}, {r}, #64", "subs {n}, {n}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            a = in(reg) a, b = in(reg) b, c = in(reg) c, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, r = out(reg) _, n = out(reg) _,
            s = in(vreg) s, x = out(vreg) _, y = out(vreg) _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {r}, {c}", "mov {n}, {lines}",
            "3:", words!(),
            "movsd {x}, qword ptr [{r} + \\o]", "mulsd {x}, {s}",
            "addsd {x}, qword ptr [{q} + \\o]", "movsd qword ptr [{p} + \\o], {x}",
            ".endr",
            "add {p}, 64", "add {q}, 64", "add {r}, 64", "dec {n}", "jnz 3b",
            "dec {passes}", "jnz 2b",
            a = in(reg) a, b = in(reg) b, c = in(reg) c, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, r = out(reg) _, n = out(reg) _,
            s = in(xmm_reg) s, x = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// # Safety
/// The first array can be written, the others read for `lines` (at least 1) times 64 bytes;
/// `passes` is at least 1.
unsafe fn vector_triad([a, b, c, d]: [*mut u8; 4], lines: usize, passes: u64) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {r}, {c}", "mov {s}, {d}", "mov {n}, {lines}",
            "3:", words!(),
            "ldr {x:d}, [{q}, #\\o]", "ldr {y:d}, [{r}, #\\o]", "ldr {z:d}, [{s}, #\\o]",
            "fmadd {x:d}, {y:d}, {z:d}, {x:d}", "str {x:d}, [{p}, #\\o]",
            ".endr",
            "add {p}, {p}, #64", "add {q}, {q}, #64", "add {r}, {r}, #64", "add {s}, {s}, #64",
            "subs {n}, {n}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            a = in(reg) a, b = in(reg) b, c = in(reg) c, d = in(reg) d, lines = in(reg) lines,
            passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, r = out(reg) _, s = out(reg) _, n = out(reg) _,
            x = out(vreg) _, y = out(vreg) _, z = out(vreg) _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers and that memory change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {r}, {c}", "mov {s}, {d}", "mov {n}, {lines}",
            "3:", words!(),
            "movsd {x}, qword ptr [{r} + \\o]", "mulsd {x}, qword ptr [{s} + \\o]",
            "addsd {x}, qword ptr [{q} + \\o]", "movsd qword ptr [{p} + \\o], {x}",
            ".endr",
            "add {p}, 64", "add {q}, 64", "add {r}, 64", "add {s}, 64", "dec {n}", "jnz 3b",
            "dec {passes}", "jnz 2b",
            a = in(reg) a, b = in(reg) b, c = in(reg) c, d = in(reg) d, lines = in(reg) lines,
            passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, r = out(reg) _, s = out(reg) _, n = out(reg) _,
            x = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// # Safety
/// `a` and `b` can be read for `lines` (at least 1) times 64 bytes; `passes` is at least 1.
unsafe fn dot(a: *const u8, b: *const u8, lines: usize, passes: u64) {
    let mut sum = 0.0f64;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: promised by the caller; only named registers change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {n}, {lines}",
            "3:", words!(),
            "ldr {x:d}, [{p}, #\\o]", "ldr {y:d}, [{q}, #\\o]", "fmadd {sum:d}, {x:d}, {y:d}, {sum:d}",
            ".endr",
            "add {p}, {p}, #64", "add {q}, {q}, #64", "subs {n}, {n}, #1", "b.ne 3b",
            "subs {passes}, {passes}, #1", "b.ne 2b",
            a = in(reg) a, b = in(reg) b, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, n = out(reg) _,
            sum = inout(vreg) sum, x = out(vreg) _, y = out(vreg) _,
            options(readonly, nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; only named registers change.
    unsafe {
        std::arch::asm!(
            "2:", "mov {p}, {a}", "mov {q}, {b}", "mov {n}, {lines}",
            "3:", words!(),
            "movsd {x}, qword ptr [{p} + \\o]", "mulsd {x}, qword ptr [{q} + \\o]", "addsd {sum}, {x}",
            ".endr",
            "add {p}, 64", "add {q}, 64", "dec {n}", "jnz 3b",
            "dec {passes}", "jnz 2b",
            a = in(reg) a, b = in(reg) b, lines = in(reg) lines, passes = inout(reg) passes => _,
            p = out(reg) _, q = out(reg) _, n = out(reg) _,
            sum = inout(xmm_reg) sum, x = out(xmm_reg) _,
            options(readonly, nostack),
        );
    }
    // else nothing would need the sum, or the loop
    std::hint::black_box(sum);
}
