//! What the model needs of QEMU beyond its plugin interface: symbols that the program exports, and
//! two slots of the accelerator's operation table.
//!
//! QEMU 10.0's own plugin time control has no effect under multi-threaded TCG, hence the slots. All
//! of this is tied to the version of QEMU, which is checked first: a QEMU that is not known is
//! refused with a message, never tried.

use crate::ffi::{functions, lookup, ByteArray, MissingSymbol};
use std::ffi::{c_char, c_int, c_void, CStr};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The QEMU release line whose layout of `AccelOpsClass` is known here.
const SUPPORTED: (i64, i64) = (10, 0);
/// `AccelOpsClass::kick_vcpu_thread` in words from the start of the class (after the 12 words of
/// `ObjectClass`).
const SLOT_KICK: usize = 16;
/// `AccelOpsClass::get_virtual_clock`.
const SLOT_VIRTUAL_CLOCK: usize = 24;
/// `QEMU_CLOCK_VIRTUAL`.
pub const CLOCK_VIRTUAL: c_int = 1;
/// `QEMU_TIMER_ATTR_ALL`.
pub const TIMER_ATTR_ALL: c_int = -1;

/// Opaque `CPUState`.
pub type CpuState = c_void;

/// Opaque `struct IRQState`, an interrupt line.
pub type Irq = c_void;

functions! {
    /// Functions of QEMU that are not part of the plugin interface.
    pub struct Internals {
        class_by_name = c"object_class_by_name" fn(*const c_char) -> *mut c_void;
        virtual_clock = c"cpus_get_virtual_clock" fn() -> i64;
        deadline_ns = c"qemu_clock_deadline_ns_all" fn(c_int, c_int) -> i64;
        run_timers = c"qemu_clock_run_timers" fn(c_int) -> bool;
        notify = c"qemu_clock_notify" fn(c_int);
        bql_lock_impl = c"bql_lock_impl" fn(*const c_char, c_int);
        bql_unlock = c"bql_unlock" fn();
        all_idle = c"all_cpu_threads_idle" fn() -> bool;
        is_idle = c"cpu_thread_is_idle" fn(*mut CpuState) -> bool;
        get_cpu = c"qemu_get_cpu" fn(c_int) -> *mut CpuState;
        kick = c"qemu_cpu_kick" fn(*mut CpuState);
        flush = c"tb_flush" fn(*mut CpuState);
        read_register = c"aarch64_cpu_gdb_read_register" fn(*mut CpuState, *mut ByteArray, c_int) -> c_int;
        object_of_type = c"object_resolve_path_type" fn(*const c_char, *const c_char, *mut bool) -> *mut c_void;
        gpio_in = c"qdev_get_gpio_in" fn(*mut c_void, c_int) -> *mut Irq;
        set_irq = c"qemu_set_irq" fn(*mut Irq, c_int);
        map_memory = c"cpu_physical_memory_map" fn(u64, *mut u64, bool) -> *mut c_void;
        write_register = c"aarch64_cpu_gdb_write_register" fn(*mut CpuState, *mut u8, c_int) -> c_int;
    }
}

/// The version of QEMU, as it reports itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub major: i64,
    pub minor: i64,
    pub micro: i64,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// Why this QEMU cannot carry the model.
#[derive(Debug, PartialEq, Eq)]
pub enum QemuError {
    /// It does not say which version it is.
    NoVersion,
    /// It is another version.
    Version(Version),
    /// It lacks a symbol.
    Missing {
        symbol: &'static CStr,
        version: Option<Version>,
    },
    /// Its accelerator is not multi-threaded TCG.
    NotMttcg,
    /// A slot of the accelerator's table is not what it should be.
    Slot(&'static str),
    /// Another plugin controls time.
    TimeControl,
}

impl std::fmt::Display for QemuError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = SUPPORTED;
        match self {
            QemuError::NoVersion => {
                write!(f, "this QEMU does not tell its version (symbol qmp_query_version); supported is {major}.{minor}")
            }
            QemuError::Version(v) => write!(f, "this is QEMU {v}; supported is {major}.{minor}"),
            QemuError::Missing { symbol, version } => {
                write!(f, "no symbol `{}` in this QEMU", symbol.to_string_lossy())?;
                match version {
                    Some(v) => write!(f, " ({v})")?,
                    None => write!(f, " (version unknown)")?,
                }
                write!(f, "; supported is {major}.{minor} built with its symbols exported, as Debian's is")
            }
            QemuError::NotMttcg => {
                f.write_str("the accelerator is not multi-threaded TCG: start QEMU with -accel tcg,thread=multi")
            }
            QemuError::Slot(slot) => {
                write!(f, "slot `{slot}` of tcg-accel-ops is not where QEMU {major}.{minor} has it: this QEMU was changed")
            }
            QemuError::TimeControl => f.write_str("another plugin controls QEMU's time: load one of them"),
        }
    }
}

