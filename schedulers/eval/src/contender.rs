//! What a bench compares: the items of `--policies`.
//!
//! ```text
//! eevdf                     the kernel's own scheduler
//! eevdf:no-eas              the same without its energy model
//! hsp, rr, …                a policy of ours
//! pinned                    the best placement by threads pinned to core types
//! scx:NAME, scx:NAME ARGS   another sched_ext scheduler, with arguments
//! ```

use amp_sched::policy::{BASELINE, NAMES};
use amp_sched::{closest, did_you_mean};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use thiserror::Error;

/// Name of the best placement by pinned threads.
pub const PINNED: &str = "pinned";
/// Name of the kernel's own scheduler without energy-aware scheduling (EAS).
pub const WITHOUT_EAS: &str = "eevdf:no-eas";
/// How the item of an scx scheduler begins.
const SCX: &str = "scx:";
/// How the program of an scx scheduler begins.
const PROGRAM: &str = "scx_";

/// One item of `--policies`. Its text ([`fmt::Display`]) is its label in tables and can be parsed
/// again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Contender {
    /// The kernel's own scheduler.
    Kernel,
    /// The same with energy-aware scheduling switched off.
    KernelWithoutEas,
    /// The policy of ours of that name.
    Policy(String),
    /// The best placement by threads pinned to core types.
    Pinned,
    /// Another sched_ext scheduler.
    Scx(Scx),
}

/// A sched_ext scheduler that is a program of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scx {
    name: String,
    arguments: Vec<String>,
}

impl Scx {
    /// Its name without `scx_`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of its program: `scx_NAME`.
    pub fn program(&self) -> String {
        format!("{PROGRAM}{}", self.name)
    }

    /// What its program is started with.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// What follows `scx:`.
    fn parse(text: &str) -> Result<Scx, ContenderError> {
        let wrong = |what| ContenderError::Scx {
            item: format!("{SCX}{text}"),
            what,
        };
        let bare = text.trim();
        let inner = bare.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
        let words = shlex::split(inner.unwrap_or(bare)).ok_or_else(|| wrong("a quote is open"))?;
        let mut words = words.into_iter();
        let name = words.next().unwrap_or_default();
        let name = name.strip_prefix(PROGRAM).unwrap_or(&name);
        if name.is_empty() {
            return Err(wrong("the name of a scheduler is missing"));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !name.chars().all(allowed) {
            return Err(wrong(
                "a name has letters, digits, `_` and `-`: the program scx_NAME is looked for",
            ));
        }
        Ok(Scx {
            name: name.to_owned(),
            arguments: words.collect(),
        })
    }
}

impl fmt::Display for Scx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCX}{}", self.name)?;
        for word in &self.arguments {
            // only a word with a zero byte cannot be quoted, and no argument of a program has one
            let quoted = shlex::try_quote(word).unwrap_or_default();
            write!(f, " {quoted}")?;
        }
        Ok(())
    }
}

/// An item of `--policies` that means nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ContenderError {
    /// There is no policy of that name.
    #[error(
        "unknown policy `{name}`: there are {list}, the baseline `{BASELINE}`, `{WITHOUT_EAS}`, `{PINNED}`, and `{SCX}NAME` for another sched_ext scheduler{}",
        did_you_mean(near),
        list = NAMES.join(", ")
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// Items that may have been meant.
        near: Vec<String>,
    },
    /// An scx scheduler that cannot be.
    #[error("`{item}`: {what}; want {SCX}NAME or {SCX}\"NAME ARGUMENTS\"")]
    Scx {
        /// What was asked for.
        item: String,
        /// The reason.
        what: &'static str,
    },
    /// An item behind one with arguments means nothing: the arguments may have had a comma.
    #[error(
        "{error} (arguments with a comma need quotes that the shell leaves: '{SCX}\"NAME A,B\"')"
    )]
    AfterArguments {
        /// What is wrong with the item.
        error: Box<ContenderError>,
    },
}

impl Contender {
    /// Whether it is the kernel's own scheduler, which places programs at random as far as a bench can tell.
    pub fn is_kernel(&self) -> bool {
        matches!(self, Contender::Kernel | Contender::KernelWithoutEas)
    }

    /// The policy of ours, if this is one.
    pub fn policy(&self) -> Option<&str> {
        match self {
            Contender::Policy(name) => Some(name),
            _ => None,
        }
    }

    /// The scx scheduler, if this is one.
    pub fn scx(&self) -> Option<&Scx> {
        match self {
            Contender::Scx(scx) => Some(scx),
            _ => None,
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contender::Kernel => f.write_str(BASELINE),
            Contender::KernelWithoutEas => f.write_str(WITHOUT_EAS),
            Contender::Policy(name) => f.write_str(name),
            Contender::Pinned => f.write_str(PINNED),
            Contender::Scx(scx) => scx.fmt(f),
        }
    }
}

impl FromStr for Contender {
    type Err = ContenderError;

