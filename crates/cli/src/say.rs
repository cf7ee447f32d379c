//! Output on stdout. A closed reader (`mendcast demo
//!
//! head`) ends the command.

use std::fmt::Display;
use std::io::{ErrorKind, Write, stdout};
use std::process::exit;

/// Shell's exit code of a command that wrote to a closed pipe: 128 + SIGPIPE.
const CLOSED_PIPE: i32 = 141;

/// Prints the text and flushes.
pub(crate) fn text(said: impl Display) {
    let mut out = stdout().lock();
    if let Err(error) = write!(out, "{said}").and_then(|()| out.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            exit(CLOSED_PIPE);
        }
        eprintln!("mendcast: standard output: {error}");
        exit(1);
    }
}

/// A line, written as for `println!`.
macro_rules! say {
    () => { $crate::say::text(format_args!("\n")) };
    ($($said:tt)*) => { $crate::say::text(format_args!("{}\n", format_args!($($said)*))) };
}
