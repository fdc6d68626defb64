//! A counter that is read without asking the kernel: with the instruction that reads it, and the page that the kernel keeps of
//! each event (`struct perf_event_mmap_page` in `include/uapi/linux/perf_event.h`). `perf-event2` does so on x86 alone, and with a
//! buffer for samples.

use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys::bindings::perf_event_mmap_page as Page;
use std::io;
use std::mem::offset_of;
use std::os::fd::RawFd;
use std::sync::atomic::{compiler_fence, Ordering::SeqCst};

/// Bits of the page's `capabilities`: a counter may be read by an instruction, and time told from the processor's clock.
const CAP_USER_RDPMC: u64 = 1 << 2;
const CAP_USER_TIME: u64 = 1 << 3;
/// The clock has fewer than 64 bits.
const CAP_USER_TIME_SHORT: u64 = 1 << 5;

/// An event's count, and the time for which it was on the hardware, both since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub count: u64,
    pub running_ns: u64,
    /// It is on the hardware now, where it was read.
    pub on: bool,
}

/// The page of an event that counts one thread alone.
#[derive(Debug)]
pub(crate) struct CounterPage(MmapRaw);

impl CounterPage {
    /// The page of the event that is open as `event`.
    ///
    /// # Errors
    /// The system's, when it cannot be mapped.
    pub fn map(event: RawFd) -> io::Result<CounterPage> {
        let page = MmapOptions::new()
            .len(size_of::<Page>())
            .map_raw_read_only(event)?;
        Ok(CounterPage(page))
    }

    /// Whether the kernel lets it be read without being asked.
    pub fn is_readable(&self) -> bool {
        self.capabilities() & CAP_USER_RDPMC != 0
    }

    /// The field of type `T` at `offset`.
    fn field<T: Copy>(&self, offset: usize) -> T {
        debug_assert!(offset + size_of::<T>() <= size_of::<Page>());
        // SAFETY: within the mapping, which is as long as the structure and aligned to a page; the kernel may write it at any time,
        // which a volatile read allows for, and any bits are a value of the integers that are read here.
        unsafe { self.0.as_ptr().add(offset).cast::<T>().read_volatile() }
    }

    fn lock(&self) -> u32 {
        self.field(offset_of!(Page, lock))
    }

    fn capabilities(&self) -> u64 {
        self.field(offset_of!(Page, __bindgen_anon_1))
    }

    /// Reads it. To be called on the thread that is counted: the kernel changes the page only while that one is interrupted, so that
    /// a reading is never tried more than a few times.
    pub fn read(&self) -> Reading {
        loop {
            let before = self.lock();
            compiler_fence(SeqCst);
            let reading = self.read_once();
            compiler_fence(SeqCst);
            if self.lock() == before {
                return reading;
            }
        }
    }

    fn read_once(&self) -> Reading {
        let capabilities = self.capabilities();
        let index: u32 = self.field(offset_of!(Page, index));
        let mut count: i64 = self.field(offset_of!(Page, offset));
        let mut running_ns: u64 = self.field(offset_of!(Page, time_running));
        let on = index != 0 && capabilities & CAP_USER_RDPMC != 0;
        if on {
            // SAFETY: the kernel says that this counter may be read here; if the thread is moved before it is read, the page has
            // changed and the value is dropped. Where access has ended meanwhile the kernel has changed the page, too.
            let raw = unsafe { counter(index - 1) };
            count = count.wrapping_add(extended(raw, self.field(offset_of!(Page, pmc_width))));
            if capabilities & CAP_USER_TIME != 0 {
                running_ns = running_ns.wrapping_add(self.time_since(capabilities));
            }
        }
        Reading {
            count: count.cast_unsigned(),
            running_ns,
            on,
        }
    }

    /// Nanoseconds since the kernel last wrote the page.
    fn time_since(&self, capabilities: u64) -> u64 {
        let mut cycles = clock();
        if capabilities & CAP_USER_TIME_SHORT != 0 {
            let at: u64 = self.field(offset_of!(Page, time_cycles));
            let mask: u64 = self.field(offset_of!(Page, time_mask));
            cycles = at.wrapping_add(cycles.wrapping_sub(at) & mask);
        }
        let shift: u16 = self.field(offset_of!(Page, time_shift));
        let mult: u32 = self.field(offset_of!(Page, time_mult));
        let offset: u64 = self.field(offset_of!(Page, time_offset));
        offset.wrapping_add(scaled(cycles, mult, shift))
    }
}

