//! The text of a memory: JSON, with a version.

use super::known::Known;
use super::{
    names, Comm, Executable, Key, Memory, Program, LONGEST_PATH, MOST_PATH_BYTES, MOST_PROGRAMS,
    SHOWN,
};
use crate::ids::MAX_CORE_TYPES;
use crate::sample::ProgramName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// Version of the format that is written, and the newest that is read.
pub const VERSION: u32 = 3;

/// Why a text is not a memory.
#[derive(Debug, Error)]
pub enum MemoryFormatError {
    /// It is not JSON of this form.
    #[error("not a memory of scx_amp: {0}")]
    Form(#[from] serde_json::Error),
    /// A newer scx_amp has written it.
    #[error("version {0} of the format, newer than {VERSION}, which is the newest that this scx_amp knows")]
    TooNew(u32),
    /// A program in it is not right.
    #[error("programs[{at}]: {why}")]
    Program {
        /// Its place, from 0.
        at: usize,
        /// What is wrong.
        why: String,
    },
}

#[derive(Deserialize)]
struct Head {
    scx_amp_memory: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    scx_amp_memory: u32,
    programs: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    on: String,
    executable: String,
    size: u64,
    mtime_ns: i64,
    comm: String,
    /// Hash of the arguments, in hexadecimal digits; not there: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
    runs: u32,
    met: u64,
    speedup: BTreeMap<String, Factor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    efficiency: BTreeMap<String, Factor>,
    /// Speedup, as moves alone have shown it: since version 3.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    shown: BTreeMap<String, Factor>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Factor {
    mean: f64,
    scatter: f64,
    own: f64,
    weight: f64,
    at: u64,
}

impl From<&Known> for Factor {
    fn from(k: &Known) -> Factor {
        Factor {
            mean: k.mean,
            scatter: k.scatter,
            own: k.own,
            weight: k.weight,
            at: k.at,
        }
    }
}

impl From<Factor> for Known {
    fn from(f: Factor) -> Known {
        Known {
            mean: f.mean,
            scatter: f.scatter,
            own: f.own,
            weight: f.weight,
            at: f.at,
        }
    }
}

/// The memory as text. Programs whose names are not UTF-8, and those of which no factor is known,
/// are left out.
///
/// # Errors
/// None that can happen: every number in a memory is one that JSON has.
pub fn write(memory: &Memory) -> Result<String, serde_json::Error> {
    let line = |p: &Program| {
        let end = p.key.name.comm.iter().position(|b| *b == 0);
        let comm = p
            .key
            .name
            .comm
            .get(..end.unwrap_or(p.key.name.comm.len()))?;
        let row = |which: usize| -> BTreeMap<String, Factor> {
            let row = p.factors[which].iter().zip(names(&p.key.on));
            row.filter_map(|(k, name)| Some((name.to_owned(), k.as_ref()?.into())))
                .collect()
        };
        let (speedup, efficiency, shown) = (row(0), row(1), row(SHOWN));
        if speedup.is_empty() && efficiency.is_empty() {
            return None;
        }
        Some(Line {
            on: p.key.on.to_string(),
            executable: p.key.executable.path.clone(),
            size: p.key.executable.size,
            mtime_ns: p.key.executable.mtime_ns,
            comm: std::str::from_utf8(comm).ok()?.to_owned(),
            arguments: (!p.key.name.is_any()).then(|| format!("{:016x}", p.key.name.arguments)),
            runs: p.runs,
            met: p.met,
            speedup,
            efficiency,
            shown,
        })
    };
    let file = File {
        scx_amp_memory: VERSION,
        programs: memory.programs().into_iter().filter_map(line).collect(),
    };
    serde_json::to_string(&file).map(|text| text + "\n")
}

/// The memory in a text, read at `now` (seconds since 1970): times after that are taken to be now.
///
/// # Errors
/// [`MemoryFormatError`], which says what is wrong where. No part of such a text is used.
pub fn read(text: &str, now: u64) -> Result<Memory, MemoryFormatError> {
    // a newer version may look otherwise below
    let head: Head = serde_json::from_str(text)?;
    if head.scx_amp_memory > VERSION {
        return Err(MemoryFormatError::TooNew(head.scx_amp_memory));
    }
    let file: File = serde_json::from_str(text)?;
    let mut memory = Memory::default();
    let mut machines: Vec<Arc<str>> = Vec::new();
    for (at, line) in file.programs.into_iter().enumerate() {
        let bad = |why: String| MemoryFormatError::Program { at, why };
        let program = program(line, now, &mut machines).map_err(bad)?;
        if memory.find(&program.key).is_some() {
            return Err(bad("the program was named before".to_owned()));
        }
        memory.put(program);
        if memory.len() > MOST_PROGRAMS || memory.path_bytes > MOST_PATH_BYTES {
            return Err(bad(format!(
                "more than {MOST_PROGRAMS} programs, or more than {} KiB of paths",
                MOST_PATH_BYTES >> 10
            )));
        }
    }
    Ok(memory)
}

fn hash(text: &str) -> Option<u64> {
    let digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let value = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    value.filter(|v| *v != 0)
}

fn program(line: Line, now: u64, machines: &mut Vec<Arc<str>>) -> Result<Program, String> {
    let of = |what: &str, why: &str| format!("{what}: {why}");
    let types: Vec<&str> = names(&line.on).collect();
    let twice = |(i, name): (usize, &&str)| types[..i].contains(name);
    if types.len() > MAX_CORE_TYPES
        || types.iter().any(|n| n.is_empty())
        || types.iter().enumerate().any(twice)
    {
        return Err(of(
            "on",
            "want the core types, such as `big=1024 little=446`",
        ));
    }
    let mut factors: [[Option<Known>; MAX_CORE_TYPES]; 3] = Default::default();
    let rows = [
        ("speedup", line.speedup),
        ("efficiency", line.efficiency),
        ("shown", line.shown),
    ];
    for (row, (what, told)) in factors.iter_mut().zip(rows) {
        for (name, factor) in told {
            let place = types.iter().position(|t| *t == name);
            let place = place.and_then(|i| row.get_mut(i));
            let mut known = Known::from(factor);
            known.at = known.at.min(now);
            match place {
                Some(place) if known.sound() => *place = Some(known),
                Some(_) => return Err(format!("{what}.{name}: a number is out of its range")),
                None => return Err(format!("{what}.{name}: no such core type in `{}`", line.on)),
            }
        }
    }
    if !line.executable.starts_with('/') || line.executable.len() > LONGEST_PATH {
        return Err(of(
            "executable",
            "want an absolute path of up to 1024 bytes",
        ));
    }
    let mut comm: Comm = [0; 16];
    let name = line.comm.as_bytes();
    match comm.get_mut(..name.len()) {
        // a program may have none (prctl(2) takes an empty one)
        Some(place) if !name.contains(&0) => place.copy_from_slice(name),
        _ => return Err(of("comm", "want a command name of at most 16 bytes")),
    }
    let arguments = match line.arguments.as_deref() {
        None => 0,
        Some(text) => hash(text)
            .ok_or_else(|| of("arguments", "want 16 hexadecimal digits, not all of them 0"))?,
    };
    let on = match machines.iter().find(|m| ***m == *line.on) {
        Some(known) => known.clone(),
        None => {
            let new: Arc<str> = line.on.into();
            machines.push(new.clone());
            new
        }
    };
    let executable = Executable {
        path: line.executable,
        size: line.size,
        mtime_ns: line.mtime_ns,
    };
    Ok(Program {
        factors,
        runs: line.runs,
        met: line.met.min(now),
        ..Program::new(
            Key {
                on,
                executable,
                name: ProgramName { comm, arguments },
            },
            now,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AppId;
    use proptest::prelude::*;

    const NOW: u64 = 1_800_000_000;

    fn some() -> Memory {
        let mut m = Memory::default();
        for (n, path) in ["/bin/a", "/opt/ü \"b\""].iter().enumerate() {
            let mut comm = [0; 16];
            comm[..5].copy_from_slice(b"name\xc3");
            comm[5] = 0xa4;
            let key = Key {
                on: "big=1024 little=446".into(),
                executable: Executable {
                    path: (*path).to_owned(),
                    size: 7,
                    mtime_ns: -5,
                },
                name: ProgramName { comm, arguments: 1 },
            };
            let id = m.enter(&key, NOW).unwrap();
            m.meet(id, AppId(n as u64), NOW + n as u64);
            m.learn(id, (0, 0), (2.5, 0.1), NOW);
            m.learn(id, (1, 0), (1.5, 0.1), NOW);
            m.learn(id, (SHOWN, 0), (2.6, 0.1), NOW);
        }
        m
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = write(&some()).unwrap();
        let again = read(&text, NOW + 100).unwrap();
        assert_eq!(again.len(), 2);
        assert_eq!(write(&again).unwrap(), text);
        let first = again.programs()[0];
        assert_eq!(first.runs, 1);
        for (which, value) in [(0, 2.5), (1, 1.5), (SHOWN, 2.6)] {
            let factor = &first.factors_at(which, NOW)[0];
            assert_eq!((factor.core_type.as_str(), factor.value), ("big", value));
        }
        assert_eq!(
            again.of_name(&first.key.on, first.key.name),
            again.find(&first.key)
        );
        // a clock that was wrong then
        let early = read(&text, NOW - 1000).unwrap();
        assert!(early.programs().iter().all(|p| p.met == NOW - 1000));
    }

    proptest! {
        /// Whoever gives itself an odd name must not cost everybody's memory.
        #[test]
        fn whatever_is_written_is_read_again(
            name in proptest::collection::vec(1u8.., 0..=16),
            path in "/.{0,30}",
            arguments: u64,
            factor in 0.01f64..50.0,
        ) {
            let mut comm = [0; 16];
            comm[..name.len()].copy_from_slice(&name);
            let key = Key {
                on: "big=1024 little=446".into(),
                executable: Executable { path, size: 1, mtime_ns: 0 },
                name: ProgramName { comm, arguments },
            };
            let mut m = Memory::default();
            let id = m.enter(&key, NOW).unwrap();
            m.learn(id, (0, 0), (factor, 0.1), NOW);
            let again = read(&write(&m).unwrap(), NOW);
            prop_assert!(again.is_ok(), "{:?}", again.err());
            let utf8 = std::str::from_utf8(&name).is_ok();
            prop_assert_eq!(again.unwrap().len(), usize::from(utf8));
        }
    }

    #[test]
    fn a_program_without_a_command_name_is_remembered() {
        let text = write(&some()).unwrap().replace("nameä", "");
        assert!(text.contains("\"comm\":\"\""));
        assert_eq!(read(&text, NOW).unwrap().len(), 2);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let good = write(&some()).unwrap();
        for (from, to, wants) in [
            (
                "{\"scx_amp_memory\":3",
                "{\"scx_amp_memory\":4",
                "version 4",
            ),
            ("{\"scx_amp_memory\":3,", "{", "scx_amp_memory"),
            (
                "\"arguments\":\"0000000000000001\"",
                "\"arguments\":\"1\"",
                "arguments: want",
            ),
            (
                "\"arguments\":\"0000000000000001\"",
                "\"arguments\":\"0000000000000000\"",
                "arguments: want",
            ),
            ("\"size\":7", "\"size\":7,\"colour\":1", "colour"),
            (
                "\"mean\":2.5",
                "\"mean\":-2.5",
                "programs[0]: speedup.big: a number",
            ),
            ("\"mean\":2.5", "\"mean\":1e999", "out of range"),
            ("\"weight\":1.0", "\"weight\":1e9", "a number is out of"),
            ("{\"big\":", "{\"huge\":", "speedup.huge: no such core type"),
            ("big=1024 little", "big=1024 big", "on: want the core types"),
            ("\"/bin/a\"", "\"bin/a\"", "executable: want"),
            (
                "\"comm\":\"name",
                "\"comm\":\"a much longer name ",
                "comm: want",
            ),
            (
                "/opt/ü \\\"b\\\"",
                "/bin/a",
                "programs[1]: the program was named",
            ),
        ] {
            let bad = match wants.contains("named") {
                true => good.replace(from, to),
                false => good.replacen(from, to, 1),
            };
            assert_ne!(bad, good, "{from}");
            let e = read(&bad, NOW).unwrap_err().to_string();
            assert!(e.contains(wants), "{from} → {to}: {e}");
        }
        for cut in 0..good.len() - 2 {
            if good.is_char_boundary(cut) {
                assert!(read(&good[..cut], NOW).is_err(), "{cut}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(at in 0usize..600, with in "[\\[\\]{}\"a-z0-9.,:-]{0,6}", less in 0usize..8) {
            let good = write(&some()).unwrap();
            let at = (0..=at.min(good.len())).rev().find(|i| good.is_char_boundary(*i)).unwrap();
            let end = (at + less..=good.len()).find(|i| good.is_char_boundary(*i)).unwrap_or(good.len());
            let bad = format!("{}{with}{}", &good[..at], &good[end..]);
            if let Ok(m) = read(&bad, NOW) {
                prop_assert!(read(&write(&m).unwrap(), NOW).is_ok());
            }
        }
    }
}
