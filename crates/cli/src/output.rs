//! Output of all commands.
//!
//! If the reader of stdout is gone (`mendcast demo | head`), a command ends without a message, with
//! the shell's code for a closed pipe. A closed stderr loses messages and ends nothing.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write, stderr, stdout};
use std::process::exit;

/// Exit code after the reader of stdout is gone: 128 + SIGPIPE.
const CLOSED_STDOUT: i32 = 141;

/// Writes the text to stdout and flushes.
pub(crate) fn print(text: impl Display) {
    let mut out = stdout().lock();
    finish(write!(out, "{text}").and_then(|()| out.flush()));
}

/// Ends the process if stdout could not be written.
pub(crate) fn finish(written: io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit(CLOSED_STDOUT),
        Err(error) => {
            log(format_args!("mendcast: stdout: {error}\n"));
            exit(1);
        }
    }
}

/// Writes the text to stderr. Failures are ignored: they could be reported nowhere.
pub(crate) fn log(text: impl Display) {
    let _ = write!(stderr(), "{text}");
}

/// Prints a line on stdout. Takes the arguments of `println!`.
macro_rules! print_line {
    () => { $crate::output::print("\n") };
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line on stderr. Takes the arguments of `eprintln!`.
macro_rules! log_line {
    ($($text:tt)*) => { $crate::output::log(format_args!("{}\n", format_args!($($text)*))) };
}
