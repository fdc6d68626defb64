//! The part of QEMU's plugin interface (version 4, QEMU 9.2 to 10.0) that the model uses.
//!
//! Every function is looked up at run time instead of being linked, so that a QEMU that lacks one
//! is reported by name and the unit tests need no QEMU.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};

/// Version of the plugin interface this crate speaks.
pub const API_VERSION: c_int = 4;

/// Identity of a loaded plugin.
pub type PluginId = u64;

/// What QEMU tells a plugin when it loads it (`qemu_info_t`).
#[repr(C)]
pub struct Info {
    pub target_name: *const c_char,
    pub min_version: c_int,
    pub cur_version: c_int,
    pub system_emulation: bool,
    pub smp_vcpus: c_int,
    pub max_vcpus: c_int,
}

/// A block being translated.
#[repr(C)]
pub struct Tb {
    _private: [u8; 0],
}
/// An instruction being translated.
#[repr(C)]
pub struct Insn {
    _private: [u8; 0],
}
/// A physical address in the making.
#[repr(C)]
pub struct HwAddr {
    _private: [u8; 0],
}
/// glib's growing array of bytes.
#[repr(C)]
pub struct ByteArray {
    pub data: *mut u8,
    pub len: c_uint,
}

/// Registers a callback may touch (`enum qemu_plugin_cb_flags`).
pub const NO_REGS: c_int = 0;
pub const READ_REGS: c_int = 1;
pub const WRITE_REGS: c_int = 2;
/// Loads, stores (`enum qemu_plugin_mem_rw`).
pub const MEM_R: c_int = 1;
pub const MEM_W: c_int = 2;

pub type VcpuCb = extern "C" fn(PluginId, c_uint);
pub type TransCb = extern "C" fn(PluginId, *mut Tb);
pub type FlushCb = extern "C" fn(PluginId);
pub type ExitCb = extern "C" fn(PluginId, *mut c_void);
pub type ExecCb = extern "C" fn(c_uint, *mut c_void);
pub type MemCb = extern "C" fn(c_uint, u32, u64, *mut c_void);

/// A symbol that this QEMU does not have.
#[derive(Debug, PartialEq, Eq)]
pub struct MissingSymbol(pub &'static CStr);

/// Address of a symbol of the running process, or null.
pub fn lookup(name: &CStr) -> *mut c_void {
    // SAFETY: `name` is NUL-terminated; the default handle searches the program and what it has
    // loaded.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Declares a table of C functions that are found by name.
macro_rules! functions {
    ($(#[$doc:meta])* pub struct $table:ident {
        $($field:ident = $symbol:literal fn($($arg:ty),*) $(-> $ret:ty)?;)*
    }) => {
        $(#[$doc])*
        pub struct $table {
            $(pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }
        impl $table {
            /// Finds every function.
            ///
            /// # Errors
            /// Names the first one that is missing.
            pub fn resolve() -> Result<$table, $crate::ffi::MissingSymbol> {
                Ok($table {
                    $($field: {
                        let address = $crate::ffi::lookup($symbol);
                        if address.is_null() {
                            return Err($crate::ffi::MissingSymbol($symbol));
                        }
                        // SAFETY: the symbol is the C function of this name, whose prototype in the
                        // QEMU versions accepted by `qemu::check_version` is the declared one.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                unsafe extern "C" fn($($arg),*) $(-> $ret)?,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}
pub(crate) use functions;

functions! {
    /// The plugin interface.
    pub struct Api {
        on_vcpu_init = c"qemu_plugin_register_vcpu_init_cb" fn(PluginId, VcpuCb);
        on_vcpu_idle = c"qemu_plugin_register_vcpu_idle_cb" fn(PluginId, VcpuCb);
        on_vcpu_resume = c"qemu_plugin_register_vcpu_resume_cb" fn(PluginId, VcpuCb);
        on_translate = c"qemu_plugin_register_vcpu_tb_trans_cb" fn(PluginId, TransCb);
        on_flush = c"qemu_plugin_register_flush_cb" fn(PluginId, FlushCb);
        on_exit = c"qemu_plugin_register_atexit_cb" fn(PluginId, ExitCb, *mut c_void);
        on_tb_exec = c"qemu_plugin_register_vcpu_tb_exec_cb" fn(*mut Tb, ExecCb, c_int, *mut c_void);
        on_insn_exec = c"qemu_plugin_register_vcpu_insn_exec_cb" fn(*mut Insn, ExecCb, c_int, *mut c_void);
        on_mem = c"qemu_plugin_register_vcpu_mem_cb" fn(*mut Insn, MemCb, c_int, c_int, *mut c_void);
        tb_n_insns = c"qemu_plugin_tb_n_insns" fn(*const Tb) -> usize;
        tb_insn = c"qemu_plugin_tb_get_insn" fn(*const Tb, usize) -> *mut Insn;
        tb_vaddr = c"qemu_plugin_tb_vaddr" fn(*const Tb) -> u64;
        insn_data = c"qemu_plugin_insn_data" fn(*const Insn, *mut c_void, usize) -> usize;
        hwaddr = c"qemu_plugin_get_hwaddr" fn(u32, u64) -> *mut HwAddr;
        hwaddr_phys = c"qemu_plugin_hwaddr_phys_addr" fn(*const HwAddr) -> u64;
        hwaddr_is_io = c"qemu_plugin_hwaddr_is_io" fn(*const HwAddr) -> bool;
        read_memory = c"qemu_plugin_read_memory_vaddr" fn(u64, *mut ByteArray, usize) -> bool;
        request_time_control = c"qemu_plugin_request_time_control" fn() -> *const c_void;
        bytes_new = c"g_byte_array_new" fn() -> *mut ByteArray;
        bytes_resize = c"g_byte_array_set_size" fn(*mut ByteArray, c_uint) -> *mut ByteArray;
        bytes_free = c"g_byte_array_free" fn(*mut ByteArray, c_int) -> *mut u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_qemu_the_first_symbol_is_named() {
        let missing = Api::resolve().err().unwrap();
        assert_eq!(missing, MissingSymbol(c"qemu_plugin_register_vcpu_init_cb"));
    }
}
