//! Samples through perf: an event per CPU and thread, and a ring buffer per CPU.
//!
//! The hardware of SPE writes its samples into a second buffer per CPU. Its event stands still
//! whenever that is full, so another event tells what is mapped and started.

use super::aux::{self, Aux};
use super::branches::{self, Branch};
use super::maps::Mapping;
use super::source::Source;
use super::spe::{self, Operation};
use amp_metrics::group::{dummy, explain, GroupError, Whom};
use amp_metrics::Event;
use anyhow::{Context, Result};
use perf_event::data::{AuxFlags, Record};
use perf_event::{Builder, Counter, SampleFlag, SampleSkid, Sampler};
use std::os::fd::AsRawFd;

/// Bytes of a ring buffer, a power of two: a tenth of a second at 100,000 samples a second. With
/// the page that goes before it this is what the kernel lets every user have per CPU (516 KiB,
/// `kernel.perf_event_mlock_kb`).
const BUFFER: usize = 512 << 10;
/// Periods that are set anew at a time: each needs a system call, and for a thread that runs an
/// interrupt of its CPU.
const PERIODS: usize = 64;

/// Target of a sampler.
#[derive(Clone, Copy, Debug)]
pub enum SampledTasks {
    /// A thread's, and those of all it starts.
    Task(i32),
    /// Samples of every thread on the CPU.
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
        /// Branches of user mode that were taken before it, latest first.
        branches: Vec<Branch>,
    },
    /// An operation that SPE has sampled.
    Operation {
        /// Process that ran when this part of the buffer was closed.
        pid: u32,
        /// The operation.
        operation: Operation,
    },
    /// So many records of SPE were none.
    Odd(u64),
    /// The second buffer was full: SPE stood still until it was read.
    Full,
    /// SPE had to sample an operation while it was still following another one.
    Collided,
    /// Something was mapped.
    Mapped(u32, Mapping),
    /// Forked: process and parent.
    Forked(u32, u32),
    /// A new program in a process.
    Executed(u32),
    /// The first thread of a process has ended.
    Ended(u32),
    /// So many samples did not fit the buffer.
    Lost(u64),
    /// The kernel stopped sampling for a while.
    Throttled,
}

fn builder(
    event: &Event,
    cpu: u32,
    of: SampledTasks,
    on_exec: bool,
    source: Source,
) -> Builder<'static> {
    let mut b = Builder::new(event.attr);
    if source == Source::Ibs {
        // refuses what leaves out guests
        b.exclude_guest(false);
    }
    match of {
        SampledTasks::Task(tid) => b.observe_pid(tid).inherit(true),
        SampledTasks::Everybody => b.any_pid(),
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

fn build(
    b: &Builder<'_>,
    event: &Event,
    cpu: u32,
    of: SampledTasks,
) -> Result<Counter, GroupError> {
    let whom = match of {
        SampledTasks::Task(tid) => Whom::Task(tid),
        SampledTasks::Everybody => Whom::Cpu(cpu),
    };
    b.build()
        .map_err(|e: std::io::Error| explain(event, whom, 0, 1, e))
}

/// What is sampled on one CPU, of however many threads: all of it goes into one ring buffer.
pub struct CpuSampler {
    /// The event that owns the buffer.
    sampler: Sampler,
    others: Vec<Counter>,
    /// Events that tell what is mapped, where those that sample do not.
    tellers: Vec<Counter>,
    /// Where SPE writes.
    aux: Option<Aux>,
    /// The CPU.
    pub cpu: u32,
    /// Which event has its period set next.
    next: usize,
}

/// Record bits of the header's `misc` that say where a sample was (`PERF_RECORD_MISC_CPUMODE_MASK`,
/// `…_KERNEL`, `…_COMM_EXEC`).
const CPUMODE: u16 = 7;
const KERNEL: u16 = 1;
const COMM_EXEC: u16 = 1 << 13;

/// How precise a PMU says it can be: 0 (samples come late by any number of instructions) to 3 (not
/// at all). One that says nothing is not: drivers accept whatever is asked for.
pub fn precision(pmu: &str) -> u8 {
    let file = format!("/sys/bus/event_source/devices/{pmu}/caps/max_precise");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.trim().parse().map_or(0, |p: u8| p.min(3))
}

/// How precise samples of `event` are asked to be: as it is written (`cycles:pp`), else as precise as its PMU can.
/// Other sources than counters are asked for what is written, which [`super::source::plan`] has seen.
///
/// # Errors
/// [`amp_host::BadInput`] when more is written than the PMU says it can.
pub fn asked(event: &Event, source: Source) -> anyhow::Result<u8> {
    match source {
        Source::Counter => asked_of(event, precision(&event.pmu)),
        _ => Ok(event.attr.precise),
    }
}

fn asked_of(event: &Event, most: u8) -> anyhow::Result<u8> {
    match event.attr.precise {
        0 => Ok(most),
        asked if asked <= most => Ok(asked),
        _ => Err(amp_host::bad_input(format!(
            "event `{}`: PMU `{}` {}; leave the `p` out",
            event.name,
            event.pmu,
            match most {
                0 => "states no precise samples (caps/max_precise in sysfs)".to_owned(),
                n => format!(
                    "can do `:{}` at most (caps/max_precise in sysfs), which it is asked for anyhow",
                    "p".repeat(usize::from(n))
                ),
            }
        ))),
    }
}

/// What is opened on a CPU.
#[derive(Clone, Copy)]
pub enum What<'a> {
    /// An event every so often, and what is mapped and started.
    Samples {
        /// The event.
        event: &'a Event,
        /// Events between two samples.
        period: u64,
        /// What [`asked`] says.
        precision: u8,
        /// What takes them.
        source: Source,
        /// Whether last-branch records are to come with them.
        branches: bool,
    },
    /// Only what is mapped and started: a program may map on a CPU whose PMU is not sampled what it
    /// runs on another.
    Mappings,
}

