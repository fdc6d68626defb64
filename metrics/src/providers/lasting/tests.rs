use super::*;
use crate::providers::testing::{key, snapshot};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const SF: MetricId = MetricId::SpeedupFactor(CoreTypeId(0));
const ON: &str = "big=1024 little=446";
const NOW: u64 = 1_800_000_000;

fn now() -> u64 {
    NOW
}

fn comm(name: &str) -> Comm {
    let mut c = [0; 16];
    c[..name.len()].copy_from_slice(name.as_bytes());
    c
}

fn executable(path: &str) -> Executable {
    Executable {
        path: path.to_owned(),
        size: 1,
        mtime_ns: 1,
    }
}

fn program(path: &str, name: &str) -> Key {
    Key {
        on: ON.into(),
        executable: executable(path),
        name: ProgramName::any(comm(name)),
    }
}

/// Says of each thread what it was told, and notes what is expected of its factor.
#[derive(Default)]
struct Told(
    Arc<Mutex<BTreeMap<u32, Estimate>>>,
    Arc<Mutex<BTreeMap<u32, f64>>>,
    Arc<Mutex<Trials>>,
);

/// What moves have shown of each thread, and what is expected of that.
#[derive(Default)]
struct Trials {
    shown: BTreeMap<u32, Estimate>,
    expected: BTreeMap<u32, f64>,
}

impl Provider for Told {
    fn name(&self) -> &str {
        "told"
    }
    fn observe(&mut self, _: &Snapshot) {}
    fn expect(&mut self, thread: ThreadKey, of: MetricId, remembered: Option<Estimate>) {
        let mut expected = self.1.lock().unwrap();
        match remembered.filter(|_| of == SF) {
            Some(e) => expected.insert(thread.slot, e.value),
            None => expected.remove(&thread.slot),
        };
    }
    fn expect_shown(&mut self, thread: ThreadKey, of: CoreTypeId, remembered: Option<Estimate>) {
        let mut trials = self.2.lock().unwrap();
        match remembered.filter(|_| of == CoreTypeId(0)) {
            Some(e) => trials.expected.insert(thread.slot, e.value),
            None => trials.expected.remove(&thread.slot),
        };
    }
    fn shown(&self, thread: ThreadKey, of: CoreTypeId) -> Option<Estimate> {
        let trials = self.2.lock().unwrap();
        (of == CoreTypeId(0)).then(|| trials.shown.get(&thread.slot).copied())?
    }
    fn estimate(&self, thread: ThreadKey, of: MetricId) -> Option<Estimate> {
        let told = self.0.lock().unwrap();
        (of == SF).then(|| told.get(&thread.slot).copied())?
    }
}

/// Answers at the next interval, from a table by slot; a slot that is not there has no executable.
struct Table {
    paths: Arc<Mutex<BTreeMap<u32, String>>>,
    asked: VecDeque<Found>,
}

impl Identify for Table {
    fn ask(&mut self, s: &ThreadSample) -> bool {
        let path = self.paths.lock().unwrap().get(&s.key.slot).cloned();
        self.asked.push_back(Found {
            thread: s.key,
            comm: s.comm,
            app: s.app,
            what: match path.as_deref() {
                None => Finding::None,
                Some("changed") => Finding::Changed,
                Some(path) => Finding::Executable(executable(path)),
            },
        });
        true
    }
    fn found(&mut self) -> Option<Found> {
        self.asked.pop_front()
    }
}

struct Lab {
    told: Arc<Mutex<BTreeMap<u32, Estimate>>>,
    expected: Arc<Mutex<BTreeMap<u32, f64>>>,
    trials: Arc<Mutex<Trials>>,
    paths: Arc<Mutex<BTreeMap<u32, String>>>,
    memory: SharedMemory,
    provider: Lasting,
    ms: u64,
}

impl Lab {
    fn with(memory: SharedMemory) -> Lab {
        let told = Told::default();
        let (said, expected, paths) = (told.0.clone(), told.1.clone(), Arc::default());
        let trials = told.2.clone();
        let table = Table {
            paths: Arc::clone(&paths),
            asked: VecDeque::new(),
        };
        Lab {
            told: said,
            expected,
            trials,
            paths,
            provider: Lasting::new(Box::new(told), memory.clone(), Box::new(table), ON, now),
            memory,
            ms: 0,
        }
    }

