//! The clocks of the core types, which the guest sets.
//!
//! The registers ([`amp_machine::frequency`]) are plain memory, so nothing is told when one is
//! written: each vCPU looks when it looks at the others, a quarter of a quantum apart (or half a millisecond, where it
//! lets time pass), and when it wakes up. That is what a change takes here; on silicon it takes as long.
//!
//! A vCPU at another clock has another [`TypeModel`]: only blocks, whose costs are found when they
//! are translated, keep those of the fastest clock and are multiplied
//! ([`Pace`](crate::model::Pace)).

use crate::board::Board;
use crate::model::TypeModel;
use crate::qemu::Internals;
use crate::vcpu::{Own, Vcpu};
use amp_machine::frequency::{address, at_boot, DOMAIN_BYTES, WANTED};
use amp_machine::MachineFile;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use std::sync::Once;

/// The clocks of all core types.
#[derive(Debug)]
pub struct Frequency {
    /// Physical address of the registers.
    address: u64,
    types: Vec<Domain>,
    filled: Once,
}

/// A core type's clock.
#[derive(Debug)]
struct Domain {
    /// What its registers hold when the guest boots.
    registers: Vec<(usize, u32)>,
    /// The core type at each of its operating points.
    points: &'static [TypeModel],
    /// The register that the guest writes; null before it runs.
    wanted: AtomicPtr<AtomicU32>,
}

impl Frequency {
    /// The clocks of `machine`, whose core types `types` become those at the fastest one.
    ///
    /// # Errors
    /// When it has no operating points.
    pub fn new(machine: &MachineFile, types: &mut [TypeModel]) -> Result<Frequency, String> {
        if !machine.scales_frequency() {
            return Err(format!(
                "argument `dvfs`: machine `{}` has no operating points",
                machine.name
            ));
        }
        let (board, models) = machine.board_models().map_err(|e| e.to_string())?;
        let domain = |(t, m): (&mut TypeModel, &amp_machine::CoreModel)| {
            let points = m.operating_points.iter().map(|p| t.at(m, *p));
            let points: &'static [TypeModel] = points.collect::<Vec<_>>().leak();
            if let Some(fastest) = points.last() {
                *t = fastest.clone();
            }
            Domain {
                registers: at_boot(&m.operating_points),
                points,
                wanted: AtomicPtr::default(),
            }
        };
        Ok(Frequency {
            address: address(board),
            types: types.iter_mut().zip(models).map(domain).collect(),
            filled: Once::new(),
        })
    }

    /// Fills the registers.
    ///
    /// # Errors
    /// When there is no memory where they are to be.
    fn fill(&self, qemu: &Internals) -> Result<(), String> {
        for (i, domain) in (0..).zip(&self.types) {
            let at = self.address + i * DOMAIN_BYTES;
            let Some(base) = qemu.memory(at, DOMAIN_BYTES) else {
                return Err(format!(
                    "argument `dvfs`: the guest has no memory at {at:#x}, where its clocks are to be set"
                ));
            };
            for (offset, value) in &domain.registers {
                // SAFETY: offsets are multiples of 4 within the registers' bytes, which are mapped;
                // a page of the guest begins at a page of this process.
                unsafe { (*base.add(*offset).cast::<AtomicU32>()).store(*value, Relaxed) };
            }
            // SAFETY: as above.
            let wanted = unsafe { base.add(WANTED) }.cast::<AtomicU32>();
            domain.wanted.store(wanted, Release);
        }
        Ok(())
    }

    /// What core type `i` is to run at: the number of the operating point, and the core type there.
    fn wanted(&self, i: usize) -> Option<(u32, &'static TypeModel)> {
        let domain = self.types.get(i)?;
        let word = domain.wanted.load(Acquire);
        // SAFETY: null, or the register, which stays mapped for the life of the process.
        let row = unsafe { word.as_ref() }?.load(Relaxed);
        Some((row, domain.points.get(row as usize)?))
    }
}

/// Fills the registers, unless that was done. To be called when a guest runs: vCPUs are made, and
/// woken for the first time, before the memory is where it belongs.
pub fn fill(b: &Board) {
    if let Some(frequency) = &b.frequency {
        frequency.filled.call_once(|| {
            if let Err(e) = frequency.fill(&b.qemu) {
                crate::fatal(&e);
            }
        });
    }
}

/// Takes over the clock that the guest wants. On the vCPU's thread.
pub fn look(b: &Board, v: &Vcpu, own: &mut Own) {
    let Some(frequency) = &b.frequency else {
        return;
    };
    let Some((point, model)) = frequency.wanted(v.core_type) else {
        return;
    };
    if point == own.point {
        return;
    }
    own.settle();
    own.counts
        .iter_mut()
        .for_each(|c| c.clock_changes(own.model));
    own.point = point;
    own.model = model;
    own.pace = model.pace;
    // cycles come at another rate
    if own.overflow_at != u64::MAX {
        own.overflow_at = v.time.load(Relaxed);
        own.limit = own.sync_at.min(own.overflow_at);
    }
}
