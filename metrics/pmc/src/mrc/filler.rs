//! Threads that fill the ways which the target may not, so that it cannot live on what it left
//! there.

use amp_host::affinity;
use amp_metrics::cache_allocation::{CacheAllocation, DividedCache};
use anyhow::{anyhow, Context, Result};
use std::hint::black_box;
use std::sync::mpsc::{channel, Receiver, Sender};

/// Bytes between two reads: no cache has shorter lines.
const LINE: usize = 32;
/// How much is read, in sizes of the whole cache.
const SIZES: usize = 2;
/// How often. Where a line that is replaced is chosen by chance, `n` fills per way leave e^-n of
/// what was there; two thirds of these reads at least are fills.
const TIMES: usize = 4;

/// A thread per cache, which sleeps between two calls of [`Filler::fill`].
pub struct Filler {
    threads: Vec<Sender<()>>,
    done: Receiver<()>,
}

impl Filler {
    /// Starts the threads, each beside the target on one of its caches. There are none where nobody
    /// knows which CPUs share a cache, which is said.
    ///
    /// # Errors
    /// When a thread cannot be put where it belongs.
    pub fn start(cache: &DividedCache, allocation: &mut dyn CacheAllocation) -> Result<Filler> {
        if cache.others_on.is_empty() {
            log::warn!(
                "nothing says which CPUs share the cache of level {}: what the program leaves in ways that it may no longer fill stays there until somebody else fills them, and small sizes look better than they are",
                cache.level
            );
        }
        let bytes = SIZES * (u64::from(cache.ways) * cache.way_bytes) as usize;
        let (told, done) = channel();
        let mut threads = Vec::new();
        for cpus in &cache.others_on {
            let (fill, asked) = channel::<()>();
            let (cpus, told) = (cpus.clone(), told.clone());
            let (here, tid) = channel();
            std::thread::Builder::new()
                .name("fill".to_owned())
                .spawn(move || {
                    // the first of them that is online
                    let placed = cpus
                        .iter()
                        .find_map(|c| affinity::stay_on(&[*c]).ok())
                        .with_context(|| format!("cannot run on any of CPUs {cpus:?}"));
                    let ready = placed.is_ok();
                    let tid = rustix::thread::gettid().as_raw_nonzero().get();
                    if here.send(placed.map(|()| tid)).is_err() || !ready {
                        return;
                    }
                    // pages of their own: untouched ones would all be the same
                    let data: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
                    while asked.recv().is_ok() {
                        read(&data);
                        if told.send(()).is_err() {
                            break;
                        }
                    }
                })
                .context("cannot start a thread")?;
            let tid = tid
                .recv()
                .map_err(|_| anyhow!("a thread has ended early"))??;
            allocation.oppose(tid)?;
            threads.push(fill);
        }
        Ok(Filler { threads, done })
    }

    /// Fills the ways that are left, and returns when they are.
    ///
    /// # Errors
    /// When a thread has ended.
    pub fn fill(&mut self) -> Result<()> {
        let ended = || anyhow!("the thread that fills the cache has ended");
        for t in &self.threads {
            t.send(()).map_err(|_| ended())?;
        }
        for _ in &self.threads {
            self.done.recv().map_err(|_| ended())?;
        }
        Ok(())
    }
}

/// Reads a byte of every line.
fn read(data: &[u8]) {
    for _ in 0..TIMES {
        let sum = data
            .iter()
            .step_by(LINE)
            .fold(0_u8, |a, b| a.wrapping_add(*b));
        black_box(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_metrics::cache_allocation::AllocationError;

    #[derive(Default)]
    struct Fake(Vec<i32>);

    impl CacheAllocation for Fake {
        fn confine(&mut self, _: &[i32]) -> Result<DividedCache, AllocationError> {
            Ok(DividedCache {
                level: 3,
                ways: 4,
                way_bytes: 1 << 16,
                least: 1,
                others_on: Vec::new(),
            })
        }
        fn oppose(&mut self, tid: i32) -> Result<(), AllocationError> {
            self.0.push(tid);
            Ok(())
        }
        fn allot(&mut self, _: u32) -> Result<(), AllocationError> {
            Ok(())
        }
    }

    #[test]
    fn a_thread_per_cache_is_taken_in_and_fills_when_it_is_asked() {
        let mut allocation = Fake::default();
        let mut cache = allocation.confine(&[]).unwrap();
        Filler::start(&cache, &mut allocation)
            .unwrap()
            .fill()
            .unwrap();
        assert!(allocation.0.is_empty());
        // CPUs that are not there are passed over
        cache.others_on = vec![vec![8000, 0], vec![0]];
        let mut filler = Filler::start(&cache, &mut allocation).unwrap();
        let us = std::process::id() as i32;
        assert!(allocation.0.len() == 2 && allocation.0.iter().all(|t| *t != us));
        (0..3).for_each(|_| filler.fill().unwrap());
        cache.others_on = vec![vec![8000]];
        let e = Filler::start(&cache, &mut allocation).err().unwrap();
        assert!(e.to_string().contains("[8000]"), "{e:#}");
    }
}
