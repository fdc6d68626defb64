//! What a machine is: its file, and the page through which the virtual board shows its state.
//! Beside it, the one way in which all crates say what is wrong in a file that a person wrote
//! ([`BadFile`]).
//!
//! [`MachineFile`] is read by the board (device tree), its QEMU plugin (model parameters), the
//! simulator and the evaluation. [`page`] is the one documented layout of all model state that a
//! guest may read.
mod check;
#[cfg(test)]
mod check_tests;
mod cpulist;
mod error;
mod file;
pub mod frequency;
mod locate;
mod model;
pub mod page;
mod shipped;
mod text;

/// First shared peripheral interrupt given to the performance monitors of the virtual board: CPU
/// `n` has `PMU_SPI_BASE + n`. The device tree says so to the kernel, and the QEMU plugin raises
/// it.
///
/// QEMU's virt machine has 256 of them and uses those below 176 (UART, RTC, PCIe, virtio, SMMU,
/// platform bus).
pub const PMU_SPI_BASE: u32 = 176;

pub use cpulist::CpuList;
pub use error::MachineError;
pub use file::{Board, CoreType, MachineFile, Migration};
pub use locate::{BadFile, Locator};
pub use model::{
    Branch, Cache, CoreModel, Cpi, Energy, Memory, OperatingPoint, Pipeline, Predictor, SharedLines,
};
pub use shipped::SHIPPED;
pub use text::{open_regular, read_bytes, read_text, LONGEST_TEXT};
