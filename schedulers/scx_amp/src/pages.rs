//! Completions and manual pages, from the same source as `--help`.

use amp_host::{bad_input, write_out};
use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use std::path::Path;

/// What every command's exit status means.
const EXIT_STATUS: &[u8] = b".SH \"EXIT STATUS\"\n\
.TP\n\\fB0\\fR\nSuccess.\n\
.TP\n\\fB1\\fR\nThe work failed.\n\
.TP\n\\fB2\\fR\nBad usage or bad input.\n";

/// Prints the completions of `command` for `shell`.
///
/// # Errors
/// When the completions cannot be made or written.
pub fn completions(mut command: Command, shell: Shell) -> Result<()> {
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    write_out(Path::new("-"), &String::from_utf8(text)?)
}

/// Writes a manual page for `command` and one for each command below it into the folder `dir`:
/// `scx_amp.1`, `scx_amp-run.1`. Hidden commands have none.
///
/// # Errors
/// [`amp_host::BadInput`] where `dir` is something else than a folder; when the folder cannot be
/// made or a page cannot be written, naming it.
pub fn man(mut command: Command, dir: &Path) -> Result<()> {
    if dir.exists() && !dir.is_dir() {
        return Err(bad_input(format!(
            "{}: is not a folder: name one for the pages",
            dir.display()
        )));
    }
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    command.build();
    pages(&command, dir)
}

fn pages(command: &Command, dir: &Path) -> Result<()> {
    let page = clap_mangen::Man::new(command.clone())
        .source(concat!("scx_amp ", env!("CARGO_PKG_VERSION")))
        .manual("scx_amp");
    let path = dir.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text)
        .with_context(|| format!("cannot make {}", path.display()))?;
    text.extend(EXIT_STATUS);
    write_out(&path, &String::from_utf8(text)?)?;
    let mut below = command.get_subcommands().filter(|c| !c.is_hide_set());
    below.try_for_each(|c| pages(c, dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::{CommandFactory, ValueEnum};

    /// Calls `f` with every command that is shown, and the words that lead to it (`scx_amp run`).
    fn each(command: &Command, words: &str, f: &mut dyn FnMut(&Command, &str)) {
        f(command, words);
        for c in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            each(c, &format!("{words} {}", c.get_name()), f);
        }
    }

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("share/man1");
        man(Cli::command(), &dir).unwrap();
        let mut command = Cli::command();
        command.build();
        let mut pages = 0;
        each(&command, "scx_amp", &mut |c, words| {
            pages += 1;
            let path = dir.join(format!("{}.1", words.replace(' ', "-")));
            let page = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{words}: {e}"));
            // roff writes a hyphen as `\-`
            let page = page.replace("\\-", "-");
            assert!(page.contains("EXIT STATUS"), "{words}");
            for long in c.get_arguments().filter(|a| !a.is_hide_set()) {
                let Some(long) = long.get_long() else {
                    continue;
                };
                assert!(page.contains(&format!("--{long}")), "{words}: --{long}");
            }
        });
        let files = std::fs::read_dir(&dir).unwrap().count();
        assert_eq!(files, pages);
        assert!(pages > 20, "{pages}");
    }

    #[test]
    fn pages_go_into_a_folder_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pages");
        std::fs::write(&file, "").unwrap();
        let e = man(Cli::command(), &file).unwrap_err();
        assert!(e.is::<amp_host::BadInput>(), "{e}");
        let e = man(Cli::command(), &file.join("below")).unwrap_err();
        let said = format!("{e:#}");
        assert!(
            said.contains("pages/below") && !e.is::<amp_host::BadInput>(),
            "{said}"
        );
    }

    #[test]
    fn every_shell_completes_every_command() {
        for shell in Shell::value_variants() {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "scx_amp", &mut text);
            let text = String::from_utf8(text).unwrap();
            for c in Cli::command().get_subcommands() {
                assert!(text.contains(c.get_name()), "{shell}: {}", c.get_name());
            }
        }
    }
}
