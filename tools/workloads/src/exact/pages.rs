//! One load per page: what data TLBs lack.
//!
//! The pages are never written to, so the kernel puts its one page of zeros behind all of them:
//! - many pages take no memory, and every load is of the same line;
//! - neighbours are not neighbours in memory, so that no TLB can hold several in one entry.
//!
//! Huge pages are forbidden for them, and the kernel makes no use of those of zeros there.

use super::Quantity;
use rustix::mm::{madvise, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;

/// Loads for each branch of the loop around them.
pub(super) const UNROLLED: u64 = 8;
/// Instructions per load.
#[cfg(target_arch = "aarch64")]
pub(super) const PER_LOAD: u64 = 3;
/// Instructions per load.
#[cfg(target_arch = "x86_64")]
pub(super) const PER_LOAD: u64 = 4;
/// Instructions of a round beside its loads.
pub(super) const PER_ROUND: u64 = 2;

/// The next page is this many times the number of the last one and [`STEP`], modulo the number of
/// pages: all of them in turn, in an order that nobody foresees.
const FACTOR: u64 = 0x5d5;
/// See [`FACTOR`].
const STEP: u64 = 0x2a5;

/// How many pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// 4: fewer than any TLB has entries.
    Few,
    /// 256: twice as many as the first data TLB has at most, half as many as the second has at
    /// least, by what vendors publish of the cores whose events we know the names of.
    Some,
    /// 32768: eight times as many as the largest TLB has entries (4096, AMD's Zen 5).
    Many,
}

impl Reach {
    /// All, the smallest first.
    pub const ALL: [Reach; 3] = [Reach::Few, Reach::Some, Reach::Many];

    pub(super) fn name(self) -> &'static str {
        match self {
            Reach::Few => "few pages",
            Reach::Some => "some pages",
            Reach::Many => "many pages",
        }
    }

    /// How many. A power of two.
    pub(super) fn pages(self) -> usize {
        match self {
            Reach::Few => 4,
            Reach::Some => 256,
            Reach::Many => 32768,
        }
    }

    /// The part of loads whose translation a TLB lacks, and by how much that may be off; `None`
    /// where it is not known.
    pub(super) fn lacked(self, q: Quantity) -> Option<(f64, f64)> {
        /// What a TLB replaced by lot keeps of twice its entries, and of eight times.
        const TWICE: f64 = 0.135;
        const EIGHT: f64 = 0.0004;
        match (self, q) {
            (Reach::Few, _) => Some((0.0, 0.0)),
            (Reach::Some, Quantity::DtlbRefills) => Some((1.0, TWICE)),
            (Reach::Some, Quantity::DtlbWalks) => Some((0.0, 0.0)),
            (Reach::Some, _) => None,
            (Reach::Many, _) => Some((1.0, EIGHT)),
        }
    }
}

/// The pages.
#[derive(Debug)]
pub(super) struct Pages {
    base: NonNull<c_void>,
    /// Their number, a power of two.
    number: usize,
    /// Bytes of one, a power of two.
    size: usize,
}

