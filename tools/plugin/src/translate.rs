//! What is done once per translated block: decode it, cost it, and register the callbacks it needs.

use crate::board::{board, Board};
use crate::decode::{decode, BranchKind, Class, Decoded, SysOp, TTBR0_EL1};
use crate::exec::{self, Block};
use crate::ffi::{self, ExecCb, Insn, PluginId, Tb};
use crate::sysreg::{self, ReadSite};
use crate::timing::{self, Cost};
use crate::vcpu::INDIRECT;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Mutex;

/// Memory for what translated blocks refer to. It is given back when QEMU drops all translations.
#[derive(Debug, Default)]
pub struct Arena {
    chunks: Mutex<Chunks>,
}

/// A cache line, the alignment of everything that is placed.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Word([u8; 64]);

#[derive(Debug, Default)]
struct Chunks {
    full: Vec<Box<[Word]>>,
    current: Box<[Word]>,
    used: usize,
}

/// Words per chunk (1 MiB).
const CHUNK: usize = 16_384;

impl Chunks {
    fn reserve(&mut self, words: usize) -> *mut Word {
        if self.current.len() - self.used < words {
            let fresh = vec![Word([0; 64]); CHUNK.max(words)].into_boxed_slice();
            let old = std::mem::replace(&mut self.current, fresh);
            self.full.push(old);
            self.used = 0;
        }
        let at = self.used;
        self.used += words;
        std::ptr::from_mut(&mut self.current[at])
    }
}

impl Arena {
    fn chunks(&self) -> std::sync::MutexGuard<'_, Chunks> {
        // A panic while the lock was held cannot leave the bump pointer in a state that matters.
        self.chunks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Places a block with its costs.
    pub fn block(&self, block: Block, costs: &[Cost]) -> *mut Block {
        let bytes = size_of::<Block>().max(exec::COSTS + size_of_val(costs));
        let at = self
            .chunks()
            .reserve(bytes.div_ceil(size_of::<Word>()))
            .cast::<Block>();
        // SAFETY: `reserve` gives that many bytes to nobody else, aligned as `Block` is; the costs
        // end within them.
        unsafe {
            at.write(block);
            let to = at.byte_add(exec::COSTS).cast();
            std::ptr::copy_nonoverlapping(costs.as_ptr(), to, costs.len());
        }
        at
    }

    fn read_site(&self, site: ReadSite) -> *mut ReadSite {
        let words = size_of::<ReadSite>().div_ceil(size_of::<Word>());
        let at = self.chunks().reserve(words).cast::<ReadSite>();
        // SAFETY: as in `block`.
        unsafe { at.write(site) };
        at
    }

    /// Frees everything. Nothing that was placed may be in use any more.
    fn clear(&self) {
        let mut chunks = self.chunks();
        chunks.full.clear();
        chunks.used = 0;
    }
}

/// QEMU drops all translations; no vCPU is inside one.
pub extern "C" fn flush(_: PluginId) {
    board().arena.clear();
}

/// QEMU translates a block.
pub extern "C" fn translate(_: PluginId, tb: *mut Tb) {
    let b = board();
    // SAFETY: `tb` is valid for the length of this call, as are its instructions.
    let (insns, start) = unsafe {
        let n = (b.api.tb_n_insns)(tb);
        let insns: Vec<*mut Insn> = (0..n).map(|i| (b.api.tb_insn)(tb, i)).collect();
        (insns, (b.api.tb_vaddr)(tb))
    };
    let decoded: Vec<Decoded> = insns.iter().map(|i| decode(word_of(b, *i))).collect();
    let (Some(first), Some(last)) = (insns.first(), decoded.last()) else {
        return;
    };
    let end = start.wrapping_add(4 * decoded.len() as u64);
    let level = exec::level(start);
    let whole = !b.boots.load(SeqCst);

    if follows_monitor_read(b, start) {
        let pc = std::ptr::without_provenance_mut(start as usize);
        on_exec(b, *first, sysreg::fix, ffi::WRITE_REGS, pc);
    }
    let loops = matches!(last.branch, Some(BranchKind::Conditional(offset))
        if end.wrapping_sub(4).wrapping_add_signed(offset) == start);
    let dependent = timing::dependent_loads(&decoded, loops);
    for (i, (insn, d)) in insns.iter().zip(&decoded).enumerate() {
        // reads of identification registers are constants to QEMU, after which a block goes on
        if i.checked_sub(1).is_some_and(|i| reads_monitor(&decoded[i])) {
            let pc = start.wrapping_add(4 * i as u64);
            let pc = std::ptr::without_provenance_mut(pc as usize);
            on_exec(b, *insn, sysreg::fix, ffi::WRITE_REGS, pc);
        }
        if whole && matches!(d.class, Class::Load | Class::Store) {
            let flags = exec::memory_flags(level, dependent[i]);
            // SAFETY: `insn` is valid during translation.
            unsafe {
                (b.api.on_mem)(*insn, exec::load, ffi::NO_REGS, ffi::MEM_R, flags);
                (b.api.on_mem)(*insn, exec::store, ffi::NO_REGS, ffi::MEM_W, flags);
            }
        }
        if let Some(op) = d.sys {
            system(b, *insn, op, start.wrapping_add(4 * (i as u64 + 1)));
        }
    }
    let pending = match last.branch {
        Some(BranchKind::Conditional(_)) if whole => end,
        Some(BranchKind::Indirect) if whole => end | INDIRECT,
        _ => 0,
    };
    let block = Block::new(start, pending, timing::events(&decoded));
    let costs: Vec<Cost> = b.types.iter().map(|t| timing::cost(&decoded, t)).collect();
    let data = b.arena.block(block, &costs);
    // SAFETY: `tb` is valid during translation; the block stays until the translation is dropped.
    unsafe { (b.api.on_tb_exec)(tb, exec::block, ffi::NO_REGS, data.cast()) };
}

