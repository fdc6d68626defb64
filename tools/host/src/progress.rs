//! How far the bench is: a bar on a terminal, nothing in a pipe, lines for the host when the bench
//! runs in a guest.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// What a guest's progress line begins with on the console.
const MARK: &str = "@bench";

/// Where progress is shown.
pub enum Progress {
    /// A bar on standard error.
    Bar(ProgressBar),
    /// Lines that [`Progress::relay`] understands, on standard output.
    Lines {
        /// Steps done.
        done: u64,
        /// Steps in all.
        total: u64,
    },
}

impl Progress {
    /// A bar where standard error is a terminal; hidden elsewhere.
    pub fn bar() -> Progress {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(0)
        } else {
            ProgressBar::hidden()
        };
        if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} [{bar:28}] {pos}/{len} {msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress::Bar(bar)
    }

    /// Lines for a host.
    pub fn lines() -> Progress {
        Progress::Lines { done: 0, total: 0 }
    }

    /// `more` further steps are to come.
    pub fn expect(&mut self, more: u64) {
        match self {
            Progress::Bar(b) => b.inc_length(more),
            Progress::Lines { total, .. } => *total += more,
        }
    }

    /// A step begins.
    pub fn begin(&mut self, what: &str) {
        match self {
            Progress::Bar(b) => b.set_message(what.to_string()),
            Progress::Lines { done, total } => {
                // a host that hears no more is told nothing more
                let _ = crate::write_out("-".as_ref(), &format!("{MARK} {done} {total} {what}\n"));
            }
        }
    }

    /// A step has ended.
    pub fn end(&mut self) {
        match self {
            Progress::Bar(b) => b.inc(1),
            Progress::Lines { done, .. } => *done += 1,
        }
    }

    /// Shows what a guest's console line says, if it is one of ours.
    pub fn relay(&mut self, console_line: &str) {
        let (Progress::Bar(bar), Some((done, total, what))) = (&*self, parse(console_line)) else {
            return;
        };
        bar.set_length(total);
        bar.set_position(done);
        bar.set_message(what.to_string());
    }

    /// Tells of something on standard error, beside the bar.
    pub fn warn(&self, what: &str) {
        match self {
            Progress::Bar(b) => b.suspend(|| crate::tell(what)),
            _ => crate::tell(what),
        }
    }

    /// Shows `what` without a step, for the time before steps are known.
    pub fn note(&mut self, what: &str) {
        if let Progress::Bar(b) = self {
            b.set_message(what.to_string());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Progress::Bar(b) = self {
            b.finish_and_clear();
        }
    }
}

fn parse(line: &str) -> Option<(u64, u64, &str)> {
    let rest = line.trim_end().strip_prefix(MARK)?.strip_prefix(' ')?;
    let mut parts = rest.splitn(3, ' ');
    Some((
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
        parts.next()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_lines_are_told_from_other_output() {
        assert_eq!(
            parse("@bench 3 21 bzip2 alone\r"),
            Some((3, 21, "bzip2 alone"))
        );
        for other in [
            "@bench x 1 y",
            "@benchmark 1 2 y",
            "bench 1 2 y",
            "@bench 1",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
