//! This process's memory, and who may hold it up.

use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};
use std::sync::Mutex;

/// Has the kernel join no pages of this process to huge ones.
///
/// While its thread for that (khugepaged, nice 19) does so, nobody in the process gets past a page fault, and a busy
/// machine may have it wait for its next turn meanwhile: a scheduler was held up for 0.7 s like that (docs/evidence/faults.md).
/// Programs that [`crate::launch`] starts have huge pages as the system gives them. Where the kernel refuses there are none.
pub fn no_huge_pages() {
    let _ = disable_transparent_huge_pages(true);
}

/// Does `start` while processes made meanwhile get huge pages as the system gives them: they take over what holds
/// for this one.
pub(crate) fn as_the_system_has_it<T>(start: impl FnOnce() -> T) -> T {
    // one at a time: another would find it changed, and leave it so or undo it too soon
    static STARTING: Mutex<()> = Mutex::new(());
    let _one = STARTING.lock();
    let disabled = transparent_huge_pages_are_disabled().unwrap_or(false);
    let _ = disabled.then(|| disable_transparent_huge_pages(false));
    let done = start();
    let _ = disabled.then(|| disable_transparent_huge_pages(true));
    done
}
