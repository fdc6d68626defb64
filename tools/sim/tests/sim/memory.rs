//! What policies make of a memory that lasts: one that is right, and one that lies.

use crate::common::{machine, ms};
use amp_metrics::memory::{self, Executable, Memory};
use amp_metrics::providers::{Finding, Found, Identify, Lasting, SharedMemory, TRUSTED_FOR};
use amp_metrics::{Nanos, ThreadSample};
use amp_sched::{policy, Engine, Machine};
use amp_sim::{MachineOptions, ProviderSpec, SimApp, SimMachine};
use std::collections::VecDeque;

const NOW: u64 = 1_800_000_000;
const INTERVAL: Nanos = ms(100);

/// Every program has the executable of its name, known at the next interval.
#[derive(Default)]
struct ByName(VecDeque<Found>);

impl Identify for ByName {
    fn ask(&mut self, t: &ThreadSample) -> bool {
        let name = String::from_utf8_lossy(&t.comm).replace('\0', "");
        self.0.push_back(Found {
            thread: t.key,
            comm: t.comm,
            app: t.app,
            what: Finding::Executable(Executable {
                path: format!("/bin/{name}"),
                size: 1,
                mtime_ns: 1,
            }),
        });
        true
    }
    fn found(&mut self) -> Option<Found> {
        self.0.pop_front()
    }
}

/// Instruction rates of six programs (big, small; 10⁹/s).
type Rates = [(f64, f64); 6];

const RATES: Rates = [
    (1.1, 1.0),
    (2.4, 0.8),
    (1.8, 1.5),
    (3.0, 1.0),
    (0.9, 0.6),
    (2.0, 1.3),
];

/// What came of a run.
struct Done {
    /// Instructions per program, 10⁹.
    work: Vec<f64>,
    /// Time on big cores per program, in seconds.
    big: Vec<f64>,
}

/// Six programs of these rates on two big and four small cores under `hsp` for so long, with a
/// provider that has to measure on both core types.
fn run(rates: &Rates, provider: &str, memory: Option<&SharedMemory>, end: Nanos) -> Done {
    let program = |(i, (big, small)): (usize, &(f64, f64))| {
        SimApp::steady(&format!("p{i}"), 1e15, big * 1e9, small * 1e9)
    };
    let apps: Vec<SimApp> = rates.iter().enumerate().map(program).collect();
    let file = machine(&[2, 4], 50);
    let mut sim = SimMachine::new(&file, &apps, MachineOptions::default(), 7).unwrap();
    let hsp = policy::for_machine("hsp", 7, sim.topology()).unwrap();
    let spec = ProviderSpec::named(provider).unwrap();
    let mut inner = spec.make(&mut sim, 7).unwrap();
    if let Some(memory) = memory {
        let types = sim.topology().core_types().iter();
        let on = memory::core_types(types.map(|t| (t.name.as_str(), t.capacity)));
        let names = Box::<ByName>::default();
        inner = Box::new(Lasting::new(inner, memory.clone(), names, &on, || NOW));
    }
    let mut engine = Engine::new(sim.topology().clone(), hsp, inner);
    while sim.now() < end {
        let next = sim.now() + INTERVAL;
        sim.run_until(next);
        engine.tick(&mut sim).unwrap();
    }
    let big = |i| sim.app_stats(i).unwrap().runtime[0].as_secs_f64();
    let work = |i| sim.app_stats(i).unwrap().instructions.iter().sum::<f64>() / 1e9;
    Done {
        work: (0..rates.len()).map(work).collect(),
        big: (0..rates.len()).map(big).collect(),
    }
}

/// The memory after a run of these programs, written and read.
fn met(rates: &Rates) -> SharedMemory {
    let memory = SharedMemory::new(Memory::default());
    run(rates, "ipc-sampling", Some(&memory), ms(60_000));
    let text = memory::write(&memory.lock()).unwrap();
    SharedMemory::new(memory::read(&text, NOW).unwrap())
}

#[test]
fn programs_that_were_met_have_their_cores_at_the_second_meeting() {
    let memory = met(&RATES);
    assert_eq!(memory.lock().len(), 6);
    let known = run(&RATES, "ipc-sampling", Some(&memory), ms(5_000));
    // those of factor 3 from the first decision on, but for probes of the others
    let best = |d: &Done| d.big[1] + d.big[3];
    assert!(best(&known) > 0.88 * 2.0 * 5.0, "{:?}", known.big);
    let cold = run(&RATES, "ipc-sampling", None, ms(5_000));
    assert!(best(&cold) < best(&known) - 0.5, "{:?}", cold.big);
    let all = |d: &Done| d.work.iter().sum::<f64>();
    assert!(all(&known) > all(&cold), "{:?} {:?}", known.work, cold.work);
}

/// An adversary: programs that are the contrary of what they were. What a program loses by the
/// memory is over when the memory is silent, after [`TRUSTED_FOR`] of its CPU time at the latest;
/// an interval more for the decision, and one for each of the two core types to be measured on.
#[test]
fn a_memory_of_lies_costs_no_program_more_than_stated() {
    let mut other = RATES;
    other.rotate_left(2);
    let mut contrary = RATES;
    contrary.reverse();
    for lied in [other, contrary] {
        let memory = met(&lied);
        for seconds in [15, 30, 60] {
            let end = Nanos::from_secs(seconds);
            for provider in ["ipc-sampling", "remembered", "measured"] {
                let with = run(&RATES, provider, Some(&memory), end);
                let without = run(&RATES, provider, None, end);
                for (i, (big, small)) in RATES.iter().enumerate() {
                    let most = (TRUSTED_FOR.as_secs_f64() + 0.3) * (big - small);
                    let lost = without.work[i] - with.work[i];
                    assert!(
                        lost <= most,
                        "{provider}, p{i}, {seconds} s: {lost} > {most}"
                    );
                }
            }
        }
    }
}
