//! Records what programs count on the board, window by window, without multiplexing: the truth that
//! strategies are judged by (`cargo run -p amp-metrics --example multiplexing -- FILES`).
//!
//! ```text
//! cargo run --release -p amp-tests --example record-traces -- DIR [PROGRAM]…
//! ```
//!
//! Eight events and instructions need nine counters, and a core of the board has six (cycles have
//! one of their own). So every program runs twice, alone and pinned to a big core, with four of the
//! events each time. The board does the same work the same way; the second run's counts are laid
//! over the windows of the first by position in the program, in instructions of user mode (the
//! kernel's differ from run to run). Each file says in its first lines how far the two runs were
//! apart.

use amp_metrics::multiplex::{Trace, Window};
use amp_tests::Lab;
use amp_workloads::catalogue::Catalogue;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

/// Milliseconds of a window: the kernels' phases are longer than the real programs', of which most
/// run for less than a second.
const WINDOW_MS: [u32; 2] = [10, 2];
/// The big core that programs are pinned to.
const CPU: u32 = 1;
/// What the two runs count beside instructions and cycles.
const EVENTS: [[&str; 4]; 2] = [
    [
        "l1d_cache_refill",
        "l2d_cache_refill",
        "br_mis_pred",
        "br_retired",
    ],
    ["l1d_cache", "l2d_cache", "stall_frontend", "stall_backend"],
];
/// Kernels in turn: name, arguments.
const PHASED: [(&str, &str); 3] = [
    // phases of some ten windows
    (
        "phased-two",
        "--phase alu=4M --phase hash@8M=400k --work 20",
    ),
    (
        "phased-five",
        "--phase fp=1M --phase branchy=1M --phase chase@8M=100k --phase sort=200 --phase hash@8M=300k --work 6",
    ),
    // of a few
    (
        "phased-short",
        "--phase stream@8M=100k --phase mul=500k --phase branchy=200k --phase alu=1M --work 30",
    ),
];

/// A window of one run: seconds, instructions, cycles, instructions in user mode, events.
type Row = Vec<f64>;
/// Where the position in the program stands in a row, and where the events begin.
const POSITION: usize = 3;
const FIRST: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, wanted @ ..] = args.as_slice() else {
        return Err("usage: record-traces DIR [PROGRAM]…".into());
    };
    std::fs::create_dir_all(dir)?;
    let catalogue = Catalogue::shipped()?;
    let phased = |(n, args): &(&str, &str)| {
        let command = format!("amp-workload run phased --pin {CPU} {args}");
        ((*n).to_owned(), command, WINDOW_MS[0])
    };
    let mut commands: Vec<(String, String, u32)> = PHASED.iter().map(phased).collect();
    for p in catalogue.programs() {
        let words: Vec<String> = p.command.iter().map(|w| format!("'{w}'")).collect();
        // busybox's taskset would run its own applet of that name
        let command = format!("amp-workload time --pin {CPU} -- {}", words.join(" "));
        commands.push((p.executable.clone(), command, WINDOW_MS[1]));
    }
    commands.retain(|(n, ..)| wanted.is_empty() || wanted.contains(n));
    let programs: Vec<&[String]> = catalogue
        .programs()
        .filter(|p| commands.iter().any(|(n, ..)| *n == p.executable))
        .map(|p| p.command.as_slice())
        .collect();
    let needs = catalogue.needs(programs)?;

    let mut script =
        String::from("set -e; sleep 5; mkdir /w; amp-workload inputs /w >/dev/null; cd /w\n");
    let mut lab = Lab::board("juno").measurement().needs(&needs);
    for (name, command, ms) in &commands {
        for (i, events) in EVENTS.iter().enumerate() {
            let (file, set) = (file(name, i), events.join(","));
            // one line per window is enough to carry home
            let _ = writeln!(
                script,
                "scx_amp pmc stat -i {ms} --csv -o /w/csv -e instructions,cycles,instructions:u,{set} -- {command} >/dev/null\n\
                 awk -F, '$5 == \"big\" {{ if ($1 != t) {{ if (t) print l; t = $1; l = $8 }} l = l \" \" $7 }} END {{ print l }}' /w/csv >{file}\n\
                 echo {name} $(wc -l <{file}) windows"
            );
            lab = lab.collect(&file);
        }
    }
    let outcome = lab.run(&script).ok().0;
    for (name, command, ms) in &commands {
        let rows = |i: usize| -> Result<Vec<Row>, Box<dyn Error>> {
            let file = outcome.files.get(&file(name, i));
            let text = String::from_utf8_lossy(file.ok_or("a file did not come back")?);
            text.lines().map(row).collect()
        };
        let (first, second) = (rows(0)?, rows(1)?);
        let (trace, apart) = joined(&first, &second).ok_or(format!("{name}: nothing counted"))?;
        let text = trace.to_text();
        let (head, rest) = text.split_once('\n').ok_or("an empty trace")?;
        let about = format!(
            "# {command}\n# juno, big core, windows of {ms} ms, kernel {}, QEMU {}\n# two runs: instructions {:+.4} %, cycles {:+.4} % apart; IPC of windows: {:.2} % apart on average\n",
            outcome.kernel.release, outcome.qemu.version, apart.instructions, apart.cycles, apart.ipc
        );
        let path = Path::new(dir).join(format!("{name}.trace"));
        std::fs::write(&path, format!("{head}\n{about}{rest}"))?;
        println!("{}: {} windows", path.display(), trace.windows.len());
        print!("{about}");
    }
    Ok(())
}

