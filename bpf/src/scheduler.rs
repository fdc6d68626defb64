//! Loading, attaching, talking to and detaching the BPF scheduler.

mod counting;
mod groups;

use crate::arrivals::Arrivals;
use crate::config::{Config, Layout, MAX_CORE_TYPES};
use crate::counters::{self, CountTable, MAX_EVENTS, MAX_SETS};
use crate::ended::{Ended, Endings};
use crate::error::LoadError;
use crate::kernel;
use crate::shared::skel::{BpfSkel, BpfSkelBuilder};
use crate::shared::{Cpu, Shared, MAX_CPUS, NR_LATENCIES};
use crate::stats::{Latency, Stats};
use crate::threads::{Glance, Table, Thread};
use groups::Groups;
pub use groups::Limit;
use libbpf_rs::{Link, OpenObject, ProgramInput};
use scx_utils::{
    compat, scx_ops_attach, scx_ops_load, scx_ops_open, uei_exited, uei_read, ScxExitKind,
};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::ptr::{addr_of, NonNull};
use std::time::Duration;

/// Why BPF let go of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitReason {
    /// The kernel's summary, for example `runnable task stall`, with its details.
    pub text: String,
    /// Whether something went wrong, as opposed to somebody asking for it.
    pub error: bool,
    /// Whether loading again is the thing to do (a CPU came or went).
    pub restart: bool,
}

/// Memory for the object that the skeleton borrows; freed after the skeleton is gone.
struct Storage(NonNull<MaybeUninit<OpenObject>>);

impl Storage {
    fn new() -> Storage {
        Storage(NonNull::from(Box::leak(Box::new(MaybeUninit::uninit()))))
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: made by Box::leak in new(); whoever borrows it is declared before it in
        // `Scheduler` and dropped first.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: an owned heap allocation, touched by one owner only.
unsafe impl Send for Storage {}

/// What there is for counting.
struct Counters {
    table: CountTable,
    /// Core type by CPU.
    cpu_type: Vec<u8>,
    /// Number of events by set, per core type.
    sets: counters::Sets,
    /// Keys of the events that BPF has.
    keys: Vec<u32>,
    /// The last generation of each core type; it stays when counting ends.
    generation: [u64; MAX_CORE_TYPES],
    /// Attached while there is something to count.
    link: Option<Link>,
}

/// The loaded scheduler. Dropping it detaches: the kernel goes back to its own.
pub struct Scheduler {
    link: Option<Link>,
    table: Table,
    counting: Option<Counters>,
    endings: Endings,
    arrivals: Arrivals,
    skel: BpfSkel<'static>,
    _storage: Storage,
    root: PathBuf,
    nr_cpus: usize,
    /// How many CPUs each core type has.
    cpus_of: Vec<usize>,
    groups: Groups,
}

impl Scheduler {
    /// Loads the BPF programs; nothing is scheduled by them before [`attach`](Self::attach).
    ///
    /// # Errors
    /// When the configuration makes no sense, the process may not, or the kernel cannot: see
    /// [`LoadError`].
    pub fn load(config: &Config) -> Result<Scheduler, LoadError> {
        let root = PathBuf::from("/");
        let layout = config.layout()?;
        kernel::check(&root)?;
        let storage = Storage::new();
        let (loaded, log) = kernel::with_log(|| open_and_load(config, &layout, &storage));
        let skel =
            loaded.map_err(|(what, e)| kernel::diagnose(&root, what, format!("{e:#}"), &log))?;
        let table = Table::map(&skel.maps.slots, config.slots)
            .map_err(|e| kernel::diagnose(&root, "mapping the slot table", e.to_string(), &[]))?;
        let endings = Endings::of(&skel.maps.ended).map_err(|e| {
            kernel::diagnose(
                &root,
                "mapping the threads that have gone",
                e.to_string(),
                &[],
            )
        })?;
        let arrivals = Arrivals::of(&skel.maps.arrivals).map_err(|e| {
            kernel::diagnose(
                &root,
                "mapping the threads that have come",
                e.to_string(),
                &[],
            )
        })?;
        let nr_cpus = (*scx_utils::NR_CPU_IDS).min(MAX_CPUS);
        let types = config.core_types.len() as u32;
        let counting = if config.counters {
            let table = CountTable::map(&skel.maps.counts, config.slots, types)
                .map_err(|e| kernel::diagnose(&root, "mapping the counts", e.to_string(), &[]))?;
            Some(Counters {
                table,
                cpu_type: layout.cpu_type,
                sets: counters::Sets::default(),
                keys: Vec::new(),
                generation: [0; MAX_CORE_TYPES],
                link: None,
            })
        } else {
            None
        };
        Ok(Scheduler {
            cpus_of: config.core_types.iter().map(|t| t.cpus.len()).collect(),
            link: None,
            table,
            counting,
            endings,
            arrivals,
            skel,
            _storage: storage,
            root,
            nr_cpus,
            groups: Groups::default(),
        })
    }

    /// Puts the scheduler in charge. Doing so again changes nothing.
    ///
    /// # Errors
    /// When another scheduler came first or the kernel refuses.
    pub fn attach(&mut self) -> Result<(), LoadError> {
        if self.link.is_some() {
            return Ok(());
        }
        kernel::check_free(&self.root)?;
        let skel = &mut self.skel;
        let (link, log) = kernel::with_log(|| attach(skel));
        let link =
            link.map_err(|e| kernel::diagnose(&self.root, "attaching", format!("{e:#}"), &log))?;
        self.link = Some(link);
        Ok(())
    }

    /// Gives the machine back to the kernel's own scheduler, once it has been taken over. It cannot
    /// be attached again.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// Every tracked thread, copied one by one as the iterator advances.
    pub fn threads(&self) -> impl Iterator<Item = Thread> + '_ {
        (1..self.slots_used()).filter_map(|i| self.thread(i))
    }

    /// Threads that have run and have gone since the last call, oldest first. Those that are too many
    /// to be kept until the next one (some 2,000) are missing.
    pub fn ended(&mut self) -> impl Iterator<Item = Ended> + '_ {
        self.endings.take()
    }

