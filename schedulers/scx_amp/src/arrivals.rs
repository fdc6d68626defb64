//! Wakes the scheduling thread of `run` when threads have come.

use amp_host::launch::wait_any;
use anyhow::{Context, Result};
use rustix::event::{eventfd, EventfdFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::time::Duration;

/// How the scheduling thread is told; whether it still listens. It sends back when it has taken note.
pub type Tell = Arc<dyn Fn(Sender<()>) -> bool + Send + Sync>;

/// The longest that nothing need happen: the thread waits as long again.
const LONG: Duration = Duration::from_secs(3600);

/// A thread that waits for news, until this is dropped.
pub struct Watch {
    stop: OwnedFd,
}

impl Watch {
    /// Calls `tell` when `wakes` is readable, and again when that has been noted and it still, or again, is.
    ///
    /// # Errors
    /// When the system refuses a descriptor or a thread.
    pub fn start(wakes: BorrowedFd<'_>, tell: Tell) -> Result<Watch> {
        let refused = "cannot watch for threads that come";
        let wakes = wakes.try_clone_to_owned().context(refused)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).context(refused)?;
        let stopped = stop.try_clone().context(refused)?;
        let thread = std::thread::Builder::new().name("arrivals".to_owned());
        let spawned = thread.spawn(move || watch(&wakes, &stopped, &tell));
        spawned.context(refused)?;
        Ok(Watch { stop })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // a counter that is not read is never full after one
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

fn watch(wakes: &OwnedFd, stop: &OwnedFd, tell: &Tell) {
    loop {
        let both = [wakes.as_fd(), stop.as_fd()];
        match wait_any(both.iter(), LONG) {
            Ok(true) => {}
            Ok(false) => continue,
            // decisions are made once per interval all the same
            Err(e) => return log::warn!("who comes is no longer watched for: {e}"),
        }
        if wait_any(std::iter::once(&stop.as_fd()), Duration::ZERO).unwrap_or(true) {
            return;
        }
        let (noted, note) = channel();
        if !tell(noted) || note.recv().is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::RecvTimeoutError;

    #[test]
    fn news_is_told_once_until_it_is_noted_and_no_more_when_it_ends() {
        let news = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let (sender, told) = channel();
        let tell: Tell = Arc::new(move |noted| sender.send(noted).is_ok());
        let watch = Watch::start(news.as_fd(), Arc::clone(&tell)).unwrap();
        drop(tell);
        let some = |fd: &OwnedFd| rustix::io::write(fd, &1u64.to_ne_bytes()).unwrap();
        for _ in 0..3 {
            some(&news);
            let noted: Sender<()> = told.recv().unwrap();
            // it is still readable, and nobody has taken note
            some(&news);
            assert_eq!(
                told.recv_timeout(Duration::from_millis(20)).err(),
                Some(RecvTimeoutError::Timeout)
            );
            rustix::io::read(&news, &mut [0; 8]).unwrap();
            noted.send(()).unwrap();
        }
        drop(watch);
        // the thread ends, and with it the last sender
        assert!(told.recv().is_err());
    }
}
