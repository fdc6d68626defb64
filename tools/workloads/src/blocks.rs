//! Kernels of which it is known how often each basic block runs: what sampled profiles are held
//! against [TRUST §4.3].
//!
//! In assembly, so that every block is known: each has a label at its beginning, and a table says
//! where labels are from the beginning of their function. Calls end blocks.

use serde::Serialize;
use std::arch::global_asm;

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// By turns four divisions that wait for each other and four additions: blocks of the same
    /// length that differ in latency.
    Latency,
    /// Ten functions that call each other in a chain, with equal work each.
    Chain,
    /// Six tests, each of which decides on one instruction: blocks of one or two.
    Short,
}

/// A basic block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    /// Symbol of its function.
    pub function: String,
    /// From the beginning of the function, in bytes.
    pub offset: u64,
    /// Instructions in it.
    pub instructions: u64,
    /// How often it runs.
    pub executions: u64,
}

impl Kernel {
    /// All kernels.
    pub const ALL: [Kernel; 3] = [Kernel::Latency, Kernel::Chain, Kernel::Short];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Latency => "latency",
            Kernel::Chain => "chain",
            Kernel::Short => "short",
        }
    }

    /// Runs `rounds` rounds, 1 at least.
    pub fn run(self, rounds: u64) {
        let rounds = rounds.max(1);
        // SAFETY: the functions below follow the C calling convention, use registers that calls may
        // change and their own stack, and end after so many rounds.
        unsafe {
            match self {
                Kernel::Latency => amp_blocks_latency(rounds),
                Kernel::Chain => amp_blocks_chain(rounds),
                Kernel::Short => amp_blocks_short(rounds),
            }
        }
    }

    /// Its blocks and how often they run in `rounds` rounds.
    pub fn blocks(self, rounds: u64) -> Vec<Block> {
        let n = rounds.max(1);
        let of = |function: &str, offsets: &[u32], known: &[(u64, u64)]| {
            let both = offsets.iter().zip(known);
            let block = |(offset, (instructions, executions)): (&u32, &(u64, u64))| Block {
                function: function.to_owned(),
                offset: u64::from(*offset),
                instructions: *instructions,
                executions: *executions,
            };
            both.map(block).collect::<Vec<Block>>()
        };
        // SAFETY: tables of the assembly below, of these lengths, never written to.
        let (latency, chain, short, level) = unsafe {
            (
                AMP_BLOCKS_LATENCY_AT,
                AMP_BLOCKS_CHAIN_AT,
                AMP_BLOCKS_SHORT_AT,
                AMP_BLOCKS_LEVEL_AT,
            )
        };
        match self {
            Kernel::Latency => {
                let [entry, head, cheap, costly, tail] = LATENCY;
                let known = [
                    (entry, 1),
                    (head, n),
                    (cheap, n / 2),
                    (costly, n.div_ceil(2)),
                    (tail, n),
                    (1, 1),
                ];
                of("amp_blocks_latency", &latency, &known)
            }
            Kernel::Chain => {
                let [entry, call, back, end] = CHAIN;
                let known = [(entry, 1), (call, n), (back, n), (end, 1)];
                let mut all = of("amp_blocks_chain", &chain, &known);
                for i in 1..10 {
                    let [before, after] = LEVEL;
                    all.extend(of(
                        &format!("amp_blocks_level_{i}"),
                        &level,
                        &[(before, n), (after, n)],
                    ));
                }
                // the last one calls nobody: one block
                all.extend(of("amp_blocks_level_10", &[0], &[(LEVEL[0] + LEVEL[1], n)]));
                all
            }
            Kernel::Short => {
                let [entry, test, one, tail] = SHORT;
                let mut known = vec![(entry, 1)];
                for bit in 0..6 {
                    // of the numbers below n, those with this bit set
                    let period = 2u64 << bit;
                    let set = n / period * (period / 2) + (n % period).saturating_sub(period / 2);
                    known.extend([(test, n), (one, set)]);
                }
                known.extend([(tail, n), (1, 1)]);
                of("amp_blocks_short", &short, &known)
            }
        }
    }
}

extern "C" {
    fn amp_blocks_latency(rounds: u64);
    fn amp_blocks_chain(rounds: u64);
    fn amp_blocks_short(rounds: u64);
    #[link_name = "amp_blocks_latency_at"]
    static AMP_BLOCKS_LATENCY_AT: [u32; 6];
    #[link_name = "amp_blocks_chain_at"]
    static AMP_BLOCKS_CHAIN_AT: [u32; 4];
    #[link_name = "amp_blocks_short_at"]
    static AMP_BLOCKS_SHORT_AT: [u32; 15];
    #[link_name = "amp_blocks_level_at"]
    static AMP_BLOCKS_LEVEL_AT: [u32; 2];
}