fn file(name: &str, run: usize) -> String {
    format!("/w/{name}-{run}")
}

fn row(line: &str) -> Result<Row, Box<dyn Error>> {
    let row: Row = line
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    match row.len() {
        n if n == FIRST + EVENTS[0].len() => Ok(row),
        _ => Err(format!("a window of the guest: `{line}`").into()),
    }
}

/// How far two runs of the same program are apart, percent.
struct Apart {
    instructions: f64,
    cycles: f64,
    ipc: f64,
}

/// The first run's windows, with the second one's events.
fn joined(first: &[Row], second: &[Row]) -> Option<(Trace, Apart)> {
    // windows in which the program did not get to run tell nothing
    let ran = |rows: &[Row]| -> Vec<Row> {
        let some = |r: &&Row| r[0] > 0.0 && r[1] > 0.0 && r[2] > 0.0;
        rows.iter().filter(some).cloned().collect()
    };
    let (first, second) = (ran(first), ran(second));
    let sum = |rows: &[Row], i: usize| rows.iter().map(|r| r[i]).sum::<f64>();
    let scale = sum(&second, POSITION) / sum(&first, POSITION);
    // cumulative
    let mut points: Vec<Row> = vec![vec![0.0; FIRST + EVENTS[1].len()]];
    for r in &second {
        let last = points.last()?;
        points.push(last.iter().zip(r).map(|(a, b)| a + b).collect());
    }
    let at = |position: f64| -> Option<Row> {
        let above = points.partition_point(|p| p[POSITION] < position);
        let a = points.get(above.saturating_sub(1))?;
        let b = points.get(above.min(points.len() - 1))?;
        let part = match b[POSITION] - a[POSITION] {
            d if d > 0.0 => ((position - a[POSITION]) / d).clamp(0.0, 1.0),
            _ => 0.0,
        };
        Some(a.iter().zip(b).map(|(x, y)| x + (y - x) * part).collect())
    };
    let (mut done, mut windows, mut ipc) = (0.0, Vec::new(), 0.0);
    let mut from = at(0.0)?;
    for r in &first {
        done += r[POSITION];
        let to = at(done * scale)?;
        let more: Row = from.iter().zip(&to).map(|(a, b)| b - a).collect();
        ipc += (more[1] / more[2].max(1.0) / (r[1] / r[2]) - 1.0).abs();
        let counts = r[FIRST..].iter().chain(&more[FIRST..]);
        windows.push(Window {
            ns: (r[0] * 1e9).round(),
            instructions: r[1],
            cycles: r[2],
            counts: counts.map(|c| c.round()).collect(),
        });
        from = to;
    }
    let apart = Apart {
        instructions: 100.0 * (sum(&second, 1) / sum(&first, 1) - 1.0),
        cycles: 100.0 * (sum(&second, 2) / sum(&first, 2) - 1.0),
        ipc: 100.0 * ipc / windows.len() as f64,
    };
    let trace = Trace {
        events: EVENTS.concat().into_iter().map(str::to_owned).collect(),
        windows,
    };
    Some((trace, apart))
}