fn system(b: &Board, insn: *mut Insn, op: SysOp, next: u64) {
    match op {
        SysOp::Write(r, rt) if r.is_pmu() || r == TTBR0_EL1 => {
            on_exec(
                b,
                insn,
                sysreg::write,
                ffi::READ_REGS,
                sysreg::write_data(r, rt),
            );
        }
        SysOp::Read(register, rt) if register.is_pmu() => {
            let site = b.arena.read_site(ReadSite { next, register, rt });
            on_exec(b, insn, sysreg::read, ffi::NO_REGS, site.cast());
        }
        SysOp::Publish => on_exec(b, insn, sysreg::hint, ffi::NO_REGS, std::ptr::null_mut()),
        SysOp::Pass => on_exec(b, insn, sysreg::pass, ffi::NO_REGS, std::ptr::null_mut()),
        SysOp::Read(..) | SysOp::Write(..) => {}
    }
}

fn on_exec(b: &Board, insn: *mut Insn, callback: ExecCb, registers: c_int, data: *mut c_void) {
    // SAFETY: `insn` is valid during translation; `data` is a plain number or stays until the
    // translation is dropped.
    unsafe { (b.api.on_insn_exec)(insn, callback, registers, data) };
}

fn word_of(b: &Board, insn: *mut Insn) -> u32 {
    let mut bytes = [0u8; 4];
    // SAFETY: `insn` is valid during translation; at most four bytes are written.
    unsafe { (b.api.insn_data)(insn, bytes.as_mut_ptr().cast(), bytes.len()) };
    u32::from_le_bytes(bytes)
}

/// Whether the instruction before the block reads a performance monitor. The block may have been
/// translated first, or entered by another way: so the code is looked at, not remembered.
fn follows_monitor_read(b: &Board, start: u64) -> bool {
    // SAFETY: the array is made and freed here; the read fails where nothing is mapped.
    let word = unsafe {
        let bytes = (b.api.bytes_new)();
        let ok = (b.api.read_memory)(start.wrapping_sub(4), bytes, 4) && (*bytes).len >= 4;
        let word = ok.then(|| std::ptr::read_unaligned((*bytes).data.cast::<u32>()));
        (b.api.bytes_free)(bytes, 1);
        word
    };
    word.is_some_and(|w| reads_monitor(&decode(u32::from_le(w))))
}

fn reads_monitor(d: &Decoded) -> bool {
    matches!(d.sys, Some(SysOp::Read(r, _)) if r.is_pmu())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_costs() {
        let arena = Arena::default();
        let cost = |n: u32| Cost { ps: n, pj: n + 1 };
        // More core types than fit into the block's own cache line.
        let costs = |n: u32| -> Vec<Cost> { (0..7).map(|t| cost(n + 10 * t)).collect() };
        let placed: Vec<*mut Block> = (0..40_000u32)
            .map(|n| {
                arena.block(
                    Block::new(n.into(), 0, timing::BlockEvents::default()),
                    &costs(n),
                )
            })
            .collect();
        for (n, p) in (0u32..).zip(&placed) {
            // SAFETY: placed above with seven costs, not cleared yet.
            let (start, found) = unsafe {
                let first = p.byte_add(exec::COSTS).cast::<Cost>();
                ((**p).start, std::slice::from_raw_parts(first, 7))
            };
            assert_eq!(start, u64::from(n));
            assert_eq!(found, costs(n));
        }
        arena.clear();
        assert_eq!(arena.chunks().used, 0);
    }
}
