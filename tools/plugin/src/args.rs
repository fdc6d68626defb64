//! Plugin arguments.

use crate::pmu::NR_EVENT_COUNTERS;
use std::path::PathBuf;

/// What the board asks of the plugin:
/// `machine=PATH,page=PATH[,dilation=N][,quantum=US][,seed=N][,report=on][,dvfs=on][,quick-boot=on][,break=EVENT:FACTOR][,tied=EVENT:COUNTERS]…[,lacks=EVENT]…`.
#[derive(Clone, Debug, PartialEq)]
pub struct Args {
    /// Machine file, or the name of a shipped machine.
    pub machine: String,
    /// File for the state page.
    pub page: PathBuf,
    /// Time dilation instead of the machine file's.
    pub dilation: Option<u32>,
    /// Quantum in microseconds instead of the machine file's.
    pub quantum_us: Option<u32>,
    /// Seed of everything random in the model (L2 index hash and replacement).
    pub seed: u64,
    /// Whether to print a summary to standard error at exit.
    pub report: bool,
    /// Whether the guest sets the clocks, by the registers of [`amp_machine::frequency`].
    pub dvfs: bool,
    /// Whether caches, memory and branch prediction are left out until the guest first asks for its totals (see
    /// [`amp_machine::page::PUBLISH_HINT`]): the kernel boots sooner.
    pub quick_boot: bool,
    /// An event of the performance monitors that is to count wrongly.
    pub fault: Option<Fault>,
    /// Events that only some counters count.
    pub tied: Vec<Tied>,
    /// Events that the cores do not have: they count nothing, and are not announced.
    pub lacks: Vec<u16>,
}

/// An event that counts its truth times a factor: 0 freezes it. To see whether such an event is
/// found out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// Number of the event.
    pub event: u16,
    /// Factor, 0 to 100.
    pub factor: f64,
}

impl Fault {
    /// What `event` counts when its true total is `total`.
    pub fn apply(self, event: u16, total: u64) -> u64 {
        if event == self.event {
            (total as f64 * self.factor) as u64
        } else {
            total
        }
    }
}

/// An event that counts in some event counters and stands still in the others. Linux's driver of
/// PMUv3 takes the first free counter: by the architecture each counts every event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tied {
    /// Number of the event.
    pub event: u16,
    /// Event counters that count it: bit *n* for counter *n*.
    pub counters: u32,
}

impl Tied {
    /// Whether counter `n` sees `event`.
    pub fn sees(self, n: usize, event: u16) -> bool {
        event != self.event || self.counters >> n & 1 == 1
    }
}

/// Reads `key=value` arguments.
///
/// # Errors
/// Names the argument that is unknown, missing, given twice or out of range.
pub fn parse<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Args, String> {
    let (mut machine, mut page) = (None, None);
    let (mut dilation, mut quantum_us, mut seed, mut report) = (None, None, None, None);
    let (mut broken, mut dvfs, mut quick_boot) = (None, None, None);
    let mut all_tied: Vec<Tied> = Vec::new();
    let mut lacks: Vec<u16> = Vec::new();
    for arg in args {
        let (key, value) = arg
            .split_once('=')
            .ok_or_else(|| format!("argument `{arg}`: must be written key=value"))?;
        if value.is_empty() {
            return Err(format!("argument `{key}`: has no value"));
        }
        let twice = match key {
            "machine" => machine.replace(value.to_string()).is_some(),
            "page" => page.replace(PathBuf::from(value)).is_some(),
            "dilation" => dilation.replace(number(key, value, 1, 1000)?).is_some(),
            "quantum" => quantum_us.replace(number(key, value, 1, 10_000)?).is_some(),
            "seed" => seed.replace(number(key, value, 0, u64::MAX)?).is_some(),
            "report" => report.replace(switch(key, value)?).is_some(),
            "dvfs" => dvfs.replace(switch(key, value)?).is_some(),
            "quick-boot" => quick_boot.replace(switch(key, value)?).is_some(),
            "break" => broken.replace(fault(key, value)?).is_some(),
            "tied" => {
                let new = tied(key, value)?;
                let event = new.event;
                if all_tied.iter().any(|t| t.event == event) {
                    return Err(format!("argument `{key}`: event {event:#x} is tied twice"));
                }
                all_tied.push(new);
                false
            }
            "lacks" => {
                let new = event_number(value).ok_or_else(|| {
                    format!("argument `{key}`: `{value}` is no event's number, such as 0x10")
                })?;
                let twice = lacks.contains(&new);
                lacks.push(new);
                twice
            }
            _ => {
                return Err(format!(
                    "unknown argument `{key}`: known are machine, page, dilation, quantum, seed, report, dvfs, quick-boot, break, tied, lacks"
                ))
            }
        };
        if twice {
            return Err(format!("argument `{key}`: given twice"));
        }
    }
    Ok(Args {
        machine: machine.ok_or("argument `machine` is missing: a machine file, or juno")?,
        page: page.ok_or("argument `page` is missing: the file for the state page")?,
        dilation: dilation.map(|n| n as u32),
        quantum_us: quantum_us.map(|n| n as u32),
        seed: seed.unwrap_or(1),
        report: report.unwrap_or(false),
        dvfs: dvfs.unwrap_or(false),
        quick_boot: quick_boot.unwrap_or(false),
        fault: broken,
        tied: all_tied,
        lacks,
    })
}

fn number(key: &str, value: &str, lo: u64, hi: u64) -> Result<u64, String> {
    value
        .parse()
        .ok()
        .filter(|n| (lo..=hi).contains(n))
        .ok_or_else(|| format!("argument `{key}`: `{value}` is not a number from {lo} to {hi}"))
}

