//! Which table is that of a processor: the rows of `mapfile.csv`, matched as perf matches them.

use regex::Regex;
use std::fmt;

/// Bits of an Arm main ID register that hold the variant: the `r` of `r1p2`.
const VARIANT: u64 = 0x00f0_0000;
/// Bits that hold the revision: the `p` of `r1p2`.
const REVISION: u64 = 0xf;

/// A row of a map: a pattern of processors, and the folder of their table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRow {
    /// Extended regular expression on x86, a main ID register on Arm.
    pub cpuid: String,
    /// Folder, relative to that of the architecture: `alderlake`, `arm/cortex-a53`.
    pub folder: String,
}

impl MapRow {
    /// The rows of a map file. The first line is a heading, whatever it says.
    pub fn parse(text: &str) -> Vec<MapRow> {
        let lines = text.lines().skip(1).filter(|l| !l.starts_with('#'));
        let row = |l: &str| {
            let mut columns = l.split(',');
            let (cpuid, _version, folder) = (columns.next()?, columns.next()?, columns.next()?);
            (!cpuid.is_empty()).then(|| MapRow {
                cpuid: cpuid.to_owned(),
                folder: folder.trim().to_owned(),
            })
        };
        lines.filter_map(row).collect()
    }
}

/// A processor, as perf identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpu {
    /// On x86.
    X86 {
        /// Vendor, family (decimal) and model (hexadecimal): `GenuineIntel-6-97`.
        model: String,
        /// Stepping; some tables are for some steppings only.
        stepping: Option<u32>,
    },
    /// On Arm: the main ID register.
    Arm(u64),
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cpu::X86 {
                model,
                stepping: Some(s),
            } => write!(f, "{model}-{s:X}"),
            Cpu::X86 { model, .. } => f.write_str(model),
            Cpu::Arm(midr) => write!(f, "{midr:#018x}"),
        }
    }
}

impl Cpu {
    /// Folder of tables of the architecture.
    pub fn arch(&self) -> &'static str {
        match self {
            Cpu::X86 { .. } => "x86",
            Cpu::Arm(_) => "arm64",
        }
    }

    /// The first row for this processor; `None` when there is none.
    ///
    /// # Errors
    /// When a row before it is no pattern, with the reason.
    pub fn find<'a>(&self, rows: &'a [MapRow]) -> Result<Option<&'a MapRow>, String> {
        for row in rows {
            if self.is(&row.cpuid)? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// Whether `pattern` means this processor (`strcmp_cpuid_str` of perf).
    ///
    /// # Errors
    /// When it is no pattern, with the reason.
    pub fn is(&self, pattern: &str) -> Result<bool, String> {
        match self {
            Cpu::X86 { model, stepping } => {
                // three dashes: the pattern is for some steppings
                let whole = pattern.matches('-').count() == 3;
                let id = match (whole, stepping) {
                    (false, _) => model.clone(),
                    (true, Some(s)) => format!("{model}-{s:X}"),
                    (true, None) => return Ok(false),
                };
                let re = Regex::new(&format!("^(?:{pattern})$")).map_err(|e| e.to_string())?;
                Ok(re.is_match(&id))
            }
            Cpu::Arm(midr) => {
                let hex = pattern.trim_start_matches("0x");
                let least = u64::from_str_radix(hex, 16)
                    .map_err(|_| format!("`{pattern}` is not a main ID register"))?;
                let version = |id: u64| (id & VARIANT, id & REVISION);
                let part = |id: u64| id & !(VARIANT | REVISION);
                Ok(part(least) == part(*midr) && version(*midr) >= version(least))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<MapRow> {
        MapRow::parse(
            "Family-model,Version,Filename,EventType\n\
             GenuineIntel-6-55-[56789ABCDEF],v1,cascadelakex,core\n\
             GenuineIntel-6-55-[01234],v1,skylakex,core\n\
             GenuineIntel-6-(97|9A),v1,alderlake,core\n\n# comment,a,b\n\
             AuthenticAMD-25-([245][[:xdigit:]]|[[:xdigit:]]),v1,amdzen3,core\n\
             AuthenticAMD-25-[[:xdigit:]]+,v1,amdzen4,core\n",
        )
    }

    fn x86(model: &str, stepping: Option<u32>) -> Option<String> {
        let model = model.to_owned();
        let rows = rows();
        let cpu = Cpu::X86 { model, stepping };
        cpu.find(&rows).unwrap().map(|r| r.folder.clone())
    }

    #[test]
    fn models_and_steppings_of_x86() {
        let is = |found: Option<String>, folder: &str| found.as_deref() == Some(folder);
        assert!(is(x86("GenuineIntel-6-97", Some(2)), "alderlake"));
        assert!(is(x86("GenuineIntel-6-9A", None), "alderlake"));
        assert!(is(x86("GenuineIntel-6-55", Some(4)), "skylakex"));
        assert!(is(x86("GenuineIntel-6-55", Some(11)), "cascadelakex"));
        assert_eq!(x86("GenuineIntel-6-55", None), None, "either of the two");
        assert_eq!(x86("GenuineIntel-6-970", Some(2)), None);
        // 5900X, 7950X
        assert!(is(x86("AuthenticAMD-25-21", Some(2)), "amdzen3"));
        assert!(is(x86("AuthenticAMD-25-61", Some(2)), "amdzen4"));
    }

    #[test]
    fn arm_cores_by_part_and_least_version() {
        let rows = MapRow::parse(
            "# Format\n0x00000000410fd030,v1,arm/cortex-a53,core\n0x00000000411fd072,v1,b,core\n",
        );
        let find = |midr| Cpu::Arm(midr).find(&rows).unwrap();
        assert_eq!(find(0x410f_d034).unwrap().folder, "arm/cortex-a53");
        assert_eq!(find(0x413f_d030).unwrap().folder, "arm/cortex-a53");
        assert_eq!(find(0x411f_d072).unwrap().folder, "b");
        assert_eq!(find(0x412f_d070).unwrap().folder, "b");
        assert_eq!(find(0x411f_d071), None, "r1p1 is before r1p2");
        assert_eq!(find(0x410f_d080), None);
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let row = |cpuid: &str| {
            [MapRow {
                cpuid: cpuid.into(),
                folder: "x".into(),
            }]
        };
        let cpu = Cpu::X86 {
            model: "GenuineIntel-6-97".into(),
            stepping: None,
        };
        assert!(cpu.find(&row("GenuineIntel-6-(")).is_err());
        let e = Cpu::Arm(1).find(&row("cortex")).unwrap_err();
        assert!(e.contains("`cortex`"), "{e}");
    }
}