impl Pages {
    /// So many (a power of two) pages, mapped; `None` when that fails, or when huge pages cannot be
    /// forbidden.
    pub fn new(number: usize) -> Option<Pages> {
        let size = rustix::param::page_size();
        if !number.is_power_of_two() || !size.is_power_of_two() {
            return None;
        }
        let bytes = number.checked_mul(size)?;
        // SAFETY: a new mapping, where the kernel has room for it.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let pages = Pages {
            base: NonNull::new(base.ok()?)?,
            number,
            size,
        };
        // SAFETY: the mapping is ours; its contents stay as they are.
        let forbidden = unsafe { madvise(pages.base.as_ptr(), bytes, Advice::LinuxNoHugepage) };
        // a kernel without huge pages refuses that, too
        let none = !Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        if forbidden.is_err() && !none {
            return None;
        }
        // SAFETY: as above. Older kernels refuse, and have a fault at each page instead.
        let _ = unsafe { madvise(pages.base.as_ptr(), bytes, Advice::LinuxPopulateRead) };
        pages.walk(number as u64);
        Some(pages)
    }

    /// Where they are.
    pub fn addresses(&self) -> Range<usize> {
        let from = self.base.as_ptr() as usize;
        from..from + self.number * self.size
    }

    /// Number of pages.
    pub fn number(&self) -> usize {
        self.number
    }

    /// So many loads (rounded down to eight), each of another page than those before it, until it
    /// is the first one's turn again.
    pub fn walk(&self, loads: u64) {
        let rounds = loads / UNROLLED;
        if rounds == 0 {
            return;
        }
        // number and size are powers of two, and their product was mapped
        let mask = (self.number * self.size - 1) as u64;
        let step = STEP * self.size as u64;
        #[cfg(target_arch = "aarch64")]
        // SAFETY: reads words at multiples of a page's size, less than the mapping's, from its
        // beginning on; `rounds` is at least 1; only named registers change.
        unsafe {
            std::arch::asm!(
                "2:", ".rept 8",
                "madd {j}, {j}, {factor}, {step}", "and {j}, {j}, {mask}", "ldr {t}, [{base}, {j}]",
                ".endr",
                "subs {n}, {n}, #1", "b.ne 2b",
                j = inout(reg) 0u64 => _, factor = in(reg) FACTOR, step = in(reg) step, mask = in(reg) mask,
                base = in(reg) self.base.as_ptr(), n = inout(reg) rounds => _, t = out(reg) _,
                options(readonly, nostack),
            );
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: reads words at multiples of a page's size, less than the mapping's, from its
        // beginning on; `rounds` is at least 1; only named registers change.
        unsafe {
            std::arch::asm!(
                "2:", ".rept 8",
                "imul {j}, {factor}", "add {j}, {step}", "and {j}, {mask}", "mov {t}, qword ptr [{base} + {j}]",
                ".endr",
                "dec {n}", "jnz 2b",
                j = inout(reg) 0u64 => _, factor = in(reg) FACTOR, step = in(reg) step, mask = in(reg) mask,
                base = in(reg) self.base.as_ptr(), n = inout(reg) rounds => _, t = out(reg) _,
                options(readonly, nostack),
            );
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of that size, and nobody has a reference into it. Should it
        // fail, it stays until the process ends.
        let _ = unsafe { munmap(self.base.as_ptr(), self.number * self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_order_has_every_page_once() {
        for reach in Reach::ALL {
            let pages = reach.pages() as u64;
            let mut at = 0;
            let seen: BTreeSet<u64> = (0..pages)
                .map(|_| {
                    at = (at * FACTOR + STEP) % pages;
                    at
                })
                .collect();
            assert_eq!((seen.len() as u64, at), (pages, 0), "{reach:?}");
        }
    }

    #[test]
    fn pages_are_small_and_take_no_memory() {
        let pages = Pages::new(4096).unwrap();
        pages.walk(4096 * 2);
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        // neighbours of the same kind are one mapping
        let holds = |line: &str| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            let hex = |s| usize::from_str_radix(s, 16).ok();
            Some((hex(from)?..hex(to)?).contains(&pages.addresses().start))
        };
        let mut lines = smaps.lines().skip_while(|l| holds(l) != Some(true));
        assert!(lines.next().is_some(), "{:?}", pages.addresses());
        let of = |key: &str| {
            let mut own = lines.clone().take_while(|l| !l.starts_with("VmFlags"));
            own.find_map(|l| l.strip_prefix(key)?.trim().strip_suffix("kB"))
                .map(|n| n.trim().to_owned())
        };
        assert_eq!(of("AnonHugePages:").as_deref(), Some("0"));
        assert_eq!(of("Anonymous:").as_deref(), Some("0"));
        let flags = lines.find(|l| l.starts_with("VmFlags")).unwrap();
        let huge = Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        assert_eq!(flags.split(' ').any(|f| f == "nh"), huge, "{flags}");
        assert!(Pages::new(3).is_none());
    }
}
