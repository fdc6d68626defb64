//! The C interface: what `include/amp_measure.h` declares.
//!
//! Every function returns 0 or a negative number of `errno.h` ([`crate::Error::errno`]);
//! [`amp_measure_error`] says more. No panic crosses the border: it becomes `-ENOTRECOVERABLE`.

use crate::{Counts, Error, Options, Region};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, CStr, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Flag: threads and processes that the thread starts, too.
pub const AMP_CHILDREN: c_uint = 1;
/// Flag: the machine's energy, too.
pub const AMP_ENERGY: c_uint = 2;
/// Flag: counters are read without asking the kernel, where it permits that.
pub const AMP_DIRECT: c_uint = 4;
/// Flag: more events than counters; sets of them take turns.
pub const AMP_TURNS: c_uint = 8;

/// A region, behind a pointer whose pointee C does not know.
pub struct AmpRegion {
    region: Region,
    /// Names as C reads them, in the order of the counts.
    names: Vec<(CString, CString)>,
}

/// What one PMU has counted of an event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AmpCount {
    /// The event as it was written; valid until the region is closed.
    pub event: *const c_char,
    /// The PMU; valid until the region is closed.
    pub pmu: *const c_char,
    /// The count.
    pub count: u64,
    /// Seconds for which this PMU counted.
    pub seconds: f64,
    /// Standard uncertainty of the count; not a number when unknown.
    pub u: f64,
    /// Part of the times that the region was entered in which the event was counted.
    pub coverage: f64,
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::new(CString::default());
}

fn say(text: String) {
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    MESSAGE.with(|m| m.replace(text));
}

fn panicked(what: &(dyn Any + Send)) -> String {
    let text = what.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| what.downcast_ref::<&str>().copied());
    format!(
        "amp_measure failed inside: {}",
        text.unwrap_or("no reason given")
    )
}

/// Runs `f`; its error, or panic, as a number and a message.
fn guarded(f: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(n)) => n,
        Ok(Err(e)) => {
            say(e.to_string());
            -e.errno()
        }
        Err(what) => {
            say(panicked(what.as_ref()));
            -libc::ENOTRECOVERABLE
        }
    }
}

fn null(what: &str) -> Error {
    Error::Input(format!("{what} is a null pointer"))
}

/// The text at `p`.
///
/// # Safety
/// `p` is null, or points to a string that ends with a zero byte and stays as it is for `'a`.
unsafe fn text<'a>(p: *const c_char, what: &str) -> Result<&'a str, Error> {
    if p.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and ends with a zero byte by this function's contract.
    let text = unsafe { CStr::from_ptr(p) };
    text.to_str()
        .map_err(|_| Error::Input(format!("{what} is no UTF-8")))
}

/// Runs `f` on the region at `p`.
///
/// # Safety
/// `p` is null, or from [`amp_region_open`] and not closed, and no other thread uses it meanwhile.
unsafe fn with(p: *mut AmpRegion, f: impl FnOnce(&mut AmpRegion) -> Result<c_int, Error>) -> c_int {
    guarded(|| {
        // SAFETY: null or a live region that only this call uses, by this function's contract.
        let region = unsafe { p.as_mut() };
        f(region.ok_or_else(|| null("the region"))?)
    })
}

/// Opens a region for `events` of the calling thread and puts it at `out`, or null there.
///
/// # Safety
/// `events` points to a string that ends with a zero byte, or is null; `out` to a place for a
/// pointer, or is null.
#[no_mangle]
pub unsafe extern "C" fn amp_region_open(
    events: *const c_char,
    flags: c_uint,
    out: *mut *mut AmpRegion,
) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(null("the place for the region"));
        }
        // SAFETY: not null, and a place for a pointer by this function's contract.
        unsafe { out.write(std::ptr::null_mut()) };
        if flags & !(AMP_CHILDREN | AMP_ENERGY | AMP_DIRECT | AMP_TURNS) != 0 {
            return Err(Error::Input(format!(
                "flags {flags:#x}: there are 1, 2, 4 and 8"
            )));
        }
        // SAFETY: null or a string by this function's contract; the borrow ends with this call.
        let events = unsafe { text(events, "the list of events") }?;
        let mut region = Region::with(&Options {
            events: events.to_owned(),
            children: flags & AMP_CHILDREN != 0,
            energy: flags & AMP_ENERGY != 0,
            direct: flags & AMP_DIRECT != 0,
            turns: flags & AMP_TURNS != 0,
        })?;
        let c = |s: &str| CString::new(s).unwrap_or_default();
        let names = region.read()?.events;
        let names = names.iter().map(|e| (c(&e.event), c(&e.pmu))).collect();
        let region = Box::into_raw(Box::new(AmpRegion { region, names }));
        // SAFETY: as above.
        unsafe { out.write(region) };
        Ok(0)
    })
}

