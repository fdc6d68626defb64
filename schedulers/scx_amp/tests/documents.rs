//! What the documents say exists: links, and the files that they name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Markdown file of the repository, build results aside.
fn documents() -> Vec<PathBuf> {
    fn below(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name());
            let hidden = name.to_string_lossy().starts_with('.');
            if entry.file_type().unwrap().is_dir() {
                if !hidden && !["target", "results"].iter().any(|n| *n == name) {
                    below(&path, found);
                }
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    below(&repository(), &mut found);
    found.sort();
    found
}

/// A document's lines outside of code blocks, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut code = false;
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            lines.push((i + 1, line));
        }
    }
    lines
}

/// The name under which a heading is linked to, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .collect::<String>();
    kept.replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter(|(_, l)| l.starts_with('#'));
    headings.map(|(_, l)| anchor(l)).collect()
}

/// Targets of `[text](target)`. A link may be broken over two lines inside its text, never inside
/// its target.
fn links(line: &str) -> Vec<&str> {
    let starts = line.match_indices("](").map(|(i, _)| i + 2);
    starts
        .filter_map(|i| Some(&line[i..i + line[i..].find(')')?]))
        .collect()
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut broken = Vec::new();
    let mut checked = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for (number, line) in prose(&text) {
            for link in links(line) {
                if link.contains("://") {
                    continue;
                }
                checked += 1;
                let (path, heading) = link.split_once('#').unwrap_or((link, ""));
                let target = match path {
                    "" => document.clone(),
                    path => document.parent().unwrap().join(path),
                };
                let there = target.exists()
                    && (heading.is_empty()
                        || anchors(&std::fs::read_to_string(&target).unwrap()).contains(heading));
                if !there {
                    broken.push(format!("{}:{number}: {link}", document.display()));
                }
            }
        }
    }
    assert!(checked > 50, "{checked} links");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// First parts of paths that documents give from the root of the repository.
const ROOMS: [&str; 9] = [
    "bpf",
    "dist",
    "docs",
    "libs",
    "metrics",
    "models",
    "schedulers",
    "tests",
    "tools",
];

/// Paths in `code spans`, given from the root of the repository: one word without placeholders.
fn paths(line: &str) -> Vec<&str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans
        .filter(|s| {
            let room = s.split_once('/').map_or("", |(room, _)| room);
            ROOMS.contains(&room) && !s.contains([' ', '*', '{', '<', '…'])
        })
        .map(|s| s.trim_end_matches('/'))
        .collect()
}

#[test]
fn files_that_documents_name_exist() {
    let mut missing = Vec::new();
    let mut checked = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        let home = document.parent().unwrap();
        for (number, line) in prose(&text) {
            for path in paths(line) {
                checked += 1;
                // the README of a room may name files from there
                if !repository().join(path).exists() && !home.join(path).exists() {
                    missing.push(format!("{}:{number}: {path}", document.display()));
                }
            }
        }
    }
    assert!(checked > 30, "{checked} paths");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
