//! Virtual time.
//!
//! Each vCPU has its own time, which its blocks and misses move forward. Global time is the least
//! of those that run: it is what QEMU's timers go by. A vCPU that gets a quantum ahead waits for
//! the others; when none runs, global time jumps to the next timer.
//!
//! Rules that keep it alive, each learned from a freeze:
//! - A kick ends a wait at once, and one that comes just before it keeps it from beginning: a vCPU
//!   that wants QEMU's exclusive section kicks the others and needs them to reach the end of a
//!   block, whatever their time. Waits are bounded ([`WAIT`]) all the same.
//! - Timers never run inside the idle callback: a wake-up of the very vCPU that is about to sleep
//!   would be lost.
//! - QEMU itself can lose a wake-up (work queued between a vCPU's last look and its sleep): a
//!   watchdog kicks everybody when all sleep although somebody has work.
//! - Reads of the clock never run backwards, across vCPUs too.
//!
//! A vCPU counts as running from the moment it is given work ([`kicked`]), not from when the host
//! gets round to its thread; otherwise virtual time would pass at the pace of a busy host.
//!
//! A program that is to keep a core busy need not keep the host busy ([`pass`]): its time stands where
//! it wants to get to, or goes back to where somebody kicked it. While all that run do so, global
//! time goes from timer to timer, as it does while all are idle.

use crate::board::{board, vcpu, Board};
use crate::exec;
use crate::frequency;
use crate::interrupt;
use crate::qemu::{self, CpuState};
use crate::vcpu::{Own, Vcpu, IDLE, RUNNING, WAKING};
use amp_machine::page::{STATE_IDLE, STATE_RUNNING};
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

/// Longest wait for slower vCPUs, host time. Longer than a tick of the host, so that it needs no
/// timer of its own.
const WAIT: Duration = Duration::from_millis(5);
/// How often the watchdog looks, host time.
const WATCHDOG: Duration = Duration::from_micros(500);
/// A vCPU that was woken and has not run for this long is looked at by the watchdog, host
/// nanoseconds.
const OVERDUE_NS: u64 = 2_000_000;
/// A running vCPU looks at the others this many times per quantum.
const STEPS: u64 = 4;
/// What a vCPU lets pass at a time, picoseconds: much less than a tick, and than what a busy thread takes for not having run
/// (2 ms, `amp-workload bench spin`).
const PASS: u64 = 500_000_000;
/// A waiting vCPU goes on when it has room for this many steps: few long runs cost the host less
/// than many short ones.
const ROOM: u64 = 3;

/// Global time and what goes with it.
#[derive(Debug)]
pub struct Clock {
    global: AtomicU64,
    /// Latest time that was read, picoseconds.
    last_read: AtomicU64,
    /// Time skipped while all were idle.
    skipped: AtomicU64,
    quantum: u64,
    step: u64,
    hooked: AtomicBool,
    probes: AtomicU32,
    rescues: AtomicU64,
}

thread_local! {
    /// The vCPU whose thread this is.
    static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
    /// Whether this thread is running timers, which happen in global time.
    static IN_TIMERS: Cell<bool> = const { Cell::new(false) };
}

impl Clock {
    /// Time zero. `quantum_ps` is how far a vCPU may be ahead.
    pub fn new(quantum_ps: u64) -> Clock {
        Clock {
            global: AtomicU64::new(0),
            last_read: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            quantum: quantum_ps,
            step: (quantum_ps / STEPS).max(1),
            hooked: AtomicBool::new(false),
            probes: AtomicU32::new(0),
            rescues: AtomicU64::new(0),
        }
    }

    /// Global time, picoseconds.
    pub fn global(&self) -> u64 {
        self.global.load(SeqCst)
    }

    /// Time skipped while all were idle, picoseconds.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Relaxed)
    }

    /// The quantum, picoseconds.
    pub fn quantum(&self) -> u64 {
        self.quantum
    }

    /// How many times the watchdog had to step in.
    pub fn rescues(&self) -> u64 {
        self.rescues.load(Relaxed)
    }
}

/// Replaces QEMU's virtual clock: nanoseconds.
extern "C" fn read_clock() -> i64 {
    let clock = &board().clock;
    clock.probes.fetch_add(1, Relaxed);
    let now = now_here(clock);
    let last = clock.last_read.fetch_max(now, SeqCst);
    (last.max(now) / 1000) as i64
}

/// Time as this thread sees it: a vCPU's own, global time elsewhere and in timers.
fn now_here(clock: &Clock) -> u64 {
    let global = clock.global.load(Relaxed);
    match CURRENT.get() {
        Some(i) if !IN_TIMERS.get() => global.max(vcpu(i).time.load(Relaxed)),
        _ => global,
    }
}

