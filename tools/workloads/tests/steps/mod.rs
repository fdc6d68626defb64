//! Kernels run a step at a time, under `ptrace`.

use amp_workloads::exact::{Caches, Kernel, Level, Quantity, Traffic};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess};
use nix::sys::ptrace;
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid};
use std::collections::HashMap;

/// What a call of a kernel may cost beside its loop, in instructions.
const CALL: u64 = 64;

/// How much a kernel is to do.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    caches: Caches,
    accesses: u64,
}

/// Three sizes, which differ in passes and in lines: what a call costs beside the loop is the same
/// in all of them. Small, for every step is two system calls or more.
const SIZES: [Size; 3] = {
    const fn size(l1: usize, accesses: u64) -> Size {
        let (l2, last) = (4 * l1, 4 * l1);
        let caches = Caches { l1, l2, last };
        Size { caches, accesses }
    }
    [size(1 << 10, 500), size(1 << 10, 4_200), size(2 << 10, 500)]
};

/// Makes a kernel.
pub type Make = Box<dyn Fn(Size) -> Kernel + Send>;

/// All kernels, by name.
pub fn kernels() -> Vec<(String, Make)> {
    let mut out: Vec<Make> = vec![
        Box::new(|s| Kernel::nops(s.accesses / 50)),
        Box::new(|s| Kernel::random_branches(s.accesses, 3)),
    ];
    for traffic in Traffic::ALL {
        for level in Level::ALL {
            out.push(Box::new(move |s| {
                Kernel::stream(traffic, level, &s.caches, s.accesses)
            }));
        }
    }
    for first in [true, false] {
        out.extend([Level::L1, Level::L2].map(|level| -> Make {
            Box::new(move |s| {
                Kernel::triangle(first, level, &s.caches, s.accesses, || {})
                    .expect("a triangle at this level")
            })
        }));
        out.push(Box::new(move |s| Kernel::handoff(first, &s.caches, || {})));
    }
    let named = |make: Make| (make(SIZES[0]).name.clone(), make);
    out.into_iter().map(named).collect()
}

/// What went by.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    instructions: u64,
    loads: u64,
    stores: u64,
    branches: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, o: Counts) {
        self.instructions += o.instructions;
        self.loads += o.loads;
        self.stores += o.stores;
        self.branches += o.branches;
    }
}

/// Runs a kernel step by step, in all sizes, and compares; the error says what is off.
pub fn compare(make: &dyn Fn(Size) -> Kernel) -> Result<(), String> {
    let mut calls = Vec::new();
    for size in SIZES {
        // the child makes the same one: kernels are drawn by seed
        let mut here = make(size);
        here.prepare();
        let counts = stepped(&|| make(size))?;
        let beyond = |(quantity, counted): (Quantity, u64)| {
            let expected = here
                .expected(quantity)
                .ok_or_else(|| format!("no expectation of {}", quantity.name()))?
                .count as u64;
            match counted.checked_sub(expected) {
                Some(call) if call <= CALL => Ok(call),
                _ => Err(format!(
                    "{} {counted}, the model says {expected} and a call ({size:?})",
                    quantity.name()
                )),
            }
        };
        let call = [
            (Quantity::Instructions, counts.instructions),
            (Quantity::Loads, counts.loads),
            (Quantity::Stores, counts.stores),
            (Quantity::Accesses, counts.loads + counts.stores),
            (Quantity::Branches, counts.branches),
        ]
        .map(beyond)
        .into_iter()
        .collect::<Result<Vec<u64>, String>>()?;
        calls.push(call);
    }
    if calls.iter().any(|c| *c != calls[0]) {
        return Err(format!(
            "what a call costs (instructions, loads, stores, accesses, branches) depends on the size: {calls:?}"
        ));
    }
    Ok(())
}

/// Counts of one run of a kernel, between two breakpoints around it.
fn stepped(make: &dyn Fn() -> Kernel) -> Result<Counts, String> {
    // SAFETY: this process has one thread (see `main`), so that its copy may do what it likes.
    match unsafe { fork() }.map_err(|e| format!("fork: {e}"))? {
        ForkResult::Child => {
            let mut kernel = make();
            kernel.prepare();
            if ptrace::traceme().is_ok() {
                // SAFETY: stops for the parent, which traces this process; nothing else changes.
                unsafe { std::arch::asm!("int3") };
                kernel.run();
                // SAFETY: as above.
                unsafe { std::arch::asm!("int3") };
            }
            std::process::abort();
        }
        ForkResult::Parent { child } => {
            let counts = between_breakpoints(child);
            // it may be gone
            let _ = kill(child, Signal::SIGKILL);
            let _ = waitpid(child, None);
            counts
        }
    }
}

fn between_breakpoints(child: Pid) -> Result<Counts, String> {
    let said = |what: &'static str| move |e: nix::Error| format!("{what}: {e}");
    let stopped = || {
        match waitpid(child, None) {
        Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => Ok(()),
        other => Err(format!(
            "the child did not stop at a breakpoint or after a step: {other:?} (may this user trace its children?)"
        )),
    }
    };
    stopped()?;
    let mut counts = Counts::default();
    let mut known: HashMap<u64, Option<Counts>> = HashMap::new();
    loop {
        let at = ptrace::getregs(child).map_err(said("registers"))?.rip;
        let one = match known.get(&at) {
            Some(one) => *one,
            None => {
                let mut bytes = Vec::new();
                for i in 0..2 {
                    let word = ptrace::read(child, (at + 8 * i) as ptrace::AddressType)
                        .map_err(said("code"))?;
                    bytes.extend(word.to_le_bytes());
                }
                let one = decoded(&bytes, at);
                known.insert(at, one);
                one
            }
        };
        let Some(one) = one else { return Ok(counts) };
        counts += one;
        ptrace::step(child, None).map_err(said("step"))?;
        stopped()?;
    }
}

/// What an instruction counts; nothing for a breakpoint.
fn decoded(bytes: &[u8], at: u64) -> Option<Counts> {
    let i = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
    if i.code() == Code::Int3 {
        return None;
    }
    let mut out = Counts {
        instructions: 1,
        branches: u64::from(i.flow_control() != FlowControl::Next),
        ..Counts::default()
    };
    for m in InstructionInfoFactory::new().info(&i).used_memory() {
        let (reads, writes) = match m.access() {
            OpAccess::Read | OpAccess::CondRead => (1, 0),
            OpAccess::Write | OpAccess::CondWrite => (0, 1),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (1, 1),
            _ => (0, 0),
        };
        out.loads += reads;
        out.stores += writes;
    }
    Some(out)
}
