//! State of one vCPU: what other threads may see, and what only its own thread touches.

use crate::args::Args;
use crate::board::Board;
use crate::branch::Predictor;
use crate::cache::{Random, L2};
use crate::coherence::Peers;
use crate::counts::Counts;
use crate::ffi::ByteArray;
use crate::model::{Pace, TypeModel};
use crate::pmu::Pmu;
use crate::private::{Private, NO_LINE};
use crate::qemu::{CpuState, Irq};
use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// The vCPU waits for an interrupt, is off, or has not run yet.
pub const IDLE: u32 = 0;
/// It has been given work but its thread has not come back to life.
pub const WAKING: u32 = 1;
/// It runs guest code, or is about to.
pub const RUNNING: u32 = 2;

/// A system-register read whose result is yet to be put into a general register.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fix {
    /// Address of the instruction after the read; 0 for a free entry.
    pub pc: u64,
    pub value: u64,
    pub rt: u8,
}

/// A vCPU.
#[repr(C, align(128))]
pub struct Vcpu {
    /// Virtual time up to which it has run, picoseconds. Written by its own thread while it is
    /// running, and by whoever wakes it while it is not.
    pub time: AtomicU64,
    /// [`IDLE`], [`WAKING`] or [`RUNNING`].
    pub state: AtomicU32,
    /// Futex: 1 while its thread waits for slower vCPUs.
    pub waiting: AtomicU32,
    /// 1 when somebody kicked it since it last meant to wait.
    pub wanted: AtomicU32,
    /// 1 when that has been noticed since it last looked at the others, or an interrupt has come up that nobody kicks it for.
    pub called: AtomicU32,
    /// Whether it lets time pass: `time` is then where it wants to get to.
    pub pass: Pass,
    /// Its number.
    pub index: usize,
    /// Index of its core type.
    pub core_type: usize,
    pub line_shift: u32,
    pub private: Private,
    /// Lines that others' stores took out of its L1, by level of their address.
    pub taken: [AtomicU64; 2],
    /// Its `CPUState`; null until its thread has started.
    pub cpu: AtomicPtr<CpuState>,
    /// Host time (nanoseconds, monotonic) at which it became [`WAKING`].
    pub woken_ns: AtomicU64,
    own: UnsafeCell<Own>,
}

// SAFETY: all fields but `own` are atomics or constant; `own` is reached through `Vcpu::own` alone.
unsafe impl Sync for Vcpu {}

/// A vCPU's letting time pass, which whoever kicks it ends at once: its thread may come to life much later, and the others must not
/// get farther meanwhile.
#[derive(Debug, Default)]
pub struct Pass(AtomicU64);

impl Pass {
    const NONE: u64 = 0;
    /// Somebody is about to set the vCPU's time.
    const ENDS: u64 = 2;

    /// The vCPU is on its way from `from`. On its own thread.
    pub fn begin(&self, from: u64) {
        self.0.store(from << 1 | 1, SeqCst);
    }

    /// The vCPU gets no farther than `now` if it is on its way; `time` is its time. On any thread.
    pub fn interrupt(&self, time: &AtomicU64, now: u64) {
        let word = self.0.load(SeqCst);
        let passes = word & 1 == 1;
        if passes
            && self
                .0
                .compare_exchange(word, Self::ENDS, SeqCst, SeqCst)
                .is_ok()
        {
            let until = time.load(SeqCst);
            time.store(now.max(word >> 1).min(until), SeqCst);
            self.0.store(Self::NONE, SeqCst);
        }
    }

    /// It has got there, unless it was interrupted: its time is right afterwards. On its own thread.
    pub fn end(&self) {
        loop {
            match self.0.load(SeqCst) {
                Self::NONE => return,
                Self::ENDS => std::thread::yield_now(),
                word => {
                    let _ = self.0.compare_exchange(word, Self::NONE, SeqCst, SeqCst);
                }
            }
        }
    }
}

/// What only the vCPU's own thread touches.
pub struct Own {
    /// Time at which the vCPU must do more than run: the earlier one of the next two.
    pub limit: u64,
    /// Time at which it must look at the others.
    pub sync_at: u64,
    /// Time at which a counter may have overflowed.
    pub overflow_at: u64,
    /// Its overflow interrupt: the line, null until it is needed, and whether it is up.
    pub line: *mut Irq,
    pub line_up: bool,
    /// Index of the core type.
    pub type_index: usize,
    /// That of `model`, for the hot path.
    pub pace: Pace,
    /// End of the last block if it ended in a branch that needs predicting, with [`INDIRECT`] set
    /// for an indirect one; else 0.
    pub pending: u64,
    /// Totals at EL0 and EL1.
    pub counts: [Counts; 2],
    /// Tag bits that distinguish address spaces.
    pub salt: u64,
    pub l2: &'static L2,
    /// Ways of it that the vCPU may fill.
    pub fills: u64,
    pub predictor: Predictor,
    /// Virtual and physical line of the last misses, by the low bits of the virtual one. An old one
    /// may be wrong when pages move: that costs a line.
    pub missed: [(u64, u64); 64],
    /// Last lines of up to four streams of misses.
    pub streams: [u64; 4],
    pub next_stream: usize,
    pub random: Random,
    /// The core type at the clock of now.
    pub model: &'static TypeModel,
    /// Number of its operating point; at first none, which is the fastest.
    pub point: u32,
    pub pmu: Pmu,
    pub fixes: [Fix; 8],
    /// Buffer for register reads.
    pub bytes: *mut ByteArray,
    pub stats: Stats,
}

