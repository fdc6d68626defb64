//! Platform models: files, inference, cost.

mod common;

use amp_metrics::providers::{
    prepare, Context, Model, PlatformModel, ProviderError, ProviderFileError, SHIPPED_MODELS,
};
use amp_metrics::{
    AppId, CoreTypeId, CoreTypeSet, MetricId, Nanos, Pmus, Provider, Quality, Reading, Snapshot,
    ThreadKey, ThreadSample, MAX_CORE_TYPES,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|a| a.set(a.get() + 1));
        // SAFETY: as required of the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as required of the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Two core types; two sets on the big one, one on the little one.
const MODEL: &str = r#"
kind = "model"
name = "test"
[settings]
strategy = "round-robin"

[[core_type]]
name = "big"
[[core_type.event_set]]
misses = "cache-misses"
[[core_type.event_set]]
branches = "branches"
[[core_type.metric]]
name = "ipc"
count = "instructions"
per = "cycles"
range = [0.1, 4.0]
[[core_type.metric]]
name = "mpki"
count = "misses"
per = "instructions"
scale = 1000.0
range = [0.0, 50.0]
[[core_type.factor]]
predicts = "speedup"
base = 2.0
error = 0.1
stump = [{ metric = "mpki", threshold = 10.0, at_most = 0.5, above = -0.5 }]
linear = { ipc = 0.25 }

[[core_type]]
name = "little"
[[core_type.event_set]]
[[core_type.metric]]
name = "ipc"
count = "instructions"
per = "cycles"
[[core_type.factor]]
predicts = "speedup"
of = "big"
base = 1.0
error = 0.2
linear = { ipc = 1.0 }
"#;

const SF: MetricId = MetricId::SpeedupFactor(CoreTypeId(0));
const EF: MetricId = MetricId::EfficiencyFactor(CoreTypeId(0));

/// An efficiency factor of the big core type: a ratio of energies, times the speedup factor.
const EFFICIENCY: &str = r#"
[[core_type.factor]]
predicts = "efficiency"
times = "speedup"
base = 0.5
error = 0.05
linear = { mpki = 0.01 }
"#;

/// The model with it.
fn with_efficiency() -> String {
    let linear = "linear = { ipc = 0.25 }\n";
    MODEL.replacen(linear, &format!("{linear}{EFFICIENCY}"), 1)
}

fn key(slot: u32) -> ThreadKey {
    ThreadKey {
        slot,
        generation: 1,
    }
}

fn snapshot(ms: u64, readings: &[(u8, u32, &[u64])]) -> Snapshot {
    let ran = Nanos::from_millis(100);
    Snapshot {
        now: Nanos::from_millis(ms),
        threads: vec![ThreadSample {
            key: key(1),
            tid: 1,
            app: AppId(1),
            comm: [0; 16],
            arguments: 0,
            weight: 100,
            allowed: CoreTypeSet::ALL,
            runnable: true,
            core_type: CoreTypeId(0),
            placed: None,
            runtime: [Nanos::ZERO; MAX_CORE_TYPES],
        }],
        readings: readings
            .iter()
            .map(|(t, set, d)| Reading::new(key(1), CoreTypeId(*t), *set, 1, d).over(ran, ran))
            .collect(),
        ..Snapshot::default()
    }
}

fn parse(text: &str) -> Result<PlatformModel, String> {
    PlatformModel::parse(Path::new("m.toml"), text).map_err(|e| e.to_string())
}

/// A machine with these PMUs and counters, and its folder of models.
fn machine<'a>(pmus: &'a Pmus, models: Option<&Path>) -> Context<'a> {
    Context {
        pmus,
        counters: Ok(()),
        energy_per_core_type: false,
        thread_director: Err("none in a test".to_owned()),
        models: models.map(Path::to_owned),
        trust: None,
    }
}

fn provider() -> Model {
    provider_of(MODEL)
}

fn provider_of(text: &str) -> Model {
    let mut p = Model::new(parse(text).unwrap());
    let sets = p
        .event_sets(&Pmus::generic(&[vec![0], vec![1]], 4))
        .unwrap();
    assert_eq!(sets.of(CoreTypeId(0)).len(), 2);
    assert_eq!(sets.of(CoreTypeId(0))[0].position("misses"), Some(2));
    p
}

