//! Completions and manual pages, as the command gives them to a user.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn scx_amp(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_scx_amp"))
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn an_unknown_shell_is_answered_with_those_there_are() {
    let out = scx_amp(&["completions", "tcsh"]);
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stderr);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(said.contains(shell), "{shell}: {said}");
    }
}

#[test]
fn bash_takes_its_completions() {
    let text = scx_amp(&["completions", "bash"]);
    assert!(text.status.success());
    let bash = Command::new("bash")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut bash) = bash else {
        amp_skips::skip("no bash here");
        return;
    };
    let mut script = text.stdout;
    // What bash would offer after `scx_amp topology --js`.
    script.extend(
        b"\nCOMP_WORDS=(scx_amp topology --js); COMP_CWORD=2\n_scx_amp scx_amp --js topology\necho \"${COMPREPLY[*]}\"\n",
    );
    bash.stdin.take().unwrap().write_all(&script).unwrap();
    let out = bash.wait_with_output().unwrap();
    assert!(out.status.success());
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "--json");
}

#[test]
fn pages_are_not_written_over_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("notes");
    std::fs::write(&file, "mine").unwrap();
    let out = scx_amp(&["man", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("notes") && said.contains("folder"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}
