//! Hearing from BPF that threads have come.

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// News of threads that have come and go on running.
pub(crate) struct Arrivals {
    ring: RingBuffer<'static>,
    wakes: OwnedFd,
}

impl Arrivals {
    pub fn of(map: &dyn MapCore) -> Result<Arrivals, libbpf_rs::Error> {
        let mut ring = RingBufferBuilder::new();
        // who it was shows when user space looks
        ring.add(map, |_| 0)?;
        let ring = ring.build()?;
        // a ring's file is readable while there is news in it
        let wakes = map.as_fd().try_clone_to_owned()?;
        Ok(Arrivals { ring, wakes })
    }

    /// Readable while there is news.
    pub fn wakes(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }

    /// Whether there has been news since the last call.
    pub fn take(&mut self) -> bool {
        self.ring.consume_raw() > 0
    }
}
