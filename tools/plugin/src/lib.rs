//! QEMU TCG plugin: timing, cache, branch, PMU and energy model of the virtual AMP board.
//!
//! ```text
//! translate ─► decode ─► timing (cost per core type)
//! exec (block, load, store) ─► branch, cache, coherence, bandwidth ─► counts ─┬─► pmu (registers the guest's driver reads, via sysreg)
//!        │                                                                    │   └─► interrupt (overflows)
//!        │                                                                    └─► publish (state page)
//!        └─► clock (own time, global time, waiting, idle jumps) ─► qemu (hooks, timers)
//!                └─► frequency (registers the guest's driver writes) ─► model of the core type at that clock
//! ```
//! Loaded with `-plugin libamp_board_plugin.so,machine=FILE,page=FILE`; see `args.rs` for the rest.
//! The machine file holds every number of the model ([`amp_machine::CoreModel`]), the page shows
//! its state ([`amp_machine::page`]).
//!
//! Not modelled: instruction caches, TLBs, sharing between address spaces, `dc zva` (its stores
//! reach no cache).
#![allow(missing_docs)] // a plugin exports no Rust interface; what is `pub` here is so among its modules

mod args;
mod bandwidth;
mod board;
mod branch;
mod cache;
mod clock;
mod coherence;
mod counts;
mod decode;
mod exec;
mod ffi;
mod frequency;
mod interrupt;
mod model;
mod pmu;
mod private;
mod publish;
mod qemu;
mod report;
mod sysreg;
mod timing;
mod translate;
mod vcpu;

use board::Board;
use ffi::{Api, Info, PluginId};
use qemu::Internals;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};

/// Tells QEMU which plugin interface this is.
#[no_mangle]
pub static qemu_plugin_version: c_int = ffi::API_VERSION;

/// Says why and ends the process: the model cannot go on, and a guest with half a model would
/// mislead.
pub(crate) fn fatal(message: &str) -> ! {
    eprintln!("amp-board-plugin: {message}");
    // SAFETY: ends the process without running handlers that other threads of QEMU may be in.
    unsafe { libc::_exit(1) }
}

/// Runs when the library is loaded, before QEMU compares plugin interfaces: its own message would
/// not name the version of QEMU.
#[cfg(not(test))]
extern "C" fn check_qemu_on_load() {
    let found = qemu::version();
    if found.is_some() {
        if let Err(e) = qemu::check_version(found) {
            fatal(&e.to_string());
        }
    }
}

#[cfg(not(test))]
#[used]
#[link_section = ".init_array"]
static ON_LOAD: extern "C" fn() = check_qemu_on_load;

extern "C" fn on_init(_: PluginId, vcpu: c_uint) {
    clock::started(vcpu);
}
extern "C" fn on_idle(_: PluginId, vcpu: c_uint) {
    clock::idle(vcpu);
}
extern "C" fn on_resume(_: PluginId, vcpu: c_uint) {
    clock::resumed(vcpu);
}
extern "C" fn on_exit(_: PluginId, _: *mut c_void) {
    report::at_exit();
}

/// Entry point that QEMU calls after loading the library.
///
/// # Safety
/// Called by QEMU with its own arguments.
#[no_mangle]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes `argc` strings and its information.
    let (args, info) = unsafe {
        let args = (0..usize::try_from(argc).unwrap_or(0)).map(|i| CStr::from_ptr(*argv.add(i)));
        (
            args.map(|a| a.to_string_lossy().into_owned())
                .collect::<Vec<_>>(),
            &*info,
        )
    };
    match install(id, info, &args) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("amp-board-plugin: {e}");
            -1
        }
    }
}

fn install(id: PluginId, info: &Info, args: &[String]) -> Result<(), String> {
    qemu::check_version(qemu::version()).map_err(|e| e.to_string())?;
    let api = Api::resolve().map_err(|s| qemu::missing(s).to_string())?;
    let internals = Internals::resolve().map_err(|s| qemu::missing(s).to_string())?;
    let args = args::parse(args.iter().map(String::as_str))?;
    if !info.system_emulation {
        return Err("this is user-mode emulation: the board needs qemu-system-aarch64".into());
    }
    let board = Board::new(&args, info.smp_vcpus.max(0) as usize, api, internals)?.install();
    let api = &board.api;
    // SAFETY: called during installation, with callbacks of the right types that live as long as
    // the process.
    unsafe {
        if (api.request_time_control)().is_null() {
            return Err(qemu::QemuError::TimeControl.to_string());
        }
        (api.on_vcpu_init)(id, on_init);
        (api.on_vcpu_idle)(id, on_idle);
        (api.on_vcpu_resume)(id, on_resume);
        (api.on_translate)(id, translate::translate);
        (api.on_flush)(id, translate::flush);
        (api.on_exit)(id, on_exit, std::ptr::null_mut());
    }
    Ok(())
}
