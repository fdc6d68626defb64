//! Why the scheduler cannot be loaded, and what to do about it.

use crate::config::ConfigError;
use thiserror::Error;

/// Why [`Scheduler::load`](crate::Scheduler::load) or [`attach`](crate::Scheduler::attach) failed.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel was built without sched_ext.
    #[error(
        "kernel {kernel} has no sched_ext (no /sys/kernel/sched_ext): boot a kernel of version 6.18 or newer built with \
         CONFIG_SCHED_CLASS_EXT=y, or use the virtual board (`scx_amp board`), which brings one"
    )]
    NoSchedExt {
        /// Release of the kernel.
        kernel: String,
    },
    /// The kernel does not describe its types.
    #[error(
        "kernel {kernel} has no type information (no /sys/kernel/btf/vmlinux): sched_ext needs CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf {
        /// Release of the kernel.
        kernel: String,
    },
    /// Capabilities are missing.
    #[error("not permitted: loading a scheduler takes root, or {missing}; run it with sudo")]
    NotPermitted {
        /// Names of those that are.
        missing: String,
    },
    /// sched_ext is in use.
    #[error(
        "the sched_ext scheduler `{name}` is loaded already and only one can be: stop it first"
    )]
    Busy {
        /// Name of the other scheduler.
        name: String,
    },
    /// The kernel's type information is defective for BPF schedulers.
    #[error(
        "kernel {kernel} cannot load any sched_ext scheduler: its BTF describes {symbol} wrongly (pahole 1.30 lost the \
         kfunc tags, so libbpf says `func_proto incompatible with vmlinux`). Boot another build: of Debian's amd64 \
         kernels 6.18.15, 7.0.13 and 7.2.13+deb14 work"
    )]
    BrokenBtf {
        /// Release of the kernel.
        kernel: String,
        /// The first kernel function that did not match.
        symbol: String,
    },
    /// The kernel's type information has a type more than once.
    #[error(
        "kernel {kernel} cannot load scx_amp: its BTF has more than one `{name}` (the verifier says `is ambiguous`), which is a fault of how that \
         kernel was built. Boot another build"
    )]
    AmbiguousBtf {
        /// Release of the kernel.
        kernel: String,
        /// The type.
        name: String,
    },
    /// Anything else that libbpf or the kernel refused.
    #[error("{what} failed on kernel {kernel}: {why}\n{log}")]
    Bpf {
        /// The step.
        what: &'static str,
        /// The kernel's release.
        kernel: String,
        /// The reason as reported.
        why: String,
        /// The end of libbpf's log.
        log: String,
    },
}