    /// A run of scx_amp after another one, with what was written in between.
    fn restarted(&self) -> Lab {
        let text = crate::memory::write(&self.memory.lock()).unwrap();
        Lab::with(SharedMemory::new(crate::memory::read(&text, NOW).unwrap()))
    }

    fn says(&self, slot: u32, value: f64, uncertainty: Option<f64>, quality: Quality) {
        let e = Estimate {
            value,
            uncertainty,
            age: Nanos::ZERO,
            quality,
        };
        self.told.lock().unwrap().insert(slot, e);
    }

    fn is(&self, slot: u32, path: &str) {
        self.paths.lock().unwrap().insert(slot, path.to_owned());
    }

    /// An interval of 100 ms in which threads of these names ran.
    fn run(&mut self, threads: &[(u32, &str)]) {
        self.ms += 100;
        let slots: Vec<u32> = threads.iter().map(|(slot, _)| *slot).collect();
        let mut s = snapshot(self.ms, &slots, Vec::new());
        for (t, (_, name)) in s.threads.iter_mut().zip(threads) {
            // what follows a blank are arguments
            let (name, arguments) = name.split_once(' ').unwrap_or((name, ""));
            t.comm = comm(name);
            t.arguments = arguments.bytes().map(u64::from).sum();
            t.runtime[0] = Nanos::from_millis(self.ms);
        }
        self.provider.observe(&s);
    }

    fn hears(&self, slot: u32) -> Option<Estimate> {
        self.provider.estimate(key(slot), SF)
    }

    fn value(&self, slot: u32) -> Option<f64> {
        self.hears(slot).map(|e| e.value)
    }
}

/// A lab whose memory has met `/bin/a` as `a`, with a factor of 3.
fn acquainted() -> Lab {
    let mut lab = Lab::with(SharedMemory::default());
    lab.is(1, "/bin/a");
    lab.run(&[(1, "a")]);
    lab.says(1, 3.0, Some(0.2), Quality::Multiplexed);
    for _ in 0..10 {
        lab.run(&[(1, "a")]);
    }
    lab
}

#[test]
fn a_known_program_is_known_at_the_first_tick_after_a_restart() {
    let lab = acquainted();
    assert_eq!(lab.value(1), Some(3.0));
    let mut lab = lab.restarted();
    lab.is(5, "/bin/a");
    lab.is(6, "/opt/other/a");
    lab.run(&[(5, "a"), (6, "a"), (7, "b")]);
    // by its name, as long as its executable is not known
    assert_eq!(lab.value(5), Some(3.0));
    assert_eq!(lab.value(7), None);
    lab.run(&[(5, "a"), (6, "a"), (7, "b")]);
    let e = lab.hears(5).unwrap();
    assert_eq!((e.value, e.quality), (3.0, Quality::Stale));
    // 0.2 that was stated, 10 % for another run
    assert!(
        (e.uncertainty.unwrap() - 0.13f64.sqrt()).abs() < 1e-9,
        "{e:?}"
    );
    assert_eq!(lab.value(6), None, "another executable of that name");
    let runs = |lab: &Lab| lab.memory.lock().programs()[0].runs;
    assert_eq!(runs(&lab), 2);
    lab.run(&[(5, "b")]);
    assert_eq!(lab.value(5), None, "an exec makes it another program");
}

#[test]
fn what_the_inner_provider_measures_goes_first_and_is_remembered() {
    let mut lab = acquainted().restarted();
    lab.is(1, "/bin/a");
    lab.says(1, 1.0, None, Quality::Partial);
    lab.run(&[(1, "a")]);
    lab.run(&[(1, "a")]);
    assert_eq!(lab.value(1), Some(3.0), "a partial value is no measurement");
    lab.says(1, 2.0, Some(0.1), Quality::Exact);
    lab.run(&[(1, "a")]);
    assert_eq!(lab.value(1), Some(2.0));
    // from now on the memory is silent about this thread
    lab.says(1, 2.1, Some(0.1), Quality::Stale);
    lab.run(&[(1, "a")]);
    assert_eq!(lab.value(1), Some(2.1));
    let id = lab.memory.lock().find(&program("/bin/a", "a")).unwrap();
    let known = lab.memory.lock().recall(id, 0, 0, NOW).unwrap();
    assert!(known.value < 3.0 && known.value > 2.8, "{known:?}");
}

