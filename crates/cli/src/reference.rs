//! Pages of the reference: docs/reference/commands.md from the definitions of the command line,
//! docs/reference/configuration.md from the table of keys, and docs/reference/openapi.json from the
//! table of calls.

use std::fmt::Write as _;

use clap::{Arg, Command};

const HEAD: &str = "\
# Commands

Printed by `mendcast reference`; do not edit. `mendcast COMMAND --help` shows the same.

- Results are on stdout, messages and progress on stderr.
- Exit codes: 0; 1 with one line on stderr; 2 for invalid arguments; 141 if the reader of stdout is
  gone, without a message (`mendcast demo | head`).
- `--json` prints one JSON object. `NO_COLOR=1` turns off colours and bold type.
- Durations are numbers with a unit: 200ms, 1.5s, 30m, 2h, 90d.
";

/// A generated page.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum Page {
    /// docs/reference/commands.md.
    #[default]
    Commands,
    /// docs/reference/configuration.md.
    #[cfg(feature = "edge")]
    Configuration,
    /// docs/reference/openapi.json.
    #[cfg(feature = "edge")]
    Openapi,
}

impl Page {
    /// Renders the page. `command` is the root of the command line.
    pub(crate) fn render(self, command: Command) -> String {
        match self {
            Self::Commands => commands_page(command),
            #[cfg(feature = "edge")]
            Self::Configuration => edge::config::Config::reference(),
            #[cfg(feature = "edge")]
            Self::Openapi => edge::openapi(),
        }
    }
}

fn commands_page(mut command: Command) -> String {
    command.build();
    let mut text = String::from(HEAD);
    text.push_str("\n| command | purpose |\n|---|---|\n");
    for (name, part) in commands(&command) {
        if part.get_arguments().any(is_shown) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "| [{name}](#{}) | {} |", name.replace(' ', "-"), about(part));
        } else if part.get_subcommands().next().is_none() {
            let _ = writeln!(text, "| {name} | {} |", about(part));
        }
    }
    for (name, part) in commands(&command) {
        if part.get_arguments().any(is_shown) || part.get_after_help().is_some() {
            section(&mut text, &name, part);
        }
    }
    text
}

/// All visible commands below `root`, with their full names, in the order of the help.
fn commands(root: &Command) -> Vec<(String, &Command)> {
    let mut all = Vec::new();
    for part in root.get_subcommands().filter(|part| !part.is_hide_set()) {
        if part.get_name() == "help" {
            continue;
        }
        let name = part.get_bin_name().unwrap_or(part.get_name()).to_owned();
        all.push((name, part));
        all.extend(commands(part));
    }
    all
}

fn about(command: &Command) -> String {
    command.get_about().map_or_else(String::new, ToString::to_string)
}

/// Every argument but `--help` and `--version`.
fn is_shown(argument: &Arg) -> bool {
    !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
}

fn section(text: &mut String, name: &str, command: &Command) {
    let _ = write!(text, "\n## {name}\n\n");
    let long = command.get_long_about().map(ToString::to_string);
    let _ = write!(text, "{}\n\n", sentence(&long.unwrap_or_else(|| about(command))));
    let usage = command.clone().render_usage().to_string();
    let _ = write!(text, "    {}\n\n", usage.trim_start_matches("Usage: ").trim());
    arguments(text, command);
    let after = command.get_after_long_help().or(command.get_after_help());
    let Some(after) = after else { return };
    text.push('\n');
    for line in after.to_string().lines() {
        let _ = match line.strip_prefix("  ") {
            Some(example) => writeln!(text, "    {example}"),
            None if line.ends_with(':') => write!(text, "{line}\n\n"),
            None => writeln!(text, "{line}"),
        };
    }
}

/// The table of arguments, if there are any.
fn arguments(text: &mut String, command: &Command) {
    let all = sorted(command);
    if all.is_empty() {
        return;
    }
    text.push_str("| argument | meaning | default |\n|---|---|---|\n");
    let mut group = None;
    for argument in all {
        let heading = argument.get_help_heading();
        if heading != group {
            let _ = writeln!(text, "| **{}** | | |", heading.unwrap_or_default());
            group = heading;
        }
        row(text, argument);
    }
}

/// Arguments in the order of the help: positional ones, options, then the groups.
fn sorted(command: &Command) -> Vec<&Arg> {
    let mut all: Vec<&Arg> = command.get_arguments().filter(|a| is_shown(a)).collect();
    let headings: Vec<_> = all.iter().map(|argument| argument.get_help_heading()).collect();
    let place = |argument: &Arg| {
        let heading = argument.get_help_heading();
        let group = heading.and_then(|_| headings.iter().position(|known| *known == heading));
        (group.map_or(0, |place| place + 1), !argument.is_positional())
    };
    all.sort_by_key(|argument| place(argument));
    all
}

fn row(text: &mut String, argument: &Arg) {
    let values: String = if argument.get_action().takes_values() {
        let names = argument.get_value_names().unwrap_or_default();
        names.iter().map(|name| format!(" {name}")).collect()
    } else {
        String::new()
    };
    let name = match argument.get_long() {
        Some(long) => format!("--{long}{values}"),
        None => values.trim().to_owned(),
    };
    let help = argument.get_long_help().or(argument.get_help());
    let mut help = help.map_or_else(String::new, ToString::to_string).replace("\n\n", " ");
    let possible = argument.get_possible_values();
    let possible: Vec<&str> = possible.iter().map(clap::builder::PossibleValue::get_name).collect();
    if argument.get_action().takes_values() && !possible.is_empty() {
        let _ = write!(help, ": {}", possible.join(", "));
    }
    let default = default(argument, &mut help);
    let cell = |text: &str| text.replace('|', "\\|");
    let _ = writeln!(text, "| `{name}` | {} | {} |", cell(&help), cell(&default));
}

/// The argument's default. One that is no value stands at the end of its help, and is taken out.
fn default(argument: &Arg, help: &mut String) -> String {
    if argument.is_required_set() {
        return "required".to_owned();
    }
    if let Some(place) = help.find(" [default: ") {
        let stated = help.split_off(place);
        return stated.trim_start_matches(" [default: ").trim_end_matches(']').to_owned();
    }
    let values = argument.get_default_values().iter().map(|value| value.to_string_lossy());
    let values = values.collect::<Vec<_>>().join(",");
    let is_known = argument.get_action().takes_values() && !values.is_empty();
    if is_known { format!("`{values}`") } else { String::new() }
}

/// The text with a full stop after each paragraph that has none.
fn sentence(text: &str) -> String {
    let stop = |part: &str| match part.ends_with(['.', ':']) {
        true => part.to_owned(),
        false => format!("{part}."),
    };
    text.split("\n\n").map(stop).collect::<Vec<_>>().join("\n\n")
}
