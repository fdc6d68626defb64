//! The machine file.

use crate::check;
use crate::cpulist::CpuList;
use crate::error::MachineError;
use crate::locate::Locator;
use crate::model::CoreModel;
use crate::shipped;
use serde::Deserialize;
use std::path::Path;

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
    /// What the virtual board needs beside the core types; absent for a machine that is only
    /// simulated.
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
    /// 10⁹ bytes per modelled second that memory can move, for all cores together; without it there
    /// is no limit.
    pub memory_gb_per_s: Option<f64>,
}

impl MachineFile {
    /// Reads a shipped machine by its name ([`SHIPPED`](crate::SHIPPED)), or a file by its path.
    ///
    /// # Errors
    /// When there is no such machine or file, or it is not right; the error names file, line and
    /// key.
    pub fn load(name_or_path: &str) -> Result<MachineFile, MachineError> {
        let path = Path::new(name_or_path);
        if let Some(text) = shipped::text(name_or_path) {
            return MachineFile::parse(path, text);
        }
        match crate::read_text(path) {
            Ok((text, _)) => MachineFile::parse(path, &text),
            Err(e)
                if e.kind() == std::io::ErrorKind::NotFound && shipped::looks_like_name(path) =>
            {
                Err(MachineError::Unknown {
                    name: name_or_path.into(),
                    shipped: shipped::SHIPPED.join(", "),
                })
            }
            Err(source) => Err(MachineError::Read {
                path: path.into(),
                source,
            }),
        }
    }

    /// Reads a machine from `text`; `path` names it in errors.
    ///
    /// # Errors
    /// When it is not right; the error names `path`, line and key.
    pub fn parse(path: &Path, text: &str) -> Result<MachineFile, MachineError> {
        let locator = Locator::new(path, text);
        let machine: MachineFile = toml::from_str(text).map_err(|e| locator.toml(&e))?;
        check::check(&machine).map_err(|f| locator.fault(&f))?;
        Ok(machine)
    }

    /// Number of CPUs of all core types.
    pub fn nr_cpus(&self) -> usize {
        self.core_types.iter().map(|t| t.cpus.0.len()).sum()
    }

    /// Index of the core type of `cpu`.
    pub fn core_type_of(&self, cpu: u32) -> Option<usize> {
        self.core_types.iter().position(|t| t.cpus.0.contains(&cpu))
    }

    /// Whether its core types have operating points.
    pub fn scales_frequency(&self) -> bool {
        let models = self.core_types.iter().filter_map(|t| t.model.as_ref());
        models.into_iter().any(|m| !m.operating_points.is_empty())
    }

    /// The board's parameters and the model of each core type.
    ///
    /// # Errors
    /// When the machine is only simulated.
    pub fn board_models(&self) -> Result<(&Board, Vec<&CoreModel>), MachineError> {
        let none = || MachineError::NotABoard {
            name: self.name.clone(),
        };
        let board = self.board.as_ref().ok_or_else(none)?;
        let models: Option<Vec<_>> = self.core_types.iter().map(|t| t.model.as_ref()).collect();
        Ok((board, models.ok_or_else(none)?))
    }
}