/// 1 when its counters are read without asking the kernel ([`Region::is_direct`]), else 0.
///
/// # Safety
/// As [`amp_region_start`].
#[no_mangle]
pub unsafe extern "C" fn amp_region_is_direct(region: *mut AmpRegion) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { with(region, |r| Ok(c_int::from(r.region.is_direct()))) }
}

/// Begins to count.
///
/// # Safety
/// `region` is from [`amp_region_open`] and not closed, or null, and no other thread uses it
/// meanwhile.
#[no_mangle]
pub unsafe extern "C" fn amp_region_start(region: *mut AmpRegion) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { with(region, |r| r.region.start().map(|()| 0)) }
}

/// Stops counting.
///
/// # Safety
/// As [`amp_region_start`].
#[no_mangle]
pub unsafe extern "C" fn amp_region_stop(region: *mut AmpRegion) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { with(region, |r| r.region.stop().map(|()| 0)) }
}

/// Counts from 0 again.
///
/// # Safety
/// As [`amp_region_start`].
#[no_mangle]
pub unsafe extern "C" fn amp_region_reset(region: *mut AmpRegion) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { with(region, |r| r.region.reset().map(|()| 0)) }
}

/// Copies up to `n` counts, which are `counts` of `region`, to `out`; how many there are.
///
/// # Safety
/// `out` is a place for `n` counts, or `n` is 0.
unsafe fn copy(
    names: &[(CString, CString)],
    counts: &Counts,
    out: *mut AmpCount,
    n: usize,
) -> c_int {
    let all = names.iter().zip(&counts.events);
    for (i, ((event, pmu), c)) in all.take(n).enumerate() {
        let count = AmpCount {
            event: event.as_ptr(),
            pmu: pmu.as_ptr(),
            count: c.count,
            seconds: c.seconds,
            u: c.u.unwrap_or(f64::NAN),
            coverage: c.coverage,
        };
        // SAFETY: i < n, and there is a place for n by this function's contract.
        unsafe { out.add(i).write(count) };
    }
    c_int::try_from(counts.events.len()).unwrap_or(c_int::MAX)
}

/// Writes up to `n` counts to `out`, an event on a PMU each, and returns how many there are; with
/// `n` 0 `out` may be null.
///
/// # Safety
/// As [`amp_region_start`]; `out` is a place for `n` counts.
#[no_mangle]
pub unsafe extern "C" fn amp_region_read(
    region: *mut AmpRegion,
    out: *mut AmpCount,
    n: usize,
) -> c_int {
    let read = |r: &mut AmpRegion| {
        if out.is_null() && n > 0 {
            return Err(null("the place for counts"));
        }
        let counts = r.region.read()?;
        // SAFETY: a place for n counts by this function's contract.
        Ok(unsafe { copy(&r.names, &counts, out, n) })
    };
    // SAFETY: by this function's contract.
    unsafe { with(region, read) }
}

/// As [`amp_region_read`], what starting and stopping alone count. Resets the region.
///
/// # Safety
/// As [`amp_region_read`].
#[no_mangle]
pub unsafe extern "C" fn amp_region_overhead(
    region: *mut AmpRegion,
    out: *mut AmpCount,
    n: usize,
) -> c_int {
    let overhead = |r: &mut AmpRegion| {
        if out.is_null() && n > 0 {
            return Err(null("the place for counts"));
        }
        let counts = r.region.overhead()?;
        // SAFETY: a place for n counts by this function's contract.
        Ok(unsafe { copy(&r.names, &counts, out, n) })
    };
    // SAFETY: by this function's contract.
    unsafe { with(region, overhead) }
}

/// Writes the count of `event` on all PMUs together to `out`.
///
/// # Safety
/// As [`amp_region_start`]; `event` points to a string that ends with a zero byte, or is null;
/// `out` to a place for a number, or is null.
#[no_mangle]
pub unsafe extern "C" fn amp_region_total(
    region: *mut AmpRegion,
    event: *const c_char,
    out: *mut u64,
) -> c_int {
    let total = |r: &mut AmpRegion| {
        if out.is_null() {
            return Err(null("the place for the count"));
        }
        // SAFETY: null or a string by this function's contract; the borrow ends with this call.
        let event = unsafe { text(event, "the event") }?;
        let Some(count) = r.region.read()?.total(event) else {
            return Err(Error::Input(format!(
                "`{event}` is not counted in this region"
            )));
        };
        // SAFETY: not null, and a place for a number by this function's contract.
        unsafe { out.write(count) };
        Ok(0)
    };
    // SAFETY: by this function's contract.
    unsafe { with(region, total) }
}