    /// A file that is readable when threads have come and go on running, until [`arrived`](Self::arrived) is called.
    pub fn wakes(&self) -> BorrowedFd<'_> {
        self.arrivals.wakes()
    }

    /// Whether threads have come, and gone on running for some milliseconds, since the last call.
    pub fn arrived(&mut self) -> bool {
        self.arrivals.take()
    }

    /// Slots below this one have been used; the first is 1.
    pub fn slots(&self) -> u32 {
        self.slots_used()
    }

    /// A glance at the thread in `slot`, if there is one.
    pub fn glance(&self, slot: u32) -> Option<Glance> {
        self.table.glance(slot, |cpu| self.current(cpu))
    }

    /// The thread in `slot`, if there is one.
    pub fn thread(&self, slot: u32) -> Option<Thread> {
        self.table.read(slot, |cpu| self.current(cpu))
    }

    /// Places a thread on a core type, or nowhere in particular, as of the next
    /// [`commit`](Self::commit) at the latest. False if the thread has gone. A core type that its
    /// affinity excludes stands for the nearest one it admits.
    pub fn place(&self, slot: u32, generation: u32, core_type: Option<u8>) -> bool {
        let current = |cpu| self.current(cpu);
        self.table
            .place(slot, generation, core_type, monotonic_ns(), current)
    }

    /// Sets what the thread in `slot` weighs, 100 being nice 0 without a control group; 1 to 10,000. Until its nice value
    /// changes, or it goes to another group. False if it has gone.
    pub fn weigh(&self, slot: u32, generation: u32, weight: u32) -> bool {
        self.table.weigh(slot, generation, weight)
    }

    /// Makes the placements written so far take effect at once and tells BPF that user space is
    /// alive. One system call.
    ///
    /// # Errors
    /// When the kernel refuses to run the program.
    pub fn commit(&mut self) -> Result<(), libbpf_rs::Error> {
        self.skel
            .progs
            .amp_commit
            .test_run(ProgramInput::default())
            .map(drop)
    }

    /// Whether an idle CPU may run, from now on, what is placed and runs on slower core types. Not at
    /// first.
    pub fn lend(&mut self, fast: bool) {
        let Some(bss) = self.skel.maps.bss_data.as_mut() else {
            return;
        };
        // SAFETY: the field lies in the object's mapped .bss; BPF reads it at any time, and a plain
        // integer is whole at any time.
        unsafe { std::ptr::addr_of_mut!(bss.shared.lending).write_volatile(u32::from(fast)) }
    }

    /// Whether clocks follow load from now on, where the kernel's governor is schedutil. Not at first:
    /// the kernel then clocks all CPUs as if they were fully busy.
    pub fn follow_load(&mut self, follow: bool) {
        let Some(bss) = self.skel.maps.bss_data.as_mut() else {
            return;
        };
        // SAFETY: as in `lend`.
        unsafe { std::ptr::addr_of_mut!(bss.shared.follow).write_volatile(u32::from(follow)) }
    }

    /// The caller keeps the seat of a program that has been run again before for `period` after its end,
    /// from now on: the next run begins there however many commits come between. Two commits end a
    /// seat if this is never called.
    pub fn keep_seats(&mut self, period: Duration) {
        let Some(bss) = self.skel.maps.bss_data.as_mut() else {
            return;
        };
        // SAFETY: as in `lend`.
        unsafe { std::ptr::addr_of_mut!(bss.shared.interval_ns).write_volatile(ns(period)) }
    }

    /// What one CPU of core type `core_type` can do from now on, in the measure of [`CoreType::capacity`]: between 1 and
    /// 1024. A core type that there is not is ignored.
    pub fn set_capacity(&mut self, core_type: u8, capacity: u32) {
        let t = usize::from(core_type);
        let (Some(bss), Some(nr)) = (self.skel.maps.bss_data.as_mut(), self.cpus_of.get(t)) else {
            return;
        };
        let capacity = capacity.clamp(1, 1024);
        // SAFETY: as in `lend`; BPF may see the one before the other, and either does by itself.
        unsafe {
            std::ptr::addr_of_mut!(bss.shared.capacity[t]).write_volatile(capacity);
            std::ptr::addr_of_mut!(bss.shared.load[t]).write_volatile(queue_load(*nr, capacity));
        }
    }

    /// Why the scheduler is no longer in charge, once it is not.
    pub fn exited(&self) -> Option<ExitReason> {
        if !uei_exited!(&self.skel, uei) {
            return None;
        }
        let info = uei_read!(&self.skel, uei);
        let uei = &self.skel.maps.data_data.as_ref()?.uei;
        let text = |s: &[i8]| {
            let bytes: Vec<u8> = s.iter().map(|c| *c as u8).chain([0]).collect();
            CStr::from_bytes_until_nul(&bytes)
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        let (reason, message) = (text(&uei.reason), text(&uei.msg));
        let text = if message.is_empty() {
            reason
        } else {
            format!("{reason}: {message}")
        };
        Some(ExitReason {
            text,
            error: uei.kind >= ScxExitKind::Error as i32,
            restart: info.should_restart(),
        })
    }

    /// What has been counted since loading.
    pub fn stats(&self) -> Stats {
        let Some(shared) = self.shared() else {
            return Stats::default();
        };
        macro_rules! read {
            ($($field:tt)+) => {
                // SAFETY: `shared` points into the mapped .bss, valid while `skel` is; BPF writes
                // it concurrently, hence volatile reads of plain integers.
                unsafe { addr_of!((*shared).$($field)+).read_volatile() }
            };
        }
        let count: u64 = read!(nr_latencies);
        let kept = (0..NR_LATENCIES.min(count as usize))
            .map(|i| read!(latency[i]))
            .collect();
        let mut stats = Stats {
            swap_latency: Latency::of(count, kept),
            commits: read!(nr_commits),
            fallback: read!(fallback) != 0,
            fallbacks: read!(nr_fallbacks),
            rotations: read!(nr_rotations),
            rescued: read!(nr_rescued),
            seats: read!(nr_seats),
            untracked: self.untracked(),
            slots_used: self.slots_used().saturating_sub(1),
            slots_live: self.threads().count() as u32,
            unread: self.unread(),
            ..Stats::default()
        };
        for cpu in (0..self.nr_cpus).filter_map(|c| self.cpu(c)) {
            stats.queued += cpu.nr_queued;
            stats.taken_up += cpu.nr_taken_up;
            stats.taken_down += cpu.nr_taken_down;
            stats.lent += cpu.nr_lent;
            stats.kicks += cpu.nr_kicks;
        }
        stats
    }

    /// Threads that found the table of slots full since loading; cheaper than all of [`stats`].
    ///
    /// [`stats`]: Scheduler::stats
    pub fn untracked(&self) -> u64 {
        self.shared().map_or(0, |shared| {
            // SAFETY: as in stats().
            unsafe { addr_of!((*shared).nr_untracked).read_volatile() }
        })
    }

    fn slots_used(&self) -> u32 {
        let Some(shared) = self.shared() else {
            return 0;
        };
        // SAFETY: as in stats().
        unsafe { addr_of!((*shared).nr_used).read_volatile() }
    }

    fn shared(&self) -> Option<*const Shared> {
        Some(addr_of!(self.skel.maps.bss_data.as_ref()?.shared).cast())
    }

    /// Slot of the thread that `cpu` runs, 0 if none.
    fn current(&self, cpu: u32) -> u32 {
        let cpus = self.skel.maps.bss_data.as_ref().map(|b| &b.cpus);
        let record = cpus.and_then(|c| c.get(cpu as usize));
        // SAFETY: as in stats().
        record.map_or(0, |c| unsafe { addr_of!(c.slot).read_volatile() })
    }

    fn cpu(&self, cpu: usize) -> Option<Cpu> {
        let cpus = &self.skel.maps.bss_data.as_ref()?.cpus;
        let record: *const Cpu = cpus.get(cpu).map(|c| addr_of!(*c).cast())?;
        // SAFETY: as in stats(); shared.rs asserts that both types have one layout.
        Some(unsafe { record.read_volatile() })
    }
}

