//! From snapshots to lines and back.

use amp_metrics::event::{Event, EventAttr, EventSet};
use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, Estimate, EventSets, MetricId, Nanos, Phase, Provider, Quality,
    Reading, Snapshot, ThreadKey, ThreadSample, MAX_CORE_TYPES,
};
use amp_recording::format::{Change, RecordedCoreType, VERSION};
use amp_recording::recorder::Chunk;
use amp_recording::{trace, Header, Recorder, Recording, Replay};
use amp_sim::bench::BenchOptions;
use amp_sim::{apps_of, MachineOptions, SimLab, SimMachine};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

fn header() -> Header {
    let core_type = |name: &str, cpus: &str, capacity| RecordedCoreType {
        name: name.into(),
        cpus: cpus.parse().unwrap(),
        capacity,
    };
    Header {
        scx_amp_recording: VERSION,
        program: "0.1.0".into(),
        run: "r".into(),
        part: 0,
        interval_us: 100_000,
        core_types: vec![
            core_type("big", "0-1", 1024),
            core_type("little", "2-5", 446),
        ],
        policy: "rr".into(),
        knobs: BTreeMap::new(),
        provider: "none".into(),
        kernel: Some("7.3.4".into()),
        commands: false,
    }
}

fn event(name: &str) -> Event {
    Event {
        name: name.into(),
        pmu: "cpu".into(),
        attr: EventAttr::default(),
    }
}

fn sets() -> EventSets {
    let mut sets = EventSets::default();
    for t in 0..2 {
        let names = ["cycles", "instructions"];
        let events = names.map(event).to_vec();
        sets.push(CoreTypeId(t), EventSet { events });
    }
    sets
}

/// Tells the same of every thread: what it was made with.
struct Fixed(Option<(f64, f64)>, u32);

impl Provider for Fixed {
    fn name(&self) -> &str {
        "fixed"
    }
    fn observe(&mut self, _: &Snapshot) {}
    fn estimate(&self, _: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let (value, u) = self.0?;
        matches!(metric, MetricId::SpeedupFactor(_)).then_some(Estimate {
            value,
            uncertainty: Some(u),
            age: Nanos::ZERO,
            quality: Quality::Exact,
        })
    }
    fn phase(&self, _: ThreadKey) -> Option<Phase> {
        Some(Phase {
            number: self.1,
            age: Nanos::ZERO,
        })
    }
}

/// A thread in one tick: whether it is there, CPU time in µs and instructions by core type.
type Does = (bool, [u64; 2], [u64; 2]);

fn snapshot(now_us: u64, threads: &[Does], totals: &mut [[u64; 2]]) -> Snapshot {
    let mut s = Snapshot {
        now: Nanos(now_us * 1000),
        ..Snapshot::default()
    };
    for (slot, (there, cpu, ins)) in threads.iter().enumerate() {
        let key = ThreadKey {
            slot: slot as u32,
            generation: 1,
        };
        if !there {
            continue;
        }
        let mut runtime = [Nanos::ZERO; MAX_CORE_TYPES];
        for t in 0..2 {
            totals[slot][t] += cpu[t];
            runtime[t] = Nanos(totals[slot][t] * 1000);
            let ran = Nanos(cpu[t] * 1000);
            let of = CoreTypeId(t as u8);
            s.readings
                .push(Reading::new(key, of, 0, 1, &[7, ins[t]]).over(ran, ran));
        }
        let mut comm = [0; 16];
        comm[..2].copy_from_slice(format!("t{}", slot % 10).as_bytes());
        s.threads.push(ThreadSample {
            key,
            tid: 100 + slot as i32,
            app: AppId(10 + slot as u64 / 2),
            comm,
            arguments: 0,
            weight: 100,
            allowed: CoreTypeSet::ALL,
            runnable: cpu[1] % 2 == 1,
            core_type: CoreTypeId(0),
            placed: (slot % 3 > 0).then_some(CoreTypeId(slot as u8 % 2)),
            runtime,
        });
    }
    s
}

/// The files as they would lie on the disk: only the last two of the parts.
#[derive(Default)]
struct Disk {
    parts: Vec<Vec<u8>>,
}

impl Disk {
    fn put(&mut self, chunk: Chunk) {
        let at = chunk.part as usize;
        assert!(at == self.parts.len() || at + 1 == self.parts.len());
        self.parts.resize(at + 1, Vec::new());
        self.parts[at].extend(chunk.bytes);
    }

    fn read(&self) -> Recording {
        let last = self.parts.len() - 1;
        let before = last.checked_sub(1).map(|i| &self.parts[i][..]);
        let before = before.map(|b| (Path::new("r.1"), b));
        Recording::parse(Path::new("r"), &self.parts[last], before).unwrap()
    }
}

