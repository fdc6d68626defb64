//! Passes of programs through their work, as a run of the mix sees them: how long each takes, where
//! it runs, and what it retires.

use super::where_ran::PerType;
use amp_eval::evaluation::{Pass, Progress, Unfinished};
use amp_host::clock;
use amp_metrics::group::{Group, GroupError, Whom};
use amp_metrics::{Event, Nanos};
use amp_pmc::CounterInventory;
use anyhow::Result;

/// Counts the instructions of single programs, whoever schedules them.
///
/// A program's own counters compete with those of a provider, which are on every CPU and go first.
/// So programs are counted only where no provider counts.
#[derive(Debug, Default)]
pub struct InstructionCounter {
    /// The program's own instructions, on each PMU of the machine.
    events: Vec<Event>,
}

/// What counts as a program's work, the first that its PMUs count.
///
/// Instructions of the kernel on its behalf are no measure of that: a pass that finds memory in large
/// pages takes a fault for each, the next one a fault for each 4 KiB. Of `chase` on the board they
/// differ by a fifth from pass to pass, those of its own by less than a thousandth
/// (docs/evidence/counters.md).
const WORK: [&str; 2] = ["instructions:u", "instructions"];

impl InstructionCounter {
    /// A counter for the PMUs of `inventory`. Where there are none, or they do not count
    /// instructions, it counts nothing.
    pub fn of(inventory: &CounterInventory) -> InstructionCounter {
        let counters = WORK
            .iter()
            .filter_map(|w| InstructionCounter::counting(inventory, w));
        let opens = |c: &InstructionCounter| c.open(own_pid()).is_ok();
        counters.into_iter().find(opens).unwrap_or_default()
    }

    /// A counter of `what`; none unless every core type has it.
    fn counting(inventory: &CounterInventory, what: &str) -> Option<InstructionCounter> {
        let spec = what.parse().ok()?;
        let mut events: Vec<Event> = Vec::new();
        for t in inventory.pmus.core_types() {
            let event = inventory.pmus.resolve(t, &spec).ok()?;
            if events.iter().all(|e| e.pmu != event.pmu) {
                events.push(event);
            }
        }
        Some(InstructionCounter { events })
    }

    fn open(&self, pid: i32) -> Result<Vec<Group>, GroupError> {
        let open = |event: &Event| {
            let mut group = Group::open(std::slice::from_ref(event), Whom::Task(pid), false)?;
            group.start()?;
            Ok(group)
        };
        self.events.iter().map(open).collect()
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// A pass at work.
#[derive(Debug)]
pub struct Begun {
    started: Nanos,
    /// The last look at where it ran.
    seen: Nanos,
    ran: PerType,
    /// Counters of the program and what it starts; empty where it is not counted.
    counters: Vec<Group>,
}

impl Begun {
    /// The pass of process `pid`, which has just been started.
    pub fn new(pid: i32, started: Nanos, counter: Option<&InstructionCounter>) -> Begun {
        // one that has ended already has no counters, and no count
        let counters = counter.and_then(|c| c.open(pid).ok());
        Begun {
            started,
            seen: started,
            ran: PerType::default(),
            counters: counters.unwrap_or_default(),
        }
    }

    /// It ran so long on each core type since the last look.
    pub fn ran(&mut self, ran: &PerType, now: Nanos) {
        self.seen = now;
        for (sum, r) in self.ran.iter_mut().zip(ran) {
            *sum += *r;
        }
    }

    /// What the pass has been up to now. Where it ran since the last look is taken from before.
    pub fn pass(&mut self, core_types: usize) -> Pass {
        let took = clock::now().saturating_sub(self.started).as_secs_f64();
        let seen = self.seen.saturating_sub(self.started).as_secs_f64();
        let unseen = if seen > 0.0 { took / seen } else { 1.0 };
        let ran = self.ran.iter().take(core_types);
        Pass {
            took_s: took,
            time_s: ran.map(|r| r.as_secs_f64() * unseen).collect(),
            instructions: self.instructions(),
        }
    }

    /// Instructions that it has retired, with those of what it started.
    pub fn instructions(&mut self) -> Option<f64> {
        if self.counters.is_empty() {
            return None;
        }
        let mut sum = 0;
        for group in &mut self.counters {
            // a group that lost its counters to others counted too little
            sum += group.read().ok()?.counts.iter().sum::<u64>();
        }
        Some(sum as f64)
    }
}

/// How far an application was at the end of the run: `begun` is the pass that was cut off, if one
/// was.
pub fn unfinished(
    finished: &[Pass],
    begun: Option<&Pass>,
    speeds: &[f64],
    alone: Option<&Progress>,
) -> Unfinished {
    match begun {
        None => {
            let counted = finished.iter().all(|p| p.instructions.is_some());
            Unfinished {
                by_instructions: counted.then_some(0.0),
                ..Unfinished::NOTHING
            }
        }
        Some(pass) => Unfinished::of(finished, pass, speeds, alone),
    }
}
