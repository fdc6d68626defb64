//! CPU lists in the kernel's notation.

use serde::{Deserialize, Serialize};
use std::fmt;

/// CPU numbers, ascending, written as the kernel writes them: `0-1,4`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList(pub Vec<u32>);

/// Largest CPU number the notation admits, that of a kernel with `CONFIG_NR_CPUS=8192`.
const LAST_CPU: u32 = 8191;

impl TryFrom<String> for CpuList {
    type Error = String;
    fn try_from(s: String) -> Result<CpuList, String> {
        s.parse()
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> String {
        list.to_string()
    }
}

impl std::str::FromStr for CpuList {
    type Err = String;

    /// Parses `0-1,4`; the error says which part is wrong.
    fn from_str(s: &str) -> Result<CpuList, String> {
        let bad = |p: &str| {
            format!(
                "`{p}` is not a CPU number (0 to {LAST_CPU}) or an ascending range such as `0-3`"
            )
        };
        let mut cpus = Vec::new();
        for part in s.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (a, b) = part.split_once('-').unwrap_or((part, part));
            let a: u32 = a.trim().parse().map_err(|_| bad(part))?;
            let b: u32 = b.trim().parse().map_err(|_| bad(part))?;
            if a > b || b > LAST_CPU {
                return Err(bad(part));
            }
            cpus.extend(a..=b);
        }
        cpus.sort_unstable();
        if let Some(pair) = cpus.windows(2).find(|w| w[0] == w[1]) {
            return Err(format!("CPU {} is listed twice", pair[0]));
        }
        if cpus.is_empty() {
            return Err("an empty CPU list: name at least one CPU, for example `0-1`".into());
        }
        Ok(CpuList(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut first = true;
        while let Some(&start) = rest.first() {
            let run = rest
                .iter()
                .zip(start..)
                .take_while(|(c, want)| *c == want)
                .count();
            if !first {
                f.write_str(",")?;
            }
            first = false;
            match run {
                1 => write!(f, "{start}")?,
                _ => write!(f, "{start}-{}", rest[run - 1])?,
            }
            rest = &rest[run..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for s in ["0", "0-1", "0-1,4", "0,2,4-7", "8191"] {
            assert_eq!(s.parse::<CpuList>().unwrap().to_string(), s);
        }
        assert_eq!(
            " 4 , 0 - 1 ".parse::<CpuList>().unwrap(),
            CpuList(vec![0, 1, 4])
        );
    }

    #[test]
    fn lists_are_written_as_the_kernel_does() {
        assert_eq!(CpuList(vec![0, 1, 4, 6, 7, 8]).to_string(), "0-1,4,6-8");
        assert_eq!(CpuList(Vec::new()).to_string(), "");
    }

    #[test]
    fn refusals_name_the_part() {
        for (s, part) in [
            ("0-x", "`0-x`"),
            ("3-1", "`3-1`"),
            ("0,9000", "`9000`"),
            ("-1", "`-1`"),
        ] {
            assert!(s.parse::<CpuList>().unwrap_err().contains(part), "{s}");
        }
        assert!("".parse::<CpuList>().unwrap_err().contains("empty"));
        assert!("0-3,2"
            .parse::<CpuList>()
            .unwrap_err()
            .contains("CPU 2 is listed twice"));
    }
}