/// The thread of vCPU `i` has started.
pub fn started(i: u32) {
    let (b, v) = (board(), vcpu(i));
    CURRENT.set(Some(i));
    // SAFETY: the vCPU exists, QEMU just told us.
    let cpu = unsafe { (b.qemu.get_cpu)(i as c_int) };
    v.cpu.store(cpu, SeqCst);
    if b.clock.hooked.swap(true, SeqCst) {
        return;
    }
    let probed = || b.clock.probes.swap(0, SeqCst) != 0;
    if let Err(e) = qemu::hook(&b.qemu, read_clock, kicked, probed) {
        crate::fatal(&e.to_string());
    }
    std::thread::spawn(watchdog);
}

fn futex_wait(word: &AtomicU32, value: u32, timeout: Duration) {
    let ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: a live word and a timeout on the stack; spurious returns are harmless.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            &raw const ts,
        );
    }
}

/// Ends the wait of `v` if it waits.
fn release(v: &Vcpu) {
    if v.waiting.load(SeqCst) == 1 && v.waiting.swap(0, SeqCst) == 1 {
        // SAFETY: a live word.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                v.waiting.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
        }
    }
}

/// The least time of the running vCPUs; `None` where none runs.
fn least(b: &Board) -> Option<u64> {
    let running = b.vcpus.iter().filter(|v| v.state.load(SeqCst) != IDLE);
    running.map(|v| v.time.load(SeqCst)).min()
}

/// Moves global time to `time`, and lets those vCPUs go that have room for a step.
fn move_to(b: &Board, time: u64) {
    let global = b.clock.global.fetch_max(time, SeqCst).max(time);
    for v in b.vcpus {
        let has_room = v.time.load(Relaxed) + ROOM * b.clock.step <= global + b.clock.quantum;
        if has_room && v.waiting.load(SeqCst) == 1 {
            release(v);
        }
    }
}

/// Moves global time to the least of the running vCPUs; `false` if that is farther than any of them gets ahead by computing: they
/// all let time pass, and somebody has to [`leap`].
fn advance(b: &Board) -> bool {
    let Some(least) = least(b) else {
        return true;
    };
    let small = least <= b.clock.global() + b.clock.quantum;
    if small {
        move_to(b, least);
    }
    small
}

/// Moves global time to the least of the running vCPUs, or to the next timer if that is before. The big lock is held, so that
/// nobody is in the middle of a timer; `true` if one is due.
fn leap(b: &Board) -> bool {
    let Some(least) = least(b) else {
        return false;
    };
    let next = next_timer(b).unwrap_or(u64::MAX);
    move_to(b, least.min(next));
    next <= least
}

/// As [`advance`], where the big lock is not held: leaps, too, and runs the timers that are due then.
fn advance_or_leap(b: &Board) {
    while !advance(b) {
        let _lock = b.qemu.bql();
        if !leap(b) {
            return;
        }
        run_timers(b);
        if b.qemu.deadline() == Some(0) {
            // one that only the main loop runs
            b.qemu.notify_timers();
            return;
        }
    }
}

/// When the next timer of the guest is due, picoseconds; `None` without one.
fn next_timer(b: &Board) -> Option<u64> {
    let ns = b.qemu.deadline()?;
    // The deadline counts from the latest time that was read, which may be ahead of global time.
    let clock = &b.clock;
    let from = clock.global().max(clock.last_read.load(SeqCst)) / 1000;
    Some(from.saturating_add(ns).saturating_mul(1000))
}

/// Runs the timers that are due, in global time. The big lock is held. One of them may be for the vCPU whose thread this is, which
/// nobody kicks then.
fn run_timers(b: &Board) {
    let outer = IN_TIMERS.replace(true);
    // SAFETY: timers of the virtual clock run under the big lock, as in QEMU's main loop.
    let ran = unsafe { (b.qemu.run_timers)(qemu::CLOCK_VIRTUAL) };
    IN_TIMERS.set(outer);
    if let Some(i) = CURRENT.get().filter(|_| ran) {
        let v = vcpu(i);
        v.pass.interrupt(&v.time, b.clock.global());
        v.called.store(1, SeqCst);
    }
}

fn run_due_timers(b: &Board) {
    if b.qemu.deadline() == Some(0) {
        let _lock = b.qemu.bql();
        run_timers(b);
    }
}

