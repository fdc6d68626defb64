//! The two guest architectures.

/// Architecture of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arch {
    /// 64-bit Arm: the AMP board.
    Arm64,
    /// x86_64: the plain guest.
    Amd64,
}

impl Arch {
    /// Debian's name.
    pub fn debian(self) -> &'static str {
        match self {
            Arch::Arm64 => "arm64",
            Arch::Amd64 => "amd64",
        }
    }

    /// Rust's target triple of the guest binaries.
    pub fn triple(self) -> &'static str {
        match self {
            Arch::Arm64 => "aarch64-unknown-linux-gnu",
            Arch::Amd64 => "x86_64-unknown-linux-gnu",
        }
    }

    /// Name of the QEMU system emulator.
    pub fn qemu(self) -> &'static str {
        match self {
            Arch::Arm64 => "qemu-system-aarch64",
            Arch::Amd64 => "qemu-system-x86_64",
        }
    }

    /// Architecture of the machine this runs on, where the board is supported.
    pub fn host() -> Arch {
        if cfg!(target_arch = "aarch64") {
            Arch::Arm64
        } else {
            Arch::Amd64
        }
    }
}

impl std::fmt::Display for Arch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.debian())
    }
}
