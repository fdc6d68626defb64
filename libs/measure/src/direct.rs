//! What a region counts between its starts and stops when its counters are read without asking the kernel.

use crate::page::CounterPage;
use crate::Error;
use amp_metrics::group::Group;
use std::os::fd::RawFd;
use std::thread::ThreadId;

/// The counts of a group, and the nanoseconds for which it was on the hardware.
#[derive(Clone, Debug, Default)]
struct Total {
    running_ns: u64,
    counts: Vec<u64>,
}

/// The groups of a region run all the time; what they count between a start and a stop is added up.
#[derive(Debug)]
pub(crate) struct Direct {
    /// The thread that is counted.
    thread: ThreadId,
    /// Per group, those of its events.
    pages: Vec<Vec<CounterPage>>,
    /// At the last start.
    begin: Vec<Total>,
    /// At the last reading.
    now: Vec<Total>,
    /// Between starts and stops.
    sum: Vec<Total>,
}

impl Direct {
    /// Starts `groups` for good; `None` where the kernel keeps one of their counters to itself, and they are as they were.
    ///
    /// # Errors
    /// [`Error::Group`] when the kernel refuses to start them.
    pub fn open(groups: &mut [Group]) -> Result<Option<Direct>, Error> {
        let pages = |g: &Group| -> Option<Vec<CounterPage>> {
            let of = |fd: RawFd| CounterPage::map(fd).ok().filter(CounterPage::is_readable);
            g.descriptors().into_iter().map(of).collect()
        };
        let Some(pages) = groups.iter().map(pages).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        for g in groups.iter_mut() {
            g.start()?;
        }
        let none: Vec<Total> = groups
            .iter()
            .map(|g| Total {
                running_ns: 0,
                counts: vec![0; g.events().len()],
            })
            .collect();
        let mut direct = Direct {
            thread: std::thread::current().id(),
            pages,
            begin: none.clone(),
            now: none.clone(),
            sum: none,
        };
        if direct.read_pages() {
            return Ok(Some(direct));
        }
        // access is not enabled (arm64: kernel.perf_user_access)
        for g in groups {
            g.stop()?;
        }
        Ok(None)
    }

    /// Reads the counters; `false` when none of them is on the hardware where this thread runs, or a part of a group only: what a
    /// group counts it counts together, so that the rest has counters which the kernel keeps to itself.
    fn read_pages(&mut self) -> bool {
        let mut on = false;
        for (pages, now) in self.pages.iter().zip(&mut self.now) {
            let mut nr_on = 0;
            for (i, (page, count)) in pages.iter().zip(&mut now.counts).enumerate() {
                let r = page.read();
                *count = r.count;
                if i == 0 {
                    now.running_ns = r.running_ns;
                }
                nr_on += usize::from(r.on);
            }
            if nr_on != 0 && nr_on != pages.len() {
                return false;
            }
            on |= nr_on != 0;
        }
        on
    }

    /// Reads the counters; through the kernel on a thread that is not counted, and where they are no longer to be had otherwise.
    fn read(&mut self, groups: &mut [Group]) -> Result<(), Error> {
        if std::thread::current().id() == self.thread && self.read_pages() {
            return Ok(());
        }
        for (g, now) in groups.iter_mut().zip(&mut self.now) {
            let read = g.read()?;
            now.running_ns = u64::try_from(read.running.as_nanos()).unwrap_or(u64::MAX);
            now.counts = read.counts;
        }
        Ok(())
    }

    /// Counts from here.
    ///
    /// # Errors
    /// [`Error::Group`] when the kernel had to be asked and refused.
    pub fn start(&mut self, groups: &mut [Group]) -> Result<(), Error> {
        self.read(groups)?;
        std::mem::swap(&mut self.begin, &mut self.now);
        Ok(())
    }

    /// Adds what was counted since the start, or since this was last called.
    ///
    /// # Errors
    /// As [`Direct::start`].
    pub fn add(&mut self, groups: &mut [Group]) -> Result<(), Error> {
        self.read(groups)?;
        for ((now, begin), sum) in self.now.iter().zip(&self.begin).zip(&mut self.sum) {
            sum.running_ns += now.running_ns.saturating_sub(begin.running_ns);
            for ((now, begin), sum) in now.counts.iter().zip(&begin.counts).zip(&mut sum.counts) {
                *sum += now.saturating_sub(*begin);
            }
        }
        std::mem::swap(&mut self.begin, &mut self.now);
        Ok(())
    }

    /// Seconds on the hardware and counts of group `i` between starts and stops.
    pub fn total(&self, i: usize) -> (f64, Vec<u64>) {
        let t = self.sum.get(i).cloned().unwrap_or_default();
        (t.running_ns as f64 / 1e9, t.counts)
    }

    /// From 0 again; of a region that runs, from here.
    ///
    /// # Errors
    /// As [`Direct::start`].
    pub fn reset(&mut self, groups: &mut [Group]) -> Result<(), Error> {
        for t in &mut self.sum {
            t.running_ns = 0;
            t.counts.fill(0);
        }
        self.start(groups)
    }
}
