//! Reading the page, in the guest or on the host.

use super::energy::{energy_uj, StaticPower};
use super::layout::*;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::ops::{Add, Sub};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{fence, Ordering};

/// Why there is no page to read.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// This is not a guest of the virtual board.
    #[error("no state page: no PCI device {PCI_VENDOR:04x}:{PCI_DEVICE:04x} under {sysfs} has one (is this a guest of the virtual board, and its PCI bus enabled?)")]
    NoBoard {
        /// The sysfs tree that was searched.
        sysfs: PathBuf,
    },
    /// A candidate cannot be read.
    #[error("{path}: {source} (reading the state page needs root)")]
    Open {
        /// The BAR, or the file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is no state page.
    #[error("{path}: not a state page of the virtual board")]
    NotAPage {
        /// The file.
        path: PathBuf,
    },
    /// The board's plugin is of another version than this program.
    #[error("{path}: state page version {found}, this program reads version {VERSION}: use board and program of one build")]
    Version {
        /// The BAR, or the file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// No such CPU.
    #[error("CPU {cpu}: the board has {nr_cpus}")]
    NoCpu {
        /// The CPU that was asked for.
        cpu: u32,
        /// Number of CPUs of the board.
        nr_cpus: u32,
    },
    /// The writer stopped in the middle of a record.
    #[error("the record of CPU {cpu} is never complete: the board's plugin has stopped")]
    Stuck {
        /// The CPU.
        cpu: u32,
    },
}

/// Makes the executing CPU publish its totals now (see [`PUBLISH_HINT`]). A no-op elsewhere than on
/// the board.
#[inline]
pub fn publish_hint() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: an unallocated hint is a no-op in the architecture; it is a barrier to the compiler
    // because it is not marked `nomem`.
    unsafe {
        std::arch::asm!("hint #{n}", n = const PUBLISH_HINT, options(nostack, preserves_flags));
    }
}

/// Keeps the executing CPU busy for a while (see [`PASS_HINT`]). A no-op elsewhere than on the board.
#[inline]
pub fn pass_hint() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as in `publish_hint`.
    unsafe {
        std::arch::asm!("hint #{n}", n = const PASS_HINT, options(nostack, preserves_flags));
    }
}

/// A total, split by exception level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// At EL0.
    pub user: u64,
    /// At EL1.
    pub kernel: u64,
}

impl Split {
    /// Sum of user and kernel mode.
    pub fn total(self) -> u64 {
        self.user.wrapping_add(self.kernel)
    }
}

impl Add for Split {
    type Output = Split;
    fn add(self, o: Split) -> Split {
        Split {
            user: self.user.wrapping_add(o.user),
            kernel: self.kernel.wrapping_add(o.kernel),
        }
    }
}

impl Sub for Split {
    type Output = Split;
    /// The difference of a later and an earlier total.
    fn sub(self, o: Split) -> Split {
        Split {
            user: self.user.wrapping_sub(o.user),
            kernel: self.kernel.wrapping_sub(o.kernel),
        }
    }
}

/// One CPU at its last publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuTotals {
    /// The CPU.
    pub cpu: u32,
    /// Index of its core type, 0 the fastest.
    pub core_type: u32,
    /// Whether it was running (else idle or off).
    pub running: bool,
    /// Its own virtual time, picoseconds.
    pub time_ps: u64,
    totals: [Split; NR_TOTALS],
    /// Energy up to the snapshot, microjoules; it includes static power.
    pub energy_uj: u64,
    /// What of it was drawn while the CPU was idle, microjoules.
    pub idle_uj: u64,
}

impl CpuTotals {
    /// A total since power-on.
    pub fn split(&self, total: Total) -> Split {
        self.totals[total as usize]
    }

    /// A total since power-on, user and kernel together.
    pub fn total(&self, total: Total) -> u64 {
        self.split(total).total()
    }
}

/// Every CPU of the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Global virtual time, picoseconds.
    pub global_ps: u64,
    /// Part of it that was skipped because every CPU was idle, picoseconds.
    pub skipped_ps: u64,
    /// Host time, nanoseconds since the epoch.
    pub host_ns: u64,
    /// The CPUs, by number.
    pub cpus: Vec<CpuTotals>,
}

impl Snapshot {
    /// Energy of all CPUs, microjoules.
    pub fn energy_uj(&self) -> u64 {
        self.cpus.iter().map(|c| c.energy_uj).sum()
    }

    /// Energy of all CPUs while they were running, microjoules.
    pub fn working_uj(&self) -> u64 {
        let working = |c: &CpuTotals| c.energy_uj.saturating_sub(c.idle_uj);
        self.cpus.iter().map(working).sum()
    }
}

/// How a page is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// For what the guest writes, see [`CacheAllocation`].
    Write,
}

