//! The virtual AMP board: an asymmetric multicore machine in QEMU, from a machine file and Debian
//! packages.
//!
//! ```text
//! machine file ─► devicetree ─┐
//! packages ─► archive ► cache ┼─► initramfs ─► Run::execute ─► QEMU + model plugin ─► mailbox ─► Outcome
//! script, files, binaries ────┘                                     └─ serial console ─► Event::Console
//! ```
//!
//! Everything fetched lives in one [`Cache`]; [`Run`] says what is to run; [`Outcome`] is what came
//! back.

mod arch;
pub mod archive;
pub mod artifacts;
mod cache;
mod child;
mod console;
mod cpio;
pub mod devicetree;
mod error;
mod event;
pub mod fdt;
pub mod fetch;
mod initramfs;
pub mod job;
pub mod kernel;
pub mod mailbox;
pub mod packages;
pub mod peers;
pub mod qemu;
mod run;
mod seal;
mod session;
pub mod sources;
#[cfg(test)]
mod testing;
pub mod version;

pub use arch::Arch;
pub use archive::Host;
pub use cache::{Cache, FetchLock};
pub use error::{BoardError, FetchFailure};
pub use event::{Event, Origin, Sink};
pub use initramfs::{Content, GuestFile};
pub use kernel::{Flavour, Kernel, KernelChoice};
pub use run::{Guest, Limits, Outcome, Run, Shell, BOOT};
pub use seal::Care;
