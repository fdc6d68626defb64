//! What a machine is: its file, and the page through which the virtual board shows its state.
//!
//! [`MachineFile`] is read by the board (device tree), its QEMU plugin (model parameters), the simulator and the
//! evaluation. [`page`] is the one documented layout of all model state that a guest may read.
mod check;
#[cfg(test)]
mod check_tests;
mod cpulist;
mod error;
mod file;
mod locate;
mod model;
pub mod page;
mod shipped;

pub use cpulist::CpuList;
pub use error::MachineError;
pub use file::{Board, CoreType, MachineFile, Migration};
pub use model::{Branch, Cache, CoreModel, Cpi, Energy, Memory, Pipeline, Predictor};
pub use shipped::SHIPPED;
