//! Phases of programs, true and predicted, as a table.

use super::tables::{core_type, table, UNKNOWN};
use amp_metrics::uncertainty::Measured;
use amp_models::data::Dataset;
use amp_models::matching::MatchedData;
use amp_models::phases::{phases, Phase};
use amp_models::platform::Evaluated;
use amp_models::sample::Quantity;

/// Mean prediction of a factor in a phase of a program.
fn predicted(e: &Evaluated, program: usize, phase: &Phase) -> Option<Measured> {
    let all = e.predicted.iter().zip(&e.windows);
    let own = all.filter(|(p, w)| p.program == program && phase.windows.contains(w));
    let values: Vec<f64> = own.map(|(p, _)| p.predicted).collect();
    Measured::mean(&values)
}

/// The phases of the programs that have several, by the factors of the fastest core type, with what
/// was predicted in them; `u` is from the scatter of the windows. Nothing when no program has
/// several.
pub fn table_of(data: &Dataset, matched: &MatchedData, all: &[Evaluated]) -> String {
    let factors: Vec<&Evaluated> = all.iter().filter(|e| e.target.of == 0).collect();
    let quantities = [Quantity::Speedup, Quantity::Efficiency];
    let quantities = quantities.map(|q| {
        let of = factors.iter().filter(|e| e.target.quantity == q);
        (q, of.copied().collect::<Vec<&Evaluated>>())
    });
    let mut rows = Vec::new();
    let text = |m: Option<Measured>| m.map_or(UNKNOWN.to_owned(), |m| m.to_string());
    for (p, program) in matched.programs.iter().enumerate() {
        let found = phases(program, 0);
        if found.len() < 2 {
            continue;
        }
        for (i, phase) in found.iter().enumerate() {
            let windows = program.windows.get(phase.windows.clone()).unwrap_or(&[]);
            let Some((first, last)) = windows.first().zip(windows.last()) else {
                continue;
            };
            let mut row = vec![
                program.name.clone(),
                (i + 1).to_string(),
                format!(
                    "{:.0} to {:.0}",
                    first.position / 1e6,
                    (last.position + last.instructions) / 1e6
                ),
                windows.len().to_string(),
            ];
            for (q, factors) in &quantities {
                row.push(text(match q {
                    Quantity::Speedup => Some(phase.speedup),
                    Quantity::Efficiency => phase.efficiency,
                }));
                row.extend(factors.iter().map(|e| text(predicted(e, p, phase))));
            }
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return "Phases: one in every program\n".to_owned();
    }
    let mut head: Vec<String> = ["program", "phase", "M instructions", "windows"]
        .map(str::to_owned)
        .to_vec();
    for (q, factors) in &quantities {
        head.push(format!("true {}", q.name()));
        let from = |e: &&Evaluated| format!("from {}", core_type(data, e.on));
        head.extend(factors.iter().map(from));
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    format!(
        "Phases of the programs that have several:\n{}",
        table(&head, rows)
    )
}
