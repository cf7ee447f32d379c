//! The `mendcast` command: one subcommand per module.
//!
//! Exit codes: 1 with one line on stderr for errors, 2 for invalid arguments, 141 if the reader of
//! stdout is gone.

#![forbid(unsafe_code)]

#[macro_use]
mod output;
mod error;
mod manual;
mod reference;

#[cfg(feature = "edge")]
mod autoplex;
#[cfg(all(feature = "edge", feature = "tools"))]
mod demo;
#[cfg(feature = "edge")]
mod edge;
#[cfg(feature = "edge")]
mod keys;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "tools")]
mod link;
#[cfg(any(feature = "edge", feature = "lab"))]
mod records;
#[cfg(feature = "edge")]
mod seal;
#[cfg(feature = "tools")]
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use error::Error;

/// Connections come and go by the thousand: under this allocator the server's memory stays flat
/// meanwhile, and is given back afterwards (docs/develop/dependencies.md).
#[cfg(feature = "edge")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HELP: &str = "\
mendcast COMMAND --help shows the options of a command, with examples.
docs/reference/commands.md lists all commands.";

/// Live streaming over QUIC that repairs lossy last miles from the server side.
#[derive(Debug, Parser)]
#[command(name = "mendcast", version, propagate_version = true, after_help = HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server, or check its configuration.
    #[cfg(feature = "edge")]
    Edge(edge::Arguments),
    /// Show server, lossy links and four viewers in one process.
    #[cfg(all(feature = "edge", feature = "tools"))]
    Demo(demo::Arguments),
    /// Play a URL over HTTP/3 without a screen, and measure.
    #[cfg(feature = "tools")]
    Watch(watch::Arguments),
    /// Relay UDP over an emulated path.
    #[cfg(feature = "tools")]
    Link(Box<link::Arguments>),
    /// Study, compare and export session records.
    #[cfg(any(feature = "edge", feature = "lab"))]
    Records(records::Arguments),
    /// Learn caps per user group from session records.
    #[cfg(feature = "edge")]
    #[command(name = "autoplex")]
    AutoPlex(autoplex::Arguments),
    /// Make and rotate key files, sign URLs.
    #[cfg(feature = "edge")]
    Keys(keys::Arguments),
    /// Run experiments in virtual time.
    #[cfg(feature = "lab")]
    Lab(lab::Arguments),
    /// Print a completion script for a shell.
    #[command(after_long_help = manual::COMPLETIONS)]
    Completions(manual::Completions),
    /// Print the manual page, or write the pages of all commands.
    #[command(after_long_help = manual::MAN)]
    Man(manual::Man),
    /// Print a page of the reference.
    #[command(hide = true)]
    Reference {
        /// Page to print.
        #[arg(value_enum, default_value_t)]
        page: reference::Page,
    },
    /// Print the time to encrypt a packet of 1,200 bytes, to compare builds.
    #[cfg(feature = "edge")]
    #[command(hide = true)]
    SealSpeed,
    /// Parse a command line without running it, for tests of the pages.
    #[command(hide = true, disable_help_flag = true)]
    Parse {
        /// Command line without the program's name, after `--`.
        #[arg(last = true)]
        words: Vec<String>,
    },
}

impl Command {
    fn run(self) -> Result<(), Error> {
        match self {
            #[cfg(feature = "edge")]
            Self::Edge(arguments) => arguments.run(),
            #[cfg(all(feature = "edge", feature = "tools"))]
            Self::Demo(arguments) => arguments.run(),
            #[cfg(feature = "tools")]
            Self::Watch(arguments) => arguments.run(),
            #[cfg(feature = "tools")]
            Self::Link(arguments) => arguments.run(),
            #[cfg(any(feature = "edge", feature = "lab"))]
            Self::Records(arguments) => arguments.run(),
            #[cfg(feature = "edge")]
            Self::AutoPlex(arguments) => arguments.run(),
            #[cfg(feature = "edge")]
            Self::Keys(arguments) => arguments.run(),
            #[cfg(feature = "lab")]
            Self::Lab(arguments) => arguments.run(),
            Self::Completions(arguments) => {
                arguments.run(&Arguments::command());
                Ok(())
            }
            Self::Man(arguments) => arguments.run(Arguments::command()),
            Self::Reference { page } => {
                output::print(page.render(Arguments::command()));
                Ok(())
            }
            #[cfg(feature = "edge")]
            Self::SealSpeed => {
                seal::run();
                Ok(())
            }
            Self::Parse { words } => parse(words),
        }
    }
}

/// Checks a command line.
///
/// # Errors
/// The kind and text of the parser's error. Help and version are none.
fn parse(words: Vec<String>) -> Result<(), Error> {
    let words = core::iter::once("mendcast".to_owned()).chain(words);
    match Arguments::try_parse_from(words) {
        Err(error) if error.use_stderr() => {
            Err(Error::new(format_args!("{:?}: {error}", error.kind())))
        }
        _ => Ok(()),
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // Help and the version go to stdout.
        Err(shown) if !shown.use_stderr() => {
            output::finish(shown.print());
            return ExitCode::SUCCESS;
        }
        Err(error) => error.exit(),
    };
    match arguments.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::log(format_args!("mendcast: {error}\n"));
            ExitCode::FAILURE
        }
    }
}
