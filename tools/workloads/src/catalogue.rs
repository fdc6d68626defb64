//! The catalogue of real programs: `programs.toml`.
//!
//! A mix names commands only. [`Catalogue::needs`] lists what must be in a guest for them: Debian
//! packages, input files, our own programs.

use amp_machine::{BadFile, Locator};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Programs of our own that a command may start with; the guest gets them without a package.
pub const OWN_PROGRAMS: [&str; 1] = ["amp-workload"];

/// A program out of a package.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// What a command starts with.
    pub executable: String,
    /// What it does, for people.
    pub about: String,
    /// Debian packages that bring it, without versions and dependencies.
    pub packages: Vec<String>,
    /// The reference command.
    pub command: Vec<String>,
}

/// An input file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// File name in the directory that commands run in.
    pub name: String,
    /// What it is, for people.
    pub about: String,
    /// Other inputs it refers to.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Its contents, if they stand in the catalogue.
    pub text: Option<String>,
    /// Its contents, if they are files of a package.
    pub concatenate: Option<Concatenate>,
    /// Its contents, if a generator makes them.
    pub generate: Option<Generate>,
}

/// The files of a folder one after the other, in order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Concatenate {
    /// Debian package.
    pub package: String,
    /// Folder in it, from the root, without a leading slash.
    pub folder: String,
    /// Only files with this extension (empty: only files without one).
    pub extension: String,
    /// Length of the result; it is an error when the files hold less.
    pub bytes: usize,
}

/// A generator and its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase", deny_unknown_fields)]
pub enum Generate {
    /// Sound as a WAV file: 16-bit samples, one channel, 44.1 kHz.
    Wav {
        /// Number of samples, 1 to 10 million.
        samples: u32,
        /// Seed of the noise.
        seed: u64,
    },
}

/// The catalogue, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalogue {
    programs: BTreeMap<String, Program>,
    inputs: BTreeMap<String, Input>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default, rename = "program")]
    programs: Vec<Program>,
    #[serde(default, rename = "input")]
    inputs: Vec<Input>,
}

/// Why a catalogue, or a command, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The file cannot be read or is not right; the text names line or entry, and key.
    #[error(transparent)]
    File(#[from] BadFile),
    /// A command that starts with a program nobody knows.
    #[error("no program `{name}` in the catalogue (it has {known}): add it to programs.toml")]
    UnknownProgram {
        /// The program.
        name: String,
        /// Programs of the catalogue.
        known: String,
    },
    /// A command without a word in it.
    #[error("an empty command")]
    EmptyCommand,
}

/// What a guest must have to run a set of commands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    /// Debian packages for the guest's architecture; their dependencies come on top.
    pub packages: BTreeSet<String>,
    /// Debian packages whose files the inputs are made of, on the host; without dependencies.
    pub data_packages: BTreeSet<String>,
    /// Input files, by name.
    pub inputs: BTreeMap<String, Input>,
    /// Our own programs.
    pub own: BTreeSet<String>,
}

impl Catalogue {
    /// The catalogue that comes with this crate.
    ///
    /// # Errors
    /// None in a released version: a unit test parses it.
    pub fn shipped() -> Result<Catalogue, CatalogueError> {
        Catalogue::parse(include_str!("../programs.toml"), Path::new("programs.toml"))
    }

    /// Reads a catalogue from a file.
    ///
    /// # Errors
    /// When it cannot be read or is not right; the error names file, line or entry, and key.
    pub fn load(path: &Path) -> Result<Catalogue, CatalogueError> {
        Catalogue::parse(&BadFile::read(path)?, path)
    }

    /// Parses and checks a catalogue; `path` is for messages.
    ///
    /// # Errors
    /// When it is not right; the error names line or entry, and key.
    pub fn parse(text: &str, path: &Path) -> Result<Catalogue, CatalogueError> {
        let bad = |message: String| BadFile::whole(path, message);
        let doc: Document = toml::from_str(text).map_err(|e| Locator::new(path, text).toml(&e))?;
        let mut c = Catalogue {
            programs: BTreeMap::new(),
            inputs: BTreeMap::new(),
        };
        for i in doc.inputs {
            check_input(&i).map_err(|m| bad(format!("input `{}`: {m}", i.name)))?;
            if let Some(i) = c.inputs.insert(i.name.clone(), i) {
                return Err(bad(format!("input `{}` stands there twice", i.name)).into());
            }
        }
        for i in c.inputs.values() {
            if let Some(n) = i.needs.iter().find(|n| !c.inputs.contains_key(*n)) {
                let message = format!("input `{}`: needs: there is no input `{n}`", i.name);
                return Err(bad(message).into());
            }
        }
        for p in doc.programs {
            check_program(&p).map_err(|m| bad(format!("program `{}`: {m}", p.executable)))?;
            if let Some(p) = c.programs.insert(p.executable.clone(), p) {
                let message = format!("program `{}` stands there twice", p.executable);
                return Err(bad(message).into());
            }
        }
        Ok(c)
    }

