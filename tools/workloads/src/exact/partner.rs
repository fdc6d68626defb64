//! A thread on another CPU, for kernels that take two.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A cache line that two threads may store to.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Shared(
    #[allow(dead_code)] // assembly reads and writes it
    pub  [AtomicU64; super::LINE / 8],
);

impl Shared {
    /// `n` lines, filled with `v`.
    pub fn lines(n: usize, v: f64) -> Vec<Shared> {
        let word = || AtomicU64::new(v.to_bits());
        (0..n)
            .map(|_| Shared(std::array::from_fn(|_| word())))
            .collect()
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The thread. It ends with this.
pub(super) struct Partner {
    jobs: Option<Sender<Job>>,
    done: Receiver<()>,
    /// Whether there is a job that was not waited for.
    busy: bool,
    go: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Partner {
    /// Starts it; `begin` is called there first.
    pub fn start(begin: impl FnOnce() + Send + 'static) -> Partner {
        let (jobs, todo) = channel::<Job>();
        let (finished, done) = channel();
        let thread = std::thread::spawn(move || {
            begin();
            for job in todo {
                job();
                if finished.send(()).is_err() {
                    break;
                }
            }
        });
        Partner {
            jobs: Some(jobs),
            done,
            busy: false,
            go: Arc::new(AtomicBool::new(false)),
            thread: Some(thread),
        }
    }

    /// Hands it a job that is to begin with [`Partner::go`], and waits until `make_ready` is done and
    /// it looks out for that.
    pub fn prepare(
        &mut self,
        make_ready: impl FnOnce() + Send + 'static,
        job: impl FnOnce() + Send + 'static,
    ) {
        self.wait();
        self.go.store(false, Ordering::Relaxed);
        let (go, ready) = (self.go.clone(), Arc::new(AtomicBool::new(false)));
        let there = ready.clone();
        let job: Job = Box::new(move || {
            make_ready();
            there.store(true, Ordering::Release);
            while !go.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            job();
        });
        self.busy = self.jobs.as_ref().is_some_and(|j| j.send(job).is_ok());
        while self.busy && !ready.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Lets the job begin: a single store, for counters may be on.
    #[inline]
    pub fn go(&self) {
        self.go.store(true, Ordering::Release);
    }

    /// Waits for the end of the job, if there is one.
    pub fn wait(&mut self) {
        self.go();
        if std::mem::take(&mut self.busy) {
            // a thread that panicked has said so
            let _ = self.done.recv();
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.wait();
        self.jobs = None;
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}
