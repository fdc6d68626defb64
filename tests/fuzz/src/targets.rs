//! What is given the mutants: each parser of the library crates and of the command, with its seeds.

use amp_machine::MachineFile;
use amp_metrics::virtual_counters::{ThreadDirector, VirtualSource};
use amp_metrics::Nanos;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Whether a parser accepts an input.
type Parse = Box<dyn FnMut(&[u8]) -> bool>;

/// A parser, and what is near to what it accepts.
pub struct Target {
    /// Its name, for `--only` and the report.
    pub name: &'static str,
    /// Inputs that mutants are made of.
    pub seeds: Vec<Vec<u8>>,
    /// Whether it accepts the input.
    pub parse: Parse,
}

fn text(
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    mut parse: impl FnMut(&Path, &str) -> bool + 'static,
) -> Target {
    // a name only: nothing is read there
    let path = PathBuf::from("mutant.toml");
    let parse = move |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|t| parse(&path, t));
    Target {
        name,
        seeds,
        parse: Box::new(parse),
    }
}

/// The contents of all files below `folder` whose name ends in `end`.
fn files(folder: &Path, end: &str) -> std::io::Result<Vec<Vec<u8>>> {
    let mut paths = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(end) {
                paths.insert(path);
            }
        }
    }
    paths.iter().map(std::fs::read).collect()
}

/// The shipped models.
fn model_files() -> Vec<Vec<u8>> {
    let models = amp_metrics::providers::SHIPPED_MODELS.iter();
    models.map(|(_, text)| text.as_bytes().to_vec()).collect()
}

/// Lines as seeds.
fn lines(all: &str) -> Vec<Vec<u8>> {
    all.lines().map(|l| l.as_bytes().to_vec()).collect()
}