// Instructions of each block, in order.
#[cfg(target_arch = "aarch64")]
mod lengths {
    pub const LATENCY: [u64; 5] = [3, 2, 5, 4, 3];
    pub const CHAIN: [u64; 4] = [1, 1, 2, 2];
    pub const LEVEL: [u64; 2] = [8, 6];
    pub const SHORT: [u64; 4] = [1, 1, 1, 3];
}
#[cfg(target_arch = "x86_64")]
mod lengths {
    pub const LATENCY: [u64; 5] = [3, 2, 5, 4, 3];
    pub const CHAIN: [u64; 4] = [1, 1, 2, 2];
    pub const LEVEL: [u64; 2] = [8, 6];
    pub const SHORT: [u64; 4] = [1, 2, 1, 3];
}
use lengths::{CHAIN, LATENCY, LEVEL, SHORT};

// Where blocks begin.
global_asm!(
    ".macro amp_blocks_table name:req, function:req, labels:vararg",
    ".pushsection .rodata",
    ".balign 4",
    ".global \\name",
    "\\name:",
    ".irp label, \\labels",
    ".4byte \\label - \\function",
    ".endr",
    ".popsection",
    ".endm",
    "amp_blocks_table amp_blocks_latency_at, amp_blocks_latency, amp_blocks_latency, .Lla1, .Lla2, .Lla3, .Lla4, .Lla5",
    "amp_blocks_table amp_blocks_chain_at, amp_blocks_chain, amp_blocks_chain, .Lch1, .Lch2, .Lch3",
    "amp_blocks_table amp_blocks_level_at, amp_blocks_level_1, amp_blocks_level_1, .Llevel_1",
    "amp_blocks_table amp_blocks_short_at, amp_blocks_short, amp_blocks_short, .Lt0, .Ls0, .Lt1, .Ls1, .Lt2, .Ls2, .Lt3, .Ls3, .Lt4, .Ls4, .Lt5, .Ls5, .Lt6, .Lt7",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".macro amp_function name:req",
    ".global \\name",
    ".type \\name, %function",
    ".balign 64",
    "\\name:",
    ".endm",
    ".macro amp_end name:req",
    ".size \\name, . - \\name",
    ".endm",
    ".text",
    "amp_function amp_blocks_latency",
    "mov x9, #0",
    "mov x10, #7",
    "mov x11, #3",
    ".Lla1:",
    "and x12, x9, #1",
    "cbz x12, .Lla3",
    ".Lla2:",
    "add x10, x10, #1",
    "add x10, x10, #1",
    "add x10, x10, #1",
    "add x10, x10, #1",
    "b .Lla4",
    ".Lla3:",
    "udiv x10, x10, x11",
    "udiv x10, x10, x11",
    "udiv x10, x10, x11",
    "udiv x10, x10, x11",
    ".Lla4:",
    "add x9, x9, #1",
    "cmp x9, x0",
    "b.ne .Lla1",
    ".Lla5:",
    "ret",
    "amp_end amp_blocks_latency",
    // the links are registers: a frame for each level, and none for the last
    "amp_function amp_blocks_chain",
    "mov x16, x30",
    ".Lch1:",
    "bl amp_blocks_level_1",
    ".Lch2:",
    "subs x0, x0, #1",
    "b.ne .Lch1",
    ".Lch3:",
    "mov x30, x16",
    "ret",
    "amp_end amp_blocks_chain",
    ".macro amp_level n:req, instruction:vararg",
    "amp_function amp_blocks_level_\\n",
    "str x30, [sp, #-16]!",
    ".rept 6",
    "add x10, x10, #1",
    ".endr",
    "\\instruction",
    ".Llevel_\\n:",
    ".rept 4",
    "add x10, x10, #1",
    ".endr",
    "ldr x30, [sp], #16",
    "ret",
    "amp_end amp_blocks_level_\\n",
    ".endm",
    "amp_level 1, bl amp_blocks_level_2",
    "amp_level 2, bl amp_blocks_level_3",
    "amp_level 3, bl amp_blocks_level_4",
    "amp_level 4, bl amp_blocks_level_5",
    "amp_level 5, bl amp_blocks_level_6",
    "amp_level 6, bl amp_blocks_level_7",
    "amp_level 7, bl amp_blocks_level_8",
    "amp_level 8, bl amp_blocks_level_9",
    "amp_level 9, bl amp_blocks_level_10",
    "amp_level 10, nop",
    "amp_function amp_blocks_short",
    "mov x9, #0",
    ".Lt0: tbz x9, #0, .Lt1",
    ".Ls0: add x10, x10, #1",
    ".Lt1: tbz x9, #1, .Lt2",
    ".Ls1: add x10, x10, #1",
    ".Lt2: tbz x9, #2, .Lt3",
    ".Ls2: add x10, x10, #1",
    ".Lt3: tbz x9, #3, .Lt4",
    ".Ls3: add x10, x10, #1",
    ".Lt4: tbz x9, #4, .Lt5",
    ".Ls4: add x10, x10, #1",
    ".Lt5: tbz x9, #5, .Lt6",
    ".Ls5: add x10, x10, #1",
    ".Lt6: add x9, x9, #1",
    "cmp x9, x0",
    "b.ne .Lt0",
    ".Lt7: ret",
    "amp_end amp_blocks_short",
);

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".macro amp_function name:req",
    ".global \\name",
    ".type \\name, @function",
    ".balign 64",
    "\\name:",
    ".endm",
    ".macro amp_end name:req",
    ".size \\name, . - \\name",
    ".endm",
    ".text",
    "amp_function amp_blocks_latency",
    "xor ecx, ecx",
    "mov eax, 7",
    "mov esi, 3",
    ".Lla1:",
    "test cl, 1",
    "jz .Lla3",
    ".Lla2:",
    "add rax, 1",
    "add rax, 1",
    "add rax, 1",
    "add rax, 1",
    "jmp .Lla4",
    ".Lla3:",
    // a division leaves the remainder where the next one's upper half is: both stay small
    "xor edx, edx",
    "div rsi",
    "xor edx, edx",
    "div rsi",
    ".Lla4:",
    "add rcx, 1",
    "cmp rcx, rdi",
    "jne .Lla1",
    ".Lla5:",
    "ret",
    "amp_end amp_blocks_latency",
    "amp_function amp_blocks_chain",
    "push rbp",
    ".Lch1:",
    "call amp_blocks_level_1",
    ".Lch2:",
    "dec rdi",
    "jne .Lch1",
    ".Lch3:",
    "pop rbp",
    "ret",
    "amp_end amp_blocks_chain",
    ".macro amp_level n:req, instruction:vararg",
    "amp_function amp_blocks_level_\\n",
    "push rcx",
    ".rept 6",
    "add rax, 1",
    ".endr",
    "\\instruction",
    ".Llevel_\\n:",
    ".rept 4",
    "add rax, 1",
    ".endr",
    "pop rcx",
    "ret",
    "amp_end amp_blocks_level_\\n",
    ".endm",
    "amp_level 1, call amp_blocks_level_2",
    "amp_level 2, call amp_blocks_level_3",
    "amp_level 3, call amp_blocks_level_4",
    "amp_level 4, call amp_blocks_level_5",
    "amp_level 5, call amp_blocks_level_6",
    "amp_level 6, call amp_blocks_level_7",
    "amp_level 7, call amp_blocks_level_8",
    "amp_level 8, call amp_blocks_level_9",
    "amp_level 9, call amp_blocks_level_10",
    "amp_level 10, nop",
    "amp_function amp_blocks_short",
    "xor ecx, ecx",
    ".Lt0: test cl, 1",
    "jz .Lt1",
    ".Ls0: add rax, 1",
    ".Lt1: test cl, 2",
    "jz .Lt2",
    ".Ls1: add rax, 1",
    ".Lt2: test cl, 4",
    "jz .Lt3",
    ".Ls2: add rax, 1",
    ".Lt3: test cl, 8",
    "jz .Lt4",
    ".Ls3: add rax, 1",
    ".Lt4: test cl, 16",
    "jz .Lt5",
    ".Ls4: add rax, 1",
    ".Lt5: test cl, 32",
    "jz .Lt6",
    ".Ls5: add rax, 1",
    ".Lt6: add rcx, 1",
    "cmp rcx, rdi",
    "jne .Lt0",
    ".Lt7: ret",
    "amp_end amp_blocks_short",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_end_and_blocks_are_in_order() {
        for k in Kernel::ALL {
            k.run(0);
            k.run(1000);
            let blocks = k.blocks(1000);
            for w in blocks.windows(2) {
                assert!(
                    w[0].function != w[1].function || w[0].offset < w[1].offset,
                    "{w:?}"
                );
            }
            assert!(blocks
                .iter()
                .all(|b| b.instructions > 0 && b.executions <= 1000));
        }
        assert_eq!(Kernel::Chain.blocks(9).len(), 4 + 18 + 1);
    }

    #[test]
    fn bits_are_counted() {
        for n in [1, 2, 3, 63, 64, 65, 100] {
            let blocks = Kernel::Short.blocks(n);
            for bit in 0..6u64 {
                let set = (0..n).filter(|i| i >> bit & 1 == 1).count() as u64;
                assert_eq!(
                    blocks[2 + 2 * bit as usize].executions,
                    set,
                    "{n}, bit {bit}"
                );
            }
        }
    }

    /// On 64-bit Arm every instruction is four bytes long, so that offsets tell lengths.
    #[test]
    #[cfg(target_arch = "aarch64")]
    fn lengths_are_right() {
        for k in Kernel::ALL {
            let blocks = k.blocks(1);
            for w in blocks.windows(2).filter(|w| w[0].function == w[1].function) {
                assert_eq!(w[1].offset - w[0].offset, 4 * w[0].instructions, "{w:?}");
            }
        }
    }
}
