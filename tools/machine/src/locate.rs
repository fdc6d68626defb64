//! From a key or a byte range of a machine file to the line that a person must look at.

use crate::error::MachineError;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// One step of the way to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(&'static str),
    Index(usize),
}

/// Something that is wrong with the value of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub at: Vec<Step>,
    pub message: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Key(k) => f.write_str(k),
            Step::Index(i) => write!(f, "[{i}]"),
        }
    }
}

/// `core_type[1].cpus` for the steps `core_type`, 1, `cpus`.
fn dotted<'a>(steps: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for s in steps {
        if !out.is_empty() && !s.starts_with('[') {
            out.push('.');
        }
        out.push_str(s);
    }
    out
}

/// Finds lines and keys in the text of one file.
pub(crate) struct Locator<'t> {
    path: PathBuf,
    text: &'t str,
    root: Option<Spanned<DeTable<'t>>>,
}

impl<'t> Locator<'t> {
    pub fn new(path: &Path, text: &'t str) -> Locator<'t> {
        Locator {
            path: path.into(),
            text,
            root: DeTable::parse(text).ok(),
        }
    }

    fn line(&self, byte: usize) -> usize {
        let end = byte.min(self.text.len());
        1 + self.text.as_bytes()[..end]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
    }

    /// An error of the TOML reader or of serde, with line and key.
    pub fn parse_error(&self, e: &toml::de::Error) -> MachineError {
        let span = e.span().unwrap_or(0..0);
        let key = self.key_at(&span).unwrap_or_else(|| self.word_at(&span));
        MachineError::Bad {
            path: self.path.clone(),
            line: self.line(span.start),
            key,
            message: e.message().trim().replace('\n', " "),
        }
    }

    /// An error of the checker, with the line of the nearest key that is written in the file.
    pub fn fault(&self, fault: &Fault) -> MachineError {
        let steps: Vec<String> = fault.at.iter().map(Step::to_string).collect();
        MachineError::Bad {
            path: self.path.clone(),
            line: self.line(self.find(&fault.at)),
            key: dotted(steps.iter().map(String::as_str)),
            message: fault.message.clone(),
        }
    }

    /// Byte where the value at `steps` starts, or of the deepest parent that is there.
    fn find(&self, steps: &[Step]) -> usize {
        let Some(root) = &self.root else { return 0 };
        let mut at = 0;
        let mut here: Option<&Spanned<DeValue<'_>>> = None;
        for step in steps {
            let next = match (step, here.map(Spanned::get_ref)) {
                (Step::Key(k), None) => root.get_ref().get(*k),
                (Step::Key(k), Some(DeValue::Table(t))) => t.get(*k),
                (Step::Index(i), Some(DeValue::Array(a))) => a.get(*i),
                _ => None,
            };
            let Some(value) = next else { break };
            at = value.span().start;
            here = Some(value);
        }
        at
    }

    /// The innermost key whose name or value contains `span`.
    fn key_at(&self, span: &Range<usize>) -> Option<String> {
        let root = self.root.as_ref()?.get_ref();
        let mut path = Vec::new();
        in_table(root, span, &mut path);
        (!path.is_empty()).then(|| dotted(path.iter().map(String::as_str)))
    }

    /// The text at `span`, for a file that is not TOML at all.
    fn word_at(&self, span: &Range<usize>) -> String {
        let line = self.line(span.start);
        self.text
            .lines()
            .nth(line - 1)
            .unwrap_or_default()
            .trim()
            .to_string()
    }
}

fn holds(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn in_table(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<String>) {
    for (key, value) in table.iter() {
        let name = key.get_ref().to_string();
        if holds(&key.span(), span) {
            path.push(name);
            return;
        }
        path.push(name);
        if in_value(value, span, path) {
            return;
        }
        path.pop();
    }
}

fn in_value(value: &Spanned<DeValue<'_>>, span: &Range<usize>, path: &mut Vec<String>) -> bool {
    let depth = path.len();
    match value.get_ref() {
        // A table's own span need not cover its dotted or bracketed children: look inside in any
        // case.
        DeValue::Table(t) => in_table(t, span, path),
        DeValue::Array(a) => {
            for (i, v) in a.iter().enumerate() {
                path.push(format!("[{i}]"));
                if in_value(v, span, path) {
                    return true;
                }
                path.pop();
            }
        }
        _ => {}
    }
    path.len() > depth || holds(&value.span(), span)
}
