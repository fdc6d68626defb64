//! Samples through perf: one event per CPU, each with a ring buffer of its own.

use super::maps::Mapping;
use amp_metrics::group::{dummy, explain, GroupError, Whom};
use amp_metrics::Event;
use anyhow::{Context, Result};
use perf_event::data::Record;
use perf_event::{Builder, SampleFlag, SampleSkid, Sampler};
use std::os::fd::AsRawFd;

/// Bytes of the ring buffers for samples and for what is mapped, powers of two: a tenth of a second at 60,000 samples a
/// second. With a page that goes before each they are what the kernel lets every user have (516 KiB per CPU,
/// `kernel.perf_event_mlock_kb`).
const SAMPLES: usize = 256 << 10;
const MAPPINGS: usize = 128 << 10;

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

fn builder(event: &Event, cpu: u32, of: Of, on_exec: bool) -> Builder<'static> {
    let mut b = Builder::new(event.attr);
    match of {
        Of::Task(tid) => b.observe_pid(tid).inherit(true),
        Of::Everybody => b.any_pid(),
    };
    b.one_cpu(cpu as usize)
        .sample(SampleFlag::IP | SampleFlag::TID | SampleFlag::TIME | SampleFlag::PERIOD)
        .sample_id_all(true)
        .exclude_user(event.attr.exclude_user)
        .exclude_kernel(event.attr.exclude_kernel)
        .exclude_hv(false)
        .enabled(false)
        .enable_on_exec(on_exec);
    b
}

fn build(b: &Builder<'_>, event: &Event, cpu: u32, of: Of, bytes: usize) -> Result<CpuSampler> {
    let whom = match of {
        Of::Task(tid) => Whom::Task(tid),
        Of::Everybody => Whom::Cpu(cpu),
    };
    let counter = b
        .build()
        .map_err(|e: std::io::Error| -> GroupError { explain(event, whom, 0, 1, e) })?;
    let sampler = counter.sampled(bytes).with_context(|| {
        format!(
            "CPU {cpu}: no ring buffer for event `{}` (sysctl kernel.perf_event_mlock_kb, or ulimit -l)",
            event.name
        )
    })?;
    Ok(CpuSampler { sampler, cpu })
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

/// How precise a PMU says it can be: 0 (samples come late by any number of instructions) to 3 (not at all). One that says
/// nothing is not: drivers accept whatever is asked for.
pub fn precision(pmu: &str) -> u8 {
    let file = format!("/sys/bus/event_source/devices/{pmu}/caps/max_precise");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.trim().parse().map_or(0, |p: u8| p.min(3))
}

impl CpuSampler {
    /// Opens `event` on `cpu` for `of`, stopped; `on_exec` starts it with a new program.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn open(event: &Event, cpu: u32, of: Of, on_exec: bool, period: u64) -> Result<CpuSampler> {
        let mut b = builder(event, cpu, of, on_exec);
        b.sample_period(period)
            .precise_ip(match precision(&event.pmu) {
                0 => SampleSkid::Arbitrary,
                1 => SampleSkid::Constant,
                2 => SampleSkid::RequestZero,
                _ => SampleSkid::RequireZero,
            });
        build(&b, event, cpu, of, SAMPLES)
    }

    /// Opens what tells of mappings and new processes on `cpu`: a program may map on a CPU whose PMU is not
    /// sampled what it runs on another.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn follow(cpu: u32, of: Of, on_exec: bool) -> Result<CpuSampler> {
        let event = dummy(!matches!(of, Of::Everybody));
        let mut b = builder(&event, cpu, of, on_exec);
        b.mmap(true)
            .mmap2(true)
            .comm(true)
            .comm_exec(true)
            .task(true);
        build(&b, &event, cpu, of, MAPPINGS)
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

    /// From the next sample on they are `period` events apart. Threads keep the period with which they were started.
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