/// All targets, with seeds from the source tree at `root`.
///
/// # Errors
/// When a folder of seeds cannot be read.
pub fn all(root: &Path) -> anyhow::Result<Vec<Target>> {
    let shipped = |folder: &str| files(&root.join(folder), ".toml");
    let archive = root.join("tools/board/testdata/archive");
    let own = |end: &str| files(&root.join("tests/fuzz/seeds"), end);
    let mut targets = vec![
        text("workload", shipped("tools/workloads/mixes")?, |p, t| {
            amp_eval::workload::Workload::parse(p, t).is_ok()
        }),
        text("machine", shipped("tools/machine/machines")?, |p, t| {
            MachineFile::parse(p, t).is_ok()
        }),
        text("platform", shipped("metrics/platforms")?, |p, t| {
            amp_models::platform::Platform::parse(p, t).is_ok()
        }),
        text("programs", shipped("models")?, |p, t| {
            amp_models::programs::parse(p, t).is_ok()
        }),
        text("candidates", shipped("models/events")?, |p, t| {
            amp_models::candidates::Candidates::parse(p, t).is_ok()
        }),
        text("journal", own("journal.jsonl")?, |p, t| {
            amp_models::journal::Journal::parse(p, t).is_ok()
        }),
        text("catalogue", shipped("tools/workloads")?, |p, t| {
            amp_workloads::catalogue::Catalogue::parse(t, p).is_ok()
        }),
        Target {
            name: "windows",
            seeds: own("windows.jsonl")?,
            parse: Box::new(|bytes| {
                amp_models::data::Dataset::read(Path::new("mutant.jsonl"), bytes).is_ok()
            }),
        },
        Target {
            name: "recording",
            seeds: own("recording.jsonl")?,
            parse: Box::new(|bytes| {
                let path = Path::new("mutant");
                let read = amp_recording::Recording::parse(path, bytes, None);
                read.is_ok_and(|r| {
                    let drawn = amp_recording::Replay::of(&r).map(|r| r.draws(2, 1));
                    amp_recording::trace::write(&r, &mut std::io::sink()).is_ok() && drawn.is_ok()
                })
            }),
        },
        text("results", own("results.json")?, |_, t| {
            let Ok(report) = serde_json::from_str::<amp_eval::evaluation::BenchReport>(t) else {
                return false;
            };
            let shown = amp_eval::report::text(&report, Some(100)).len()
                + amp_eval::report::html(&report).len();
            amp_eval::report::changes::text(&report, &report, None);
            shown > 0
        }),
        text("words", lines(WORDS), |_, t| {
            use amp_workloads::quantity::{parse_count, parse_size};
            let any = [
                t.parse::<amp_eval::Contenders>().is_ok(),
                t.parse::<amp_machine::CpuList>().is_ok(),
                t.parse::<amp_board::KernelChoice>().is_ok(),
                parse_count(t).is_ok(),
                parse_size(t).is_ok(),
                amp_sched::policy::registry::prim::rules::Rules::parse(t).is_ok(),
                t.parse::<amp_eval::campaign::Shard>().is_ok(),
                t.parse::<amp_metrics::EventSpec>().is_ok(),
                t.parse::<amp_metrics::pmu::Format>().is_ok(),
                t.parse::<amp_pmu_events::Counters>().is_ok(),
            ];
            any.contains(&true)
        }),
        text("answer of a program", lines(ANSWERS), |_, t| {
            amp_metrics::providers::Exec::understands(t)
        }),
        text("group", shipped("metrics/pmc/groups")?, |_, t| {
            amp_pmc::is_group(t)
        }),
        text("memory", own("memory.json")?, |_, t| {
            let read = amp_metrics::memory::read(t, 1_800_000_000);
            read.is_ok_and(|m| amp_metrics::memory::write(&m).is_ok())
        }),
        text("declared factors", own("declared.toml")?, |p, t| {
            amp_metrics::Declared::parse(p, t).is_ok()
        }),
        text("model", model_files(), |p, t| {
            amp_metrics::providers::PlatformModel::parse(p, t).is_ok()
        }),
        text(
            "map of event tables",
            files(&root.join("metrics/events/tables"), ".csv")?,
            |_, t| !amp_pmu_events::MapRow::parse(t).is_empty(),
        ),
        Target {
            name: "compressed event tables",
            seeds: vec![amp_pmu_events::compact::write(&[event()])?],
            parse: Box::new(|bytes| amp_pmu_events::compact::read(bytes).is_ok()),
        },
        Target {
            name: "compressed tables of metrics",
            seeds: vec![amp_pmu_events::compact::write_metrics(&[metric()])?],
            parse: Box::new(|bytes| amp_pmu_events::compact::read_metrics(bytes).is_ok()),
        },
        text("formula of a metric", lines(FORMULAS), |_, t| {
            let read = t.parse::<amp_pmu_events::MetricExpression>();
            read.is_ok_and(|amp_pmu_events::MetricExpression(e)| {
                let values: Vec<f64> = (0..e.leaves().len()).map(|i| i as f64).collect();
                e.with(&mut |_| None).evaluate(&values).is_some()
            })
        }),
        Target {
            name: "device tree",
            seeds: vec![tree()],
            parse: Box::new(|bytes| amp_board::fdt::parse(bytes).is_ok()),
        },
        Target {
            name: "kernel image",
            seeds: own("image.bin")?,
            parse: Box::new(|bytes| {
                let kernel = amp_board::kernel::image::uncompressed(bytes.to_vec());
                kernel.is_ok_and(|k| amp_board::kernel::btf::judge(&k).is_ok())
            }),
        },
        Target {
            name: "Debian package",
            seeds: files(&archive, ".deb")?,
            parse: Box::new(amp_board::archive::parsers::package),
        },
        text("Debian release", files(&archive, "InRelease")?, |_, t| {
            amp_board::archive::parsers::release(t)
        }),
        text("Debian packages", vec![PACKAGES.into()], |_, t| {
            amp_board::archive::parsers::packages(t)
        }),
        Target {
            name: "Thread Director",
            seeds: vec![thread_director()],
            parse: Box::new(|bytes| {
                let messages = Box::new(Messages(Some(bytes.to_vec())));
                let cpus = vec![vec![0, 1], vec![2, 3]];
                let mut source = ThreadDirector::of(messages, THERMAL, cpus);
                source.sample(Nanos::ZERO, &[], &mut Vec::new()).is_ok()
            }),
        },
        Target {
            name: "SPE records",
            seeds: vec![spe()],
            parse: Box::new(amp_pmc::holds_spe_operations),
        },
    ];
    targets.extend(scx_amp::parsers::ALL.iter().map(|parser| {
        let seeds = parser.seeds.iter().map(|s| s.as_bytes().to_vec());
        text(parser.name, seeds.collect(), |_, t| (parser.accepts)(t))
    }));
    targets.push(on_disk(
        "provider",
        shipped("metrics/platforms")?,
        ".toml",
        |p| amp_metrics::providers::ProviderFiles::read(p).is_ok(),
    )?);
    let standard = amp_pmu_events::json::Standard::default();
    targets.push(on_disk(
        "event table",
        own("events.json")?,
        ".json",
        move |p| {
            let folder = p.parent().unwrap_or(p);
            let metrics = amp_pmu_events::json::read_metrics(folder, &standard);
            let metrics = amp_pmu_events::Metrics::new(metrics.into_iter().flatten());
            for m in metrics.iter() {
                // an error is as good as a formula
                let _ = metrics.formula(m, &|_| None);
                let _ = metrics.threshold(m, &|_| None);
            }
            amp_pmu_events::json::read_model(folder, &standard).is_ok_and(|e| !e.is_empty())
        },
    )?);
    targets.push(on_disk("trust", own("trust.toml")?, ".toml", |p| {
        amp_metrics::trust::Trust::load(p).is_ok()
    })?);
    targets.push(on_disk(
        "comparison",
        shipped("tools/workloads/comparisons")?,
        ".toml",
        |p| amp_sim::compare::Comparison::load(p).is_ok(),
    )?);
    // a folder with the mix that the seeds name
    let beside = tempfile::tempdir()?;
    std::fs::copy(
        root.join("tools/workloads/mixes/smoke.toml"),
        beside.path().join("mix.toml"),
    )?;
    let seeds = own("campaign.toml")?;
    targets.push(on_disk_in(beside, "campaign", seeds, ".toml", |p| {
        amp_eval::campaign::Campaign::load(p).is_ok_and(|c| c.jobs().is_ok())
    })?);
    targets.retain(|t| !t.seeds.is_empty());
    Ok(targets)
}

