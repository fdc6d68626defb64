//! Basic blocks of a function: straight stretches of code that are entered at their beginning only.
//!
//! A call ends a block, too. Where a jump table leads is not followed: a block that only such a
//! jump enters may be seen as the end of the one before it.

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use std::ops::Range;

/// Instruction sets that can be taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// 64-bit Arm.
    Arm64,
    /// 64-bit x86.
    X86_64,
}

impl Code {
    /// By the machine number of an ELF file's header.
    pub fn of_elf(header: &[u8]) -> Option<Code> {
        match (header.get(..4)?, header.get(18..20)?) {
            (b"\x7fELF", [183, 0]) => Some(Code::Arm64),
            (b"\x7fELF", [62, 0]) => Some(Code::X86_64),
            _ => None,
        }
    }
}

/// A block, in bytes from the beginning of its function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Address range of the block.
    pub range: Range<u64>,
    /// How many instructions it has.
    pub instructions: u32,
}

/// An instruction as far as control flow goes.
struct Step {
    at: u64,
    next: u64,
    /// Whether control may leave the straight line.
    leaves: bool,
    target: Option<u64>,
}

/// The blocks of a function, in order.
pub fn blocks(code: Code, bytes: &[u8]) -> Vec<Block> {
    let steps: Vec<Step> = match code {
        Code::Arm64 => arm64(bytes).collect(),
        Code::X86_64 => x86_64(bytes),
    };
    let mut leaders: Vec<u64> = steps
        .iter()
        .filter(|s| s.leaves)
        .flat_map(|s| [Some(s.next), s.target])
        .flatten()
        .collect();
    leaders.sort_unstable();
    leaders.dedup();
    let mut out: Vec<Block> = Vec::new();
    for s in &steps {
        match out.last_mut() {
            Some(b) if leaders.binary_search(&s.at).is_err() => {
                b.range.end = s.next;
                b.instructions += 1;
            }
            _ => out.push(Block {
                range: s.at..s.next,
                instructions: 1,
            }),
        }
    }
    out
}

fn arm64(bytes: &[u8]) -> impl Iterator<Item = Step> + '_ {
    bytes.chunks_exact(4).enumerate().map(|(i, word)| {
        let w = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let at = 4 * i as u64;
        // a field of `bits` bits at `low`, signed, in words
        let offset =
            |low: u32, bits: u32| (((w >> low) << (32 - bits)) as i32 >> (32 - bits)) as i64 * 4;
        let jump = if w & 0x7c00_0000 == 0x1400_0000 {
            Some(offset(0, 26)) // B, BL
        } else if w & 0xff00_0000 == 0x5400_0000 || w & 0x7e00_0000 == 0x3400_0000 {
            Some(offset(5, 19)) // B.cond, CBZ, CBNZ
        } else if w & 0x7e00_0000 == 0x3600_0000 {
            Some(offset(5, 14)) // TBZ, TBNZ
        } else {
            None
        };
        Step {
            at,
            next: at + 4,
            leaves: jump.is_some() || w & 0xfe00_0000 == 0xd600_0000, // BR, BLR, RET
            target: jump.and_then(|o| at.checked_add_signed(o)),
        }
    })
}

fn x86_64(bytes: &[u8]) -> Vec<Step> {
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    let mut out = Vec::new();
    while decoder.can_decode() {
        let i = decoder.decode();
        let leaves = !matches!(i.flow_control(), FlowControl::Next | FlowControl::Exception);
        let target = i.near_branch_target();
        out.push(Step {
            at: i.ip(),
            next: i.next_ip(),
            leaves,
            target: (leaves && target != 0).then_some(target),
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(b: &[Block]) -> Vec<(u64, u64, u32)> {
        b.iter()
            .map(|b| (b.range.start, b.range.end, b.instructions))
            .collect()
    }

    #[test]
    fn branches_and_their_targets_cut_arm_code() {
        let words: [u32; 7] = [
            0xd280_0000, // 00 mov x0, #0
            0x9100_0400, // 04 add x0, x0, #1     <- 0c
            0xeb01_001f, // 08 cmp x0, x1
            0x54ff_ffc1, // 0c b.ne 04
            0x9400_0010, // 10 bl elsewhere
            0xd503_201f, // 14 nop
            0xd65f_03c0, // 18 ret
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let b = blocks(Code::Arm64, &bytes);
        assert_eq!(
            ranges(&b),
            [(0, 4, 1), (4, 16, 3), (16, 20, 1), (20, 28, 2)]
        );
    }

    #[test]
    fn branches_and_their_targets_cut_x86_code() {
        let bytes = [
            0x31, 0xc0, // 0 xor eax, eax
            0xff, 0xc0, // 2 inc eax     <- 6
            0x39, 0xf0, // 4 cmp eax, esi
            0x75, 0xfa, // 6 jne 2
            0x90, // 8 nop
            0xc3, // 9 ret
        ];
        let b = blocks(Code::X86_64, &bytes);
        assert_eq!(ranges(&b), [(0, 2, 1), (2, 8, 3), (8, 10, 2)]);
        assert!(blocks(Code::X86_64, &[]).is_empty());
    }

    #[test]
    fn headers_name_the_instruction_set() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let expected = if cfg!(target_arch = "x86_64") {
            Code::X86_64
        } else {
            Code::Arm64
        };
        assert_eq!(Code::of_elf(&own), Some(expected));
        assert_eq!(Code::of_elf(b"\x7fELF"), None);
        assert_eq!(Code::of_elf(&[0; 64]), None);
    }

    proptest::proptest! {
        /// Whatever the bytes: blocks follow each other.
        #[test]
        fn any_bytes_have_blocks(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            for code in [Code::Arm64, Code::X86_64] {
                let b = blocks(code, &bytes);
                for w in b.windows(2) {
                    proptest::prop_assert_eq!(w[0].range.end, w[1].range.start);
                }
                proptest::prop_assert!(b.iter().all(|b| b.instructions > 0 && !b.range.is_empty()));
            }
        }
    }
}