impl What<'_> {
    fn source(self) -> Source {
        match self {
            What::Samples { source, .. } => source,
            What::Mappings => Source::Counter,
        }
    }
}

impl CpuSampler {
    /// Opens `what` on `cpu` for each of `of`, stopped; `on_exec` starts it with a new program.
    /// Threads that have ended meanwhile are left out, unless they are all.
    ///
    /// # Errors
    /// [`GroupError`]; others when there is no memory for the buffer.
    pub fn open(
        cpu: u32,
        of: &[SampledTasks],
        on_exec: bool,
        what: What<'_>,
    ) -> Result<CpuSampler> {
        let mut out: Option<CpuSampler> = None;
        let mut gone = None;
        for &of in of {
            let counter = match one(cpu, of, on_exec, what) {
                Err(e @ GroupError::Gone { .. }) => {
                    gone = Some(e);
                    continue;
                }
                c => c?,
            };
            let first = match &mut out {
                None => out.insert(CpuSampler::owning(counter, cpu, what.source())?),
                Some(first) => {
                    first.redirect(&counter)?;
                    first.others.push(counter);
                    first
                }
            };
            if first.aux.is_some() {
                match one(cpu, of, on_exec, What::Mappings) {
                    // since the line above
                    Err(GroupError::Gone { .. }) => {}
                    teller => {
                        let teller = teller?;
                        first.redirect(&teller)?;
                        first.tellers.push(teller);
                    }
                }
            }
        }
        match (out, gone) {
            (Some(s), _) => Ok(s),
            (None, Some(e)) => Err(e.into()),
            (None, None) => anyhow::bail!("CPU {cpu}: nothing to sample"),
        }
    }

    fn owning(counter: Counter, cpu: u32, source: Source) -> Result<CpuSampler> {
        let spe = source == Source::Spe;
        let size = if spe { aux::RING } else { BUFFER };
        let no_memory = |what: &str, size: usize| {
            format!("CPU {cpu}: no memory for {what} of {} KiB (sysctl kernel.perf_event_mlock_kb, or ulimit -l)", size >> 10)
        };
        let sampler = counter
            .sampled(size)
            .with_context(|| no_memory("a ring buffer", size))?;
        let aux = match spe {
            true => {
                Some(Aux::of(&*sampler).with_context(|| no_memory("a buffer for SPE", aux::SIZE))?)
            }
            false => None,
        };
        Ok(CpuSampler {
            sampler,
            others: Vec::new(),
            tellers: Vec::new(),
            aux,
            cpu,
            next: 0,
        })
    }

    /// Has `counter`, an event on the same CPU, write into the buffer.
    fn redirect(&self, counter: &Counter) -> Result<()> {
        // SAFETY: both descriptors are live perf events'; the request takes the second by value and
        // touches no memory of ours. Records of both have the same layout, since `builder` asks for
        // the same fields for all events.
        let r = unsafe {
            libc::ioctl(
                counter.as_raw_fd(),
                perf_event_open_sys::bindings::SET_OUTPUT as _,
                self.sampler.as_raw_fd(),
            )
        };
        if r != 0 {
            return Err(std::io::Error::last_os_error())
                .with_context(|| format!("CPU {}: cannot share a ring buffer", self.cpu));
        }
        Ok(())
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(&mut self) -> Result<()> {
        let owner = self.sampler.enable();
        let others = self.others.iter_mut().chain(&mut self.tellers);
        std::iter::once(owner)
            .chain(others.map(Counter::enable))
            .collect::<std::io::Result<()>>()
            .with_context(|| format!("CPU {}: cannot start sampling", self.cpu))
    }

    /// From the next sample on they are as far apart as `period` says, which is asked for each
    /// thread; with many threads for some of them, and for others the next time. Threads that those
    /// start keep the period with which they were started.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_periods(&mut self, mut period: impl FnMut() -> u64) -> Result<()> {
        let all = self.others.len() + 1;
        for _ in 0..all.min(PERIODS) {
            let fd = match self.next.checked_sub(1).and_then(|i| self.others.get(i)) {
                None => self.sampler.as_raw_fd(),
                Some(c) => c.as_raw_fd(),
            };
            self.next = (self.next + 1) % all;
            let period = period();
            // SAFETY: the descriptor is a live perf event's; the request reads one word, which is
            // on our stack.
            let r = unsafe {
                libc::ioctl(
                    fd,
                    perf_event_open_sys::bindings::PERIOD as _,
                    &raw const period,
                )
            };
            if r != 0 {
                return Err(std::io::Error::last_os_error()).with_context(|| {
                    format!("CPU {}: cannot change the period to {period}", self.cpu)
                });
            }
        }
        Ok(())
    }

