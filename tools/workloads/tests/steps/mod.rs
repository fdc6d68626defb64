//! Kernels run a step at a time, under `ptrace`.

use amp_workloads::exact::{
    AdditionCost, Arithmetic, Caches, Kernel, Level, Quantity, Reach, Traffic,
};
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};
use nix::libc::user_regs_struct;
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
        let caches = Caches {
            l1,
            l2: 4 * l1,
            l3: Some(32 * l1),
            last: 32 * l1,
        };
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
                    .expect("a level that is there")
            }));
        }
    }
    for abreast in [false, true] {
        out.push(Box::new(move |s| {
            Kernel::additions(s.accesses, abreast, Some(AdditionCost::ONE))
        }));
    }
    for kind in Arithmetic::ALL {
        // some processors have no fused ones
        if Kernel::float(kind, 1).is_some() {
            out.push(Box::new(move |s| {
                Kernel::float(kind, s.accesses).expect("instructions that are there")
            }));
        }
    }
    for reach in Reach::ALL {
        out.push(Box::new(move |s| {
            Kernel::pages(reach, s.accesses).expect("small pages")
        }));
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
    /// Floating-point instructions on one number, and what they compute.
    scalar: u64,
    scalar_operations: u64,
    /// The same of vectors.
    vector: u64,
    vector_operations: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, o: Counts) {
        self.instructions += o.instructions;
        self.loads += o.loads;
        self.stores += o.stores;
        self.branches += o.branches;
        self.scalar += o.scalar;
        self.scalar_operations += o.scalar_operations;
        self.vector += o.vector;
        self.vector_operations += o.vector_operations;
    }
}

/// All that is known of a run.
#[derive(Debug, Default)]
struct Run {
    counts: Counts,
    /// Additions of the longest chain of which each takes the result of one before.
    chain: u64,
    /// Pages that were loaded from, of a kernel that is about pages, in order.
    pages: Vec<u64>,
}

/// Lengths of chains of additions, by the register that has their results.
#[derive(Debug, Default)]
struct Chains {
    length: HashMap<Register, u64>,
    longest: u64,
}

impl Chains {
    fn step(&mut self, i: &Instruction) {
        let adds = i.mnemonic() == Mnemonic::Add && i.op1_kind() == OpKind::Register;
        let info = InstructionInfoFactory::new().info(i).clone();
        let mut of_sources = 0;
        for r in info.used_registers() {
            if !matches!(r.access(), OpAccess::Write | OpAccess::CondWrite) {
                let length = self.length.get(&r.register().full_register());
                of_sources = of_sources.max(length.copied().unwrap_or(0));
            }
        }
        let length = of_sources + u64::from(adds);
        for r in info.used_registers() {
            if !matches!(r.access(), OpAccess::Read | OpAccess::CondRead) {
                self.length.insert(r.register().full_register(), length);
            }
        }
        self.longest = self.longest.max(length);
    }
}

