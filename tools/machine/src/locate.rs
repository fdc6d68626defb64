//! What is wrong in a file that a person wrote: from a key or a byte to the line to look at.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// What is wrong in a file that a person wrote, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFile {
    /// The file, or the name of a shipped one.
    pub path: PathBuf,
    /// Line, from 1; `None` where the whole file is at fault.
    pub line: Option<usize>,
    /// Key at fault, for example `core_type[1].model.l2.ways`; empty tables are named by their
    /// parent. `None` where the text is not even TOML.
    pub key: Option<String>,
    /// What is wrong and what would be right.
    pub message: String,
}

impl BadFile {
    /// Something that is wrong with the whole file, or that names its place itself.
    pub fn whole(path: &Path, message: impl Into<String>) -> BadFile {
        BadFile {
            path: path.into(),
            line: None,
            key: None,
            message: message.into(),
        }
    }

    /// The text of the regular file at `path` ([`read_text`](crate::read_text)).
    ///
    /// # Errors
    /// The system's, with the name of the file; when it is no regular file, or too long.
    pub fn read(path: &Path) -> Result<String, BadFile> {
        match crate::read_text(path) {
            Ok((text, _)) => Ok(text),
            Err(e) => Err(BadFile::whole(path, e.to_string())),
        }
    }
}

impl fmt::Display for BadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(key) = &self.key {
            write!(f, "key `{key}`: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadFile {}

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

/// Finds lines and keys in the text of one TOML file, for [`BadFile`].
pub struct Locator<'t> {
    path: PathBuf,
    text: &'t str,
    root: Option<Spanned<DeTable<'t>>>,
}

impl<'t> Locator<'t> {
    /// Of the file at `path` with this text, TOML or not.
    pub fn new(path: &Path, text: &'t str) -> Locator<'t> {
        Locator {
            path: path.into(),
            text,
            root: DeTable::parse(text).ok(),
        }
    }

    /// The line, from 1, of the byte at index `byte`.
    pub fn line(&self, byte: usize) -> usize {
        let end = byte.min(self.text.len());
        1 + self.text.as_bytes()[..end]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
    }

    fn bad(&self, line: usize, key: Option<String>, message: String) -> BadFile {
        BadFile {
            path: self.path.clone(),
            line: Some(line),
            key,
            message,
        }
    }

    /// An error of the TOML reader or of serde. What is not TOML at all is shown as it stands.
    pub fn toml(&self, e: &toml::de::Error) -> BadFile {
        let span = e.span().unwrap_or(0..0);
        let line = self.line(span.start);
        let message = e.message().trim().replace('\n', " ");
        match self.key_at(&span) {
            Some(key) => self.bad(line, Some(key), message),
            None if self.root.is_some() => self.bad(line, None, message),
            None => {
                let text = self.text.lines().nth(line - 1).unwrap_or_default().trim();
                self.bad(line, None, format!("`{text}`: {message}"))
            }
        }
    }

    /// A fault at byte `at`, with a message that names the key.
    pub fn at(&self, at: usize, message: impl Into<String>) -> BadFile {
        self.bad(self.line(at), None, message.into())
    }

    /// A fault of the value that starts at byte `at`, of the key that is called `key`.
    pub fn value(&self, at: usize, key: impl Into<String>, message: impl Into<String>) -> BadFile {
        self.bad(self.line(at), Some(key.into()), message.into())
    }

    /// A fault of the top-level key `key`, wherever it stands.
    pub fn key(&self, key: &'static str, message: impl Into<String>) -> BadFile {
        self.fault(&Fault {
            at: vec![Step::Key(key)],
            message: message.into(),
        })
    }

    /// An error of the checker, with the line of the nearest key that is written in the file.
    pub(crate) fn fault(&self, fault: &Fault) -> BadFile {
        let steps: Vec<String> = fault.at.iter().map(Step::to_string).collect();
        let key = dotted(steps.iter().map(String::as_str));
        self.value(self.find(&fault.at), key, fault.message.clone())
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