#[test]
fn a_round_of_one_phase_gives_a_factor() {
    let mut p = provider();
    p.observe(&snapshot(100, &[(0, 0, &[1000, 500, 5])]));
    assert_eq!(p.estimate(key(1), SF), None, "half a round");
    p.observe(&snapshot(200, &[(0, 1, &[1000, 500, 90])]));
    let e = p.estimate(key(1), SF).unwrap();
    // mpki 5, ipc 2
    assert!((e.value - (2.0 + 0.5 + 0.5)).abs() < 1e-9, "{e:?}");
    assert_eq!(
        (e.uncertainty, e.quality),
        (Some(0.1), Quality::Multiplexed)
    );
    assert_eq!(
        e.age,
        Nanos::from_millis(100),
        "as old as the oldest sample"
    );
    // a phase change in the middle of a round, seen with the second sample: the old factor stays
    p.observe(&snapshot(300, &[(0, 0, &[1000, 500, 20])]));
    p.observe(&snapshot(350, &[(0, 1, &[3000, 500, 70])]));
    assert_eq!(p.phase(key(1)).unwrap().number, 0);
    p.observe(&snapshot(400, &[(0, 1, &[4000, 500, 90])]));
    assert!((p.estimate(key(1), SF).unwrap().value - 3.0).abs() < 1e-9);
    assert_eq!(p.phase(key(1)).unwrap().number, 1);
    p.observe(&snapshot(500, &[(0, 0, &[4000, 500, 80])]));
    let e = p.estimate(key(1), SF).unwrap();
    // mpki 20, ipc 8, which is one width of the range beyond it
    assert!((e.value - (2.0 - 0.5 + 2.0)).abs() < 1e-9, "{e:?}");
    assert!(p.caveats(key(1)).extrapolated);
    assert!(e.uncertainty.unwrap() > 0.2, "{e:?}");
    // on the other core type, from one set
    p.observe(&snapshot(600, &[(1, 0, &[600, 500])]));
    let e = p.estimate(key(1), SF).unwrap();
    assert!(
        (e.value - 2.2).abs() < 1e-9 && e.quality == Quality::Exact,
        "{e:?}"
    );
    // nothing new for long
    p.observe(&snapshot(20_000, &[]));
    assert_eq!(p.estimate(key(1), SF).unwrap().quality, Quality::Stale);
}

#[test]
fn an_efficiency_factor_is_a_ratio_times_the_speedup_factor() {
    let mut p = provider_of(&with_efficiency());
    let round = |p: &mut Model, ms, ipc: u64, misses| {
        p.observe(&snapshot(ms, &[(0, 0, &[500 * ipc, 500, misses])]));
        p.observe(&snapshot(ms + 1, &[(0, 1, &[500 * ipc, 500, 90])]));
    };
    // mpki 5, ipc 2: SF 3, ratio 0.55
    round(&mut p, 100, 2, 5);
    let e = p.estimate(key(1), EF).unwrap();
    assert!((e.value - 0.55 * 3.0).abs() < 1e-9, "{e:?}");
    assert_eq!(e.uncertainty, Some(0.05));
    assert!(!p.caveats(key(1)).extrapolated);
    // ipc 8 is outside of its range by a width of it: SF's trouble is EF's, too, which does not
    // look at ipc itself
    for ms in [200, 300, 400] {
        round(&mut p, ms, 8, 40);
    }
    let e = p.estimate(key(1), EF).unwrap();
    assert!((e.value - 0.6 * 4.5).abs() < 1e-9, "{e:?}");
    assert!(p.caveats(key(1)).extrapolated);
    let widened = 0.05 * (1.0 + 4.0 / 3.9);
    assert!((e.uncertainty.unwrap() - widened).abs() < 1e-9, "{e:?}");
    // what is multiplied is the speedup factor as it is given out, kept within its range
    let narrow =
        with_efficiency().replacen("error = 0.1\n", "error = 0.1\nrange = [1.0, 2.0]\n", 1);
    let mut p = provider_of(&narrow);
    round(&mut p, 100, 2, 5);
    assert!((p.estimate(key(1), EF).unwrap().value - 0.55 * 2.0).abs() < 1e-9);
}

#[test]
fn what_a_factor_can_be_multiplied_by() {
    for (from, to, wants) in [
        (
            "times = \"speedup\"",
            "times = \"ipc\"",
            "`ipc` is not `speedup`",
        ),
        (
            "predicts = \"speedup\"\nbase = 2.0",
            "predicts = \"speedup\"\ntimes = \"speedup\"\nbase = 2.0",
            "only efficiency factors",
        ),
    ] {
        let text = with_efficiency().replacen(from, to, 1);
        let e = parse(&text).unwrap_err();
        assert!(e.contains("key `times`") && e.contains(wants), "{e}");
    }
    // the speedup factor of another core type, or one that comes later, will not do
    let alone = MODEL.replacen(
        "[[core_type.factor]]",
        &format!("{EFFICIENCY}[[core_type.factor]]"),
        1,
    );
    let e = parse(&alone).unwrap_err();
    assert!(e.contains("no speedup factor of the same core type"), "{e}");
}