/// A mix of threads over some ticks; each tick is refused by the disk or not.
fn mix() -> impl Strategy<Value = Vec<(bool, Vec<Does>)>> {
    let does = (
        prop::bool::weighted(0.9),
        [0u64..50_000, 0u64..50_000],
        [0u64..1_000_000_000, 0u64..1_000_000_000],
    );
    let tick = (prop::bool::weighted(0.8), prop::collection::vec(does, 6));
    prop::collection::vec(tick, 2..30)
}

proptest! {
    /// Whatever threads come and go, and whatever the disk refuses: what was done is what is read,
    /// nothing twice, nothing lost, in files no longer than allowed.
    #[test]
    fn what_is_recorded_is_read(mix in mix(), most in prop::sample::select(vec![2_500u64, 1 << 20])) {
        let mut recorder = Recorder::new(header(), most, &sets(), None);
        let (mut disk, mut totals) = (Disk::default(), vec![[0; 2]; 6]);
        let mut gone_for_good = [false; 6];
        let mut done: BTreeMap<i32, ([u64; 2], [u64; 2])> = BTreeMap::new();
        let mut seen = [false; 6];
        let provider = Fixed(Some((2.0, 0.1)), 3);
        let last = mix.len();
        for (i, (taken, mut threads)) in mix.into_iter().enumerate() {
            for (slot, does) in threads.iter_mut().enumerate() {
                // a thread that has gone has another key when its slot is used again
                does.0 &= !gone_for_good[slot];
                gone_for_good[slot] |= seen[slot] && !does.0;
                seen[slot] |= does.0;
            }
            let s = snapshot((i as u64 + 1) * 100_000, &threads, &mut totals);
            for (slot, (there, cpu, ins)) in threads.iter().enumerate().filter(|_| i > 0) {
                if *there {
                    let d = done.entry(100 + slot as i32).or_default();
                    for t in 0..2 {
                        d.0[t] += cpu[t];
                        d.1[t] += ins[t];
                    }
                }
            }
            if let Some(chunk) = recorder.tick(&s, &provider) {
                prop_assert!(chunk.bytes.len() as u64 <= most, "{} bytes", chunk.bytes.len());
                // the last one is taken, that all be told
                if taken || i + 1 == last {
                    disk.put(chunk);
                    recorder.taken();
                }
            }
        }
        for part in &disk.parts {
            prop_assert!(part.len() as u64 <= most);
        }
        let read = disk.read();
        prop_assert!(read.spans.windows(2).all(|w| w[0].t_us < w[1].t_us));
        prop_assert_eq!(read.notes.len(), usize::from(read.header.part > 0));
        if disk.parts.len() > 2 {
            return Ok(());
        }
        let mut back: BTreeMap<i32, ([f64; 2], [f64; 2])> = BTreeMap::new();
        for (span, ran) in read.spans.iter().flat_map(|s| s.ran.iter().map(move |r| (s, r))) {
            let who = &read.threads[ran.thread];
            prop_assert_eq!(who.pid, 10 + (who.tid as u64 - 100) / 2);
            // who went while the disk refused lines can be asked for nothing any more
            let asked = !(span.gone.contains(&ran.thread) && ran.sf.is_empty());
            if asked {
                prop_assert_eq!(&ran.sf, &vec![Some((2.0, Some(0.1)))]);
                prop_assert_eq!((ran.phase, ran.ef.len()), (Some(3), 0));
            }
            let b = back.entry(who.tid).or_default();
            for t in 0..2 {
                b.0[t] += ran.cpu_s[t];
                b.1[t] += ran.instructions[t];
                prop_assert_eq!(ran.counted_s[t], ran.cpu_s[t]);
            }
        }
        for (tid, (cpu, ins)) in done {
            if cpu == [0; 2] {
                continue;
            }
            let back = back.get(&tid).copied().unwrap_or_default();
            for t in 0..2 {
                prop_assert!((back.0[t] - cpu[t] as f64 / 1e6).abs() < 1e-9, "{tid}: {back:?} {cpu:?}");
                prop_assert_eq!(back.1[t], ins[t] as f64);
            }
        }
    }

    /// Bytes of any kind, behind a good header or not, are read or refused.
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in any::<prop::sample::Index>(), behind in any::<bool>()) {
        let good = good();
        let mut all = match behind {
            true => good[..cut.index(good.len())].to_vec(),
            false => Vec::new(),
        };
        all.extend(bytes);
        let _ = Recording::parse(Path::new("r"), &all, Some((Path::new("r.1"), &good)));
    }

    /// So are lines with anything else in place of one of their bytes.
    #[test]
    fn no_changed_byte_makes_it_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut all = good();
        let at = at.index(all.len());
        all[at] = byte;
        if let Ok(read) = Recording::parse(Path::new("r"), &all, None) {
            prop_assert!(read.spans.iter().flat_map(|s| &s.ran).all(|r| r.thread < read.threads.len()));
            prop_assert!(trace::write(&read, &mut Vec::new()).is_ok());
            if let Ok(replay) = Replay::of(&read) {
                let options = BenchOptions::default();
                for draw in replay.draws(5, 1) {
                    // every phase is one that the simulator takes
                    let lab = SimLab::new(&draw, &replay.machine, &options);
                    prop_assert!(lab.is_ok());
                    let apps = apps_of(&draw).unwrap();
                    let sim = SimMachine::new(&replay.machine, &apps, MachineOptions::default(), 1);
                    prop_assert!(sim.is_ok(), "{:?}", sim.err());
                }
            }
        }
    }
}