/// The state page, mapped read-only.
#[derive(Debug)]
pub struct Page {
    layout: NonNull<Layout>,
}

// SAFETY: the mapping is used through atomics, and lives until drop.
unsafe impl Send for Page {}
// SAFETY: as above; no interior state but the shared memory itself.
unsafe impl Sync for Page {}

impl Page {
    /// Finds and maps the page of the board this guest runs on.
    ///
    /// # Errors
    /// [`PageError::NoBoard`] when this is no guest of the board; others when the page cannot be
    /// used.
    pub fn open() -> Result<Page, PageError> {
        Page::open_under(Path::new("/sys"))
    }

    /// As [`Page::open`], with another sysfs tree.
    ///
    /// # Errors
    /// As [`Page::open`].
    pub fn open_under(sysfs: &Path) -> Result<Page, PageError> {
        Page::find(sysfs, Access::Read)
    }

    pub(super) fn find(sysfs: &Path, access: Access) -> Result<Page, PageError> {
        let none = || PageError::NoBoard {
            sysfs: sysfs.into(),
        };
        let devices = std::fs::read_dir(sysfs.join("bus/pci/devices")).map_err(|_| none())?;
        let mut paths: Vec<PathBuf> = devices.flatten().map(|d| d.path()).collect();
        paths.sort();
        for device in paths {
            if !has_id(&device, "vendor", PCI_VENDOR) || !has_id(&device, "device", PCI_DEVICE) {
                continue;
            }
            // Write-combining maps as normal memory; a plain mapping is device memory, which works
            // too because every access is an aligned word.
            let wc = device.join("resource2_wc");
            let bar = if wc.exists() {
                wc
            } else {
                device.join("resource2")
            };
            match Page::map(&bar, access) {
                Err(PageError::NotAPage { .. }) => continue,
                other => return other,
            }
        }
        Err(none())
    }

    /// Maps the page in `path`: the file given to the plugin, on the host, or a BAR.
    ///
    /// # Errors
    /// When it cannot be read or is not a page of this version.
    pub fn open_file(path: &Path) -> Result<Page, PageError> {
        Page::map(path, Access::Read)
    }