/// `cycles * mult / 2^shift`, where the product may have more than 64 bits.
fn scaled(cycles: u64, mult: u32, shift: u16) -> u64 {
    let shift = u32::from(shift).min(63);
    let (whole, rest) = (cycles >> shift, cycles & ((1 << shift) - 1));
    let mult = u64::from(mult);
    whole
        .wrapping_mul(mult)
        .wrapping_add(rest.wrapping_mul(mult) >> shift)
}

/// A counter of `width` bits as a signed number: the kernel lets it begin below 0.
fn extended(raw: u64, width: u16) -> i64 {
    let unused = 64 - u32::from(width).clamp(1, 64);
    (raw << unused).cast_signed() >> unused
}

/// The processor's counter `n`.
///
/// # Safety
/// The kernel lets this thread read it (`index` and `cap_user_rdpmc` of an event's page).
#[cfg(target_arch = "x86_64")]
unsafe fn counter(n: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: allowed by this function's contract; it touches nothing but the two registers.
    unsafe {
        std::arch::asm!("rdpmc", in("ecx") n, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// The processor's counter `n`; 31 is that of cycles.
///
/// # Safety
/// The kernel lets this thread read it (`index` and `cap_user_rdpmc` of an event's page).
#[cfg(target_arch = "aarch64")]
unsafe fn counter(n: u32) -> u64 {
    macro_rules! read {
        ($($number:literal)*) => {
            match n {
                $($number => {
                    let value: u64;
                    // SAFETY: allowed by this function's contract; it touches nothing but the register.
                    unsafe {
                        std::arch::asm!(concat!("mrs {}, pmevcntr", $number, "_el0"), out(reg) value, options(nomem, nostack));
                    }
                    value
                })*
                _ => {
                    let value: u64;
                    // SAFETY: as above.
                    unsafe {
                        std::arch::asm!("mrs {}, pmccntr_el0", out(reg) value, options(nomem, nostack));
                    }
                    value
                }
            }
        };
    }
    read!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30)
}

/// Nothing can be read: no page says that it can.
///
/// # Safety
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn counter(_: u32) -> u64 {
    0
}

/// The clock by which pages tell time.
#[cfg(target_arch = "x86_64")]
fn clock() -> u64 {
    // SAFETY: every x86_64 processor has it, and Linux lets programs read it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The clock by which pages tell time.
#[cfg(target_arch = "aarch64")]
fn clock() -> u64 {
    let value: u64;
    // SAFETY: Linux lets programs read it, and emulates it where the register is wrong.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack));
    }
    value
}

/// The clock by which pages tell time; no page uses it here.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn clock() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn counters_begin_below_zero() {
        assert_eq!(extended(0x8000_0000, 32), -0x8000_0000);
        assert_eq!(extended(0xffff_ffff, 32), -1);
        assert_eq!(extended(5, 32), 5);
        assert_eq!(extended(1 << 47, 48), -(1 << 47));
        assert_eq!(extended(u64::MAX, 64), -1);
        // no kernel says so
        assert_eq!((extended(1, 0), extended(7, 99)), (-1, 7));
    }

    proptest! {
        #[test]
        fn time_is_scaled_without_overflow(cycles in 0..1u64 << 50, mult: u32, shift in 0u16..=32) {
            let exact = (u128::from(cycles) * u128::from(mult)) >> shift;
            prop_assume!(exact < u128::from(u64::MAX));
            prop_assert_eq!(u128::from(scaled(cycles, mult, shift)), exact);
        }
    }

    /// A file with the fields of a page.
    fn page(fields: &[(usize, u64)]) -> (tempfile::NamedTempFile, CounterPage) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut bytes = vec![0; size_of::<Page>()];
        for (at, value) in fields {
            bytes[*at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        std::fs::write(file.path(), bytes).unwrap();
        let page = CounterPage::map(file.as_file().as_raw_fd()).unwrap();
        (file, page)
    }

    #[test]
    fn what_is_not_on_the_hardware_is_what_the_kernel_has_counted() {
        let fields = [
            (offset_of!(Page, offset), 1234),
            (offset_of!(Page, time_running), 99),
            (
                offset_of!(Page, __bindgen_anon_1),
                CAP_USER_RDPMC | CAP_USER_TIME,
            ),
        ];
        let (_file, readable) = page(&fields);
        let off = Reading {
            count: 1234,
            running_ns: 99,
            on: false,
        };
        assert!(readable.is_readable());
        assert_eq!(readable.read(), off);
        // one that has a counter, but not for us: nothing is executed that the processor would refuse
        let index = (offset_of!(Page, lock), 7 << 32);
        let (_file, kept) = page(&[index, fields[0], fields[1]]);
        assert!(!kept.is_readable());
        assert_eq!(kept.read(), off);
    }
}