/// For the report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub syncs: u64,
    pub waits: u64,
    pub timeouts: u64,
    pub pmu_accesses: u64,
    pub overflows: u64,
    /// Times that it let time pass.
    pub passes: u64,
}

/// Flag of [`Own::pending`]: the branch was indirect.
pub const INDIRECT: u64 = 1;

impl Vcpu {
    /// A vCPU that has not run. `bytes` is a byte array of its own.
    pub fn new(
        index: usize,
        model: &'static TypeModel,
        l2: &'static L2,
        args: &Args,
        bytes: *mut ByteArray,
    ) -> Vcpu {
        Vcpu {
            time: AtomicU64::new(0),
            state: AtomicU32::new(IDLE),
            waiting: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
            called: AtomicU32::new(0),
            pass: Pass::default(),
            index,
            core_type: model.index,
            line_shift: model.line_shift,
            private: Private::new(model.l1_sets, model.l1_ways),
            taken: [AtomicU64::new(0), AtomicU64::new(0)],
            cpu: AtomicPtr::new(std::ptr::null_mut()),
            woken_ns: AtomicU64::new(0),
            own: UnsafeCell::new(Own {
                limit: 0,
                sync_at: 0,
                overflow_at: u64::MAX,
                line: std::ptr::null_mut(),
                line_up: false,
                type_index: model.index,
                pace: model.pace,
                pending: 0,
                counts: [Counts::default(), Counts::default()],
                salt: 0,
                l2,
                fills: l2.all_ways(),
                predictor: Predictor::new(model),
                missed: [(NO_LINE, 0); 64],
                streams: [u64::MAX - 1; 4],
                next_stream: 0,
                random: Random::new(args.seed, index as u64 + 1),
                model,
                point: u32::MAX,
                pmu: Pmu::without(&args.lacks),
                fixes: [Fix::default(); 8],
                bytes,
                stats: Stats::default(),
            }),
        }
    }

    /// The thread's own state.
    ///
    /// # Safety
    /// Only from a plugin callback on this vCPU's thread (or when no vCPU runs any more), and not
    /// while another reference from here is alive: callbacks of one vCPU do not nest, and nothing
    /// the model calls in QEMU comes back into one that uses this.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn own(&self) -> &mut Own {
        // SAFETY: promised by the caller.
        unsafe { &mut *self.own.get() }
    }
}

impl Own {
    /// Folds what was counted since, so that totals can be read.
    pub fn settle(&mut self) {
        self.counts.iter_mut().for_each(Counts::settle);
    }

    /// Sets the time at which the vCPU looks at the others.
    pub fn sync_at(&mut self, time: u64) {
        self.sync_at = time;
        self.limit = time.min(self.overflow_at);
    }
}

/// The other cores' caches, as the directory sees them.
impl Peers for Board {
    fn share(&self, cpu: usize, tag: u64) -> bool {
        self.vcpus.get(cpu).is_some_and(|v| v.private.share(tag))
    }

    fn take(&self, cpu: usize, tag: u64, level: usize) -> bool {
        self.vcpus.get(cpu).is_some_and(|v| {
            let had = v.private.take(tag);
            if let Some(n) = v.taken.get(level).filter(|_| had) {
                n.fetch_add(1, Relaxed);
            }
            had
        })
    }

    fn time(&self, cpu: usize) -> u64 {
        self.vcpus.get(cpu).map_or(0, |v| {
            let time = v.time.load(Relaxed);
            // that of one which sleeps stands still
            match v.state.load(Relaxed) {
                IDLE => time.max(self.clock.global()),
                _ => time,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_kicked_goes_back_to_then_and_no_farther_than_where_it_began() {
        let (pass, time) = (Pass::default(), AtomicU64::new(100));
        // nobody passes
        pass.interrupt(&time, 50);
        assert_eq!(time.load(SeqCst), 100);
        for (now, then) in [(150, 150), (50, 100), (1000, 600)] {
            time.store(600, SeqCst);
            pass.begin(100);
            pass.interrupt(&time, now);
            // only once
            pass.interrupt(&time, 120);
            pass.end();
            assert_eq!(time.load(SeqCst), then);
        }
        time.store(600, SeqCst);
        pass.begin(100);
        pass.end();
        pass.interrupt(&time, 120);
        assert_eq!(time.load(SeqCst), 600);
    }
}
