//! Why a machine file cannot be used.

use crate::locate::BadFile;
use std::path::PathBuf;

/// Why a machine file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Neither a shipped machine nor a file.
    #[error("no machine `{name}`: shipped are {shipped}; or give the path of a machine file")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The shipped names, for the message.
        shipped: String,
    },
    /// It is not what a machine file must be.
    #[error(transparent)]
    Bad(#[from] BadFile),
    /// A machine that is only simulated was given to something that needs the board's model.
    #[error("machine `{name}`: no [board] and no [core_type.model]: it can be simulated but not run on the virtual board")]
    NotABoard {
        /// Name of the machine.
        name: String,
    },
}