/// The vCPU has reached its limit: look for overflows, and when it is time for that, at the others,
/// run timers, wait if too far ahead, publish.
#[cold]
#[inline(never)]
pub fn sync(v: &'static Vcpu) {
    let b = board();
    v.called.store(0, SeqCst);
    // SAFETY: called at the end of the block callback, which is done with its reference.
    let own = unsafe { v.own() };
    let time = v.time.load(Relaxed);
    if time >= own.overflow_at {
        interrupt::look(b, v, own);
    }
    if time < own.sync_at {
        return;
    }
    if v.state.load(Relaxed) != RUNNING {
        v.time.fetch_max(b.clock.global(), SeqCst);
        v.state.store(RUNNING, SeqCst);
    }
    own.stats.syncs += 1;
    frequency::fill(b);
    look(b, v, own);
    exec::recheck(b, v, own);
    advance_or_leap(b);
    run_due_timers(b);
    publish(b, v, own, STATE_RUNNING);
    let time = v.time.load(Relaxed);
    if time >= b.clock.global() + b.clock.quantum {
        own.stats.waits += 1;
        if !wait(b, v) {
            own.stats.timeouts += 1;
        }
    }
    own.sync_at((time + b.clock.step).min(b.clock.global() + b.clock.quantum));
}

/// Takes over what the guest has set.
fn look(b: &Board, v: &Vcpu, own: &mut Own) {
    frequency::look(b, v, own);
    own.fills = own.l2.ways_of(b.page.fills(v.index));
}

/// Waits for slower vCPUs until there is room, or somebody wants this vCPU; `false` when it took
/// too long.
fn wait(b: &Board, v: &Vcpu) -> bool {
    v.waiting.store(1, SeqCst);
    // Look again now that others can see us waiting.
    advance_or_leap(b);
    if v.wanted.swap(0, SeqCst) == 1 {
        v.called.store(1, SeqCst);
        v.waiting.store(0, SeqCst);
    } else if v.waiting.load(SeqCst) == 1 {
        futex_wait(&v.waiting, 1, WAIT);
    }
    v.waiting.swap(0, SeqCst) == 0
}

/// Whether somebody has wanted the vCPU since it last looked at the others: it may have to take an interrupt, or to leave its block,
/// before it does anything else. On its thread.
fn is_wanted(v: &Vcpu) -> bool {
    if v.wanted.swap(0, SeqCst) == 1 {
        v.called.store(1, SeqCst);
    }
    v.called.load(SeqCst) == 1
}

/// The vCPU lets [`PASS`] of its time pass, or less if somebody wants it earlier: it is busy, and its host is not. It looks at the
/// others ([`sync`]) afterwards.
pub fn pass(v: &'static Vcpu) {
    let b = board();
    if is_wanted(v) {
        return;
    }
    // SAFETY: a callback of this vCPU, on its thread.
    let own = unsafe { v.own() };
    if v.state.load(Relaxed) != RUNNING {
        v.time.fetch_max(b.clock.global(), SeqCst);
        v.state.store(RUNNING, SeqCst);
    }
    let from = v.time.load(Relaxed);
    let until = (from + PASS).min(own.overflow_at.max(from));
    // what this thread does meanwhile is not done at the vCPU's time
    IN_TIMERS.set(true);
    v.time.store(until, SeqCst);
    v.pass.begin(from);
    let mut stuck = false;
    loop {
        let global = b.clock.global();
        if until <= global + b.clock.quantum {
            break;
        }
        v.waiting.store(1, SeqCst);
        if !stuck && !is_wanted(v) {
            advance_or_leap(b);
        }
        // who kicks says so first and sets the time then: a late one may end a pass that began in between
        let interrupted = v.time.load(SeqCst) != until;
        if stuck || interrupted || is_wanted(v) {
            v.waiting.store(0, SeqCst);
            v.pass.interrupt(&v.time, b.clock.global());
            break;
        }
        if v.waiting.load(SeqCst) == 1 {
            futex_wait(&v.waiting, 1, WAIT);
        }
        if v.waiting.swap(0, SeqCst) == 1 {
            own.stats.timeouts += 1;
            // somebody may want this vCPU to leave its block, and has said so before anybody could see it pass
            stuck = global == b.clock.global();
        }
    }
    v.pass.end();
    IN_TIMERS.set(false);
    v.time.fetch_max(b.clock.global(), SeqCst);
    let time = v.time.load(SeqCst);
    own.counts[0].pass(time.saturating_sub(from));
    own.stats.passes += 1;
    own.sync_at(time);
}

/// Writes the vCPU's record of the state page.
pub fn publish(b: &Board, v: &Vcpu, own: &mut Own, state: u32) {
    own.settle();
    b.page
        .cpu(v.index, state, v.time.load(Relaxed), &own.counts, own.model);
    b.page.time(b.clock.global(), b.clock.skipped());
}

