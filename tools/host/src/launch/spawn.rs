//! The start itself: a child that shares our memory until it is the program, as after vfork(2).
//!
//! A fork copies our page tables, and both sides then copy the pages that they write. A bench that
//! has a policy in its own process starts programs by the dozen, at real-time priority, on the CPUs
//! of other programs; there a fork took 5 to 20 ms of the virtual board's time, and this takes 1.4
//! to 2.6 ms (docs/evidence/scheduling.md). The standard library does the same where nothing has to
//! be done in the child but what posix_spawn(3) knows, which is too little here.

use super::{refused, LaunchError};
use crate::memory::as_it_was;
use rustix::fd::{FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Signal, WaitOptions};
use std::ffi::{c_char, c_int, c_void, CString};
use std::io;
use std::ptr;

/// What the new process does before it becomes the program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup {
    pub(super) own_group: bool,
    pub(super) user: Option<(u32, u32)>,
    pub(super) fixed_addresses: bool,
    pub(super) cpu_seconds: Option<u64>,
    /// SIGINT ends it, although a shell that put us into the background has had us ignore it.
    pub(super) interruptible: bool,
    /// It is killed when the thread that starts it ends.
    pub(super) dies_with_us: bool,
}

/// The pipes by which a process is held before its program.
#[derive(Debug)]
pub(super) struct Gate {
    /// It writes its process id here when it is ready.
    pub(super) ready: OwnedFd,
    /// It goes on when it can read a byte here, and ends when there is none.
    pub(super) wait: OwnedFd,
    /// Our end of `wait`, of which it has a copy: as long as that is open it would wait for itself.
    pub(super) ours: RawFd,
}

/// All that the child needs. It is made before there is a child, which may allocate nothing.
#[derive(Debug)]
pub(super) struct Start {
    /// What errors call the program.
    pub(super) label: String,
    pub(super) argv: Vec<CString>,
    pub(super) environment: Vec<CString>,
    pub(super) dir: Option<CString>,
    /// Standard input, output and error where they are not ours.
    pub(super) streams: [Option<OwnedFd>; 3],
    pub(super) setup: Setup,
    pub(super) gate: Option<Gate>,
}

/// Stack of the child: what its calls need, and the shell's arguments when the program is a script
/// without a first line (`execvpe` copies them there).
const STACK: usize = 64 << 10;

/// The step that the child could not do; `None` is the program itself.
type Step = Option<&'static str>;

/// What the child is given, and where it says why it ended.
struct Child<'a> {
    start: &'a Start,
    argv: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    parent: Pid,
    failed: Option<(Step, Errno)>,
}

impl Start {
    /// The new process, which has become the program. The calling thread waits for that.
    ///
    /// # Errors
    /// When no process can be made, or it cannot do a step or become the program.
    pub(super) fn spawn(&self) -> Result<Pid, LaunchError> {
        let pointers = |of: &[CString]| -> Vec<*const c_char> {
            let all = of.iter().map(|s| s.as_ptr());
            all.chain([ptr::null()]).collect()
        };
        let mut child = Child {
            start: self,
            argv: pointers(&self.argv),
            environment: pointers(&self.environment),
            parent: rustix::process::getpid(),
            failed: None,
        };
        let size = STACK + size_of_val(child.argv.as_slice());
        // of 16 bytes each: a stack's alignment
        let mut stack: Vec<u128> = Vec::with_capacity(size.div_ceil(size_of::<u128>()));
        let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
        let shared = ptr::from_mut(&mut child);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let masked = Masked::all();
        // SAFETY: `top` is the end of memory that nobody else uses and that lives until the child
        // has left it: CLONE_VFORK has this thread wait until then. For the same reason the child
        // alone uses `shared` meanwhile. It makes only system calls, takes no lock, allocates
        // nothing and does not unwind. No signal's handler runs in it: all are blocked here, and it
        // has dropped the handlers before it unblocks them.
        let clone = || unsafe { libc::clone(become_program, top.cast(), flags, shared.cast()) };
        let (pid, refusal) = as_it_was(|| (clone(), io::Error::last_os_error()));
        drop(masked);
        let Some(pid) = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
            return Err(refused(format!("{}: no process can be made", self.label))(
                refusal,
            ));
        };
        // SAFETY: `child` is alive, and its other user has ended or become the program.
        let Some((step, error)) = (unsafe { ptr::read(&raw const (*shared).failed) }) else {
            return Ok(pid);
        };
        // it is ours to reap; that it cannot be is no news beside its failure
        let _ =
            rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(pid), WaitOptions::empty()));
        Err(match step {
            Some(step) => refused(format!("{}: {step}", self.label))(error.into()),
            None => LaunchError::Program {
                program: self.program(),
                source: error.into(),
            },
        })
    }

    /// The executable as it was named.
    pub(super) fn program(&self) -> String {
        let exe = self.argv.first().map(|a| a.to_string_lossy());
        exe.unwrap_or_default().into_owned()
    }
}

/// Blocks every signal of this thread until it is dropped.
struct Masked {
    before: libc::sigset_t,
}

