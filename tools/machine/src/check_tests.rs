//! Every refusal of the checker, by file, line and key; and that what is shipped passes.

use crate::{BadFile, MachineError, MachineFile, SHIPPED};
use std::path::Path;

const SIM: &str = r#"name = "two"
[[core_type]]
name = "big"
cpus = "0-1"
capacity = 1024
[[core_type]]
name = "little"
cpus = "2-5"
capacity = 446
[migration]
cost_us = 50
"#;

fn juno() -> String {
    crate::shipped::text("juno").unwrap().to_string()
}

fn parse(text: &str) -> Result<MachineFile, MachineError> {
    MachineFile::parse(Path::new("m.toml"), text)
}

/// Replaces the `n`th occurrence (from 0) of `from` in `text`; returns the text and the line of the
/// change.
fn edit(text: &str, from: &str, n: usize, to: &str) -> (String, usize) {
    let at = text
        .match_indices(from)
        .nth(n)
        .unwrap_or_else(|| panic!("no `{from}`"))
        .0;
    let line = 1 + text[..at].matches('\n').count();
    (
        format!("{}{to}{}", &text[..at], &text[at + from.len()..]),
        line,
    )
}

/// Expects the edited text to be refused at the edited line, for `key`, with a message that
/// contains `says`.
#[track_caller]
fn refused(text: &str, (from, n): (&str, usize), to: &str, key: &str, says: &str) {
    let (text, line) = edit(text, from, n, to);
    refused_at(&text, line, key, says);
}

