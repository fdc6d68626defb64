//! Makes the tables that this crate ships from a kernel's tree, and compares what this crate reads
//! there with what the kernel's own generator makes of the same tree. `tables/README.md` has the
//! commands.

mod digest;
mod generated;

use amp_pmu_events::json::{read_map, read_metrics, read_model, Standard};
use amp_pmu_events::{compact, file_name, Cpu, MapRow, Metrics, PmuEvent, PmuMetric};
use anyhow::{bail, ensure, Context, Result};
use clap::{Parser, Subcommand};
use digest::{
    by_pmu, line, map_line, metric_line, metric_table_lines, metrics_by_pmu, table_lines,
    MetricsByPmu,
};
use generated::{table_name, Generated};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Architectures whose tables are shipped: every model in their maps.
const ARCHITECTURES: [&str; 2] = ["x86", "arm64"];

/// What the generator writes for an entry that names a register and no value for it. perf cannot
/// read that, so the term is left out here.
const NO_VALUE: &str = ",ldlat=None";

/// Makes and compares tables of events. TREE is a kernel's tree, FILE.c what its generator writes:
/// `python3 TREE/tools/perf/pmu-events/jevents.py all all TREE/tools/perf/pmu-events/arch FILE.c`
#[derive(Parser)]
enum Cli {
    #[command(flatten)]
    Do(Do),
}

#[derive(Subcommand)]
enum Do {
    /// Writes the tables into `tables/` and `derived/` of this crate.
    Make { tree: PathBuf },
    /// Writes the reference for the shipped tables, `tests/reference.txt`, from the generator's
    /// file alone.
    Reference { tree: PathBuf, file: PathBuf },
    /// Compares every event and metric of every model of x86 and Arm in the tree with the generator's.
    Check { tree: PathBuf, file: PathBuf },
}

fn main() -> Result<()> {
    let Cli::Do(what) = Cli::parse();
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    match what {
        Do::Make { tree } => make(&tree, &home.join("tables"), &home.join("derived")),
        Do::Reference { tree, file } => {
            let text = reference(&tree, &parse(&file)?)?;
            Ok(fs::write(home.join("tests/reference.txt"), text)?)
        }
        Do::Check { tree, file } => check(&tree, &parse(&file)?),
    }
}

fn parse(file: &Path) -> Result<Generated> {
    let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    Generated::parse(&text).with_context(|| format!("{}", file.display()))
}

fn folder_of(tree: &Path, arch: &str) -> PathBuf {
    tree.join("tools/perf/pmu-events/arch").join(arch)
}

/// Version of the tree, from the first lines of its Makefile.
fn version(tree: &Path) -> Result<String> {
    let text = fs::read_to_string(tree.join("Makefile"))?;
    let part = |name: &str| {
        let value = |l: &str| Some(l.strip_prefix(name)?.strip_prefix(" = ")?.to_owned());
        text.lines().find_map(value)
    };
    let of = |name: &str| part(name).with_context(|| format!("Makefile: no {name}"));
    Ok([of("VERSION")?, of("PATCHLEVEL")?, of("SUBLEVEL")?].join("."))
}

/// The folders of rows, each once.
fn folders(rows: &[MapRow]) -> BTreeSet<&str> {
    rows.iter().map(|r| r.folder.as_str()).collect()
}

fn make(tree: &Path, into: &Path, derived: &Path) -> Result<()> {
    let old = [fs::read_dir(into)?, fs::read_dir(derived)?];
    for old in old.into_iter().flatten().flatten() {
        if old.path().extension().is_some_and(|e| e == "gz") {
            fs::remove_file(old.path())?;
        }
    }
    let mut total = 0;
    for arch in ARCHITECTURES {
        let dir = folder_of(tree, arch);
        let standard = Standard::read(&dir)?;
        let rows = read_map(&dir)?;
        let cpu = match arch {
            "x86" => Cpu::X86 {
                model: "none".into(),
                stepping: Some(0),
            },
            _ => Cpu::Arm(0),
        };
        // every pattern is one
        let none = cpu.find(&rows).map_err(anyhow::Error::msg)?;
        ensure!(none.is_none(), "{arch}: a row for every processor");
        let mut map = String::from("cpuid,version,folder\n");
        for row in &rows {
            writeln!(map, "{},,{}", row.cpuid, row.folder)?;
        }
        fs::write(into.join(format!("{arch}.csv")), map)?;
        for folder in folders(&rows) {
            let events = read_model(&dir.join(folder), &standard)?;
            let metrics = read_metrics(&dir.join(folder), &standard)?;
            let bytes = compact::write(&events)?;
            let of_metrics = compact::write_metrics(&metrics)?;
            println!(
                "{arch}/{folder}: {} events, {} bytes; {} metrics, {} bytes",
                events.len(),
                bytes.len(),
                metrics.len(),
                of_metrics.len()
            );
            let file = file_name(arch, folder) + ".gz";
            total += bytes.len();
            fs::write(into.join(&file), bytes)?;
            if !metrics.is_empty() {
                total += of_metrics.len();
                fs::write(derived.join(file), of_metrics)?;
            }
        }
    }
    println!("{total} bytes");
    Ok(fs::write(into.join("kernel.txt"), version(tree)?)?)
}

/// The events of a folder's table as the generator has them.
fn generated_events(generated: &Generated, folder: &str) -> Vec<PmuEvent> {
    let table = generated.tables.get(&table_name(folder));
    table.cloned().unwrap_or_default()
}

