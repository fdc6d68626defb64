//! What a program of a provider file gets of the system: a clean environment, bounded resources, no
//! descriptor but its pipes and standard error, no capability, and no way to gain one.

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use rustix::thread::{set_capabilities, set_no_new_privs, CapabilitySet, CapabilitySets};
use std::io;

/// The folders in which a program without a `/` in its name is looked up; the program's own `PATH`.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The whole environment of a program.
pub(super) const ENVIRONMENT: [(&str, &str); 3] = [("PATH", PATH), ("LANG", "C"), ("LC_ALL", "C")];

/// Most that a program may have of each resource; less where scx_amp itself may have less.
const LIMITS: [(Resource, u64); 4] = [
    // what it was told is of other users' programs
    (Resource::Core, 0),
    (Resource::Nofile, 256),
    // bytes of addresses: numeric libraries reserve a GiB or two that they never touch
    (Resource::As, 4 << 30),
    // threads of its user, those of the user's other programs included; the kernel exempts root
    (Resource::Nproc, 4096),
];

/// Confines the calling process for good, which is about to execute a program.
///
/// Only makes system calls: it may be called between fork and exec.
///
/// # Errors
/// When the kernel refuses one of them.
pub(super) fn confine() -> io::Result<()> {
    for (resource, most) in LIMITS {
        let has = getrlimit(resource);
        let least = |l: Option<u64>| Some(l.map_or(most, |l| l.min(most)));
        let limit = Rlimit {
            current: least(has.current),
            maximum: least(has.maximum),
        };
        setrlimit(resource, limit)?;
    }
    close_on_exec()?;
    // together: without new privileges, a program of root's gets no more than is permitted now
    set_no_new_privs(true)?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, none)?)
}

/// Has every descriptor but the first three closed when a program is executed. Ours all are; those
/// of whoever started scx_amp may not be.
#[allow(unsafe_code)]
fn close_on_exec() -> io::Result<()> {
    // SAFETY: close_range with this flag closes nothing now and touches no memory of ours.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