#[track_caller]
fn refused_at(text: &str, line: usize, key: &str, says: &str) {
    match parse(text) {
        Err(MachineError::Bad(BadFile {
            path,
            line: l,
            key: k,
            message,
        })) => {
            assert_eq!(path, Path::new("m.toml"));
            assert_eq!(
                (l, k.unwrap_or_default()),
                (Some(line), key.into()),
                "{message}"
            );
            assert!(message.contains(says), "`{message}` should say `{says}`");
        }
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn shipped_machines_are_right() {
    let shape = |name: &str| {
        let m = MachineFile::load(name).unwrap();
        assert_eq!(m.name, name);
        let (board, models) = m.board_models().unwrap();
        assert!(board.dilation > 0 && models.len() == m.core_types.len());
        m.core_types
            .iter()
            .map(|t| t.cpus.0.len())
            .collect::<Vec<_>>()
    };
    let shapes: Vec<_> = SHIPPED.iter().map(|n| (*n, shape(n))).collect();
    let known: [(&str, &[usize]); 6] = [
        ("alderlake", &[8, 8]),
        ("juno", &[2, 4]),
        ("laptop", &[2, 10]),
        ("opteron", &[2, 10]),
        ("quickia", &[2, 2]),
        ("snapdragon888", &[1, 3, 4]),
    ];
    assert_eq!(shapes, known.map(|(n, s)| (n, s.to_vec())));
}

#[test]
fn a_machine_without_models_is_for_the_simulator() {
    let m = parse(SIM).unwrap();
    assert_eq!((m.nr_cpus(), m.migration.cost_us), (6, 50.0));
    assert_eq!(
        (m.core_type_of(1), m.core_type_of(5), m.core_type_of(6)),
        (Some(0), Some(1), None)
    );
    let e = m.board_models().unwrap_err();
    assert!(matches!(&e, MachineError::NotABoard { name } if name == "two"));
    assert!(e.to_string().contains("[board]"));
}

#[test]
fn one_core_type_is_enough() {
    let m =
        parse("name = \"flat\"\n[[core_type]]\nname = \"core\"\ncpus = \"0-3\"\ncapacity = 1024\n");
    assert_eq!(m.unwrap().nr_cpus(), 4);
}

#[test]
fn three_core_types_are_too() {
    let m = format!("{SIM}[[core_type]]\nname = \"tiny\"\ncpus = \"6,7\"\ncapacity = 200\n");
    assert_eq!(parse(&m).unwrap().core_types.len(), 3);
}

#[test]
fn load_by_name_and_by_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    let e = MachineFile::load(path.to_str().unwrap()).unwrap_err();
    assert!(matches!(&e, MachineError::Read { .. }) && e.to_string().contains("mine.toml"));
    std::fs::write(&path, SIM).unwrap();
    assert_eq!(
        MachineFile::load(path.to_str().unwrap()).unwrap().name,
        "two"
    );
    let e = MachineFile::load("junno").unwrap_err();
    assert!(matches!(e, MachineError::Unknown { .. }));
    let e = e.to_string();
    assert!(
        e.contains("`junno`") && SHIPPED.iter().all(|n| e.contains(n)),
        "{e}"
    );
}

#[test]
fn the_message_has_file_line_and_key() {
    let (text, line) = edit(SIM, "446", 0, "1024");
    let e = parse(&text).unwrap_err().to_string();
    assert!(
        e.starts_with(&format!(
            "m.toml: line {line}: key `core_type[1].capacity`: "
        )),
        "{e}"
    );
}

#[test]
fn what_is_not_toml() {
    refused_at("name = \"x\"\ncpus = = 3\n", 2, "", "`cpus = = 3`: ");
    refused_at("", 1, "", "missing field `name`");
}

#[test]
fn unknown_and_missing_keys() {
    refused(
        SIM,
        ("name = \"two\"", 0),
        "nome = \"two\"",
        "nome",
        "unknown field `nome`",
    );
    refused(
        SIM,
        ("cpus = \"2-5\"", 0),
        "cpu = \"2-5\"",
        "core_type[1].cpu",
        "unknown field `cpu`",
    );
    refused(
        SIM,
        ("cost_us", 0),
        "cost",
        "migration.cost",
        "unknown field `cost`",
    );
    refused(
        SIM,
        ("capacity = 446", 0),
        "capacity = \"446\"",
        "core_type[1].capacity",
        "invalid type",
    );
    let j = juno();
    refused(
        &j,
        ("dilation", 0),
        "dillation",
        "board.dillation",
        "unknown field `dillation`",
    );
    refused(
        &j,
        ("raw_stall", 0),
        "row_stall",
        "core_type[0].model.pipeline.row_stall",
        "unknown field",
    );
    refused(
        &j,
        ("ways = 2,", 0),
        "way = 2,",
        "core_type[0].model.l1d.way",
        "unknown field `way`",
    );
    refused(
        &j,
        ("\"gshare\"", 1),
        "\"magic\"",
        "core_type[1].model.branch.predictor",
        "`gshare`",
    );
    let (text, _) = edit(&j, "alu = 0.42\n", 0, "");
    let e = parse(&text).unwrap_err().to_string();
    assert!(
        e.contains("model.cpi") && e.contains("missing field `alu`"),
        "{e}"
    );
}

#[test]
fn names() {
    refused(SIM, ("\"two\"", 0), "\"\"", "name", "must be a word");
    refused(SIM, ("\"two\"", 0), "\"a b\"", "name", "must be a word");
    refused(
        SIM,
        ("\"little\"", 0),
        "\"big\"",
        "core_type[1].name",
        "two core types are named `big`",
    );
    refused(
        SIM,
        ("\"little\"", 0),
        "\"li/tle\"",
        "core_type[1].name",
        "must be a word",
    );
}

#[test]
fn core_types_in_order() {
    refused_at(
        "name = \"x\"\ncore_type = []\n",
        2,
        "core_type",
        "0 core types",
    );
    refused(
        SIM,
        ("1024", 0),
        "1000",
        "core_type[0].capacity",
        "has capacity 1024",
    );
    refused(
        SIM,
        ("446", 0),
        "1024",
        "core_type[1].capacity",
        "fastest first",
    );
    refused(
        SIM,
        ("446", 0),
        "0",
        "core_type[1].capacity",
        "must be 1 to 1024",
    );
    let many: String = (0..9u32)
        .map(|i| {
            format!(
                "[[core_type]]\nname = \"t{i}\"\ncpus = \"{i}\"\ncapacity = {}\n",
                1024 - i
            )
        })
        .collect();
    refused_at(
        &format!("name = \"x\"\n{many}"),
        2,
        "core_type",
        "9 core types",
    );
}

#[test]
fn cpus_once_and_without_gaps() {
    refused(
        SIM,
        ("2-5", 0),
        "1-5",
        "core_type[1].cpus",
        "CPU 1 already belongs to `big`",
    );
    refused(
        SIM,
        ("2-5", 0),
        "3-5",
        "core_type[1].cpus",
        "CPU 2 belongs to no core type",
    );
    refused(
        SIM,
        ("2-5", 0),
        "2-5,5",
        "core_type[1].cpus",
        "CPU 5 is listed twice",
    );
    refused(SIM, ("2-5", 0), "", "core_type[1].cpus", "empty");
    refused(SIM, ("2-5", 0), "two", "core_type[1].cpus", "`two`");
    refused(SIM, ("2-5", 0), "2-64", "core_type[1].cpus", "at most 64");
}

#[test]
fn migration_cost() {
    refused(SIM, ("50", 0), "-1", "migration.cost_us", "must be 0 to");
    refused(SIM, ("50", 0), "nan", "migration.cost_us", "must be 0 to");
}

#[test]
fn board_and_models_belong_together() {
    let j = juno();
    let (without, line) = edit(&j, "[board]\n", 0, "[migration_]\n");
    assert!(parse(&without).is_err(), "line {line}");
    let board = format!("{SIM}[board]\ndilation = 8\nquantum_us = 50\nmemory_mib = 2048\n");
    refused_at(&board, 12, "board", "needs a [core_type.model]");
    let start = j.find("[board]").unwrap();
    let end = j.find("[migration]").unwrap();
    let no_board = format!("{}{}", &j[..start], &j[end..]);
    refused_at(&no_board, 1, "board", "add [board]");
    let second = j.match_indices("[core_type.model]").nth(1).unwrap().0;
    let line = 1 + j[..j.match_indices("[[core_type]]").nth(1).unwrap().0]
        .matches('\n')
        .count();
    refused_at(&j[..second], line, "core_type[1].model", "give all or none");
}

#[test]
fn board_parameters() {
    let j = juno();
    refused(
        &j,
        ("dilation = 8", 0),
        "dilation = 0",
        "board.dilation",
        "must be 1 to 1000",
    );
    refused(
        &j,
        ("quantum_us = 100", 0),
        "quantum_us = 0",
        "board.quantum_us",
        "must be 1 to",
    );
    refused(
        &j,
        ("memory_mib = 2048", 0),
        "memory_mib = 1",
        "board.memory_mib",
        "must be 256 to",
    );
}

#[test]
fn devices() {
    let j = juno();
    refused(
        &j,
        ("arm,cortex-a57\"", 0),
        "a57\"",
        "core_type[0].model.compatible",
        "device-tree",
    );
    refused(
        &j,
        ("arm,cortex-a53-pmu", 0),
        "",
        "core_type[1].model.pmu",
        "device-tree",
    );
    refused(
        &j,
        ("arm,cortex-a53-pmu", 0),
        "arm,cortex-a57-pmu",
        "core_type[1].model.pmu",
        "one PMU by each name",
    );
    refused(
        &j,
        ("mhz = 850", 0),
        "mhz = 0",
        "core_type[1].model.mhz",
        "must be 1 to",
    );
}

#[test]
fn caches() {
    let j = juno();
    let key = |k: &str| format!("core_type[0].model.{k}");
    let power = "must be a power of two";
    refused(
        &j,
        ("size_kib = 32", 0),
        "size_kib = 48",
        &key("l1d.size_kib"),
        power,
    );
    refused(&j, ("ways = 2", 0), "ways = 3", &key("l1d.ways"), power);
    refused(&j, ("ways = 2", 0), "ways = 0", &key("l1d.ways"), power);
    refused(&j, ("line = 64", 0), "line = 48", &key("l1d.line"), power);
    refused(
        &j,
        ("line = 64", 0),
        "line = 8",
        &key("l1d.line"),
        "at least 16",
    );
    refused(
        &j,
        ("line = 64", 1),
        "line = 32",
        &key("l2.line"),
        "of one length",
    );
    refused(
        &j,
        ("size_kib = 2048", 0),
        "size_kib = 16",
        &key("l2.size_kib"),
        "smaller than",
    );
    refused(
        &j,
        ("size_kib = 32, ways = 2", 0),
        "size_kib = 1, ways = 32",
        &key("l1d"),
        "more than 1 KiB",
    );
}

#[test]
fn model_numbers() {
    let j = juno();
    let key = |t: usize, k: &str| format!("core_type[{t}].model.{k}");
    refused(
        &j,
        ("alu = 0.42", 0),
        "alu = 0",
        &key(0, "cpi.alu"),
        "above 0",
    );
    refused(
        &j,
        ("fp_div = 20.0", 0),
        "fp_div = 1e9",
        &key(1, "cpi.fp_div"),
        "at most 1000",
    );
    refused(
        &j,
        ("load_use_stall = 0.3", 0),
        "load_use_stall = -1",
        &key(0, "pipeline.load_use_stall"),
        "0 to",
    );
    refused(
        &j,
        ("entries = 4096", 0),
        "entries = 0",
        &key(0, "branch.entries"),
        "1 to",
    );
    refused(
        &j,
        ("targets = 256", 0),
        "targets = 0",
        &key(1, "branch.targets"),
        "power of two",
    );
    refused(
        &j,
        ("history = 10", 0),
        "history = 0",
        &key(0, "branch.history"),
        "`gshare` needs",
    );
    let (bimodal, _) = edit(&j, "\"gshare\"", 1, "\"bimodal\"");
    refused(
        &bimodal,
        ("history = 10", 1),
        "history = 4",
        &key(1, "branch.history"),
        "`bimodal` has 0",
    );
    refused(
        &j,
        ("history = 10", 0),
        "history = 17",
        &key(0, "branch.history"),
        "0 to 16",
    );
    refused(
        &j,
        ("penalty = 12.0", 0),
        "penalty = -1",
        &key(0, "branch.penalty"),
        "0 to",
    );
    refused(
        &j,
        ("l2_latency = 18.0", 0),
        "l2_latency = 0",
        &key(0, "memory.l2_latency"),
        "above 0",
    );
    refused(
        &j,
        ("dram_ns = 110.0", 0),
        "dram_ns = 0",
        &key(0, "memory.dram_ns"),
        "above 0",
    );
    let overlap = "overlap_independent";
    refused(
        &j,
        ("overlap_sequential = 0.15", 0),
        "overlap_sequential = 2",
        &key(0, "memory.overlap_sequential"),
        "at most 1",
    );
    refused(
        &j,
        ("overlap_independent = 0.76", 0),
        "overlap_independent = 0.2",
        &key(1, &format!("memory.{overlap}")),
        "in-order",
    );
    refused(
        &j,
        ("instruction_pj = 75.0", 0),
        "instruction_pj = 0",
        &key(1, "energy.instruction_pj"),
        "above 0",
    );
    refused(
        &j,
        ("idle_mw = 30.0", 0),
        "idle_mw = 300",
        &key(0, "energy.idle_mw"),
        "above the active_mw",
    );
    refused(
        &j,
        ("active_mw = 45.0", 0),
        "active_mw = 0",
        &key(1, "energy.active_mw"),
        "above 0",
    );
}

#[test]
fn sharing_and_bandwidth_are_optional_and_checked() {
    let j = juno();
    let memory = |i| format!("core_type[{i}].model.memory");
    let near = j.lines().find(|l| l.starts_with("transfer_ns")).unwrap();
    let rate = j
        .lines()
        .find(|l| l.starts_with("memory_gb_per_s"))
        .unwrap();
    let without: String = j
        .lines()
        .filter(|l| !l.starts_with("transfer_") && !l.starts_with("memory_gb_per_s"))
        .flat_map(|l| [l, "\n"])
        .collect();
    let m = parse(&without).unwrap();
    assert_eq!(m.board.unwrap().memory_gb_per_s, None);
    refused(
        &j,
        (rate, 0),
        "memory_gb_per_s = 0",
        "board.memory_gb_per_s",
        "above 0",
    );
    refused(
        &j,
        (near, 0),
        "transfer_ns = -1",
        &format!("{}.transfer_ns", memory(0)),
        "above 0",
    );
    // of one core type only
    let (text, _) = edit(&j, near, 0, "");
    let e = parse(&text).unwrap_err().to_string();
    assert!(e.contains("transfer_ns"), "{e}");
}

#[test]
fn operating_points() {
    let j = juno();
    let key = |k: &str| format!("core_type[0].model.{k}");
    refused(
        &j,
        ("mhz = 625", 0),
        "mhz = 630",
        &key("operating_points[1].mhz"),
        "a multiple of 25",
    );
    refused(
        &j,
        ("mv = 847", 0),
        "mv = 0",
        &key("operating_points[1].mv"),
        "1 to 4095",
    );
    // the places of tables are those of their heads
    let (text, line) = edit(&j, "mhz = 625", 0, "mhz = 450");
    refused_at(
        &text,
        line - 1,
        &key("operating_points[1]"),
        "slowest first",
    );
    let (text, line) = edit(&j, "mv = 847", 0, "mv = 800");
    refused_at(
        &text,
        line - 2,
        &key("operating_points[1]"),
        "slowest first",
    );
    // the core's own clock is the fastest
    let (text, line) = edit(&j, "mhz = 1100\nmv", 0, "mhz = 1075\nmv");
    refused_at(
        &text,
        line,
        &key("operating_points[4].mhz"),
        "the core's 1100",
    );
    refused(
        &j,
        ("power_coefficient = 560", 0),
        "power_coefficient = \"much\"",
        &key("power_coefficient"),
        "invalid type",
    );
    let (text, _) = edit(&j, "power_coefficient = 560", 0, "");
    let e = parse(&text).unwrap_err().to_string();
    assert!(e.contains("give both, or neither"), "{e}");
    assert!(MachineFile::load("juno").unwrap().scales_frequency());
    assert!(!MachineFile::load("quickia").unwrap().scales_frequency());
}
