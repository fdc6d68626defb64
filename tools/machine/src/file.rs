//! The machine file.

use serde::Deserialize;
use std::path::{Path, PathBuf};

/// CPU numbers, ascending, written as the kernel writes them: `0-1,4`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct CpuList(pub Vec<u32>);

impl TryFrom<String> for CpuList {
    type Error = String;
    fn try_from(s: String) -> Result<CpuList, String> {
        s.parse()
    }
}

impl std::str::FromStr for CpuList {
    type Err = String;
    fn from_str(s: &str) -> Result<CpuList, String> {
        let bad = |p: &str| format!("`{p}` is not a CPU number or range such as 0-3");
        let mut cpus = Vec::new();
        for part in s.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (a, b) = part.split_once('-').unwrap_or((part, part));
            let a: u32 = a.trim().parse().map_err(|_| bad(part))?;
            let b: u32 = b.trim().parse().map_err(|_| bad(part))?;
            if a > b || b >= 8192 {
                return Err(bad(part));
            }
            cpus.extend(a..=b);
        }
        cpus.sort_unstable();
        cpus.dedup();
        if cpus.is_empty() {
            return Err("an empty CPU list".into());
        }
        Ok(CpuList(cpus))
    }
}

/// A machine with cores of several types.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFile {
    /// Name for reports, for example `juno`.
    pub name: String,
    /// Core types, fastest first.
    #[serde(rename = "core_type")]
    pub core_types: Vec<CoreType>,
    /// Cost of a migration (simulator).
    #[serde(default)]
    pub migration: Migration,
    /// What the virtual board needs beside the core types; absent for a machine that is only simulated.
    pub board: Option<Board>,
}

/// A class of identical cores.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreType {
    /// Name, for example `big`.
    pub name: String,
    /// CPUs of the type.
    pub cpus: CpuList,
    /// Capacity, 1024 for the fastest.
    pub capacity: u32,
    /// Timing and energy model for the virtual board.
    pub model: Option<CoreModel>,
}

/// Cost of moving a thread between cores.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Migration {
    /// Direct cost in microseconds.
    #[serde(default)]
    pub cost_us: f64,
}

/// Board-wide parameters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Board {
    /// Time dilation: how many times slower than the modelled silicon the board's clock says it is.
    pub dilation: u32,
    /// How far a vCPU may run ahead of the slowest one, in microseconds of virtual time.
    pub quantum_us: u32,
    /// Guest memory in MiB.
    pub memory_mib: u32,
}

/// Geometry of a cache.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Capacity in KiB.
    pub size_kib: u32,
    /// Associativity.
    pub ways: u32,
    /// Line length in bytes.
    pub line: u32,
}

/// Model of one core type on the virtual board.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreModel {
    /// Device-tree `compatible` of the CPU, for example `arm,cortex-a57`.
    pub compatible: String,
    /// Device-tree `compatible` of its PMU, for example `arm,cortex-a57-pmu`.
    pub pmu: String,
    /// Clock in MHz (undilated).
    pub mhz: u32,
    /// L1 data cache, per core.
    pub l1d: Cache,
    /// L2 cache, shared by the cores of the type.
    pub l2: Cache,
}

/// Why a machine file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not what a machine file must be; the text names line and key.
    #[error("{path}: {message}")]
    Bad {
        /// The file, or the name of a shipped machine.
        path: PathBuf,
        /// Line, key, and what would be right.
        message: String,
    },
}

impl MachineFile {
    /// Reads a file, or a shipped machine by its name.
    ///
    /// # Errors
    /// When it cannot be read or is not right; the error names file, line and key.
    pub fn load(name_or_path: &str) -> Result<MachineFile, MachineError> {
        let path = Path::new(name_or_path);
        let text = std::fs::read_to_string(path)
            .map_err(|source| MachineError::Read { path: path.into(), source })?;
        toml::from_str(&text)
            .map_err(|e| MachineError::Bad { path: path.into(), message: e.to_string() })
    }

    /// Number of CPUs of all core types.
    pub fn nr_cpus(&self) -> usize {
        self.core_types.iter().map(|t| t.cpus.0.len()).sum()
    }
}
