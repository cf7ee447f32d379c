//! `mendcast-autoplex`: measures session records and decides the send limits of user groups.

#![forbid(unsafe_code)]

mod cli;

use clap::Parser as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    match cli::Cli::parse().run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("mendcast-autoplex: {e}");
            std::process::ExitCode::FAILURE
        }
    }
}