#[test]
fn what_was_declared_and_what_has_no_executable_is_not_remembered() {
    let mut lab = Lab::with(SharedMemory::default());
    lab.is(1, "/bin/a");
    lab.says(1, 3.0, None, Quality::Exact);
    lab.says(2, 3.0, Some(0.1), Quality::Exact);
    for _ in 0..5 {
        lab.run(&[(1, "a"), (2, "kworker")]);
    }
    assert!(lab.memory.lock().is_empty());
    // a thread that had begun another program when it was looked at is asked for again
    lab.is(3, "changed");
    lab.says(3, 3.0, Some(0.1), Quality::Exact);
    lab.run(&[(3, "c")]);
    lab.is(3, "/bin/c");
    lab.run(&[(3, "c")]);
    lab.run(&[(3, "c")]);
    assert!(lab.memory.lock().find(&program("/bin/c", "c")).is_some());
}

#[test]
fn what_is_forgotten_is_asked_no_more() {
    let mut lab = acquainted().restarted();
    lab.is(1, "/bin/a");
    lab.run(&[(1, "a")]);
    lab.run(&[(1, "a")]);
    assert_eq!(lab.value(1), Some(3.0));
    let expected = |lab: &Lab| lab.expected.lock().unwrap().get(&1).copied();
    assert_eq!(expected(&lab), Some(3.0));
    assert_eq!(lab.memory.lock().forget(|_| true), 1);
    lab.run(&[(1, "a")]);
    assert_eq!(lab.value(1), None);
    assert_eq!(expected(&lab), None, "the inner provider is told, too");
}

#[test]
fn between_other_core_types_nothing_is_known() {
    let lab = acquainted();
    let table = Table {
        paths: Arc::clone(&lab.paths),
        asked: VecDeque::new(),
    };
    let inner = Box::new(Told::default());
    let mut other = Lasting::new(
        inner,
        lab.memory.clone(),
        Box::new(table),
        "big=1 little=1",
        now,
    );
    for ms in [100, 200, 300] {
        let mut s = snapshot(ms, &[1], Vec::new());
        s.threads[0].comm = comm("a");
        s.threads[0].runtime[0] = Nanos::from_millis(ms);
        other.observe(&s);
    }
    assert_eq!(other.estimate(key(1), SF), None);
}

proptest! {
    /// An adversary: a memory of lies about every program, and an inner provider that falls silent,
    /// doubts and lies as it likes. From its first fresh estimate of a thread on, and in any case
    /// from [`TRUSTED_FOR`] of the thread's CPU time on, everything is as without a memory; before
    /// that no answer is surer than what is remembered.
    #[test]
    fn a_memory_misleads_for_no_longer_than_stated(
        lie in 0.1f64..20.0,
        lied in 0.0f64..2.0,
        said in prop::collection::vec((0u8..6, 0.1f64..20.0, 0u8..3), 1..250),
    ) {
        let memory = SharedMemory::default();
        {
            let mut m = memory.lock();
            let id = m.enter(&program("/bin/a", "a"), NOW).unwrap();
            for _ in 0..200 {
                m.learn(id, (0, 0), (lie, lied), NOW);
            }
        }
        let least = memory.lock().recall(0, 0, 0, NOW).unwrap().uncertainty.unwrap();
        let mut lab = Lab::with(memory);
        lab.is(1, "/bin/a");
        let mut fresh = false;
        let mut began = None;
        for (what, value, often) in said {
            let quality = match what {
                0 => Quality::Exact,
                1 => Quality::Multiplexed,
                2 => Quality::Stale,
                _ => Quality::Partial,
            };
            lab.told.lock().unwrap().remove(&1);
            // mostly nothing: that is when a memory speaks
            if what < 5 && often == 0 {
                lab.says(1, value, Some(0.1), quality);
            }
            lab.run(&[(1, "a")]);
            let inner = lab.told.lock().unwrap().get(&1).copied();
            fresh |= inner.is_some_and(|e| e.quality < Quality::Partial);
            let first = *began.get_or_insert(lab.ms);
            let over = Nanos::from_millis(lab.ms - first) > TRUSTED_FOR;
            let heard = lab.hears(1);
            if fresh || over {
                prop_assert_eq!(heard, inner);
            } else if heard != inner {
                prop_assert!(heard.unwrap().quality == Quality::Stale);
                // a run more than when it was learned, at most
                prop_assert!(heard.unwrap().uncertainty.unwrap() >= least * 0.7);
            }
        }
    }
}

