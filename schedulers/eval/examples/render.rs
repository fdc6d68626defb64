//! Renders the JSON of a bench: `render REPORT.json [PAGE.html]` prints the tables and writes the
//! page.

use amp_eval::evaluation::BenchReport;
use amp_eval::report;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: render REPORT.json [PAGE.html]")?;
    let json = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
    let bench: BenchReport = serde_json::from_str(&json).map_err(|e| format!("{file}: {e}"))?;
    print!("{}", report::text(&bench, None));
    if let Some(page) = args.next() {
        std::fs::write(&page, report::html(&bench)).map_err(|e| format!("{page}: {e}"))?;
    }
    Ok(())
}
