//! This process's memory, and who may hold it up.

use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};
use std::sync::{Mutex, PoisonError};

/// Has the kernel join no pages of this process to huge ones.
///
/// While its thread for that (khugepaged, nice 19) does so, nobody in the process gets past a page fault, and a busy
/// machine may have it wait for its next turn meanwhile: a scheduler was held up for 0.7 s like that (docs/evidence/faults.md).
/// Programs that [`crate::launch`] starts have huge pages as this process had. Where the kernel refuses, all stays as it is.
pub fn no_huge_pages() {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    // whoever started us may have wanted it so, for programs of ours, too
    if !transparent_huge_pages_are_disabled().unwrap_or(true) {
        *ours = disable_transparent_huge_pages(true).is_ok();
    }
}

/// Whether it was us who did without. Held while a process is made: another would find that changed, and leave it so or
/// undo it too soon.
static OURS: Mutex<bool> = Mutex::new(false);

/// Does `start`, and processes made meanwhile have huge pages as this one had: they take over what holds for it.
pub(crate) fn as_it_was<T>(start: impl FnOnce() -> T) -> T {
    let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    let disable = |yes| ours.then(|| disable_transparent_huge_pages(yes));
    // a program with fewer huge pages is a program all the same
    let _ = disable(false);
    let done = start();
    let _ = disable(true);
    done
}