/// A small recording.
fn good() -> Vec<u8> {
    let mut recorder = Recorder::new(header(), 1 << 20, &sets(), None);
    let (mut disk, mut totals) = (Disk::default(), vec![[0; 2]; 6]);
    for i in 1..5u64 {
        let does = |slot: u64| (slot != i, [90_000 - slot, slot], [80_000_000, slot]);
        let threads: Vec<Does> = (0..3).map(does).collect();
        let s = snapshot(i * 100_000, &threads, &mut totals);
        let provider = Fixed((i > 2).then_some((2.0 * i as f64, 0.2)), i as u32);
        if i == 3 {
            recorder.changed(Change {
                policy: "hsp".into(),
                knobs: BTreeMap::new(),
                provider: "model".into(),
            });
        }
        if let Some(chunk) = recorder.tick(&s, &provider) {
            disk.put(chunk);
            recorder.taken();
        }
    }
    disk.parts.remove(0)
}

fn parse(text: &str) -> Result<Recording, String> {
    Recording::parse(Path::new("r"), text.as_bytes(), None).map_err(|e| e.to_string())
}

#[test]
fn factors_hold_until_they_change_and_so_do_phases() {
    let read = parse(&String::from_utf8(good()).unwrap()).unwrap();
    let of = |span: usize| {
        let mut ran = read.spans[span].ran.iter();
        ran.find(|r| read.threads[r.thread].tid == 100).unwrap()
    };
    assert_eq!((of(0).sf.len(), of(0).phase), (0, Some(2)));
    assert_eq!(of(1).sf, [Some((6.0, Some(0.2)))]);
    assert_eq!(
        (&of(2).sf, of(2).phase),
        (&vec![Some((8.0, Some(0.2)))], Some(4))
    );
    let change = read.spans[1].change.as_ref().unwrap();
    assert_eq!((&*change.policy, &*change.provider), ("hsp", "model"));
    assert_eq!(read.spans[1].gone.len(), 0);
    assert!(read.spans[0].gone.len() + read.spans[2].gone.len() <= 2);
}

#[test]
fn a_line_that_was_cut_off_is_left_out_with_a_note_and_only_the_last_one() {
    let text = String::from_utf8(good()).unwrap();
    let whole = parse(&text).unwrap();
    let torn = &text[..text.len() - 9];
    let read = parse(torn).unwrap();
    assert_eq!(read.spans[..], whole.spans[..whole.spans.len() - 1]);
    assert!(
        read.notes[0].contains("line 4 was cut off"),
        "{:?}",
        read.notes
    );
    let e = parse(&format!("{torn}\n")).unwrap_err();
    assert!(e.starts_with("r: line 4: "), "{e}");
    // without the last end of line it is whole all the same
    assert_eq!(parse(text.trim_end()).unwrap().spans, whole.spans);
}