/// A parser that reads a file.
fn on_disk(
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    end: &str,
    parse: impl Fn(&Path) -> bool + 'static,
) -> std::io::Result<Target> {
    on_disk_in(tempfile::tempdir()?, name, seeds, end, parse)
}

/// A parser that reads a file in `folder`, and what is beside it.
fn on_disk_in(
    folder: tempfile::TempDir,
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    end: &str,
    parse: impl Fn(&Path) -> bool + 'static,
) -> std::io::Result<Target> {
    let mut file = tempfile::Builder::new()
        .suffix(end)
        .tempfile_in(folder.path())?;
    let parse = move |bytes: &[u8]| {
        // there as long as the parser is
        let _ = &folder;
        use std::io::Seek;
        let write = file.as_file().set_len(0).and_then(|()| file.rewind());
        write.and_then(|()| file.write_all(bytes)).is_ok() && parse(file.path())
    };
    Ok(Target {
        name,
        seeds,
        parse: Box::new(parse),
    })
}

/// A list of packages that need each other.
const PACKAGES: &str = "\
Package: a
Version: 1:2.0-1
Architecture: arm64
Depends: b (>= 1.0), c:any | d, e (= 3)
Pre-Depends: b
Filename: pool/a.deb
Size: 1000
SHA256: 6b9a21f1be5616804ee14b5554a59ed35a3d94cab6829fb84e70610f77cf4162

Package: b
Version: 1.0~rc1+deb13u1
Architecture: all
Provides: d, e (= 3)
Depends: a
Filename: pool/b.deb
Size: 20
SHA256: 6b9a21f1be5616804ee14b5554a59ed35a3d94cab6829fb84e70610f77cf4162

Package: b
Version: 1.0-2
Architecture: arm64
Provides: e (= 3), d
Priority: required
Filename: pool/b2.deb
Size: 20
SHA256: 6b9a21f1be5616804ee14b5554a59ed35a3d94cab6829fb84e70610f77cf4162
";

/// What the kernel numbers the family of its thermal messages.
const THERMAL: u16 = 23;

/// One message and no more.
struct Messages(Option<Vec<u8>>);

impl amp_metrics::virtual_counters::Messages for Messages {
    fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        Ok(self.0.take())
    }
}

