//! Shared by the tests of live streams: the program, and a publisher without an encoder.

pub mod publisher;

use std::process::Command;

/// The program with these arguments.
pub fn mendcast(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mendcast"));
    command.args(arguments);
    command
}