impl Masked {
    fn all() -> Masked {
        // SAFETY: both sets are plain data, for which zeros are valid, and outlive the calls, which
        // only write them and the thread's own mask.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before = all;
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            Masked { before }
        }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: the set was written by the call that made `self`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

/// The child's whole life; it returns to nobody.
extern "C" fn become_program(child: *mut c_void) -> c_int {
    // SAFETY: it is the `Child` of the thread that made us, which waits for us.
    let child = unsafe { &mut *child.cast::<Child<'_>>() };
    if let Err(failed) = child.become_program() {
        child.failed = Some(failed);
    }
    // SAFETY: it ends this process and runs nothing of ours.
    unsafe { libc::_exit(127) }
}

impl Child<'_> {
    /// Only system calls, for the memory is our parent's.
    fn become_program(&self) -> Result<(), (Step, Errno)> {
        let s = self.start;
        let step = |name: &'static str| move |e: Errno| (Some(name), e);
        for (stream, to) in s.streams.iter().zip(0..) {
            let Some(from) = stream else { continue };
            // never the same: the standard library opens 0 to 2 before `main`
            // SAFETY: the descriptor is this process's own copy, and is not to be closed.
            let mut standard = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(to) });
            rustix::io::dup2(from, &mut standard).map_err(step("no standard stream"))?;
        }
        if let Some((uid, gid)) = s.setup.user {
            become_user(uid, gid).map_err(step("cannot become its user"))?;
        }
        if let Some(dir) = &s.dir {
            rustix::process::chdir(dir.as_c_str()).map_err(|e| (None, e))?;
        }
        if s.setup.own_group {
            rustix::process::setpgid(None, None).map_err(step("no process group of its own"))?;
        }
        self.die_with_parent()
            .map_err(step("it would outlive us"))?;
        if s.setup.fixed_addresses {
            // SAFETY: the call takes a number and touches no memory.
            unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        }
        if let Some(seconds) = s.setup.cpu_seconds {
            let mut limit = rustix::process::getrlimit(Resource::Cpu);
            limit.current = Some(limit.maximum.map_or(seconds, |m| m.min(seconds)));
            rustix::process::setrlimit(Resource::Cpu, limit)
                .map_err(step("no limit of its CPU time"))?;
        }
        if let Some(gate) = &s.gate {
            gate.pass().map_err(step("it was not released"))?;
        }
        default_signals(s.setup.interruptible);
        // SAFETY: both lists end with a null, and their strings, which live in our parent, outlast
        // the call.
        unsafe {
            let (argv, env) = (self.argv.as_ptr(), self.environment.as_ptr());
            libc::execvpe(self.argv.first().copied().unwrap_or(ptr::null()), argv, env);
            Err((None, Errno::from_raw_os_error(*libc::__errno_location())))
        }
    }

    fn die_with_parent(&self) -> Result<(), Errno> {
        if !self.start.setup.dies_with_us {
            return Ok(());
        }
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        match rustix::process::getppid() {
            Some(p) if p == self.parent => Ok(()),
            _ => Err(Errno::SRCH), // it died in between
        }
    }
}

impl Gate {
    fn pass(&self) -> Result<(), Errno> {
        // SAFETY: it is open, for the child has a copy of all our descriptors, and nothing else in
        // the child uses it.
        unsafe { rustix::io::close(self.ours) };
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        rustix::io::write(&self.ready, &pid.to_ne_bytes())?;
        match rustix::io::read(&self.wait, &mut [0u8; 1])? {
            1 => Ok(()),
            _ => Err(Errno::CANCELED),
        }
    }
}

/// By system calls of our own: those of the C library speak to all threads of a process, which here
/// are our parent's. What setuid(2) does to memory, it does to our parent's, too: no core is dumped of it from now on, and only
/// root looks into it. Whoever starts programs as another user is root.
fn become_user(uid: u32, gid: u32) -> Result<(), Errno> {
    let call = |number: libc::c_long, a: u32| {
        // SAFETY: the calls take numbers, of which the last may be a null list of groups.
        match unsafe { libc::syscall(number, a, ptr::null::<libc::gid_t>()) } {
            0 => Ok(()),
            // SAFETY: it is this thread's own.
            _ => Err(Errno::from_raw_os_error(unsafe {
                *libc::__errno_location()
            })),
        }
    };
    // groups that we have as root are none of the user's; without root they are its own
    if rustix::process::geteuid().is_root() {
        call(libc::SYS_setgroups, 0)?;
    }
    call(libc::SYS_setgid, gid)?;
    call(libc::SYS_setuid, uid)
}

/// No handler of ours, no signal blocked; what our parent ignores stays ignored but for SIGPIPE, that
/// the standard library ignores, and SIGINT where it is `interruptible`.
fn default_signals(interruptible: bool) {
    // SAFETY: the calls read and write `action` and `none`, which are plain data for which zeros
    // are valid, and the signals of this process: CLONE_SIGHAND was not asked for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        // the highest real-time signal of every architecture that Linux runs on but MIPS
        for signal in 1..=64 {
            if libc::sigaction(signal, ptr::null(), &mut action) != 0 {
                continue;
            }
            let ours = signal == libc::SIGPIPE || (signal == libc::SIGINT && interruptible);
            let stays = match action.sa_sigaction {
                libc::SIG_DFL => true,
                libc::SIG_IGN => !ours,
                _ => false,
            };
            if !stays {
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &action, ptr::null_mut());
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, ptr::null_mut());
    }
}