    fn from_str(text: &str) -> Result<Contender, ContenderError> {
        let text = text.trim();
        if let Some(scx) = text.strip_prefix(SCX) {
            return Scx::parse(scx).map(Contender::Scx);
        }
        match text {
            BASELINE => Ok(Contender::Kernel),
            WITHOUT_EAS => Ok(Contender::KernelWithoutEas),
            PINNED => Ok(Contender::Pinned),
            name if NAMES.contains(&name) => Ok(Contender::Policy(name.to_owned())),
            name => {
                let known = NAMES.iter().copied().chain([BASELINE, WITHOUT_EAS, PINNED]);
                let mut near: Vec<String> =
                    closest(name, known).into_iter().map(Into::into).collect();
                if name.starts_with(PROGRAM) {
                    near.extend(Scx::parse(name).map(|scx| scx.to_string()));
                }
                Err(ContenderError::Unknown {
                    name: name.to_owned(),
                    near,
                })
            }
        }
    }
}

impl TryFrom<String> for Contender {
    type Error = ContenderError;

    fn try_from(text: String) -> Result<Contender, ContenderError> {
        text.parse()
    }
}

impl From<Contender> for String {
    fn from(c: Contender) -> String {
        c.to_string()
    }
}

/// A list of contenders: `--policies`, with commas between the items. A comma between double quotes
/// is part of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contenders(pub Vec<Contender>);

impl Contenders {
    /// Names of the policies among them, and of the baseline: those that settings can be meant for.
    pub fn names(&self) -> Vec<String> {
        let ours = |c: &&Contender| matches!(c, Contender::Kernel | Contender::Policy(_));
        self.0
            .iter()
            .filter(ours)
            .map(ToString::to_string)
            .collect()
    }
}

impl Deref for Contenders {
    type Target = [Contender];

    fn deref(&self) -> &[Contender] {
        &self.0
    }
}

impl FromStr for Contenders {
    type Err = ContenderError;

    fn from_str(text: &str) -> Result<Contenders, ContenderError> {
        let mut quoted = false;
        let items = text.split(|c| {
            quoted ^= c == '"';
            c == ',' && !quoted
        });
        let mut out: Vec<Contender> = Vec::new();
        for item in items {
            let item = item.parse().map_err(|error| {
                let before = out.last().and_then(Contender::scx);
                match before.is_some_and(|scx| !scx.arguments.is_empty()) {
                    true => ContenderError::AfterArguments {
                        error: Box::new(error),
                    },
                    false => error,
                }
            })?;
            out.push(item);
        }
        Ok(Contenders(out))
    }
}

impl fmt::Display for Contenders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&labels.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<Contender> {
        text.parse::<Contenders>().unwrap().0
    }

    fn told(text: &str) -> String {
        text.parse::<Contenders>().unwrap_err().to_string()
    }

    fn scx(name: &str, arguments: &[&str]) -> Contender {
        Contender::Scx(Scx {
            name: name.into(),
            arguments: arguments.iter().map(|a| (*a).into()).collect(),
        })
    }

    #[test]
    fn every_kind_of_item_is_read() {
        // as the shell leaves eevdf,scx:bpfland,scx:"lavd --performance",pinned,hsp
        let items = list("eevdf,scx:bpfland,scx:lavd --performance,pinned, hsp");
        assert_eq!(
            items,
            [
                Contender::Kernel,
                scx("bpfland", &[]),
                scx("lavd", &["--performance"]),
                Contender::Pinned,
                Contender::Policy("hsp".into()),
            ]
        );
        let names = Contenders(items).names();
        assert_eq!(names, ["eevdf", "hsp"]);
        assert_eq!(list("scx:scx_bpfland"), [scx("bpfland", &[])]);
        let program = scx("bpfland", &[]).scx().map(Scx::program);
        assert_eq!(program.as_deref(), Some("scx_bpfland"));
    }

    #[test]
    fn arguments_may_have_blanks_and_commas() {
        assert_eq!(
            list("scx:\"layered --groups a,b\",rr"),
            [
                scx("layered", &["--groups", "a,b"]),
                Contender::Policy("rr".into())
            ]
        );
        assert_eq!(
            list("scx:layered --note 'two words'"),
            [scx("layered", &["--note", "two words"])]
        );
        let said = told("scx:layered --groups a,b");
        assert!(
            said.contains("unknown policy `b`") && said.contains("comma"),
            "{said}"
        );
    }

    #[test]
    fn a_label_is_read_as_what_it_was_made_of() {
        for c in list("eevdf,eevdf:no-eas,pinned,hsp,scx:a,scx:a -x 1 'b c',scx:\"a b,c\"") {
            assert_eq!(c.to_string().parse(), Ok(c.clone()), "{c}");
            let json = serde_json::to_string(&c).unwrap();
            assert_eq!(serde_json::from_str::<Contender>(&json).unwrap(), c);
        }
        assert_eq!(
            scx("lavd", &["--performance"]).to_string(),
            "scx:lavd --performance"
        );
    }

    #[test]
    fn what_means_nothing_is_named_with_what_may_have_been_meant() {
        for (text, words) in [
            ("hps", &["`hps`", "did you mean `hsp`?"][..]),
            ("pined", &["did you mean `pinned`?"]),
            ("eevfd", &["did you mean `eevdf`?"]),
            ("eevdf:noeas", &["did you mean `eevdf:no-eas`?"]),
            ("scx_bpfland", &["did you mean `scx:bpfland`?"]),
            ("rr,", &["unknown policy ``"]),
            ("scx:", &["`scx:`", "name of a scheduler is missing"]),
            ("scx:../x", &["`scx:../x`", "letters"]),
            ("scx:a 'b", &["quote is open"]),
        ] {
            let said = told(text);
            for w in words {
                assert!(said.contains(w), "{text}: no `{w}` in: {said}");
            }
        }
    }
}