/// Two scripts of one interpreter, and a third one that nobody has met.
#[test]
fn programs_are_remembered_with_their_arguments_and_as_what_their_name_promises() {
    let mut lab = Lab::with(SharedMemory::default());
    for (slot, sf) in [(1, 1.2), (2, 3.0)] {
        lab.is(slot, "/bin/python3");
        lab.says(slot, sf, Some(0.05), Quality::Exact);
    }
    for _ in 0..20 {
        lab.run(&[(1, "python3 a"), (2, "python3 b")]);
    }
    let mut next = lab.restarted();
    for slot in 1..4 {
        next.is(slot, "/bin/python3");
    }
    let threads = [(1, "python3 a"), (2, "python3 b"), (3, "python3 c")];
    next.run(&threads);
    next.run(&threads);
    let sf = |slot| next.provider.estimate(key(slot), SF).unwrap();
    assert!((sf(1).value - 1.2).abs() < 0.01, "{:?}", sf(1));
    assert!((sf(2).value - 3.0).abs() < 0.01, "{:?}", sf(2));
    // between them, and nobody knows where
    let third = sf(3);
    assert!(third.value > 1.3 && third.value < 2.9, "{third:?}");
    assert!(third.uncertainty.unwrap() > 0.5, "{third:?}");
}

/// What a model says of a program and what moves have shown of it are two things, and stay so over a restart.
#[test]
fn what_moves_have_shown_is_remembered_apart() {
    let mut lab = Lab::with(SharedMemory::default());
    lab.is(1, "/bin/a");
    lab.says(1, 1.2, Some(0.05), Quality::Exact);
    let trial = |quality| Estimate {
        value: 3.4,
        uncertainty: Some(0.2),
        age: Nanos::ZERO,
        quality,
    };
    let shows = |lab: &Lab, quality| {
        let mut trials = lab.trials.lock().unwrap();
        trials.shown.insert(1, trial(quality));
    };
    let expected = |lab: &Lab| lab.trials.lock().unwrap().expected.get(&1).copied();
    // a run of scx_amp after this one, in which a program of that name begins
    let next = |lab: &Lab, name| {
        let mut next = lab.restarted();
        next.is(1, "/bin/a");
        next.run(&[(1, name)]);
        next.run(&[(1, name)]);
        next
    };
    // what is not of this run is not learned
    shows(&lab, Quality::Stale);
    for _ in 0..3 {
        lab.run(&[(1, "a x")]);
    }
    assert_eq!(expected(&next(&lab, "a x")), None);
    shows(&lab, Quality::Multiplexed);
    for _ in 0..3 {
        lab.run(&[(1, "a x")]);
    }
    let mut again = next(&lab, "a x");
    assert_eq!(expected(&again), Some(3.4));
    assert!(again.value(1).is_some_and(|v| (v - 1.2).abs() < 1e-9));
    again.memory.lock().forget(|_| true);
    again.run(&[(1, "a x")]);
    assert_eq!(expected(&again), None);
    // with other arguments it is another program, of which nothing was shown
    let other = next(&lab, "a y");
    assert_eq!((other.value(1), expected(&other)), (Some(1.2), None));
}
