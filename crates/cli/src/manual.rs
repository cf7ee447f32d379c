//! `mendcast completions` and `mendcast man`: shell completions and manual pages, from the
//! definitions of the command line.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::Error;
use crate::output;

/// Long help of `completions`.
pub(crate) const COMPLETIONS: &str = "\
Examples:
  mendcast completions bash > /etc/bash_completion.d/mendcast
  mendcast completions zsh > ~/.zfunc/_mendcast";

/// Long help of `man`.
pub(crate) const MAN: &str = "\
Examples:
  mendcast man | man -l -
  mendcast man --out /usr/local/share/man/man1";

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell that reads the script.
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints the script. `command` is the root of the command line.
    pub(crate) fn run(&self, command: &Command) {
        // The generator also lists hidden commands, so the root gets the visible ones only.
        let visible = command.get_subcommands().filter(|part| !part.is_hide_set()).cloned();
        let mut root = Command::new("mendcast")
            .version(env!("CARGO_PKG_VERSION"))
            .propagate_version(true)
            .subcommands(visible);
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut root, "mendcast", &mut script);
        output::print(String::from_utf8_lossy(&script));
    }
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Existing folder for the pages of all commands: mendcast.1, mendcast-edge.1, …
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Man {
    /// Prints the page of the program, or writes the pages of all commands.
    ///
    /// # Errors
    /// The file that could not be written, and why.
    pub(crate) fn run(&self, command: Command) -> Result<(), Error> {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        match &self.out {
            Some(directory) => write_pages(directory, &command),
            None => {
                output::print(page(&command)?);
                Ok(())
            }
        }
    }
}

/// Writes the page of `command` and those of its visible subcommands.
fn write_pages(directory: &Path, command: &Command) -> Result<(), Error> {
    let file = directory.join(format!("{}.1", display_name(command)));
    std::fs::write(&file, page(command)?).map_err(Error::at(file.display()))?;
    let subcommands = command.get_subcommands();
    for part in subcommands.filter(|part| !part.is_hide_set() && part.get_name() != "help") {
        write_pages(directory, part)?;
    }
    Ok(())
}

/// Returns such as `mendcast-keys-new`.
fn display_name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

fn page(command: &Command) -> Result<String, Error> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(Error::at("man"))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