/// The metrics of a folder's table as the generator has them.
fn generated_metrics(generated: &Generated, folder: &str) -> MetricsByPmu {
    let table = generated.metrics.get(&table_name(folder));
    metrics_by_pmu(table.cloned().unwrap_or_default())
}

fn reference(tree: &Path, generated: &Generated) -> Result<String> {
    let mut out = format!(
        "# Events and metrics of the shipped tables as jevents.py of Linux {} makes them: table, PMU, their\n\
         # number, SHA-256 of them (examples/pmu_tables/digest.rs). ../tables/README.md has the command.\n",
        version(tree)?
    );
    for arch in ARCHITECTURES {
        // the folder behind a table of the C file, whose name is not the folder's
        let rows = read_map(&folder_of(tree, arch))?;
        for folder in folders(&rows) {
            let mut events = generated_events(generated, folder);
            for e in events.iter_mut().filter(|e| e.terms.contains(NO_VALUE)) {
                let pmu = &e.pmu;
                writeln!(out, "# without `{NO_VALUE}`: {folder} {pmu} {}", e.name)?;
                e.terms = e.terms.replace(NO_VALUE, "");
            }
            let events = by_pmu(events);
            ensure!(!events.is_empty(), "the generator has no table of {folder}");
            let metrics = generated_metrics(generated, folder);
            let file = file_name(arch, folder);
            let lines = table_lines(&file, &events).into_iter();
            for line in lines.chain(metric_table_lines(&file, &metrics)) {
                writeln!(out, "{line}")?;
            }
        }
        for (a, cpuid, table) in &generated.map {
            let row = rows.iter().find(|r| table_name(&r.folder) == *table);
            if let (true, Some(row)) = (a == arch, row) {
                let row = MapRow {
                    // as C writes it
                    cpuid: cpuid.replace("\\\\", "\\"),
                    folder: row.folder.clone(),
                };
                writeln!(out, "{}", map_line(arch, &row))?;
            }
        }
    }
    Ok(out)
}

fn check(tree: &Path, generated: &Generated) -> Result<()> {
    let (mut models, mut events, mut metrics) = (0, 0, 0);
    let (mut differences, mut explained) = (0, 0);
    for arch in ARCHITECTURES {
        let dir = folder_of(tree, arch);
        let standard = Standard::read(&dir)?;
        let rows = read_map(&dir)?;
        let theirs = generated.map.iter().filter(|(a, _, _)| a == arch);
        let theirs: Vec<_> = theirs
            .map(|(_, cpuid, table)| (cpuid.replace("\\\\", "\\"), table.clone()))
            .collect();
        let ours: Vec<_> = rows
            .iter()
            .map(|r| (r.cpuid.clone(), table_name(&r.folder)))
            .collect();
        if ours != theirs {
            differences += 1;
            println!("{arch}: the map differs: {ours:?} here, {theirs:?} there");
        }
        for folder in folders(&rows) {
            let lines = |events: &[PmuEvent]| -> BTreeSet<String> {
                let line = |e: &PmuEvent| format!("{} {}", e.pmu, line(e));
                events.iter().map(line).collect()
            };
            let ours = read_model(&dir.join(folder), &standard)?;
            let theirs = generated_events(generated, folder);
            if ours.len() != theirs.len() {
                differences += 1;
                println!(
                    "{arch}/{folder}: {} events here, {} there",
                    ours.len(),
                    theirs.len()
                );
            }
            (models, events) = (models + 1, events + theirs.len());
            let (ours, mut theirs) = (lines(&ours), lines(&theirs));
            theirs = theirs
                .into_iter()
                .map(|l| match l.contains(NO_VALUE) {
                    true => {
                        explained += 1;
                        println!("{arch}/{folder} there, as expected: {l}");
                        l.replace(NO_VALUE, "")
                    }
                    false => l,
                })
                .collect();
            differences += differing(&format!("{arch}/{folder}"), &ours, &theirs);
            let lines = |metrics: &MetricsByPmu| -> BTreeSet<String> {
                let of = |(pmu, of): (&String, &Vec<PmuMetric>)| {
                    let all = Metrics::new(of.iter().cloned());
                    let line = |m: &PmuMetric| format!("{pmu} metric {}", metric_line(m, &all));
                    of.iter().map(line).collect::<Vec<_>>()
                };
                metrics.iter().flat_map(of).collect()
            };
            let ours = lines(&metrics_by_pmu(read_metrics(&dir.join(folder), &standard)?));
            let theirs = lines(&generated_metrics(generated, folder));
            metrics += theirs.len();
            differences += differing(&format!("{arch}/{folder}"), &ours, &theirs);
        }
    }
    println!(
        "{models} models, {events} events, {metrics} metrics, {explained} explained differences, {differences} others"
    );
    match differences {
        0 => Ok(()),
        n => bail!("{n} differences from the generator's tables"),
    }
}

/// Prints the lines that one side has and the other has not; how many those are.
fn differing(of: &str, ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> usize {
    let here = ours.difference(theirs).map(|l| ("here ", l));
    let there = theirs.difference(ours).map(|l| ("there", l));
    let lines: Vec<_> = here.chain(there).collect();
    for (side, line) in &lines {
        println!("{of} {side}: {line}");
    }
    lines.len()
}
