//! Floating-point arithmetic on registers, in double precision.

/// Floating-point instructions in each round of the loop.
pub(super) const ARITHMETIC: u64 = 64;
/// Instructions of a round beside those.
pub(super) const PER_ROUND: u64 = 2;

/// Kinds of floating-point instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Multiplications and additions.
    Scalar,
    /// Fused multiplications and additions.
    Fused,
    /// Multiplications and additions of vectors of two elements.
    Vector,
}

impl Arithmetic {
    /// All kinds.
    pub const ALL: [Arithmetic; 3] = [Arithmetic::Scalar, Arithmetic::Fused, Arithmetic::Vector];

    pub(super) fn name(self) -> &'static str {
        match self {
            Arithmetic::Scalar => "scalar",
            Arithmetic::Fused => "fused",
            Arithmetic::Vector => "vector",
        }
    }

    /// Whether this processor has such instructions.
    pub(super) fn is_there(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self == Arithmetic::Fused {
            return std::arch::is_x86_feature_detected!("fma");
        }
        true
    }

    /// Operations of an instruction.
    pub(super) fn operations(self) -> u64 {
        match self {
            Arithmetic::Scalar => 1,
            Arithmetic::Fused | Arithmetic::Vector => 2,
        }
    }
}

/// `rounds` (at least 1) of 64 instructions; returns what came out. Nothing where this processor
/// has no such instructions. Numbers stay near 1: some cores take a detour for very small ones.
pub(super) fn calculate(kind: Arithmetic, rounds: u64) -> f64 {
    let half = std::hint::black_box(0.5f64);
    let mut x = 1.0f64;
    if !kind.is_there() || rounds == 0 {
        return x;
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: calculates with registers and counts one down, at least from 1; touches nothing else
    // but the flags.
    unsafe {
        match kind {
            Arithmetic::Scalar => std::arch::asm!(
                "2:", ".rept 32", "fmul {x:d}, {x:d}, {h:d}", "fadd {x:d}, {x:d}, {h:d}", ".endr",
                "subs {n}, {n}, #1", "b.ne 2b",
                n = inout(reg) rounds => _, x = inout(vreg) x, h = in(vreg) half,
                options(nomem, nostack),
            ),
            Arithmetic::Fused => std::arch::asm!(
                "2:", ".rept 64", "fmadd {x:d}, {x:d}, {h:d}, {h:d}", ".endr",
                "subs {n}, {n}, #1", "b.ne 2b",
                n = inout(reg) rounds => _, x = inout(vreg) x, h = in(vreg) half,
                options(nomem, nostack),
            ),
            // both elements of `h` are the lower one first
            Arithmetic::Vector => std::arch::asm!(
                "dup {h:v}.2d, {h:v}.d[0]", "dup {x:v}.2d, {x:v}.d[0]",
                "2:", ".rept 32", "fmul {x:v}.2d, {x:v}.2d, {h:v}.2d", "fadd {x:v}.2d, {x:v}.2d, {h:v}.2d", ".endr",
                "subs {n}, {n}, #1", "b.ne 2b",
                n = inout(reg) rounds => _, x = inout(vreg) x, h = inout(vreg) half => _,
                options(nomem, nostack),
            ),
        }
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: calculates with registers, by instructions that are there, as was asked, and counts
    // one down, at least from 1; touches nothing else but the flags.
    unsafe {
        match kind {
            Arithmetic::Scalar => std::arch::asm!(
                "2:", ".rept 32", "mulsd {x}, {h}", "addsd {x}, {h}", ".endr",
                "dec {n}", "jnz 2b",
                n = inout(reg) rounds => _, x = inout(xmm_reg) x, h = in(xmm_reg) half,
                options(nomem, nostack),
            ),
            Arithmetic::Fused => std::arch::asm!(
                "2:", ".rept 64", "vfmadd213sd {x}, {h}, {h}", ".endr",
                "dec {n}", "jnz 2b",
                n = inout(reg) rounds => _, x = inout(xmm_reg) x, h = in(xmm_reg) half,
                options(nomem, nostack),
            ),
            // both elements of `h` are the lower one first
            Arithmetic::Vector => std::arch::asm!(
                "unpcklpd {h}, {h}", "unpcklpd {x}, {x}",
                "2:", ".rept 32", "mulpd {x}, {h}", "addpd {x}, {h}", ".endr",
                "dec {n}", "jnz 2b",
                n = inout(reg) rounds => _, x = inout(xmm_reg) x, h = inout(xmm_reg) half => _,
                options(nomem, nostack),
            ),
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_and_a_half_stay_one() {
        for kind in Arithmetic::ALL {
            // 1 · ½ + ½ = 1, however often
            assert_eq!(calculate(kind, 3), 1.0, "{kind:?}");
            assert_eq!(calculate(kind, 0), 1.0, "{kind:?}");
        }
    }
}
