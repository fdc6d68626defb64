//! What a machine is: its file, and the page through which the virtual board shows its state.
//!
//! [`MachineFile`] is read by the board (device tree), its QEMU plugin (model parameters), the simulator and the
//! evaluation. [`page`] is the one documented layout of all model state that a guest may read.
mod file;
pub mod page;

pub use file::{Board, Cache, CoreModel, CoreType, CpuList, MachineError, MachineFile, Migration};