/// Every vCPU is idle: jump to the next timer. The big lock is held.
fn jump(b: &Board) {
    // SAFETY: the big lock is held.
    let all_idle =
        b.vcpus.iter().all(|v| v.state.load(SeqCst) == IDLE) && unsafe { (b.qemu.all_idle)() };
    if !all_idle {
        return;
    }
    if let Some(to) = next_timer(b) {
        let clock = &b.clock;
        let before = clock.global.fetch_max(to, SeqCst);
        clock.skipped.fetch_add(to.saturating_sub(before), Relaxed);
        b.page.time(clock.global(), clock.skipped());
        b.qemu.notify_timers();
    }
}

/// vCPU `i` is about to sleep; the big lock is held.
pub fn idle(i: u32) {
    let (b, v) = (board(), vcpu(i));
    // SAFETY: the idle callback of this vCPU, on its thread.
    let own = unsafe { v.own() };
    publish(b, v, own, STATE_IDLE);
    own.sync_at(0);
    v.state.store(IDLE, SeqCst);
    if b.vcpus.iter().all(|v| v.state.load(SeqCst) == IDLE) {
        jump(b);
    } else {
        advance_here(b);
    }
}

/// As [`advance_or_leap`], where the big lock is held and this thread may not run timers.
fn advance_here(b: &Board) {
    if !advance(b) {
        leap(b);
    }
    if b.qemu.deadline() == Some(0) {
        b.qemu.notify_timers();
    }
}

/// vCPU `i` has been woken; the big lock is held.
pub fn resumed(i: u32) {
    let (b, v) = (board(), vcpu(i));
    // SAFETY: the resume callback of this vCPU, on its thread.
    let own = unsafe { v.own() };
    v.time.fetch_max(b.clock.global(), SeqCst);
    look(b, v, own);
    v.state.store(RUNNING, SeqCst);
    own.sync_at(v.time.load(Relaxed));
}

/// Stands before QEMU's kick function: somebody wants the attention of a vCPU.
extern "C" fn kicked(cpu: *mut CpuState) {
    // SAFETY: QEMU's own argument, passed on.
    unsafe { qemu::original_kick(cpu) };
    let b = board();
    let Some(v) = b.vcpus.iter().find(|v| v.cpu.load(Relaxed) == cpu) else {
        return;
    };
    // in this order: `pass` looks again once it can be interrupted
    v.wanted.store(1, SeqCst);
    v.pass.interrupt(&v.time, now_here(&b.clock));
    release(v);
    // SAFETY: `cpu` is a live vCPU; the function only looks.
    if v.state.load(SeqCst) == IDLE && !unsafe { (b.qemu.is_idle)(cpu) } {
        // From now on global time waits for it. It starts where its waker is.
        v.woken_ns.store(monotonic_ns(), Relaxed);
        v.time.fetch_max(now_here(&b.clock), SeqCst);
        let _ = v.state.compare_exchange(IDLE, WAKING, SeqCst, SeqCst);
    }
}

fn monotonic_ns() -> u64 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills the structure on the stack; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// Wakes what sleeps although it should not.
fn watchdog() {
    let b = board();
    loop {
        std::thread::sleep(WATCHDOG);
        if b.vcpus.iter().all(|v| v.state.load(SeqCst) == IDLE) {
            let _lock = b.qemu.bql();
            // SAFETY: the big lock is held.
            if unsafe { (b.qemu.all_idle)() } {
                jump(b);
            } else {
                b.clock.rescues.fetch_add(1, Relaxed);
                b.vcpus.iter().for_each(|v| kick(b, v));
            }
            continue;
        }
        if !advance(b) {
            // all let time pass, and nobody was woken by the last timer
            let _lock = b.qemu.bql();
            advance_here(b);
        }
        let now = monotonic_ns();
        for v in b.vcpus {
            let overdue = now.saturating_sub(v.woken_ns.load(Relaxed)) > OVERDUE_NS;
            if v.state.load(SeqCst) == WAKING && overdue {
                look_after(b, v);
            }
        }
    }
}

/// A vCPU was given work and has not run: either the work is gone and it sleeps on, or the host is
/// slow.
fn look_after(b: &Board, v: &Vcpu) {
    let _lock = b.qemu.bql();
    let cpu = v.cpu.load(SeqCst);
    // SAFETY: a live vCPU, the big lock is held.
    if !cpu.is_null() && unsafe { (b.qemu.is_idle)(cpu) } {
        let _ = v.state.compare_exchange(WAKING, IDLE, SeqCst, SeqCst);
        advance_here(b);
    } else {
        v.woken_ns.store(monotonic_ns(), Relaxed);
        kick(b, v);
    }
}

fn kick(b: &Board, v: &Vcpu) {
    let cpu = v.cpu.load(SeqCst);
    if !cpu.is_null() {
        // SAFETY: a live vCPU.
        unsafe { (b.qemu.kick)(cpu) };
    }
}