/// Writes the machine's energy while the region ran, in joules, to `out`.
///
/// # Safety
/// As [`amp_region_start`]; `out` points to a place for a number, or is null.
#[no_mangle]
pub unsafe extern "C" fn amp_region_energy(region: *mut AmpRegion, out: *mut f64) -> c_int {
    let energy = |r: &mut AmpRegion| {
        if out.is_null() {
            return Err(null("the place for the energy"));
        }
        let Some(joules) = r.region.read()?.energy_j else {
            return Err(Error::Input(
                "the region was opened without AMP_ENERGY".into(),
            ));
        };
        // SAFETY: not null, and a place for a number by this function's contract.
        unsafe { out.write(joules) };
        Ok(0)
    };
    // SAFETY: by this function's contract.
    unsafe { with(region, energy) }
}

/// Closes a region; null is none.
///
/// # Safety
/// As [`amp_region_start`]; the pointer, and names that were read, are not used any more.
#[no_mangle]
pub unsafe extern "C" fn amp_region_close(region: *mut AmpRegion) {
    if !region.is_null() {
        guarded(|| {
            // SAFETY: not null, from Box::into_raw in amp_region_open, and not closed by this
            // function's contract.
            drop(unsafe { Box::from_raw(region) });
            Ok(0)
        });
    }
}

/// What went wrong in the last call on this thread that failed; empty when none has. Valid until
/// the next call on this thread.
#[no_mangle]
pub extern "C" fn amp_measure_error() -> *const c_char {
    // a thread that is ending has no message any more
    MESSAGE
        .try_with(|m| m.try_borrow().map_or(c"".as_ptr(), |m| m.as_ptr()))
        .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        // SAFETY: the message is a string of ours, which no other call of this thread replaces
        // meanwhile.
        let text = unsafe { CStr::from_ptr(amp_measure_error()) };
        text.to_string_lossy().into_owned()
    }

    #[test]
    fn nothing_that_c_can_pass_ends_the_program() {
        let mut region = std::ptr::null_mut();
        let mut count = 0;
        // SAFETY: pointers are null, or to variables that live on.
        unsafe {
            assert_eq!(
                amp_region_open(std::ptr::null(), 0, &mut region),
                -libc::EINVAL
            );
            assert!(message().contains("list of events"), "{}", message());
            assert_eq!(
                amp_region_open(c"cycles".as_ptr(), 0, std::ptr::null_mut()),
                -libc::EINVAL
            );
            assert_eq!(
                amp_region_open(c"task-clock".as_ptr(), 64, &mut region),
                -libc::EINVAL
            );
            assert_eq!(
                amp_region_open(c"\xff".as_ptr(), 0, &mut region),
                -libc::EINVAL
            );
            assert_eq!(amp_region_open(c"".as_ptr(), 0, &mut region), -libc::EINVAL);
            assert!(region.is_null());
            assert_eq!(amp_region_start(region), -libc::EINVAL);
            assert_eq!(
                amp_region_read(region, std::ptr::null_mut(), 0),
                -libc::EINVAL
            );
            assert_eq!(
                amp_region_total(region, c"x".as_ptr(), &mut count),
                -libc::EINVAL
            );
            amp_region_close(region);
        }
        assert!(message().contains("null"), "{}", message());
    }

    #[test]
    fn a_panic_is_a_number() {
        assert_eq!(guarded(|| panic!("oh")), -libc::ENOTRECOVERABLE);
        assert!(message().contains("oh"));
    }

    #[test]
    fn software_events_are_counted() {
        let mut region = std::ptr::null_mut();
        // SAFETY: pointers are to variables that live on, and the region is closed once.
        unsafe {
            if amp_region_open(c"task-clock:u".as_ptr(), 0, &mut region) != 0 {
                // a container without perf
                assert!(message().contains("task-clock"), "{}", message());
                amp_skips::skip(&format!("nothing can be counted here: {}", message()));
                return;
            }
            assert_eq!(amp_region_start(region), 0);
            (0..300_000u64).fold(1, |a, b| std::hint::black_box(a ^ b));
            assert_eq!(amp_region_stop(region), 0);
            let mut total = 0;
            assert_eq!(
                amp_region_total(region, c"task-clock:u".as_ptr(), &mut total),
                0
            );
            assert_eq!(amp_region_read(region, std::ptr::null_mut(), 0), 1);
            let mut rows = [AmpCount {
                event: std::ptr::null(),
                pmu: std::ptr::null(),
                count: 0,
                seconds: 0.0,
                u: -1.0,
                coverage: -1.0,
            }; 2];
            assert_eq!(amp_region_read(region, rows.as_mut_ptr(), 2), 1);
            assert!(rows[0].count == total && total > 0 && rows[1].event.is_null());
            assert_eq!(CStr::from_ptr(rows[0].pmu), c"software");
            assert_eq!((rows[0].u, rows[0].coverage), (0.0, 1.0));
            assert_eq!(
                amp_region_total(region, c"cycles".as_ptr(), &mut total),
                -libc::EINVAL
            );
            let mut joules = 0.0;
            assert_eq!(amp_region_energy(region, &mut joules), -libc::EINVAL);
            amp_region_close(region);
        }
    }
}
