//! The second buffer of an event, which hardware writes into by itself (perf's AUX area): for SPE.
//!
//! The event's ring buffer then has records that say which part of this one was written. perf-event2
//! maps the ring buffer and knows those records, but not this buffer.

use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys::bindings::perf_event_mmap_page;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the buffer, a power of two of pages, of whatever size those are. Half of it is some
/// 2,000 records of 64 bytes. With [`RING`] and the page before it, it is within what the kernel lets
/// every user have per CPU (516 KiB, `kernel.perf_event_mlock_kb`).
pub const SIZE: usize = 256 << 10;
/// Bytes of the ring buffer beside it.
pub const RING: usize = 128 << 10;

/// The buffer of an event, mapped.
pub struct Aux {
    /// The page before the ring buffer, and the ring buffer: the same memory that perf-event2 has.
    page: MmapRaw,
    area: MmapRaw,
}

impl Aux {
    /// Maps the buffer of the event `owner`, whose ring buffer of [`RING`] bytes is mapped already. The
    /// event must not have been started.
    ///
    /// # Errors
    /// The system's: [`io::ErrorKind::Unsupported`] for an event that writes no such buffer, or no
    /// memory.
    pub fn of(owner: &impl AsRawFd) -> io::Result<Aux> {
        let fd = owner.as_raw_fd();
        let before = rustix::param::page_size() + RING;
        // the kernel maps the page only with as much of the ring buffer as was mapped first
        let page = MmapOptions::new().len(before).map_raw(fd)?;
        let at = page.as_mut_ptr().cast::<perf_event_mmap_page>();
        // SAFETY: the kernel has a `perf_event_mmap_page` at the beginning of the mapping, which is
        // writable, lives as long as `page`, and is aligned to a page. Both words are ours to write:
        // the kernel reads them when the buffer is mapped, and perf-event2 does not use them.
        unsafe {
            (&raw mut (*at).aux_offset).write_volatile(before as u64);
            (&raw mut (*at).aux_size).write_volatile(SIZE as u64);
        }
        // writable, so that the kernel waits for us and does not write over what was not read
        let area = MmapOptions::new()
            .offset(before as u64)
            .len(SIZE)
            .map_raw(fd)?;
        Ok(Aux { page, area })
    }

    /// Copies the part that a record of the ring buffer names, and gives its memory back to the
    /// hardware. Parts are to be taken in the order of the records.
    pub fn take(&mut self, offset: u64, size: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for part in parts(offset, size) {
            // SAFETY: `parts` are within SIZE, which is the length of the mapping. The hardware has
            // written this part, as a record says that perf-event2 has read after an acquire of the
            // ring buffer's head; it writes there no more until `aux_tail` is moved below. So nobody
            // writes while the slice is there.
            let bytes = unsafe {
                std::slice::from_raw_parts(self.area.as_ptr().add(part.start), part.len())
            };
            out.extend_from_slice(bytes);
        }
        let at = self.page.as_mut_ptr().cast::<perf_event_mmap_page>();
        // SAFETY: `aux_tail` is a word of the page (see `of`) that only we write, and the kernel reads
        // as an atomic one; it is aligned as a u64.
        let tail = unsafe { AtomicU64::from_ptr(&raw mut (*at).aux_tail) };
        // what was read is read before the kernel sees that it may be written over
        tail.store(offset.wrapping_add(size), Ordering::Release);
        out
    }
}

/// Where a part is that was written from `offset` on, which counts all bytes ever written; in two
/// pieces where it goes over the end. What is longer than the buffer is only its last [`SIZE`] bytes.
fn parts(offset: u64, size: u64) -> impl Iterator<Item = Range<usize>> {
    let kept = size.min(SIZE as u64);
    let start = (offset.wrapping_add(size - kept) % SIZE as u64) as usize;
    let end = start + kept as usize;
    let pieces = [start..end.min(SIZE), 0..end.saturating_sub(SIZE)];
    pieces.into_iter().filter(|p| !p.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::group::dummy;
    use perf_event::Builder;
    use proptest::prelude::*;

    #[test]
    fn a_part_may_go_over_the_end() {
        let parts = |offset, size| {
            let ends = parts(offset, size).map(|p| (p.start, p.end));
            ends.collect::<Vec<_>>()
        };
        assert_eq!(parts(64, 128), [(64, 192)]);
        let end = 3 * SIZE as u64;
        assert_eq!(parts(end - 64, 128), [(SIZE - 64, SIZE), (0, 64)]);
        assert_eq!(parts(end, SIZE as u64), [(0, SIZE)]);
        assert_eq!(parts(5, 0), []);
        assert_eq!(parts(0, SIZE as u64 + 3), [(3, SIZE), (0, 3)]);
    }

    proptest! {
        #[test]
        fn parts_are_within_the_buffer(offset: u64, size: u64) {
            let length: usize = parts(offset, size)
                .inspect(|p| assert!(p.end <= SIZE))
                .map(|p| p.len())
                .sum();
            prop_assert_eq!(length as u64, size.min(SIZE as u64));
        }
    }

    /// As far as a kernel goes without such hardware: the ring buffer is mapped a second time, and the
    /// buffer is refused.
    #[test]
    fn a_kernel_refuses_it_for_an_event_that_has_none() {
        let mut b = Builder::new(dummy(true).attr);
        b.observe_self()
            .one_cpu(0)
            .exclude_kernel(true)
            .exclude_hv(false);
        let counter = match b.build() {
            Ok(c) => c,
            // a container without perf
            Err(e) => return amp_skips::skip(&format!("no event can be opened here: {e}")),
        };
        let sampler = counter.sampled(RING).unwrap();
        let e = Aux::of(&sampler).err().expect("a refusal");
        assert_eq!(e.raw_os_error(), Some(libc::EOPNOTSUPP), "{e}");
    }
}