    pub(super) fn map(path: &Path, access: Access) -> Result<Page, PageError> {
        let open = |source| PageError::Open {
            path: path.into(),
            source,
        };
        let not_a_page = || PageError::NotAPage { path: path.into() };
        let (write, protection) = match access {
            Access::Read => (false, libc::PROT_READ),
            Access::Write => (true, libc::PROT_READ | libc::PROT_WRITE),
        };
        let file = OpenOptions::new().read(true).write(write).open(path);
        let file = file.map_err(open)?;
        if file.metadata().map_err(open)?.len() < PAGE_BYTES as u64 {
            return Err(not_a_page());
        }
        // SAFETY: a fresh shared mapping of a file that is at least as long; nothing else is at the
        // address.
        let addr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if addr == libc::MAP_FAILED {
            let source = std::io::Error::last_os_error();
            // A BAR that cannot be mapped is another device's affair.
            return Err(match source.kind() {
                ErrorKind::PermissionDenied => open(source),
                _ => not_a_page(),
            });
        }
        let layout = NonNull::new(addr.cast()).ok_or_else(not_a_page)?;
        let page = Page { layout };
        let header = page.header();
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(not_a_page());
        }
        let found = header.version.load(Ordering::Relaxed);
        if found != VERSION {
            return Err(PageError::Version {
                path: path.into(),
                found,
            });
        }
        if page.nr_cpus() as usize > MAX_CPUS {
            return Err(not_a_page());
        }
        Ok(page)
    }

    pub(super) fn layout(&self) -> &Layout {
        // SAFETY: mapped for the life of `self`, page-aligned, at least `Layout` long; every field
        // is an atomic (the padding is not read), so any content is a valid value.
        unsafe { self.layout.as_ref() }
    }

    fn header(&self) -> &Header {
        &self.layout().header
    }

    /// Number of CPUs of the board.
    pub fn nr_cpus(&self) -> u32 {
        self.header().nr_cpus.load(Ordering::Relaxed)
    }

    /// Time dilation of the board.
    pub fn dilation(&self) -> u32 {
        self.header().dilation.load(Ordering::Relaxed)
    }

    /// Clock of a core type in MHz, undilated; `None` when there is no such type.
    pub fn mhz(&self, core_type: u32) -> Option<u32> {
        Some(self.core_type(core_type)?.mhz.load(Ordering::Relaxed))
    }

    /// Cycles that an addition costs on a core type, and one that takes the result of the one right
    /// before it, to a thousandth; `None` when there is no such type or the plugin does not say.
    pub fn addition(&self, core_type: u32) -> Option<(f64, f64)> {
        let t = self.core_type(core_type)?;
        let [alone, in_chain] = [&t.addition, &t.addition_in_chain]
            .map(|cost| f64::from(cost.load(Ordering::Relaxed)) / 1000.0);
        (alone > 0.0 && in_chain > 0.0).then_some((alone, in_chain))
    }

    fn core_type(&self, core_type: u32) -> Option<&TypeRecord> {
        let header = self.header();
        let nr = header.nr_types.load(Ordering::Relaxed);
        let t = header.types.get(core_type as usize);
        t.filter(|_| core_type < nr)
    }

    /// Global virtual time in picoseconds.
    pub fn global_ps(&self) -> u64 {
        self.header().global_ps.load(Ordering::Acquire)
    }

    /// One CPU, after making the executing CPU publish.
    ///
    /// # Errors
    /// When there is no such CPU, or the writer has stopped half-way.
    pub fn cpu(&self, cpu: u32) -> Result<CpuTotals, PageError> {
        publish_hint();
        self.read_cpu(cpu, self.global_ps())
    }

    /// Every CPU, after making the executing CPU publish.
    ///
    /// # Errors
    /// When the writer has stopped half-way.
    pub fn snapshot(&self) -> Result<Snapshot, PageError> {
        publish_hint();
        let header = self.header();
        let global_ps = self.global_ps();
        let cpus: Result<Vec<_>, _> = (0..self.nr_cpus())
            .map(|c| self.read_cpu(c, global_ps))
            .collect();
        Ok(Snapshot {
            global_ps,
            skipped_ps: header.skipped_ps.load(Ordering::Relaxed),
            host_ns: header.host_ns.load(Ordering::Relaxed),
            cpus: cpus?,
        })
    }

    fn read_cpu(&self, cpu: u32, global_ps: u64) -> Result<CpuTotals, PageError> {
        /// Tries before the writer counts as stopped: seconds, where a record takes less than a
        /// microsecond.
        const TRIES: u32 = 100_000_000;
        let nr_cpus = self.nr_cpus();
        let record = match self.layout().cpus.get(cpu as usize) {
            Some(r) if cpu < nr_cpus => r,
            _ => return Err(PageError::NoCpu { cpu, nr_cpus }),
        };
        for _ in 0..TRIES {
            let seq = record.seq.load(Ordering::Acquire);
            if seq & 1 == 0 {
                let mut out = self.copy(cpu, record);
                fence(Ordering::Acquire);
                if record.seq.load(Ordering::Relaxed) == seq {
                    (out.energy_uj, out.idle_uj) = self.energy(&out, global_ps);
                    return Ok(out);
                }
            }
            std::hint::spin_loop();
        }
        Err(PageError::Stuck { cpu })
    }

    fn copy(&self, cpu: u32, record: &CpuRecord) -> CpuTotals {
        let mut totals = [Split::default(); NR_TOTALS];
        for (to, from) in totals.iter_mut().zip(&record.totals) {
            to.user = from[0].load(Ordering::Relaxed);
            to.kernel = from[1].load(Ordering::Relaxed);
        }
        CpuTotals {
            cpu,
            core_type: record.core_type.load(Ordering::Relaxed),
            running: record.state.load(Ordering::Relaxed) == STATE_RUNNING,
            time_ps: record.time_ps.load(Ordering::Relaxed),
            totals,
            energy_uj: 0,
            idle_uj: 0,
        }
    }

    /// Energy of a CPU, and what of it was drawn while it was idle.
    fn energy(&self, cpu: &CpuTotals, global_ps: u64) -> (u64, u64) {
        let header = self.header();
        let Some(t) = header.types.get(cpu.core_type as usize) else {
            return (0, 0);
        };
        let power = StaticPower {
            active_uw: t.active_uw.load(Ordering::Relaxed),
            idle_uw: t.idle_uw.load(Ordering::Relaxed),
        };
        let idle = StaticPower {
            active_uw: 0,
            ..power
        };
        let (now, active) = (global_ps.max(cpu.time_ps), cpu.total(Total::ActivePs));
        let dynamic = cpu.total(Total::DynamicPj);
        let dilation = self.dilation();
        (
            energy_uj(power, dilation, now, active, dynamic),
            energy_uj(idle, dilation, now, active, 0),
        )
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped in `open_file` with this length, and no reference outlives `self`.
        unsafe { libc::munmap(self.layout.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// Whether the device's id file `name` (`0x1af4`) says `id`.
fn has_id(device: &Path, name: &str, id: u16) -> bool {
    let text = std::fs::read_to_string(device.join(name)).unwrap_or_default();
    let hex = text.trim().trim_start_matches("0x");
    u16::from_str_radix(hex, 16) == Ok(id)
}
