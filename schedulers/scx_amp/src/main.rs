//! The scx_amp command.
fn main() {}
