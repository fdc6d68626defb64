//! The guides' commands, run as they stand there.
//!
//! A guide (`docs/guide/*.md`) has two kinds of code blocks:
//!
//! - `sh`: runs on any machine, without root, in a second or two. Each block is a script of its own
//!   (`sh -eu`); the blocks of a guide run one after the other in one folder, which has the
//!   repository's files and the built `scx_amp` in its `PATH`.
//! - `console`: needs root, a board or hardware. A line that begins with a prompt (`$ scx_amp …`,
//!   `# scx_amp …`) is run with `--help` behind it, which does nothing but check the options.
//!
//! Where a machine does not let its users count anything at all, blocks with `scx_amp pmc` are left
//! out.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn guides() -> Vec<PathBuf> {
    let all = std::fs::read_dir(repository().join("docs/guide")).unwrap();
    let mut all: Vec<PathBuf> = all.map(|e| e.unwrap().path()).collect();
    // pictures lie beside them
    all.retain(|p| p.extension().is_some_and(|e| e == "md"));
    assert!(!all.is_empty());
    all.sort();
    all
}

/// A runnable block: the line it begins at, and its text.
type Block = (usize, String);

/// The blocks of one kind of a guide. Every block has to be of a known kind.
fn blocks(guide: &Path, wanted: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(guide).unwrap();
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((i, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        assert!(
            ["sh", "console", "toml"].contains(&kind),
            "{}:{}: a block of kind `{kind}`",
            guide.display(),
            i + 1
        );
        let body: Vec<&str> = lines
            .by_ref()
            .map(|(_, l)| l)
            .take_while(|l| *l != "```")
            .collect();
        let body = body.join("\n");
        if kind == "toml" {
            let read = body.parse::<toml::Table>();
            assert!(read.is_ok(), "{}:{}: {read:?}", guide.display(), i + 1);
        }
        if kind == wanted {
            blocks.push((i + 1, body));
        }
    }
    blocks
}

/// A command of a `console` block with `--help` as its last option; nothing for other lines.
fn with_help(line: &str) -> Option<String> {
    let command = line.strip_prefix("$ ").or(line.strip_prefix("# "))?;
    let command = command.split("  #").next()?.trim_end();
    if !command.starts_with("scx_amp ") {
        return None;
    }
    Some(match command.split_once(" -- ") {
        Some((options, program)) => format!("{options} --help -- {program}"),
        None => format!("{command} --help"),
    })
}

/// A folder with the repository's files, where commands may leave theirs.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(repository()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        if !hidden && !["target", "results", "scx_amp"].iter().any(|n| *n == name) {
            symlink(entry.path(), dir.path().join(name)).unwrap();
        }
    }
    dir
}

fn run(script: &str, dir: &Path) -> Output {
    let built = Path::new(env!("CARGO_BIN_EXE_scx_amp")).parent().unwrap();
    let mut path = OsString::from(built);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    Command::new("sh")
        .args(["-euc", script])
        .current_dir(dir)
        .env("PATH", path)
        .env("SCX_AMP_CACHE", dir.join("cache"))
        .env_remove("SUDO_UID")
        .env_remove("SUDO_GID")
        .output()
        .unwrap()
}

/// Whether this user may count what own programs do.
fn may_count(dir: &Path) -> bool {
    run("scx_amp pmc stat -e task-clock -- true", dir)
        .status
        .success()
}

#[test]
fn commands_run_as_they_stand_there() {
    let guides = guides();
    assert!(guides.len() >= 4, "{guides:?}");
    let mut failed = Vec::new();
    for guide in guides {
        let blocks = blocks(&guide, "sh");
        assert!(
            blocks.iter().any(|(_, text)| text.contains("scx_amp ")),
            "{}: no command that can be run",
            guide.display()
        );
        let dir = folder();
        let counts = may_count(dir.path());
        for (line, text) in blocks {
            let at = format!("{}:{line}", guide.display());
            if text.contains("scx_amp pmc") && !counts {
                println!("{at}: not run: counting is not permitted here");
                continue;
            }
            let out = run(&text, dir.path());
            if !out.status.success() {
                let said = String::from_utf8_lossy(&out.stderr);
                failed.push(format!("{at}: {}\n{text}\n{said}", out.status));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn commands_that_are_not_run_have_options_that_exist() {
    let dir = folder();
    let mut checked = 0;
    let mut failed = Vec::new();
    for guide in guides() {
        for (line, text) in blocks(&guide, "console") {
            for command in text.lines().filter_map(with_help) {
                checked += 1;
                let out = run(&command, dir.path());
                if !out.status.success() {
                    let said = String::from_utf8_lossy(&out.stderr);
                    failed.push(format!("{}:{line}: {command}\n{said}", guide.display()));
                }
            }
        }
    }
    assert!(checked > 20, "{checked} commands");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
