//! The machine's apt sources, read only to learn which mirror it uses.

use crate::archive::{paragraphs, Paragraph};
use crate::error::BoardError;
use std::fs;
use std::path::Path;

/// One suite on one mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// Address of the archive.
    pub uri: String,
    /// Suite, for example `bookworm-backports`.
    pub name: String,
}

/// The Debian release of the machine and where it gets it from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// Codename, for example `bookworm`.
    pub codename: String,
    /// Mirror of the main archive.
    pub mirror: String,
    /// Suites of this release the machine is configured with: itself, updates, security, backports.
    pub suites: Vec<Suite>,
}

struct Entry {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
}

impl Sources {
    /// Reads `etc/apt` and `etc/os-release` below `root` (normally `/`).
    ///
    /// # Errors
    /// When no enabled entry is a Debian archive with component `main`.
    pub fn read(root: &Path) -> Result<Sources, BoardError> {
        let apt = root.join("etc/apt");
        let none = || BoardError::NoSources {
            looked: apt.clone(),
        };
        let mut entries = Vec::new();
        if let Ok(text) = fs::read_to_string(apt.join("sources.list")) {
            entries.extend(one_line(&text));
        }
        let mut files: Vec<_> = fs::read_dir(apt.join("sources.list.d"))
            .map(|d| d.flatten().map(|e| e.path()).collect())
            .unwrap_or_default();
        files.sort();
        for file in files {
            let Ok(text) = fs::read_to_string(&file) else {
                continue;
            };
            match file.extension().and_then(|e| e.to_str()) {
                Some("list") => entries.extend(one_line(&text)),
                Some("sources") => entries.extend(deb822(&text)),
                _ => {}
            }
        }
        entries.retain(|e| e.components.iter().any(|c| c == "main"));
        let codename = codename(root)
            .filter(|c| entries.iter().any(|e| e.suites.contains(c)))
            .or_else(|| guess_codename(&entries))
            .ok_or_else(none)?;
        let mut suites: Vec<Suite> = Vec::new();
        let extra = ["", "-updates", "-security", "-backports", "/updates"];
        for entry in &entries {
            for name in &entry.suites {
                if !extra.iter().any(|x| *name == format!("{codename}{x}")) {
                    continue;
                }
                for uri in entry.uris.iter().filter(|u| !u.starts_with("cdrom:")) {
                    let suite = Suite {
                        uri: uri.clone(),
                        name: name.clone(),
                    };
                    if !suites.contains(&suite) {
                        suites.push(suite);
                    }
                }
            }
        }
        let mirror = suites
            .iter()
            .find(|s| s.name == codename)
            .map(|s| s.uri.clone())
            .ok_or_else(none)?;
        Ok(Sources {
            codename,
            mirror,
            suites,
        })
    }

    /// A suite of the main archive on the machine's mirror.
    pub fn on_mirror(&self, name: &str) -> Suite {
        Suite {
            uri: self.mirror.clone(),
            name: name.into(),
        }
    }
}

/// `VERSION_CODENAME` of os-release.
fn codename(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("etc/os-release"))
        .or_else(|_| fs::read_to_string(root.join("usr/lib/os-release")))
        .ok()?;
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("VERSION_CODENAME="))?;
    Some(line.trim_matches(['"', '\'']).to_string()).filter(|c| !c.is_empty())
}

/// Testing and unstable carry no codename: the first suite named like one of Debian's rolling
/// suites.
fn guess_codename(entries: &[Entry]) -> Option<String> {
    let rolling = [
        "testing", "unstable", "sid", "forky", "stable", "trixie", "bookworm",
    ];
    entries
        .iter()
        .flat_map(|e| &e.suites)
        .find(|s| rolling.contains(&s.as_str()))
        .cloned()
}

/// `deb [options] uri suite component…`
fn one_line(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = line
            .strip_prefix("deb")
            .filter(|r| r.starts_with([' ', '\t']))
        else {
            continue;
        };
        let rest = rest.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(r) => r.split_once(']').map(|(_, r)| r).unwrap_or_default(),
            None => rest,
        };
        let mut words = rest.split_whitespace().map(String::from);
        let (Some(uri), Some(suite)) = (words.next(), words.next()) else {
            continue;
        };
        entries.push(Entry {
            uris: vec![uri],
            suites: vec![suite],
            components: words.collect(),
        });
    }
    entries
}

fn deb822(text: &str) -> Vec<Entry> {
    paragraphs(text).filter_map(deb822_entry).collect()
}

fn deb822_entry(stanza: Paragraph<'_>) -> Option<Entry> {
    let words = |key| stanza.words(key).map(String::from).collect::<Vec<_>>();
    let disabled = words("enabled").first().is_some_and(|v| {
        ["no", "false", "0", "without", "off", "disable"].contains(&v.to_ascii_lowercase().as_str())
    });
    let entry = Entry {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
    };
    (!disabled && words("types").iter().any(|t| t == "deb") && !entry.uris.is_empty())
        .then_some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let t = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let p = t.path().join(name);
            fs::create_dir_all(p.parent().unwrap()).unwrap();
            fs::write(p, text).unwrap();
        }
        t
    }

    #[test]
    fn deb822_with_continuations_and_strangers() {
        let t = tree(&[
            ("etc/os-release", "VERSION_CODENAME=bookworm\n"),
            (
                "etc/apt/sources.list.d/debian.sources",
                "Types: deb\n# comment\nURIs: http://m/debian\nSuites: bookworm\n bookworm-updates\nComponents: main contrib\n\n\
                 Types: deb\nURIs: http://m/debian-security\nSuites: bookworm-security\nComponents: main\n",
            ),
            ("etc/apt/sources.list.d/other.list", "deb https://other/apt cloud-sdk-bookworm main\n"),
            (
                "etc/apt/sources.list.d/off.sources",
                "Enabled: no\nTypes: deb\nURIs: http://off/debian\nSuites: bookworm\nComponents: main\n",
            ),
        ]);
        let s = Sources::read(t.path()).unwrap();
        assert_eq!(
            (s.codename.as_str(), s.mirror.as_str()),
            ("bookworm", "http://m/debian")
        );
        let names: Vec<_> = s.suites.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["bookworm", "bookworm-updates", "bookworm-security"]);
    }

    #[test]
    fn one_line_with_options_and_comments() {
        let t = tree(&[
            ("usr/lib/os-release", "ID=debian\nVERSION_CODENAME=\"trixie\"\n"),
            (
                "etc/apt/sources.list",
                "# deb http://old trixie main\ndeb-src http://m trixie main\ndeb cdrom:[x]/ trixie main\n\
                 deb [arch=amd64 signed-by=/k.gpg] http://m/debian trixie main # here\ndeb http://m/debian trixie-backports main\n",
            ),
        ]);
        let s = Sources::read(t.path()).unwrap();
        assert_eq!(s.mirror, "http://m/debian");
        assert_eq!(s.suites.len(), 2);
    }

    #[test]
    fn no_archive_is_an_error_that_names_the_folder() {
        let t = tree(&[("etc/apt/sources.list", "deb http://x/ubuntu noble main\n")]);
        let e = Sources::read(t.path()).unwrap_err().to_string();
        assert!(e.contains("etc/apt"), "{e}");
    }
}
