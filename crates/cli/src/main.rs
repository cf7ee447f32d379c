//! The `mendcast` command: one subcommand per module. Errors are one line on stderr, `mendcast:
//! …`, with exit code 1. Wrong arguments exit with clap's code 2, and a closed standard output
//! with 141.

#![forbid(unsafe_code)]

#[macro_use]
mod say;

#[cfg(feature = "edge")]
mod autoplex;
#[cfg(all(feature = "edge", feature = "tools"))]
mod demo;
#[cfg(feature = "edge")]
mod edge;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "tools")]
mod link;
#[cfg(any(feature = "edge", feature = "lab"))]
mod study;
#[cfg(feature = "tools")]
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Connections come and go by the thousand: under this allocator the server's memory stays flat
/// meanwhile, and is given back afterwards (docs/dependencies.md).
#[cfg(feature = "edge")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Live streaming over QUIC that repairs lossy last miles from the server side.
#[derive(Debug, Parser)]
#[command(name = "mendcast", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Learn the capacity of user groups' paths from session records, and cap addresses.
    #[cfg(feature = "edge")]
    #[command(name = "autoplex")]
    AutoPlex(autoplex::Arguments),
    /// Show everything in one process: server, publisher, a lossy link, four viewers.
    #[cfg(all(feature = "edge", feature = "tools"))]
    Demo(demo::Arguments),
    /// Run the server.
    #[cfg(feature = "edge")]
    Edge(edge::Arguments),
    /// Run experiments in virtual time.
    #[cfg(feature = "lab")]
    Lab(lab::Arguments),
    /// Relay UDP over an emulated path.
    #[cfg(feature = "tools")]
    Link(Box<link::Arguments>),
    /// Summarise session records by network and viewer: loss, recovery, freezes, first frames.
    #[cfg(any(feature = "edge", feature = "lab"))]
    Study(study::Arguments),
    /// Watch a URL over HTTP/3 without a screen.
    #[cfg(feature = "tools")]
    Watch(watch::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        #[cfg(feature = "edge")]
        Command::AutoPlex(arguments) => arguments.run(),
        #[cfg(all(feature = "edge", feature = "tools"))]
        Command::Demo(arguments) => arguments.run(),
        #[cfg(feature = "edge")]
        Command::Edge(arguments) => arguments.run().map_err(one_line),
        #[cfg(feature = "lab")]
        Command::Lab(arguments) => arguments.run(),
        #[cfg(feature = "tools")]
        Command::Link(arguments) => arguments.run(),
        #[cfg(any(feature = "edge", feature = "lab"))]
        Command::Study(arguments) => arguments.run(),
        #[cfg(feature = "tools")]
        Command::Watch(arguments) => arguments.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("mendcast: {line}");
            ExitCode::FAILURE
        }
    }
}

/// An error as the last line of a run.
#[cfg(feature = "edge")]
fn one_line(error: impl core::fmt::Display) -> String {
    error.to_string().lines().collect::<Vec<_>>().join("; ")
}
