//! Loops without data: nothing but instructions, and branches that nobody can predict.

/// Random branches for each branch of the loop around them.
pub(super) const UNROLLED_WORDS: u64 = 16;
/// `nop`s in each round of the loop.
pub(super) const NOPS: u64 = 62;

/// Instructions of the kernel of random branches per word, and per branch of those.
#[cfg(target_arch = "aarch64")]
pub(super) const PER_RANDOM: (u64, u64) = (1, 1);
/// Instructions of the kernel of random branches per word, and per branch of those.
#[cfg(target_arch = "x86_64")]
pub(super) const PER_RANDOM: (u64, u64) = (2, 2);

/// `rounds`, at least 1, of 62 `nop`s and a branch.
pub(super) fn nops(rounds: u64) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: counts a register down, at least from 1; touches nothing else but the flags.
    unsafe {
        std::arch::asm!(
            "2:", ".rept 62", "nop", ".endr",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: counts a register down, at least from 1; touches nothing else but the flags.
    unsafe {
        std::arch::asm!(
            "2:", ".rept 62", "nop", ".endr",
            "dec {n}",
            "jnz 2b",
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
}

/// All bit numbers of a word, for the assembler's `.irp`.
macro_rules! bits {
    () => {
        ".irp k,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63"
    };
}

/// A branch per bit, over a `nop` when the bit is 0.
pub(super) fn random(words: &[u64]) {
    let rounds = words.len() as u64 / UNROLLED_WORDS;
    if rounds == 0 {
        return;
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads `rounds` times 16 words, which is at most the slice's length; writes nothing
    // but its registers.
    unsafe {
        std::arch::asm!(
            "2:",
            ".rept 16",
            "ldr {w}, [{p}], #8",
            bits!(),
            "tbz {w}, #\\k, 3f",
            "nop",
            "3:",
            ".endr",
            ".endr",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            w = out(reg) _,
            p = inout(reg) words.as_ptr() => _,
            n = inout(reg) rounds => _,
            options(readonly, nostack),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads `rounds` times 16 words, which is at most the slice's length; writes nothing
    // but its registers.
    unsafe {
        std::arch::asm!(
            "2:",
            ".rept 16",
            "mov {w}, qword ptr [{p}]",
            "add {p}, 8",
            bits!(),
            "bt {w}, \\k",
            "jnc 3f",
            "nop",
            "3:",
            ".endr",
            ".endr",
            "dec {n}",
            "jnz 2b",
            w = out(reg) _,
            p = inout(reg) words.as_ptr() => _,
            n = inout(reg) rounds => _,
            options(readonly, nostack),
        );
    }
}
