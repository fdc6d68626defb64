//! `scx_amp board` on its own, for work on the board alone:
//! `cargo run --release -p amp-board --example board-run -- run -c uname -a`.

use clap::Parser;

#[path = "../../../schedulers/scx_amp/src/board_cli.rs"]
mod board_cli;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    board: board_cli::BoardArgs,
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    board_cli::main(Cli::parse().board)
}