    /// The programs, by name.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.programs.values()
    }

    /// The inputs, by name.
    pub fn inputs(&self) -> impl Iterator<Item = &Input> {
        self.inputs.values()
    }

    /// What a guest needs for `commands`.
    ///
    /// # Errors
    /// When a command is empty, or starts with a program that is neither ours nor in the catalogue.
    pub fn needs<'a>(
        &self,
        commands: impl IntoIterator<Item = &'a [String]>,
    ) -> Result<Needs, CatalogueError> {
        let mut needs = Needs::default();
        for command in commands {
            let (name, arguments) = command.split_first().ok_or(CatalogueError::EmptyCommand)?;
            // on the host a command may give a path; what counts is the program's name
            let name = name.rsplit('/').next().unwrap_or(name);
            if OWN_PROGRAMS.contains(&name) {
                needs.own.insert(name.to_string());
            } else if let Some(p) = self.programs.get(name) {
                needs.packages.extend(p.packages.iter().cloned());
            } else {
                return Err(CatalogueError::UnknownProgram {
                    name: name.to_string(),
                    known: self.programs.keys().cloned().collect::<Vec<_>>().join(", "),
                });
            }
            for a in arguments {
                self.add_input(a, &mut needs);
            }
        }
        Ok(needs)
    }

    fn add_input(&self, name: &str, needs: &mut Needs) {
        let Some(i) = self.inputs.get(name) else {
            return;
        };
        if needs.inputs.insert(name.to_string(), i.clone()).is_some() {
            return;
        }
        needs
            .data_packages
            .extend(i.concatenate.iter().map(|c| c.package.clone()));
        for n in &i.needs {
            self.add_input(n, needs);
        }
    }
}

fn check_program(p: &Program) -> Result<(), String> {
    plain_name("executable", &p.executable)?;
    if p.packages.is_empty() {
        return Err("packages: at least one".into());
    }
    for name in &p.packages {
        package_name("packages", name)?;
    }
    if p.command.first() != Some(&p.executable) {
        return Err(format!("command: must start with `{}`", p.executable));
    }
    if OWN_PROGRAMS.contains(&p.executable.as_str()) {
        return Err("executable: a program of our own needs no entry".into());
    }
    Ok(())
}

fn check_input(i: &Input) -> Result<(), String> {
    plain_name("name", &i.name)?;
    let sources = [
        i.text.is_some(),
        i.concatenate.is_some(),
        i.generate.is_some(),
    ];
    if sources.iter().filter(|s| **s).count() != 1 {
        return Err("exactly one of text, concatenate and generate".into());
    }
    if let Some(c) = &i.concatenate {
        package_name("concatenate.package", &c.package)?;
        if c.folder.is_empty()
            || c.folder.starts_with('/')
            || c.folder.split('/').any(|f| f == "..")
        {
            return Err(format!(
                "concatenate.folder `{}`: from the root, without `/` in front",
                c.folder
            ));
        }
        if c.bytes == 0 {
            return Err("concatenate.bytes: at least 1".into());
        }
    }
    if let Some(Generate::Wav { samples, .. }) = i.generate {
        if !(1..=10_000_000).contains(&samples) {
            return Err(format!("generate.samples {samples}: 1 to 10000000"));
        }
    }
    Ok(())
}

/// A file name: no folder, nothing hidden, nothing that looks like an option.
fn plain_name(key: &str, name: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    if name.is_empty() || name.starts_with(['.', '-']) || !name.chars().all(good) {
        return Err(format!("{key} `{name}`: letters, digits and . _ + - only"));
    }
    Ok(())
}

