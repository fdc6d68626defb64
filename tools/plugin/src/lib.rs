//! QEMU TCG plugin: timing, cache, branch, PMU and energy model of the virtual AMP board.