    /// Takes out what there is, each with its time (nanoseconds, the same clock on all CPUs). What SPE
    /// has sampled has the time at which its part of the buffer was closed.
    ///
    /// # Errors
    /// When SPE cannot be started again.
    pub fn drain(&mut self, mut found: impl FnMut(u64, Found)) -> Result<()> {
        let mut taken = false;
        while let Some(record) = self.sampler.next_record() {
            let misc = record.misc();
            // what records but samples end with, `time` being the last of what we asked for that
            // goes there
            let bytes = record.to_contiguous();
            let stamp = bytes.last_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
            // and before it process and thread
            let pid = bytes.last_chunk::<16>().and_then(|b| b.first_chunk());
            let pid = pid.map_or(0, |b| u32::from_ne_bytes(*b));
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
                            branches: branches::of_sample(&s),
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
                Record::Exit(e) if e.pid == e.tid => found(Found::Ended(e.pid)),
                Record::Comm(c) if misc & COMM_EXEC != 0 => found(Found::Executed(c.pid)),
                Record::Lost(l) => found(Found::Lost(l.lost)),
                Record::LostSamples(l) => found(Found::Lost(l.lost)),
                Record::Throttle(_) => found(Found::Throttled),
                Record::Aux(a) => {
                    if let Some(aux) = &mut self.aux {
                        taken = true;
                        let bytes = aux.take(a.aux_offset, a.aux_size);
                        let decoded = spe::decode(&bytes, a.aux_offset, |operation| {
                            found(Found::Operation { pid, operation });
                        });
                        let flags = [
                            (decoded.odd > 0, Found::Odd(decoded.odd)),
                            (a.flags.contains(AuxFlags::TRUNCATED), Found::Full),
                            (a.flags.contains(AuxFlags::COLLISION), Found::Collided),
                        ];
                        flags.into_iter().filter(|f| f.0).for_each(|f| found(f.1));
                    }
                }
                _ => {}
            }
        }
        // the kernel stops an event whose second buffer is full, and not every time says so
        if taken {
            self.start()?;
        }
        Ok(())
    }
}

fn one(cpu: u32, of: SampledTasks, on_exec: bool, what: What<'_>) -> Result<Counter, GroupError> {
    let dummy = dummy(!matches!(of, SampledTasks::Everybody));
    let event = match what {
        What::Samples { event, .. } => event,
        What::Mappings => &dummy,
    };
    let source = what.source();
    let mut b = builder(event, cpu, of, on_exec, source);
    let tells = source != Source::Spe;
    b.mmap(tells)
        .mmap2(tells)
        .comm(tells)
        .comm_exec(tells)
        .task(tells);
    if let What::Samples {
        period,
        precision,
        branches,
        ..
    } = what
    {
        if branches {
            branches::ask(&mut b);
        }
        b.sample_period(period).precise_ip(match precision {
            0 => SampleSkid::Arbitrary,
            1 => SampleSkid::Constant,
            2 => SampleSkid::RequestZero,
            _ => SampleSkid::RequireZero,
        });
    }
    build(&b, event, cpu, of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_as_precise_as_is_written_and_no_pmu_is_asked_for_more_than_it_has() {
        let clock = |text: &str| amp_metrics::group::software(&text.parse().unwrap()).unwrap();
        let of = |text: &str, most| asked_of(&clock(text), most);
        assert_eq!(of("cpu-clock", 2).unwrap(), 2, "the most");
        assert_eq!(of("cpu-clock:p", 2).unwrap(), 1);
        assert_eq!(of("cpu-clock:upp", 2).unwrap(), 2);
        for (text, most, says) in [
            ("cpu-clock:ppp", 2, "`:pp`"),
            ("cpu-clock:p", 0, "no precise samples"),
        ] {
            let e = of(text, most).unwrap_err();
            assert!(e.is::<amp_host::BadInput>());
            assert!(e.to_string().contains(says), "{e}");
        }
    }
}
