//! Memory bandwidth: a rate of lines that all cores share.
//!
//! Time is cut into slices as long as the quantum, so that two slices back no vCPU adds anything
//! more. What went through memory in such a slice sets what a line waits from now on: each slice
//! above [`TARGET`] of the rate makes the wait longer by a part of a line's service time in
//! proportion to the excess, each one below makes it shorter. Under load that settles where the
//! lines of all cores together fit the rate, and every core waits the same per line, as in a queue;
//! with use below the target nobody waits. It depends on virtual time only, not on which vCPU the
//! host runs first.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Slices remembered, a power of two.
const SLICES: u64 = 64;
/// Part of the rate that can be reached: refresh, turnarounds of the bus.
const TARGET: f64 = 0.95;
/// Part of the excess that is made up for per slice. With two slices between cause and effect the
/// loop is stable below 0.6 for a single core that could take the whole rate, and further from
/// trouble the more cores share it.
const GAIN: f64 = 0.4;
/// Longest wait in service times: more cores than the board may have, each waiting for all others.
const MOST: f64 = 128.0;

/// The memory.
#[derive(Debug)]
pub struct Memory {
    /// Per slice: its number (upper half) and the lines in it.
    slices: [AtomicU64; SLICES as usize],
    /// The slice that somebody has reached.
    current: AtomicU64,
    /// What a line waits now, picoseconds.
    wait: AtomicU64,
    slice_ps: u64,
    /// Time that memory takes for a line, picoseconds.
    service: f64,
    /// Lines that fit a slice.
    capacity: f64,
}

impl Memory {
    /// Memory of `gb_per_s` (10⁹ bytes per modelled second) for lines of `line` bytes, slowed down
    /// `dilation` times.
    pub fn new(gb_per_s: f64, line: u64, dilation: u64, quantum_ps: u64) -> Memory {
        let service = line as f64 * 1000.0 * dilation as f64 / gb_per_s;
        let slice_ps = quantum_ps.max(1);
        Memory {
            slices: [const { AtomicU64::new(0) }; SLICES as usize],
            current: AtomicU64::new(0),
            wait: AtomicU64::new(0),
            slice_ps,
            service,
            capacity: slice_ps as f64 / service,
        }
    }

    /// `lines` go to or come from memory at `now`; what the core waits for it, picoseconds.
    #[inline]
    pub fn use_by(&self, now: u64, lines: u64) -> u64 {
        let slice = now / self.slice_ps;
        if slice > self.current.load(Relaxed) {
            self.next(slice);
        }
        let number = slice & u64::from(u32::MAX);
        if let Some(s) = self.slices.get((slice & (SLICES - 1)) as usize) {
            if s.load(Relaxed) >> 32 == number {
                s.fetch_add(lines, Relaxed);
            } else {
                s.store(number << 32 | lines, Relaxed);
            }
        }
        self.wait.load(Relaxed)
    }

    /// A new slice begins: what do those that are complete say?
    #[cold]
    fn next(&self, slice: u64) {
        let before = self.current.fetch_max(slice, Relaxed);
        if before >= slice {
            return;
        }
        let mut wait = self.wait.load(Relaxed) as f64;
        if slice - before >= SLICES / 2 {
            wait = 0.0; // nobody came for long
        } else {
            for n in before.saturating_sub(1)..slice - 1 {
                let used = self.lines(n) / self.capacity;
                wait =
                    (wait + GAIN * self.service * (used - TARGET)).clamp(0.0, MOST * self.service);
            }
        }
        self.wait.store(wait as u64, Relaxed);
    }

    fn lines(&self, slice: u64) -> f64 {
        let s = self.slices.get((slice & (SLICES - 1)) as usize);
        let value = s.map_or(0, |s| s.load(Relaxed));
        if value >> 32 == slice & u64::from(u32::MAX) {
            (value & u64::from(u32::MAX)) as f64
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUANTUM: u64 = 100_000_000;

    /// Cores that fetch a line every `own` nanoseconds (modelled) when nobody else does; what each
    /// gets, GB/s.
    fn run(gb_per_s: f64, own: &[f64], order: impl Fn(u64, usize) -> usize) -> Vec<f64> {
        let m = Memory::new(gb_per_s, 64, 8, QUANTUM);
        let mut time = vec![0u64; own.len()];
        let mut lines = vec![0u64; own.len()];
        let slices = 400;
        for slice in 1..=slices {
            // each runs its quantum in one go, in whatever order
            for i in 0..own.len() {
                let i = order(slice, i);
                while time[i] < slice * QUANTUM {
                    let wait = m.use_by(time[i], 1);
                    time[i] += (own[i] * 8000.0) as u64 + wait;
                    lines[i] += u64::from(slice > slices / 2);
                }
            }
        }
        let seconds = (slices / 2 * QUANTUM) as f64 / 8e12;
        lines
            .iter()
            .map(|n| *n as f64 * 64.0 / seconds / 1e9)
            .collect()
    }

    #[test]
    fn below_the_rate_nobody_waits() {
        let got = run(8.0, &[16.5, 29.0], |_, i| i);
        assert!((got[0] - 64.0 / 16.5).abs() < 0.01, "{got:?}");
        assert!((got[1] - 64.0 / 29.0).abs() < 0.01, "{got:?}");
    }

    #[test]
    fn above_it_all_together_get_the_rate() {
        for n in 2..=6 {
            let own = vec![12.0; n + 1];
            let got = run(8.0, &own, |_, i| i);
            let sum: f64 = got.iter().sum();
            assert!((7.2..=8.0).contains(&sum), "{n}: {sum} {got:?}");
            // fair among equals
            assert!(
                got.iter().all(|g| (g / got[0] - 1.0).abs() < 0.02),
                "{got:?}"
            );
        }
    }

    #[test]
    fn whoever_runs_first_gets_no_more() {
        let own = [12.0, 12.0, 12.0, 30.0];
        let a = run(8.0, &own, |_, i| i);
        let b = run(8.0, &own, |_, i| 3 - i);
        let c = run(8.0, &own, |s, i| (i + s as usize) % 4);
        for (a, o) in a.iter().chain(&a).zip(b.iter().chain(&c)) {
            assert!((a / o - 1.0).abs() < 0.03, "{a} {o}");
        }
    }

    #[test]
    fn a_pause_is_forgotten() {
        let m = Memory::new(8.0, 64, 8, QUANTUM);
        for slice in 0..20 {
            m.use_by(slice * QUANTUM, 10_000);
        }
        assert!(m.use_by(20 * QUANTUM, 1) > 0);
        assert_eq!(m.use_by(100 * QUANTUM, 1), 0);
    }
}
