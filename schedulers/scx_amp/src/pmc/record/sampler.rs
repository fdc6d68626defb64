//! Samples through perf: one event per CPU, each with a ring buffer of its own.

use super::maps::Mapping;
use amp_metrics::group::{explain, GroupError, Whom, SOFTWARE};
use amp_metrics::Event;
use anyhow::{Context, Result};
use perf_event::data::Record;
use perf_event::{Builder, SampleFlag, SampleSkid, Sampler};
use std::os::fd::AsRawFd;

/// Bytes of a ring buffer, a power of two: more than a tenth of a second's samples at 100,000 a second, and what the kernel
/// lets every user have (`kernel.perf_event_mlock_kb`, 516 of them with the page that goes before).
const BUFFER: usize = 512 << 10;

/// Whose samples.
#[derive(Clone, Copy, Debug)]
pub enum Of {
    /// A thread's, and those of all it starts.
    Task(i32),
    /// Of whoever runs.
    Everybody,
}

/// What a ring buffer holds.
pub enum Found {
    /// A sample.
    Sample {
        /// Address of the instruction.
        ip: u64,
        /// Process.
        pid: u32,
        /// Events that it stands for.
        period: u64,
        /// Whether it was in the kernel.
        kernel: bool,
    },
    /// Something was mapped.
    Mapped(u32, Mapping),
    /// Forked: process and parent.
    Forked(u32, u32),
    /// A new program in a process.
    Executed(u32),
    /// So many samples did not fit the buffer.
    Lost(u64),
    /// The kernel stopped sampling for a while.
    Throttled,
}

/// An event that is sampled on one CPU.
pub struct CpuSampler {
    sampler: Sampler,
    /// The CPU.
    pub cpu: u32,
}

/// Record bits of the header's `misc` that say where a sample was (`PERF_RECORD_MISC_CPUMODE_MASK`, `…_KERNEL`,
/// `…_COMM_EXEC`).
const CPUMODE: u16 = 7;
const KERNEL: u16 = 1;
const COMM_EXEC: u16 = 1 << 13;

impl CpuSampler {
    /// Opens `event` on `cpu` for `of`, stopped; `on_exec` starts it with a new program. The highest of the precisions that
    /// the PMU takes is used; it is returned, 0 (arbitrary skid) to 3 (none).
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn open(
        event: &Event,
        cpu: u32,
        of: Of,
        on_exec: bool,
        period: u64,
    ) -> Result<(CpuSampler, u8)> {
        let skids = [
            SampleSkid::RequireZero,
            SampleSkid::RequestZero,
            SampleSkid::Constant,
            SampleSkid::Arbitrary,
        ];
        let whom = match of {
            Of::Task(tid) => Whom::Task(tid),
            Of::Everybody => Whom::Cpu(cpu),
        };
        let mut refused = None;
        // the kernel takes any precision for its own events, which have none
        let worse = if event.attr.type_ == SOFTWARE { 3 } else { 0 };
        for (precision, skid) in (0..4u8).rev().zip(skids).skip(worse) {
            let mut b = Builder::new(event.attr);
            match of {
                Of::Task(tid) => b.observe_pid(tid).inherit(true),
                Of::Everybody => b.any_pid(),
            };
            b.one_cpu(cpu as usize)
                .sample_period(period)
                .sample(SampleFlag::IP | SampleFlag::TID | SampleFlag::TIME | SampleFlag::PERIOD)
                .sample_id_all(true)
                .precise_ip(skid)
                .exclude_user(event.attr.exclude_user)
                .exclude_kernel(event.attr.exclude_kernel)
                .exclude_hv(false)
                .enabled(false)
                .enable_on_exec(on_exec)
                .mmap(true)
                .mmap2(true)
                .comm(true)
                .comm_exec(true)
                .task(true);
            match b.build() {
                Ok(counter) => {
                    let sampler = counter.sampled(BUFFER).with_context(|| {
                        format!("CPU {cpu}: no ring buffer for event `{}` (sysctl kernel.perf_event_mlock_kb, or ulimit -l)", event.name)
                    })?;
                    return Ok((CpuSampler { sampler, cpu }, precision));
                }
                Err(e) => refused = Some(e),
            }
        }
        let source = refused.unwrap_or_else(|| std::io::Error::other("not tried"));
        let e: GroupError = explain(event, whom, 0, 1, source);
        Err(e.into())
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(&mut self) -> Result<()> {
        self.sampler
            .enable()
            .with_context(|| format!("CPU {}: cannot start sampling", self.cpu))
    }

    /// From the next sample on they are `period` events apart. Processes that were started meanwhile keep theirs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_period(&mut self, period: u64) -> Result<()> {
        // SAFETY: the descriptor is a live perf event's; the request reads one word, which is on our stack.
        let r = unsafe {
            libc::ioctl(
                self.sampler.as_raw_fd(),
                perf_event_open_sys::bindings::PERIOD as _,
                &raw const period,
            )
        };
        if r == 0 {
            return Ok(());
        }
        Err(std::io::Error::last_os_error())
            .with_context(|| format!("CPU {}: cannot change the period to {period}", self.cpu))
    }

    /// Takes out what there is, each with its time (nanoseconds, the same clock on all CPUs).
    pub fn drain(&mut self, mut found: impl FnMut(u64, Found)) {
        while let Some(record) = self.sampler.next_record() {
            let misc = record.misc();
            // what records but samples end with, `time` being the last of what we asked for that goes there
            let stamp = record
                .to_contiguous()
                .last_chunk()
                .map_or(0, |b| u64::from_ne_bytes(*b));
            let Ok(record) = record.parse_record() else {
                // not for us: this kernel knows more kinds of records than we do
                continue;
            };
            let time = match &record {
                Record::Sample(s) => s.time().unwrap_or(0),
                _ => stamp,
            };
            let mut found = |f| found(time, f);
            match record {
                Record::Sample(s) => {
                    if let (Some(ip), Some(pid), Some(period)) = (s.ip(), s.pid(), s.period()) {
                        let kernel = misc & CPUMODE == KERNEL;
                        found(Found::Sample {
                            ip,
                            pid,
                            period,
                            kernel,
                        });
                    }
                }
                Record::Mmap2(m) => {
                    let mapping = Mapping {
                        start: m.addr,
                        len: m.len,
                        offset: m.pgoff,
                        file: m.filename_os().into(),
                    };
                    found(Found::Mapped(m.pid, mapping));
                }
                Record::Fork(f) => found(Found::Forked(f.pid, f.ppid)),
                Record::Comm(c) if misc & COMM_EXEC != 0 => found(Found::Executed(c.pid)),
                Record::Lost(l) => found(Found::Lost(l.lost)),
                Record::LostSamples(l) => found(Found::Lost(l.lost)),
                Record::Throttle(_) => found(Found::Throttled),
                _ => {}
            }
        }
    }
}