fn event_number(text: &str) -> Option<u16> {
    match text.strip_prefix("0x") {
        Some(hex) => u16::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Event counters are those that the modelled cores have; a `+` stands between several, for a comma
/// ends the argument.
fn tied(key: &str, value: &str) -> Result<Tied, String> {
    let range = |text: &str| -> Option<u32> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        let there = first <= last && last < NR_EVENT_COUNTERS;
        there.then(|| (first..=last).fold(0, |mask, n| mask | 1 << n))
    };
    let parsed = value.split_once(':').and_then(|(event, counters)| {
        let event = event_number(event)?;
        let mut ranges = counters.split('+').map(range);
        let counters = ranges.try_fold(0, |mask, r| Some(mask | r?))?;
        Some(Tied { event, counters })
    });
    parsed.ok_or_else(|| {
        format!(
            "argument `{key}`: `{value}` is not EVENT:COUNTERS, such as 0x10:0-1 or 0x10:0+3, of counters 0 to {}",
            NR_EVENT_COUNTERS - 1
        )
    })
}

fn fault(key: &str, value: &str) -> Result<Fault, String> {
    let parsed = value.split_once(':').and_then(|(event, factor)| {
        let event = event_number(event)?;
        let factor = factor.parse().ok()?;
        (0.0..=100.0)
            .contains(&factor)
            .then_some(Fault { event, factor })
    });
    parsed.ok_or_else(|| {
        format!("argument `{key}`: `{value}` is not EVENT:FACTOR, such as 0x03:0 or 0x08:1.5")
    })
}

/// QEMU turns a bare `name` into `name=on`.
fn switch(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(format!("argument `{key}`: `{value}` is neither on nor off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them() {
        let a = parse([
            "machine=juno",
            "page=/p",
            "dilation=4",
            "quantum=100",
            "seed=9",
            "report=on",
            "quick-boot=on",
            "break=0x10:0.5",
            "tied=0x10:0-1+4",
            "tied=34:5",
            "lacks=0x10",
            "lacks=33",
        ]);
        let a = a.unwrap();
        assert_eq!((a.machine.as_str(), a.page.to_str()), ("juno", Some("/p")));
        assert_eq!(
            (a.dilation, a.quantum_us, a.seed, a.report),
            (Some(4), Some(100), 9, true)
        );
        assert!(a.quick_boot);
        let fault = a.fault.unwrap();
        assert_eq!((fault.event, fault.factor), (0x10, 0.5));
        assert_eq!((fault.apply(0x10, 9), fault.apply(0x11, 9)), (4, 9));
        let [t, u] = a.tied[..] else { panic!("{a:?}") };
        assert_eq!((t.event, t.counters), (0x10, 0b01_0011));
        assert_eq!((u.event, u.counters), (0x22, 0b10_0000));
        assert_eq!(a.lacks, [0x10, 33]);
        assert!(t.sees(4, 0x10) && !t.sees(5, 0x10) && t.sees(5, 0x11));
        let a = parse(["machine=juno", "page=/p"]).unwrap();
        assert_eq!(
            (a.dilation, a.quantum_us, a.seed, a.report),
            (None, None, 1, false)
        );
        assert_eq!((a.fault, a.tied.len(), a.lacks.len()), (None, 0, 0));
        assert!(!a.quick_boot);
    }

    #[test]
    fn refusals_name_the_argument() {
        for (args, says) in [
            (vec!["machine=juno"], "`page` is missing"),
            (vec!["page=/p"], "`machine` is missing"),
            (
                vec!["machine=juno", "page=/p", "dil=8"],
                "unknown argument `dil`",
            ),
            (
                vec!["machine=juno", "page=/p", "dilation=0"],
                "`dilation`: `0`",
            ),
            (
                vec!["machine=juno", "page=/p", "quantum=fast"],
                "`quantum`: `fast`",
            ),
            (vec!["machine=juno", "page=/p", "seed=-1"], "`seed`: `-1`"),
            (
                vec!["machine=juno", "page=/p", "report=maybe"],
                "`report`: `maybe`",
            ),
            (
                vec!["machine=juno", "page=/p", "break=0x3"],
                "`break`: `0x3`",
            ),
            (
                vec!["machine=juno", "page=/p", "break=3:-1"],
                "EVENT:FACTOR",
            ),
            (vec!["machine=juno", "page=/p", "lacks=x"], "`lacks`: `x`"),
            (
                vec!["machine=juno", "page=/p", "lacks=16", "lacks=0x10"],
                "`lacks`: given twice",
            ),
            (vec!["machine=juno", "page=/p", "tied=3"], "EVENT:COUNTERS"),
            (vec!["machine=juno", "page=/p", "tied=3:6"], "`tied`: `3:6`"),
            (
                vec!["machine=juno", "page=/p", "tied=3:2-1"],
                "`tied`: `3:2-1`",
            ),
            (vec!["machine=juno", "page=/p", "tied=3:"], "`tied`: `3:`"),
            (
                vec!["machine=juno", "page=/p", "tied=3:0", "tied=0x3:1"],
                "event 0x3 is tied twice",
            ),
            (
                vec!["machine=juno", "page=/p", "page=/q"],
                "`page`: given twice",
            ),
            (vec!["machine="], "`machine`: has no value"),
            (vec!["juno"], "`juno`: must be written key=value"),
        ] {
            let e = parse(args.iter().copied()).unwrap_err();
            assert!(e.contains(says), "{e} / {says}");
        }
    }
}