/// Runs a kernel step by step, in all sizes, and compares; the error says what is off.
pub fn compare(make: &dyn Fn(Size) -> Kernel) -> Result<(), String> {
    let mut calls = Vec::new();
    for size in SIZES {
        // the child makes the same one: kernels are drawn by seed
        let mut here = make(size);
        here.prepare();
        let run = stepped(&|| make(size))?;
        let counts = run.counts;
        let expected = |q| here.expected(q).map(|e| e.count as u64);
        let beyond = |(quantity, counted): (Quantity, u64)| {
            let expected = expected(quantity)
                .ok_or_else(|| format!("no expectation of {}", quantity.name()))?;
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
        // nothing but the kernel calculates: what is known must be equal
        let operations = counts.scalar_operations + counts.vector_operations;
        for (quantity, counted) in [
            (Quantity::FloatingPoint, counts.scalar),
            (Quantity::ScalarFlops, counts.scalar_operations),
            (Quantity::VectorFloatingPoint, counts.vector),
            (Quantity::Flops, operations),
        ] {
            let expected = expected(quantity);
            // of the triangle and of vectors not every quantity is promised
            let may_miss = quantity == Quantity::FloatingPoint;
            if expected != Some(counted) && !(may_miss && expected.is_none()) {
                return Err(format!(
                    "{} {counted}, the model says {expected:?} ({size:?})",
                    quantity.name()
                ));
            }
        }
        // a cycle for each addition of the longest chain; the call may add some beside it
        if let Some(cycles) = expected(Quantity::Cycles) {
            if run.chain < cycles || run.chain > cycles + CALL {
                return Err(format!(
                    "the longest chain has {} additions, the model says {cycles} cycles ({size:?})",
                    run.chain
                ));
            }
        }
        if let Some(data) = here.addresses() {
            each_page_in_its_turn(&run.pages, data.len() / page_bytes())?;
        }
    }
    if calls.iter().any(|c| *c != calls[0]) {
        return Err(format!(
            "what a call costs (instructions, loads, stores, accesses, branches) depends on the size: {calls:?}"
        ));
    }
    Ok(())
}

fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Whether between two loads of a page all `others` are loaded from, whole turns long.
fn each_page_in_its_turn(loads: &[u64], pages: usize) -> Result<(), String> {
    let turns = loads.chunks(pages);
    if loads.is_empty() || !loads.len().is_multiple_of(pages) {
        return Err(format!("{} loads of {pages} pages", loads.len()));
    }
    for turn in turns {
        let distinct: std::collections::BTreeSet<&u64> = turn.iter().collect();
        if distinct.len() != pages {
            return Err(format!("{} of {pages} pages in a turn", distinct.len()));
        }
        if Some(turn) != loads.get(..pages) {
            return Err("the order is another one in another turn".into());
        }
    }
    Ok(())
}

/// What one run of a kernel does, between two breakpoints around it. At the first one, two
/// registers have where its pages are.
fn stepped(make: &dyn Fn() -> Kernel) -> Result<Run, String> {
    // SAFETY: this process has one thread (see `main`), so that its copy may do what it likes.
    match unsafe { fork() }.map_err(|e| format!("fork: {e}"))? {
        ForkResult::Child => {
            let mut kernel = make();
            kernel.prepare();
            let data = kernel.addresses().unwrap_or(0..0);
            if ptrace::traceme().is_ok() {
                // SAFETY: stops for the parent, which traces this process; nothing else changes.
                unsafe { std::arch::asm!("int3", in("rax") data.start, in("rdx") data.end) };
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

fn between_breakpoints(child: Pid) -> Result<Run, String> {
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
    let mut run = Run::default();
    let mut chains = Chains::default();
    let mut known: HashMap<u64, Option<(Instruction, Counts)>> = HashMap::new();
    let registers = || ptrace::getregs(child).map_err(said("registers"));
    let first = registers()?;
    let data = first.rax..first.rdx;
    loop {
        let now = registers()?;
        let at = now.rip;
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
        let Some((instruction, counts)) = one else {
            run.chain = chains.longest;
            return Ok(run);
        };
        run.counts += counts;
        chains.step(&instruction);
        if counts.loads > 0 {
            let from = loaded_from(&instruction, &now).filter(|a| data.contains(a));
            run.pages.extend(from.map(|a| a / page_bytes() as u64));
        }
        ptrace::step(child, None).map_err(said("step"))?;
        stopped()?;
    }
}

/// The address of an instruction's first operand in memory, of the few registers that matter.
fn loaded_from(i: &Instruction, now: &user_regs_struct) -> Option<u64> {
    let operand = (0..i.op_count()).find(|n| i.op_kind(*n) == OpKind::Memory)?;
    i.virtual_address(operand, 0, |register, _, _| {
        Some(match register {
            Register::RAX => now.rax,
            Register::RBX => now.rbx,
            Register::RCX => now.rcx,
            Register::RDX => now.rdx,
            Register::RSI => now.rsi,
            Register::RDI => now.rdi,
            Register::RBP => now.rbp,
            Register::RSP => now.rsp,
            Register::R8 => now.r8,
            Register::R9 => now.r9,
            Register::R10 => now.r10,
            Register::R11 => now.r11,
            Register::R12 => now.r12,
            Register::R13 => now.r13,
            Register::R14 => now.r14,
            Register::R15 => now.r15,
            // segments begin at zero, but for two that hold no data of kernels
            Register::CS | Register::DS | Register::ES | Register::SS => 0,
            _ => return None,
        })
    })
}

/// Floating-point instructions, whether they are of vectors, and how much they compute.
fn arithmetic(i: &Instruction) -> Option<(bool, u64)> {
    match i.mnemonic() {
        Mnemonic::Addsd | Mnemonic::Mulsd => Some((false, 1)),
        Mnemonic::Vfmadd213sd => Some((false, 2)),
        Mnemonic::Addpd | Mnemonic::Mulpd => Some((true, 2)),
        _ => None,
    }
}

/// An instruction and what it counts; nothing for a breakpoint.
fn decoded(bytes: &[u8], at: u64) -> Option<(Instruction, Counts)> {
    let i = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
    if i.code() == Code::Int3 {
        return None;
    }
    let mut out = Counts {
        instructions: 1,
        branches: u64::from(i.flow_control() != FlowControl::Next),
        ..Counts::default()
    };
    match arithmetic(&i) {
        Some((false, n)) => (out.scalar, out.scalar_operations) = (1, n),
        Some((true, n)) => (out.vector, out.vector_operations) = (1, n),
        None => {}
    }
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
    Some((i, out))
}