#[test]
fn inference_allocates_nothing() {
    let mut p = provider_of(&with_efficiency());
    let snapshots = [
        snapshot(100, &[(0, 0, &[1000, 500, 5]), (1, 0, &[600, 500])]),
        snapshot(200, &[(0, 1, &[1000, 500, 90]), (1, 0, &[600, 500])]),
    ];
    for s in snapshots.iter().cycle().take(10) {
        p.observe(s);
    }
    let before = ALLOCATIONS.with(Cell::get);
    for s in snapshots.iter().cycle().take(100) {
        p.observe(s);
        assert!(p.estimate(key(1), SF).is_some() && p.estimate(key(1), EF).is_some());
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}

#[test]
fn refusals_name_file_line_and_key() {
    for (from, to, wants) in [
        ("base = 2.0", "base = nan", ["line 26", "`base`"]),
        (
            "threshold = 10.0",
            "threshold = inf",
            ["line 28", "`threshold`"],
        ),
        (
            "metric = \"mpki\", thr",
            "metric = \"mpi\", thr",
            ["line 28", "`ipc`, `mpki`"],
        ),
        (
            "linear = { ipc = 0.25 }",
            "linear = { ipx = 0.25 }",
            ["line 29", "`ipx`"],
        ),
        ("error = 0.1", "error = -0.1", ["line 27", "`error`"]),
        ("error = 0.1", "eror = 0.1", ["line", "eror"]),
        (
            "count = \"misses\"",
            "count = \"mises\"",
            ["line 20", "`mises`"],
        ),
        (
            "count = \"misses\"\nper = \"instructions\"",
            "count = \"misses\"\nper = \"branches\"",
            ["line 21", "never counted in the same"],
        ),
        (
            "range = [0.1, 4.0]",
            "range = [4.0, 0.1]",
            ["line 17", "`range`"],
        ),
        ("\"round-robin\"", "\"rr\"", ["line 5", "`rate-of-change`"]),
        (
            "misses = \"cache-misses\"",
            "misses = \"cpu/event=\"",
            ["line 10", "closing"],
        ),
        (
            "predicts = \"speedup\"\nbase",
            "predicts = \"speed\"\nbase",
            ["line 25", "`efficiency`"],
        ),
        (
            "error = 0.1",
            "error = 0.1\nvariance = { base = inf }",
            ["line 28", "`base`"],
        ),
        (
            "error = 0.1",
            "error = 0.1\nvariance = { base = 0.1, stumps = [] }",
            ["line 28", "`stumps`"],
        ),
        (
            "error = 0.1",
            "error = 0.1\nvariance = { base = 0.1, stump = [{ metric = \"mpki\", threshold = 1.0, at_most = nan, above = 0.0 }] }",
            ["line 28", "`at_most`"],
        ),
        (
            "error = 0.1",
            "error = 0.1\nvariance = { base = 0.1, stump = [{ metric = \"mpi\", threshold = 1.0, at_most = 0.0, above = 0.0 }] }",
            ["line 28", "`ipc`, `mpki`"],
        ),
        ("of = \"big\"", "of = \"little\"", ["line 40", "slowest"]),
        ("of = \"big\"", "of = \"huge\"", ["line 40", "`huge`"]),
    ] {
        let text = MODEL.replacen(from, to, 1);
        assert_ne!(text, MODEL, "{from}");
        let e = parse(&text).unwrap_err();
        assert!(
            e.starts_with("m.toml: ") && wants.iter().all(|w| e.contains(w)),
            "{to}: {e}"
        );
    }
}

#[test]
fn shipped_models_are_right_and_fit_their_platform() {
    for (name, text) in SHIPPED_MODELS {
        PlatformModel::parse(Path::new(name), text).unwrap();
    }
    let tree = common::sysfs("board");
    let types = [vec![0, 1], vec![2, 3, 4, 5]];
    let pmus = Pmus::discover(tree.path()).unwrap().with_core_types(&types);
    let context = machine(&pmus, None);
    let p = prepare("model", &context).unwrap();
    assert_eq!(p.provider.name(), "juno");
    let named = |name: &str| {
        let sets = p.sets.of(CoreTypeId(0)).iter();
        sets.flat_map(|s| &s.events)
            .find(|e| e.name.contains(name))
            .map(|e| e.attr.config)
    };
    assert_eq!(named("br_mis_pred"), Some(0x10));
    // good enough to be taken without being asked for
    let p = prepare("auto", &context).unwrap();
    assert_eq!(p.provider.name(), "juno");
    assert!(p.passed_over.is_empty(), "{:?}", p.passed_over);
    // another platform
    let tree = common::sysfs("alderlake");
    let types = [(0..16).collect(), (16..24).collect()];
    let pmus = Pmus::discover(tree.path()).unwrap().with_core_types(&types);
    let context = machine(&pmus, None);
    let e = prepare("model", &context).unwrap_err();
    assert!(
        matches!(e, ProviderError::NoModel { .. })
            && e.to_string().contains("`x86,ven0000fam0006mod0097`"),
        "{e}"
    );
}

#[test]
fn a_model_by_path_and_one_whose_event_is_missing() {
    let d = tempfile::tempdir().unwrap();
    let path = d.path().join("my.toml");
    let tree = common::sysfs("juno");
    let types = [vec![1, 2], vec![0, 3, 4, 5]];
    let pmus = Pmus::discover(tree.path()).unwrap().with_core_types(&types);
    let context = machine(&pmus, None);
    let name = path.display().to_string();
    std::fs::write(&path, MODEL).unwrap();
    assert_eq!(prepare(&name, &context).unwrap().provider.name(), "test");
    std::fs::write(
        &path,
        MODEL.replace("\"cache-misses\"", "\"l2d_cache_refil\""),
    )
    .unwrap();
    let e = prepare(&name, &context).unwrap_err().to_string();
    assert!(
        e.contains("armv8_cortex_a57") && e.contains("close are `l2d_cache_refill`"),
        "{e}"
    );
}

/// `auto` does not take a model that says of itself that it is rough.
#[test]
fn a_rough_model_is_not_taken_without_being_asked_for() {
    let d = tempfile::tempdir().unwrap();
    std::fs::write(
        d.path().join("rough.toml"),
        MODEL.replace("error = 0.2", "error = 0.5"),
    )
    .unwrap();
    let tree = common::sysfs("juno");
    let types = [vec![1, 2], vec![0, 3, 4, 5]];
    let pmus = Pmus::discover(tree.path()).unwrap().with_core_types(&types);
    let context = machine(&pmus, Some(d.path()));
    assert_eq!(prepare("model", &context).unwrap().provider.name(), "test");
    let p = prepare("auto", &context).unwrap();
    assert_eq!(p.provider.name(), "measured");
    assert!(
        p.passed_over[0].1.contains("standard error"),
        "{:?}",
        p.passed_over
    );
}

/// A machine with the board's PMUs and another name is not taken for the board's juno.
#[test]
fn a_model_of_another_machine_is_refused() {
    let d = tempfile::tempdir().unwrap();
    let tree = common::sysfs("board");
    let types = [vec![0, 1], vec![2, 3, 4, 5]];
    let juno = Pmus::discover(tree.path()).unwrap().with_core_types(&types);
    assert_eq!(juno.machine(), ["scx-amp,juno"]);
    let path = d.path().join("mine.toml");
    let (_, text) = SHIPPED_MODELS[0];
    let rest = text.split_once("[summary]").unwrap().1;
    let model =
        |machine: &str| format!("kind = \"model\"\nname = \"mine\"\n{machine}\n[summary]{rest}");
    let file = path.to_str().unwrap();
    let try_both = |pmus: &Pmus| {
        let context = machine(pmus, Some(d.path()));
        let by_name = prepare("model", &context).map(|p| p.provider.name().to_owned());
        (by_name, prepare(file, &context).map(|_| ()))
    };
    std::fs::write(&path, model("machine = [\"acme,one\", \"acme,two\"]")).unwrap();
    let (by_name, by_path) = try_both(&juno.clone().of_machine(&["acme,two-b", "acme,two"]));
    assert_eq!(by_name.unwrap(), "mine");
    by_path.unwrap();
    // passed over where the name differs; the shipped ones are not for it either
    let (by_name, by_path) = try_both(&juno.clone().of_machine(&["acme,three"]));
    let e = by_name.unwrap_err().to_string();
    assert!(
        e.contains("for machine `acme,one` or `acme,two`, this one is `acme,three`")
            && e.contains("juno: it is for machine `scx-amp,juno`"),
        "{e}"
    );
    let e = by_path.unwrap_err();
    assert!(
        matches!(&e, ProviderError::File(ProviderFileError::OtherMachine { path, .. }) if path == Path::new(file))
            && e.to_string().contains("`acme,three`"),
        "{e}"
    );
    let (_, by_path) = try_both(&juno.clone().of_machine(&[]));
    let e = by_path.unwrap_err().to_string();
    assert!(e.contains("does not say what it is"), "{e}");
    // one that names no machine goes by PMUs alone
    std::fs::write(&path, model("")).unwrap();
    let (by_name, by_path) = try_both(&juno.of_machine(&["acme,three"]));
    assert_eq!(by_name.unwrap(), "mine");
    by_path.unwrap();
}
