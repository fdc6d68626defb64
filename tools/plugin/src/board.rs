//! Everything the callbacks share, set up once when the plugin is loaded.

use crate::args::{Args, Fault, Tied};
use crate::bandwidth::Memory;
use crate::cache::L2;
use crate::clock::Clock;
use crate::coherence::Directory;
use crate::ffi::Api;
use crate::frequency::Frequency;
use crate::model::TypeModel;
use crate::publish::PageWriter;
use crate::qemu::Internals;
use crate::translate::Arena;
use crate::vcpu::Vcpu;
use amp_machine::page::MAX_CPUS;
use amp_machine::MachineFile;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The board. It lives as long as the process: QEMU calls back until the very end.
pub struct Board {
    pub api: Api,
    pub qemu: Internals,
    pub types: &'static [TypeModel],
    pub vcpus: &'static [Vcpu],
    pub page: PageWriter,
    pub clock: Clock,
    /// Who holds which line, if the machine says what a line from another core costs.
    pub coherence: Option<Directory>,
    /// The memory's rate, if the machine has one.
    pub memory: Option<Memory>,
    /// The clocks, if the guest sets them.
    pub frequency: Option<Frequency>,
    pub arena: Arena,
    /// Whether caches, memory and branch prediction are left out as yet ([`Args::quick_boot`]).
    pub boots: AtomicBool,
    pub report: bool,
    pub fault: Option<Fault>,
    pub tied: Vec<Tied>,
    /// Events that the cores do not have.
    pub lacks: Vec<u16>,
}

static BOARD: AtomicPtr<Board> = AtomicPtr::new(std::ptr::null_mut());
/// Each of [`Board::vcpus`], for the hot path.
static VCPUS: [AtomicPtr<Vcpu>; MAX_CPUS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_CPUS];

/// The board.
#[inline]
pub fn board() -> &'static Board {
    // SAFETY: `Board::install` stores a leaked board before it registers any callback, and only
    // callbacks come here.
    unsafe { &*BOARD.load(Ordering::Relaxed) }
}

/// vCPU `i`, as QEMU numbers them.
#[inline]
pub fn vcpu(i: u32) -> &'static Vcpu {
    // SAFETY: as for `board`; QEMU's vCPU numbers are below `smp_vcpus`, for which `Board::new`
    // made a vCPU each, at most `MAX_CPUS`.
    unsafe { &*VCPUS.get_unchecked(i as usize).load(Ordering::Relaxed) }
}

impl Board {
    /// A board of `nr_vcpus` CPUs.
    ///
    /// # Errors
    /// When the machine file or the page cannot be used, or the numbers of CPUs differ.
    pub fn new(args: &Args, nr_vcpus: usize, api: Api, qemu: Internals) -> Result<Board, String> {
        let machine = MachineFile::load(&args.machine).map_err(|e| e.to_string())?;
        let (parameters, models) = machine.board_models().map_err(|e| e.to_string())?;
        if machine.nr_cpus() != nr_vcpus {
            return Err(format!(
                "machine `{}` has {} CPUs but QEMU was started with -smp {nr_vcpus}: make them equal",
                machine.name,
                machine.nr_cpus()
            ));
        }
        let dilation = args.dilation.unwrap_or(parameters.dilation);
        let quantum_us = args.quantum_us.unwrap_or(parameters.quantum_us);
        let mut types: Vec<TypeModel> = models
            .iter()
            .enumerate()
            .map(|(i, m)| TypeModel::new(i, m, dilation))
            .collect();
        let frequency = match args.dvfs {
            true => Some(Frequency::new(&machine, &mut types)?),
            false => None,
        };
        let types: &'static [TypeModel] = types.leak();
        let l2s: Vec<L2> = types
            .iter()
            .map(|t| L2::new(t.l2_sets, t.l2_ways, args.seed ^ t.index as u64))
            .collect();
        let l2s: &'static [L2] = l2s.leak();
        let core_types: Vec<usize> = (0..nr_vcpus)
            .map(|i| machine.core_type_of(i as u32).unwrap_or(0))
            .collect();
        let vcpus: Vec<Vcpu> = core_types
            .iter()
            .enumerate()
            .map(|(i, &t)| {
                // SAFETY: allocates an empty array.
                let bytes = unsafe { (api.bytes_new)() };
                Vcpu::new(i, &types[t], &l2s[t], args, bytes)
            })
            .collect();
        let page = PageWriter::create(&args.page)?;
        let clock = Clock::new(u64::from(quantum_us) * 1_000_000);
        let coherent = models.iter().all(|m| m.memory.transfer_ns.is_some());
        let lines = core_types
            .iter()
            .map(|&t| types[t].l1_sets * types[t].l1_ways)
            .sum();
        let transfer = types.iter().flat_map(|t| t.transfer_ps).flatten().max();
        let transfer = transfer.unwrap_or(0);
        let coherence =
            coherent.then(|| Directory::new(lines, nr_vcpus, clock.quantum(), transfer));
        let line = models.first().map_or(64, |m| m.l1d.line);
        let memory = parameters
            .memory_gb_per_s
            .map(|rate| Memory::new(rate, line.into(), dilation.into(), clock.quantum()));
        page.start(types, &core_types, clock.quantum());
        Ok(Board {
            api,
            qemu,
            types,
            vcpus: vcpus.leak(),
            page,
            clock,
            coherence,
            memory,
            frequency,
            arena: Arena::default(),
            boots: AtomicBool::new(args.quick_boot),
            report: args.report,
            fault: args.fault,
            tied: args.tied.clone(),
            lacks: args.lacks.clone(),
        })
    }

    /// Makes this the board that callbacks see. Called once, before any is registered.
    pub fn install(self) -> &'static Board {
        let board: &'static Board = Box::leak(Box::new(self));
        for (slot, v) in VCPUS.iter().zip(board.vcpus) {
            slot.store(std::ptr::from_ref(v).cast_mut(), Ordering::SeqCst);
        }
        BOARD.store(std::ptr::from_ref(board).cast_mut(), Ordering::SeqCst);
        board
    }
}