#[test]
fn what_is_wrong_is_told_by_line_and_key() {
    let text = String::from_utf8(good()).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    for (from, to, says) in [
        (
            "\"t\":200000",
            "\"t\":0",
            "r: line 3: key `t`: 0: the line before says 100000",
        ),
        (
            "\"cpu\":[90000]",
            "\"cpu\":[1,2,3]",
            "line 2: key `threads[0].cpu`: 3 core types, and the machine has 2",
        ),
        (
            "\"cpu\":[90000]",
            "\"cpu\":[-1]",
            "line 2: key `threads[0].cpu[0]`: invalid value: integer `-1`",
        ),
        (
            "\"cpu\":[90000]",
            "\"cpus\":[1]",
            "line 2: key `threads[0].cpus`: unknown field `cpus`",
        ),
        (
            "\"tid\":100",
            "\"tid\":\"x\"",
            "key `threads[0].who.tid`: invalid type",
        ),
        (
            "\"sf\":[[6.0,0.2]]",
            "\"sf\":[[-6.0,0.2]]",
            "line 3: key `threads[0].sf`: a list of [factor above 0",
        ),
        (
            "\"on\":1",
            "\"on\":9",
            "].on`: the machine has 2 core types",
        ),
        (
            "\"id\":0,\"who\"",
            "\"id\":0,\"who\":null,\"w\"",
            "key `threads[0].w`: unknown field",
        ),
        ("\"t\":200000", "\"t\"200000", "r: line 3: "),
        (
            "\"phase\":2",
            "\"phase\":2.5",
            "line 2: key `threads[0].phase`: invalid type",
        ),
    ] {
        let bad = format!("{header}\n{}", rest.replacen(from, to, 1));
        assert!(bad.contains(to), "{to}");
        let e = parse(&bad).unwrap_err();
        assert!(e.contains(says), "{to}: {e}");
    }
    let stranger = format!("{header}\n{{\"t\":5,\"threads\":[{{\"id\":8,\"cpu\":[5]}}]}}\n");
    let e = parse(&stranger).unwrap_err();
    assert!(e.contains("key `threads[0].who`: it is missing"), "{e}");
    for (from, to, says) in [
        (
            "\"scx_amp_recording\":1",
            "\"scx_amp_recording\":2",
            "line 1: key `scx_amp_recording`: format 2: this program reads format 1",
        ),
        (
            "\"cpus\":\"0-1\"",
            "\"cpus\":\"0-9\"",
            "key `core_types`: CPU 2",
        ),
        (
            "\"cpus\":\"0-1\"",
            "\"cpus\":\"x\"",
            "key `core_types[0].cpus`: `x` is not a CPU",
        ),
        (
            "\"capacity\":446",
            "\"capacity\":0",
            "key `core_types[1].capacity`: 0",
        ),
        (
            "\"interval_us\":100000",
            "\"interval_us\":0",
            "key `interval_us`",
        ),
        ("\"policy\":\"rr\",", "", "missing field `policy`"),
    ] {
        let bad = format!("{}\n{rest}", header.replacen(from, to, 1));
        let e = parse(&bad).unwrap_err();
        assert!(e.contains(says), "{to}: {e}");
    }
    assert!(parse("").unwrap_err().contains("empty"));
    assert!(parse(&format!("{header}\n"))
        .unwrap_err()
        .contains("no complete tick"));
    assert!(parse(header).unwrap_err().contains("no complete tick"));
    assert!(parse("hello\n").unwrap_err().contains("no recording"));
}

#[test]
fn the_older_half_is_read_where_it_belongs_to_it() {
    let mut recorder = Recorder::new(header(), 1_500, &sets(), None);
    let (mut disk, mut totals) = (Disk::default(), vec![[0; 2]; 3]);
    for i in 1..40u64 {
        let threads = vec![(true, [50_000, 1], [1, 1]); 3];
        let s = snapshot(i * 100_000, &threads, &mut totals);
        if let Some(chunk) = recorder.tick(&s, &Fixed(None, 0)) {
            disk.put(chunk);
            recorder.taken();
        }
    }
    let n = disk.parts.len();
    assert!(n > 3, "{n}");
    let read = disk.read();
    let alone = Recording::parse(Path::new("r"), &disk.parts[n - 1], None).unwrap();
    assert!(read.spans.len() > alone.spans.len());
    assert_eq!((read.threads.len(), alone.threads.len()), (3, 3));
    assert_eq!((read.header.part, read.notes.len()), (n as u32 - 2, 1));
    // what came before is not there: the first line is taken to be as long as an interval
    assert!((read.spans[0].length_s - 0.1).abs() < 1e-9);
    // one of another part does not
    let before = Some((Path::new("r.1"), &disk.parts[0][..]));
    let other = Recording::parse(Path::new("r"), &disk.parts[n - 1], before).unwrap();
    assert_eq!(other, alone);
}

#[test]
fn a_scheduler_that_is_loaded_again_begins_with_new_threads() {
    let mut recorder = Recorder::new(header(), 1 << 20, &sets(), None);
    let mut disk = Disk::default();
    for round in 0..2u64 {
        let mut totals = vec![[0; 2]; 2];
        for i in 1..4 {
            let threads = vec![(true, [50_000, 0], [1, 1]); 2];
            let s = snapshot((10 * round + i) * 100_000, &threads, &mut totals);
            if let Some(chunk) = recorder.tick(&s, &Fixed(None, 0)) {
                disk.put(chunk);
                recorder.taken();
            }
        }
        recorder.begin_anew();
    }
    let read = disk.read();
    let cpu: f64 = read
        .spans
        .iter()
        .flat_map(|s| &s.ran)
        .map(|r| r.cpu_s[0])
        .sum();
    // two ticks of two threads before, three after: their time is counted from the new start
    assert!((cpu - 0.5).abs() < 1e-9, "{cpu}");
    assert_eq!(read.threads.len(), 4);
}