/// `CLOCK_MONOTONIC` in ns, the clock of bpf_ktime_get_ns().
fn monotonic_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Weight of one waiting thread in the choice of a queue, for a core type of so many CPUs.
fn queue_load(cpus: usize, capacity: u32) -> u32 {
    let all = (cpus as u64 * u64::from(capacity)).max(1);
    ((1 << 20) / all).max(1) as u32
}

/// Opens, configures and loads. The error comes with the name of the step.
fn open_and_load(
    config: &Config,
    layout: &Layout,
    storage: &Storage,
) -> Result<BpfSkel<'static>, (&'static str, anyhow::Error)> {
    // SAFETY: the memory outlives the skeleton (field order of `Scheduler`; on failure here the
    // skeleton is dropped before the caller's storage), and nothing else refers to it.
    let object: &'static mut MaybeUninit<OpenObject> = unsafe { &mut *storage.0.as_ptr() };
    let builder = BpfSkelBuilder::default();
    let mut skel = scx_ops_open!(builder, object, amp_ops, None)
        .map_err(|e| ("opening the BPF programs", e))?;
    let no_data = || {
        (
            "opening the BPF programs",
            anyhow::anyhow!("the object has no .rodata or no .bss"),
        )
    };
    let ro = skel.maps.rodata_data.as_mut().ok_or_else(no_data)?;
    ro.nr_cpus = (*scx_utils::NR_CPU_IDS).min(MAX_CPUS) as u32;
    ro.nr_types = config.core_types.len() as u32;
    ro.nr_queues = layout.nr_queues;
    ro.nr_slots = config.slots;
    ro.cpu_type.copy_from_slice(&layout.cpu_type);
    ro.cpu_queue.copy_from_slice(&layout.cpu_queue);
    ro.queue_type.copy_from_slice(&layout.queue_type);
    ro.type_queue.copy_from_slice(&layout.type_queue);
    ro.smt = layout.smt;
    ro.cpu_sibling.copy_from_slice(&layout.cpu_sibling);
    ro.slice_ns = ns(config.slice);
    ro.steal_ns = ns(config.steal_after);
    ro.starve_ns = ns(config.starve_after);
    ro.short_run_ns = ns(config.short_run);
    ro.heartbeat_ns = config.heartbeat_timeout.map_or(0, |d| ns(d).max(1));
    ro.rotate_ns = ns(config.rotate_after);
    ro.timer_ns = ns(config.timer);
    ro.may_count = config.counters;
    ro.partial = config.only_sched_ext;
    ro.enq_immed = scx_utils::scx_enums.SCX_ENQ_IMMED;
    let immed = ro.enq_immed != 0;
    let bss = skel.maps.bss_data.as_mut().ok_or_else(no_data)?;
    for (i, t) in config.core_types.iter().enumerate() {
        bss.shared.capacity[i] = t.capacity;
        bss.shared.load[i] = queue_load(t.cpus.len(), t.capacity);
    }
    // attached when there is something to count
    skel.progs.amp_switch.set_autoattach(false);
    skel.progs.amp_switch.set_autoload(config.counters);
    let (events, counts) = if config.counters {
        let types = config.core_types.len() as u32;
        (
            ro.nr_cpus * (MAX_SETS * MAX_EVENTS) as u32,
            config.slots * types,
        )
    } else {
        (1, 1)
    };
    let step = "sizing the tables of counters";
    skel.maps
        .events
        .set_max_entries(events)
        .and_then(|()| skel.maps.counts.set_max_entries(counts))
        .map_err(|e| (step, e.into()))?;
    let step = "sizing the slot table";
    skel.maps
        .slots
        .set_max_entries(config.slots)
        .map_err(|e| (step, e.into()))?;
    let partial = if config.only_sched_ext {
        *compat::SCX_OPS_SWITCH_PARTIAL
    } else {
        0
    };
    // Either way a thread leaves a CPU that a higher class takes; the callback is on its way out.
    let ops = skel.struct_ops.amp_ops_mut();
    if immed {
        ops.cpu_release = std::ptr::null_mut();
        skel.progs.amp_cpu_release.set_autoload(false);
    } else {
        // Nor does such a kernel keep a share of a CPU from real-time threads (6.18, 6.19), and
        // threads pinned to that CPU are not our stall: the longest wait that the kernel allows.
        ops.timeout_ms = 30_000;
    }
    skel.struct_ops.amp_ops_mut().flags = *compat::SCX_OPS_ENQ_LAST
        | *compat::SCX_OPS_ENQ_MIGRATION_DISABLED
        | *compat::SCX_OPS_ALLOW_QUEUED_WAKEUP
        | partial;
    scx_ops_load!(skel, amp_ops, uei).map_err(|e| ("loading the BPF programs", e))
}

fn attach(skel: &mut BpfSkel<'static>) -> anyhow::Result<Link> {
    scx_ops_attach!(skel, amp_ops)
}

impl Scheduler {
    /// Checks, without loading anything, whether a scheduler could be loaded on the system below
    /// `root` (`/` but in tests).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn check(root: &Path) -> Result<(), LoadError> {
        kernel::check(root)
    }
}