/// As Debian policy 5.6.1 has it.
fn package_name(key: &str, name: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    if name.len() < 2
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !name.chars().all(good)
    {
        return Err(format!("{key} `{name}`: not the name of a Debian package"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Catalogue::parse(text, Path::new("x.toml"))
            .unwrap_err()
            .to_string()
    }

    fn words(s: &str) -> Vec<String> {
        s.split(' ').map(String::from).collect()
    }

    #[test]
    fn the_shipped_one_is_right_and_its_reference_commands_are_known() {
        let c = Catalogue::shipped().unwrap();
        assert!(c.programs().count() >= 3);
        let commands: Vec<_> = c.programs().map(|p| p.command.as_slice()).collect();
        let needs = c.needs(commands).unwrap();
        // no input that nobody uses
        assert_eq!(needs.inputs.len(), c.inputs().count());
        assert!(needs.own.is_empty());
    }

    /// A compiler removes its output before it writes it: given a device, root would have none any more. Those named here were run as root
    /// and left it alone.
    #[test]
    fn no_command_replaces_a_device() {
        let c = Catalogue::shipped().unwrap();
        let to_device = |p: &&Program| p.command.iter().any(|a| a.contains("/dev/"));
        let names: BTreeSet<&str> = c
            .programs()
            .filter(to_device)
            .map(|p| &*p.executable)
            .collect();
        assert_eq!(
            names,
            BTreeSet::from(["lame", "sort", "opusenc", "clustalw"])
        );
    }

    #[test]
    fn needs_of_commands() {
        let c = Catalogue::shipped().unwrap();
        let (a, b) = (
            words("sqlite3 -init job.sql"),
            words("amp-workload run alu --work 1M"),
        );
        let n = c.needs([a.as_slice(), b.as_slice()]).unwrap();
        assert_eq!(n.packages, BTreeSet::from(["sqlite3".to_string()]));
        // the script imports the text, which comes out of a package of its own
        assert_eq!(
            n.inputs.keys().collect::<Vec<_>>(),
            ["job.sql", "short.txt"]
        );
        assert_eq!(n.data_packages, BTreeSet::from(["fortunes".to_string()]));
        assert_eq!(n.own, BTreeSet::from(["amp-workload".to_string()]));
        assert_eq!(c.needs([]).unwrap(), Needs::default());
    }

    #[test]
    fn unknown_programs_and_empty_commands() {
        let c = Catalogue::shipped().unwrap();
        let e = c
            .needs([words("frobnicate -x").as_slice()])
            .unwrap_err()
            .to_string();
        assert!(e.contains("`frobnicate`") && e.contains("bzip2"), "{e}");
        assert!(matches!(
            c.needs([[].as_slice()]),
            Err(CatalogueError::EmptyCommand)
        ));
    }

    const PROGRAM: &str =
        "[[program]]\nexecutable = 'a'\nabout = ''\npackages = ['aa']\ncommand = ['a']\n";
    const INPUT: &str = "[[input]]\nname = 'i'\nabout = ''\ntext = ''\n";

    #[test]
    fn errors_name_file_entry_and_key() {
        assert!(Catalogue::parse(&format!("{PROGRAM}{INPUT}"), Path::new("x")).is_ok());
        let e = error(&PROGRAM.replace("about", "abuot"));
        assert!(
            e.starts_with("x.toml: ") && e.contains("line 3") && e.contains("abuot"),
            "{e}"
        );
        assert!(error(&format!("{PROGRAM}{PROGRAM}")).contains("program `a` stands there twice"));
        assert!(error(&format!("{INPUT}{INPUT}")).contains("input `i` stands there twice"));
        assert!(error(&PROGRAM.replace("['a']", "['b']")).contains("command: must start with `a`"));
        assert!(error(&PROGRAM.replace("['aa']", "[]")).contains("packages"));
        assert!(error(&PROGRAM.replace("'aa'", "'A b'")).contains("`A b`"));
        assert!(error(&PROGRAM.replace("'a'", "'../a'")).contains("executable `../a`"));
        assert!(error(&format!("{INPUT}needs = ['j']")).contains("no input `j`"));
        assert!(error("[[input]]\nname = 'i'\nabout = ''\n").contains("exactly one of"));
        let wav =
            "[[input]]\nname = 'i'\nabout = ''\ngenerate = { what = 'wav', samples = 0, seed = 1 }";
        assert!(error(wav).contains("generate.samples"));
        assert!(error(&wav.replace("seed", "sead")).contains("sead"));
        assert!(error(&wav.replace("'wav'", "'wave'")).contains("wave"));
        let folder = "[[input]]\nname = 'i'\nabout = ''\nconcatenate = { package = 'pp', folder = '/etc', extension = '', bytes = 1 }";
        assert!(error(folder).contains("folder `/etc`"));
        assert!(error(&folder.replace("/etc", "a/../b")).contains("folder"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let e = Catalogue::load(Path::new("/nonexistent/p.toml"))
            .unwrap_err()
            .to_string();
        assert!(e.starts_with("/nonexistent/p.toml: "), "{e}");
    }
}