/// The version QEMU reports, or `None` when it cannot be asked.
pub fn version() -> Option<Version> {
    /// `VersionInfo` of QEMU's management interface.
    #[repr(C)]
    struct VersionInfo {
        triple: *const Version3,
        package: *const c_char,
    }
    #[repr(C)]
    struct Version3 {
        major: i64,
        minor: i64,
        micro: i64,
    }
    let address = lookup(c"qmp_query_version");
    if address.is_null() {
        return None;
    }
    // SAFETY: the function has had this prototype in every QEMU with plugins; it only allocates.
    let info = unsafe {
        let query: unsafe extern "C" fn(*mut c_void) -> *const VersionInfo =
            std::mem::transmute(address);
        query(std::ptr::null_mut())
    };
    // SAFETY: a null or valid pointer; what it leads to is never freed (a few bytes, once).
    let triple = unsafe { info.as_ref().and_then(|i| i.triple.as_ref()) }?;
    Some(Version {
        major: triple.major,
        minor: triple.minor,
        micro: triple.micro,
    })
}

/// Refuses every QEMU but the supported line.
///
/// # Errors
/// Names the version found.
pub fn check_version(found: Option<Version>) -> Result<Version, QemuError> {
    match found {
        Some(v) if (v.major, v.minor) == SUPPORTED => Ok(v),
        Some(v) => Err(QemuError::Version(v)),
        None => Err(QemuError::NoVersion),
    }
}

/// Says what is missing, in which version.
pub fn missing(MissingSymbol(symbol): MissingSymbol) -> QemuError {
    QemuError::Missing {
        symbol,
        version: version(),
    }
}

impl Internals {
    /// Takes the big lock for the life of the guard.
    pub fn bql(&self) -> Bql<'_> {
        // SAFETY: called from threads that QEMU knows or that only lock; never with the lock held.
        unsafe { (self.bql_lock_impl)(c"amp-board-plugin".as_ptr(), 0) };
        Bql(self)
    }

    /// Nanoseconds to the next timer of the virtual clock; `None` without one.
    pub fn deadline(&self) -> Option<u64> {
        // SAFETY: takes its own locks.
        let ns = unsafe { (self.deadline_ns)(CLOCK_VIRTUAL, TIMER_ATTR_ALL) };
        real_deadline(ns)
    }

    /// The interrupt controller's input for shared peripheral interrupt `n`; null when the machine
    /// has no GICv3. To be called once the machine is there.
    pub fn shared_interrupt(&self, n: u32) -> *mut Irq {
        let (all, class) = (c"".as_ptr(), c"arm-gicv3-common".as_ptr());
        // SAFETY: a lookup in QEMU's object tree; a GICv3 is a device, whose unnamed inputs begin
        // with the shared interrupts. The board gives no CPU a number that the controller of `virt`
        // lacks.
        unsafe {
            let gic = (self.object_of_type)(all, class, std::ptr::null_mut());
            if gic.is_null() {
                return std::ptr::null_mut();
            }
            (self.gpio_in)(gic, n as c_int)
        }
    }

    /// Where `bytes` of the guest's memory from physical address `at` are in this process; `None`
    /// where that is not memory. It stays there for the life of the process. From a vCPU's thread.
    pub fn memory(&self, at: u64, bytes: u64) -> Option<*mut u8> {
        let mut length = bytes;
        // SAFETY: QEMU takes its own locks and writes the length of what it has mapped. Memory is
        // mapped where it is, and is never unmapped, as the machine's is never taken away.
        let address = unsafe { (self.map_memory)(at, &raw mut length, true) };
        (!address.is_null() && length == bytes).then_some(address.cast())
    }

    /// Moves an interrupt line up or down. Not with the big lock held.
    pub fn set_line(&self, line: *mut Irq, up: bool) {
        let _lock = self.bql();
        // SAFETY: a line from `shared_interrupt`, or null, which QEMU takes for a line that leads
        // nowhere; the lock is held.
        unsafe { (self.set_irq)(line, c_int::from(up)) };
    }

    /// Makes the main loop look at the timers of the virtual clock.
    pub fn notify_timers(&self) {
        // SAFETY: callable from any thread.
        unsafe { (self.notify)(CLOCK_VIRTUAL) };
    }
}

