//! `mendcast keys`: key files of the server, signed URLs, and tokens.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ::edge::config::Config;
use ::edge::{keyfile, matches, signing, tokens};
use clap::{Args, Subcommand};

use crate::error::Error;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a key file for `[server] key_file`.
    ///
    /// Nodes with the same file accept each other's TLS tickets, address tokens and passes.
    #[command(after_long_help = NEW)]
    New(New),
    /// Add a rotating key to a key file.
    #[command(after_long_help = ROTATE)]
    Rotate(Rotate),
    /// Print the signed query that permits playing a stream for a limited time.
    #[command(after_long_help = SIGN)]
    Sign(Sign),
    /// Print a token (JWT) that permits playing or publishing a stream for a limited time.
    #[command(after_long_help = JWT)]
    Jwt(Jwt),
}

const NEW: &str = "\
Examples:
  mendcast keys new --out /etc/mendcast/secrets
  mendcast keys new | ssh edge-2 'umask 077; cat > secrets'";
const ROTATE: &str = "\
Example:
  mendcast keys rotate /etc/mendcast/secrets --after 1h

To rotate the keys of a site: add a key with --after, copy the file to every node, and reload the
nodes before the key is due. Delete the line of the oldest key a month later.";
const SIGN: &str = "\
Example:
  echo \"https://edge.example/live/demo.flv?$(mendcast keys sign live/demo --config edge.toml)\"";

const JWT: &str = "\
Signs with the key of the first matching rule (HS256). `aud` is the rule's audience.

Examples:
  mendcast keys jwt live/demo --config edge.toml
  mendcast keys jwt live/demo --publish --config edge.toml --for 12h";

#[derive(Debug, Args)]
struct New {
    /// New file, mode 0600; existing files are kept [default: stdout].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Rotate {
    /// Key file; its other keys, owner and mode stay.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Time until the key is used, such as 1h; 0s is at once.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        value_parser = units::parse_duration
    )]
    after: Duration,
}

#[derive(Debug, Args)]
struct Sign {
    /// Stream, such as live/demo.
    #[arg(value_name = "STREAM")]
    stream: String,
    /// Configuration file with the keys in its `[[play]]` rules.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    validity: Validity,
}

#[derive(Debug, Args)]
struct Validity {
    /// Lifetime of the permission.
    #[arg(
        long = "for",
        value_name = "DURATION",
        default_value = "1h",
        value_parser = units::parse_duration
    )]
    lifetime: Duration,
}

#[derive(Debug, Args)]
struct Jwt {
    /// Stream such as live/demo, or a prefix and `*`.
    #[arg(value_name = "STREAM")]
    stream: String,
    /// Configuration file with the keys in its rules.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Use a `[[publish]]` rule instead of a `[[play]]` rule.
    #[arg(long)]
    publish: bool,
    #[command(flatten)]
    validity: Validity,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Error> {
        match self.command {
            Command::New(new) => new.run(),
            Command::Rotate(rotate) => rotate.run(),
            Command::Sign(sign) => sign.run(),
            Command::Jwt(jwt) => jwt.run(),
        }
    }
}

impl New {
    fn run(self) -> Result<(), Error> {
        let now = SystemTime::now();
        match self.out {
            Some(path) => keyfile::create(&path, now)?,
            None => crate::output::print(keyfile::generate(now)?),
        }
        Ok(())
    }
}

impl Rotate {
    fn run(self) -> Result<(), Error> {
        let due = SystemTime::now().checked_add(self.after);
        keyfile::rotate(&self.file, due.ok_or("--after: expected at most 100 years")?)?;
        Ok(())
    }
}

impl Sign {
    fn run(self) -> Result<(), Error> {
        let (config, stream) = (Config::load(&self.config)?, &self.stream);
        let mut rules = config.play.iter().filter(|rule| matches(&rule.stream, stream));
        let key = rules.find_map(|rule| rule.key.as_ref());
        let key = key.ok_or_else(|| no_rule(&self.config, "play", stream))?;
        let expires = unix_now().saturating_add(self.validity.lifetime.as_secs());
        print_line!("{}", signing::sign(key, stream, expires));
        Ok(())
    }
}

impl Jwt {
    fn run(self) -> Result<(), Error> {
        let (config, stream) = (Config::load(&self.config)?, &self.stream);
        let publish = config.publish.iter().map(|rule| (&rule.stream, &rule.key, &rule.audience));
        let play = config.play.iter().map(|rule| (&rule.stream, &rule.key, &rule.audience));
        let rules: Vec<_> = if self.publish { publish.collect() } else { play.collect() };
        let section = if self.publish { "publish" } else { "play" };
        let mut matching = rules.into_iter().filter(|(pattern, ..)| matches(pattern, stream));
        let found = matching.find_map(|(_, key, audience)| Some((key.as_ref()?, audience)));
        let (key, audience) = found.ok_or_else(|| no_rule(&self.config, section, stream))?;
        let now = unix_now();
        let expires = now.saturating_add(self.validity.lifetime.as_secs());
        let token = tokens::issue(key, stream, audience, now, expires);
        print_line!("{}", token.map_err(Error::new)?);
        Ok(())
    }
}

fn unix_now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

fn no_rule(config: &Path, section: &str, stream: &str) -> Error {
    let file = config.display();
    Error::new(format_args!("{file}: no [[{section}]] rule with a key names {stream}"))
}
