//! Configuration: strict TOML, with a default for every key.
//!
//! The table in `keys.rs` defines all keys of a server. Structs, documentation, defaults, ranges,
//! errors and the text of `--print-defaults` derive from it, and so cannot disagree. A file is read
//! as a table with positions, not through serde: errors name line, key, expected and actual value.
//!
//! Server and testbed set up a session by the same keys. The testbed reads the sections that it can
//! simulate from an experiment and adds sections of its own for path, player and source, made by
//! the same macro ([`sections!`]): `lab` depends on this crate, and this crate knows no more of the
//! testbed than the names of its sections.
//!
//! [`Recovery::scheme`] with [`Recovery::parameters`] is the recovery scheme of a configuration.
//! Keys name the scheme parameter that they set (`for Deadline`), so [`Config::unused`] can list
//! those that no scheme of the configuration uses.

#![forbid(unsafe_code)]

mod audio;
mod changes;
mod cors;
mod describe;
mod domain;
mod external_account;
mod host;
mod key_source;
mod keys;
mod ladder;
mod network;
mod push_url;
mod read;
pub mod redacted;
mod scheme;
mod secret;
mod sections;
mod store_url;
mod stream_name;
mod url;
mod value;
mod words;

use std::path::Path;

use ladder::LadderKeys;

pub use records::Error;
pub use recovery::catalog::Takes;
pub use toml::de::DeValue;

pub use audio::AudioRendition;
pub use changes::{Changes, Effect};
pub use cors::Cors;
pub use describe::{KeyText, SectionText};
pub use domain::{DomainName, HostPattern};
pub use external_account::ExternalAccount;
pub use key_source::KeySource;
pub use keys::*;
pub use ladder::MAX_RENDITIONS;
pub use network::{Network, any_contains};
pub use push_url::{PushUrl, StreamKey};
pub use read::{File, nearest};
pub use scheme::{takes, unused};
pub use secret::Secret;
pub use sections::{Key, Problem, Section, Sections, Whole, assign};
pub use store_url::{StoreScheme, StoreUrl};
pub use stream_name::{MAX_STREAM_NAME, is_stream_name};
pub use url::{Header, HttpUrl, Upstream, Variant};
pub use value::{Shown, Size, Value, one_of, quoted};
pub use words::{
    AcmeChallenge, Cipher, Container, Level, LogFormat, OnFailure, Retry, Start, TakeOver,
};

impl Config {
    /// Reads and checks the file at `path`. Relative paths in it start at its directory.
    ///
    /// # Errors
    /// If the file cannot be read or is not TOML, or a key is unknown or has a wrong value. One
    /// line.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| Error::new(format!("{name}: {e}")))?;
        let mut config = Self::parse(&name.to_string(), &text)?;
        config.resolve(path.parent().unwrap_or(Path::new("")));
        Ok(config)
    }

    /// Parses and checks `text`. Errors call the file `name`.
    ///
    /// # Errors
    /// One line `name:LINE: [section] key: expected …, got …`.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let file = File::parse(name, text)?;
        let mut config = Self::default();
        file.read_into(&mut config, |_| false)?;
        if let Some((list, index, what)) = config.unusable_rule() {
            return Err(file.error(file.item(list, index), &format!("[{list}] key: {what}")));
        }
        match config.contradiction() {
            Some((section, key, what)) => {
                let span = file.position(section, key);
                Err(file.error(span, &format!("[{section}] {key}: {what}")))
            }
            None => Ok(config),
        }
    }

    /// Returns a key that contradicts another one: section, key and expectation.
    fn contradiction(&self) -> Option<(&'static str, &'static str, String)> {
        let Self { server, quic, .. } = self;
        if server.certificate.is_some() != server.key.is_some() {
            let given = if server.key.is_some() { "key" } else { "certificate" };
            return Some(("server", given, "expected certificate and key, or neither".into()));
        }
        if quic.initial_mtu > quic.max_mtu {
            let what = format!("expected at least initial_mtu = {}", quic.initial_mtu);
            return Some(("quic", "max_mtu", format!("{what}, got {}", quic.max_mtu)));
        }
        if quic.stream_window > quic.connection_window {
            let what = format!("expected at least stream_window = {}", quic.stream_window);
            let got = quic.connection_window;
            return Some(("quic", "connection_window", format!("{what}, got {got}")));
        }
        let shares = self.autoplex.explorers + self.autoplex.holdout;
        if shares > 1.0 + 1e-9 {
            let what = format!("expected explorers plus holdout to be at most 1, got {shares}");
            return Some(("autoplex", "holdout", what));
        }
        let names: Vec<_> = self.cohort.iter().map(|cohort| &cohort.name).collect();
        let is_consistent = |rule: &&Push| {
            rule.url.as_ref().is_none_or(|url| url.takes_key() == rule.key.is_some())
        };
        if let Some(rule) = self.push.iter().find(|rule| !is_consistent(rule)) {
            let what =
                format!("expected a key exactly if url has {{key}}; stream {:?}", rule.stream);
            return Some(("push", "key", what));
        }
        let duplicate = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name));
        if let Some((_, name)) = duplicate {
            let what = format!("expected unique names, got {name:?} twice");
            return Some(("cohort", "name", what));
        }
        let ladders = self.ladder.iter().map(|ladder| LadderKeys {
            name: &ladder.name,
            renditions: &ladder.renditions,
            audio: ladder.audio.iter().flatten().map(|a| (&a.name[..], &a.stream[..])).collect(),
            multitrack: ladder.multitrack,
        });
        let ladder = ladder::fault(&ladders.collect::<Vec<_>>());
        let hosts = self.host.iter().map(|host| {
            let names: Vec<_> = host.names.iter().map(HostPattern::as_str).collect();
            (names, &host.prefix[..])
        });
        let host = || host::fault(&hosts.collect::<Vec<_>>());
        let named = |section| move |(key, what)| (section, key, what);
        ladder.map(named("ladder")).or_else(|| host().map(named("host")))
    }

    /// Returns a rule that nobody could satisfy, or everybody: list, index and expectation.
    fn unusable_rule(&self) -> Option<(&'static str, usize, &'static str)> {
        let play = self.play.iter().map(|rule| (&rule.key, rule.jwks.is_some()));
        let publish = self.publish.iter().map(|rule| (&rule.key, rule.jwks.is_some()));
        let play = play.enumerate().map(|(at, rule)| ("play", at, rule));
        let publish = publish.enumerate().map(|(at, rule)| ("publish", at, rule));
        play.chain(publish).find_map(|(list, at, (key, has_jwks))| match key {
            Some(key) if key.is_empty() => Some((list, at, "expected a key, got an empty string")),
            None if !has_jwks => Some((list, at, "expected key, jwks or both, got nothing")),
            _ => None,
        })
    }

    /// Replaces `running`. Keys that need a restart keep their running values. Returns the keys
    /// with new values.
    pub fn replace(&mut self, running: &Self) -> Changes {
        let mut changes = Changes::default();
        self.compare(running, &mut changes);
        changes
    }

    /// Returns a file with the documentation and default of every key. Keys without a default are
    /// comments.
    pub fn documented() -> String {
        SectionText::toml(&Self::default().describe())
    }

    /// Returns the page docs/reference/configuration.md: a table of the keys of each section.
    pub fn reference() -> String {
        SectionText::page(&Self::default().describe())
    }
}

#[cfg(test)]
mod tests;