/// A deadline as QEMU gives it: negative without a timer, and at the end of time for timers that
/// are armed for never.
fn real_deadline(ns: i64) -> Option<u64> {
    /// Eleven days: nothing in a guest waits that long, and picoseconds hold it many times over.
    const NEVER: u64 = 1_000_000_000_000_000;
    u64::try_from(ns).ok().filter(|ns| *ns < NEVER)
}

/// The big QEMU lock, held.
pub struct Bql<'q>(&'q Internals);

impl Drop for Bql<'_> {
    fn drop(&mut self) {
        // SAFETY: locked in `Internals::bql` on this thread.
        unsafe { (self.0.bql_unlock)() };
    }
}

/// The original of the hooked kick function.
static ORIGINAL_KICK: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Calls what QEMU had in the kick slot.
///
/// # Safety
/// `cpu` is a `CPUState` of this process, and [`hook`] has succeeded.
pub unsafe fn original_kick(cpu: *mut CpuState) {
    let f = ORIGINAL_KICK.load(Ordering::Relaxed);
    if !f.is_null() {
        // SAFETY: the address of `mttcg_kick_vcpu_thread(CPUState *)`, compared in `hook`.
        unsafe {
            let f: unsafe extern "C" fn(*mut CpuState) = std::mem::transmute(f);
            f(cpu);
        }
    }
}

/// Puts `clock` into the accelerator's virtual clock slot and `kick` before its kick function.
///
/// `probed` must tell whether `clock` was called since it was last asked.
///
/// # Errors
/// When a slot is not what it should be; nothing has been changed then.
pub fn hook(
    q: &Internals,
    clock: extern "C" fn() -> i64,
    kick: extern "C" fn(*mut CpuState),
    probed: impl Fn() -> bool,
) -> Result<(), QemuError> {
    // SAFETY: a lookup in QEMU's type table; the accelerator is set up when a vCPU starts.
    let class = unsafe { (q.class_by_name)(c"tcg-accel-ops".as_ptr()) }.cast::<usize>();
    if class.is_null() {
        return Err(QemuError::NotMttcg);
    }
    let original = lookup(c"mttcg_kick_vcpu_thread");
    if original.is_null() {
        return Err(missing(MissingSymbol(c"mttcg_kick_vcpu_thread")));
    }
    // SAFETY: in the supported version the class has these words; it is writable and lives as long
    // as the process. The slots are plain function pointers that other threads read at any time:
    // they are stored as whole words.
    unsafe {
        let clock_slot = AtomicPtr::from_ptr(class.add(SLOT_VIRTUAL_CLOCK).cast::<*mut c_void>());
        let kick_slot = AtomicPtr::from_ptr(class.add(SLOT_KICK).cast::<*mut c_void>());
        if kick_slot.load(Ordering::SeqCst) != original {
            return Err(QemuError::NotMttcg);
        }
        if !clock_slot.load(Ordering::SeqCst).is_null() {
            return Err(QemuError::Slot("get_virtual_clock"));
        }
        clock_slot.store(clock as *mut c_void, Ordering::SeqCst);
        probed();
        (q.virtual_clock)();
        if !probed() {
            clock_slot.store(std::ptr::null_mut(), Ordering::SeqCst);
            return Err(QemuError::Slot("get_virtual_clock"));
        }
        ORIGINAL_KICK.store(original, Ordering::SeqCst);
        kick_slot.store(kick as *mut c_void, Ordering::SeqCst);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_versions_are_refused_by_name() {
        let v = |major, minor, micro| Version {
            major,
            minor,
            micro,
        };
        assert_eq!(check_version(Some(v(10, 0, 2))), Ok(v(10, 0, 2)));
        let e = check_version(Some(v(11, 1, 0))).unwrap_err().to_string();
        assert!(e.contains("11.1.0") && e.contains("10.0"), "{e}");
        assert!(check_version(None)
            .unwrap_err()
            .to_string()
            .contains("qmp_query_version"));
    }

    #[test]
    fn timers_armed_for_never_are_none() {
        assert_eq!(real_deadline(-1), None);
        assert_eq!(real_deadline(i64::MAX - 7_000_000_000), None);
        assert_eq!(real_deadline(0), Some(0));
        assert_eq!(real_deadline(4_000_000), Some(4_000_000));
    }

    #[test]
    fn missing_symbols_are_named() {
        let e = missing(MissingSymbol(c"bql_unlock")).to_string();
        assert!(e.contains("`bql_unlock`") && e.contains("10.0"), "{e}");
        assert_eq!(version(), None);
    }
}
