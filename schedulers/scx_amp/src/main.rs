//! The scx_amp command.

fn main() -> std::process::ExitCode {
    scx_amp::main()
}