/// What Intel's Thread Director says of two CPUs: netlink's header and the family's (event 14), then attribute 20 with number,
/// performance and efficiency (21 to 23) of each CPU (linux/thermal.h).
fn thread_director() -> Vec<u8> {
    let attribute = |kind: u16, value: &[u8]| {
        let length = 4 + value.len() as u16;
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
    };
    let cpu = |fields: [u32; 3]| -> Vec<u8> {
        let kinds = [21, 22, 23].into_iter().zip(fields);
        kinds
            .flat_map(|(kind, n)| attribute(kind, &n.to_ne_bytes()))
            .collect()
    };
    let cpus = [cpu([0, 1023, 400]), cpu([2, 500, 1020])].concat();
    let body = [&[14, 1, 0, 0][..], &attribute(20, &cpus)].concat();
    let length = 16 + body.len() as u32;
    [
        &length.to_ne_bytes()[..],
        &THERMAL.to_ne_bytes(),
        &[0; 10],
        &body,
    ]
    .concat()
}

/// Two records of Arm's Statistical Profiling Extension, with an alignment between them: operation type, address of the
/// instruction, that of the data, latency, events, and the end or a timestamp.
fn spe() -> Vec<u8> {
    let body = [
        &[0x49, 0x00, 0xb0][..],
        &0x40_1000u64.to_le_bytes(),
        &[0xb2],
        &0xffff_1234u64.to_le_bytes(),
        &[0x98, 20, 0, 0x52, 0x0a, 0x02],
    ]
    .concat();
    let timestamp = [&[0x71][..], &1_000_000u64.to_le_bytes()].concat();
    [&body[..], &[0x01, 0x23, 0x00], &[0; 14], &body, &timestamp].concat()
}

/// A small device tree.
fn tree() -> Vec<u8> {
    let mut root = amp_board::fdt::Node::new("");
    root.set_cells("#address-cells", &[2]);
    let mut cpu = amp_board::fdt::Node::new("cpu@0");
    cpu.set_str("device_type", "cpu")
        .set_cells("phandle", &[1, 2]);
    root.children.push(cpu);
    amp_board::fdt::write(&root)
}

/// An event with everything that one can have.
fn event() -> amp_pmu_events::PmuEvent {
    amp_pmu_events::PmuEvent {
        pmu: "cpu_core".into(),
        name: "mem_load_retired.l2_miss".into(),
        terms: "event=0xd1,umask=0x10,period=200003".into(),
        brief: Some("Loads that miss in L2".into()),
        scale: Some("2.3e-10".into()),
        counters: Some("0,1,2,3".into()),
        per_package: true,
        deprecated: false,
    }
}

/// A metric with everything that one can have.
fn metric() -> amp_pmu_events::PmuMetric {
    amp_pmu_events::PmuMetric {
        pmu: "cpu_core".into(),
        name: "tma_retiring".into(),
        expression: r"topdown\-retiring / tma_info_thread_slots".into(),
        groups: Some("TopdownL1;tma_L1_group".into()),
        threshold: Some("tma_retiring > 0.7 | tma_heavy_operations > 0.1".into()),
        scale: Some("100%".into()),
        brief: Some("Slots\tutilized".into()),
    }
}

const FORMULAS: &str = r"cpu_core@UOPS_RETIRED.MS\,cmask\=1\,edge@ / (1 - max(a:k, d_ratio(b, 5e-3)))
(x if #smt_on & has_event(y) | strcmp_cpuid_str(0x410fd493) ^ 1 else min(-z % 3, source_count(w)))
a / b if c < d else e > f";

const ANSWERS: &str = r#"{"seq":7,"estimates":[{"slot":3,"generation":1,"metric":"sf","core_type":0,"value":1.7,"u":0.1}]}
{"seq":8,"estimates":[{"slot":0,"generation":4294967295,"metric":"ipc","core_type":1,"value":0.8},{"slot":1,"generation":2,"metric":"ef","core_type":0,"value":1e-9}]}
{"seq":0}"#;

const WORDS: &str = "hsp,rr,acfs,eevdf,pinned
scx:\"bpfland -s 20000\",hsp,fused:lead=2
utility:utility=barrier,weights=camp
0-3,5,7-9
0
7.3.4+deb13-cloud-arm64
generic-7.0
10M
1.5k
0x40
big:sf>1.2;small:sf<1.1
cpu_core/event=0xd1,umask=0x10,name=a/k
r1b1:u
config:0-7,32-35
0,1,2,3";
