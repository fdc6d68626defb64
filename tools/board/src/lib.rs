//! The virtual AMP board: fetch, device tree, initramfs, run.
