//! The `quinn` relay as a program of its own, without the counting allocator of the benchmarks.

#![forbid(unsafe_code)]

#[path = "../edge/quinn_relay.rs"]
mod quinn_relay;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let dir = std::env::args_os().nth(1).map(PathBuf::from);
    let result = match dir {
        Some(dir) => quinn_relay::run(&dir),
        None => Err("usage: mendcast-bench-relay DIR".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mendcast-bench-relay: {error}");
            ExitCode::FAILURE
        }
    }
}
