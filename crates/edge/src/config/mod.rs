//! Configuration file: strict TOML, with a default for every key.
//!
//! The table in `keys.rs` defines all keys. Structs, documentation, defaults, ranges, errors and
//! the text of `--print-defaults` derive from it, and so cannot disagree. The file is read as a
//! table with positions, not through serde: errors name line, key, expected and actual value.

mod changes;
mod cors;
mod network;
mod secret;
mod url;
mod value;
mod words;

use core::fmt::Write as _;
use core::ops::{Range, RangeInclusive};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Error;
pub use changes::Changes;
use changes::Effect;
pub use cors::Cors;
pub use network::{Network, any_contains};
pub use secret::Secret;
pub use url::{Header, HttpUrl, Upstream, Variant};
pub use value::Size;
use value::Value;
pub use words::{Cipher, Container, Level, OnFailure, Retry, Start, TakeOver};

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
        let at = |span: Range<usize>, what: String| {
            let line = text.bytes().take(span.start).filter(|&b| b == b'\n').count() + 1;
            Error::new(format!("{name}:{line}: {what}"))
        };
        let table = DeTable::parse(text).map_err(|e| {
            at(e.span().unwrap_or_default(), e.message().lines().collect::<Vec<_>>().join(", "))
        })?;
        let mut config = Self::default();
        for (section, body) in table.get_ref() {
            let name = section.get_ref();
            let bodies: Vec<(Option<&DeTable<'_>>, Range<usize>)> = match body.get_ref() {
                DeValue::Array(items) if Self::is_list(name) => {
                    items.iter().map(|item| (item.get_ref().as_table(), item.span())).collect()
                }
                other if !Self::is_list(name) => vec![(other.as_table(), section.span())],
                _ => vec![(None, section.span())],
            };
            for (keys, span) in bodies {
                let Some(keys) = keys else {
                    let names = Self::sections();
                    return Err(at(span, format!("{name}: expected a section, one of {names}")));
                };
                let Some(known) = config.section(name) else {
                    let names = Self::sections();
                    return Err(at(span, format!("[{name}]: unknown section, expected {names}")));
                };
                for (key, value) in keys {
                    known.set(key.get_ref(), value.get_ref()).map_err(|problem| {
                        let name = format!("[{name}] {}", key.get_ref());
                        match problem {
                            Problem::Key(keys) => {
                                let what = format!("{name}: unknown key, expected one of {keys}");
                                at(key.span(), what)
                            }
                            Problem::Value(expected)
                                if !is_secret(section.get_ref(), key.get_ref())
                                    && !has_secrets(&text[value.span()]) =>
                            {
                                let got = excerpt(&without_secrets(&text[value.span()]));
                                at(value.span(), format!("{name}: expected {expected}, got {got}"))
                            }
                            Problem::Value(expected) | Problem::Secret(expected) => {
                                let what =
                                    format!("{name}: expected {expected}, got something else");
                                at(value.span(), what)
                            }
                        }
                    })?;
                }
                if let Err((key, what)) = known.check() {
                    return Err(at(span, format!("[{name}] {key}: {what}")));
                }
            }
        }
        match config.contradiction() {
            Some((section, key, what)) => {
                let span = position(table.get_ref(), section, key);
                Err(at(span, format!("[{section}] {key}: {what}")))
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
        let duplicate = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name));
        if let Some((_, name)) = duplicate {
            let what = format!("expected unique names, got {name:?} twice");
            return Some(("cohort", "name", what));
        }
        None
    }

    /// Replaces `running`. Keys that need a restart keep their running values. Returns the keys
    /// with new values.
    pub(crate) fn replace(&mut self, running: &Self) -> Changes {
        let mut changes = Changes::default();
        self.compare(running, &mut changes);
        changes
    }

    /// Returns a file with the documentation and default of every key. Keys without a default are
    /// comments.
    pub fn documented() -> String {
        let mut out = String::from(
            "# Every key of mendcast edge, with its default value.\n\
             # Durations: us, ms, s, m, h, d. Sizes: B, kB, MB, GB, KiB, MiB, GiB.\n\
             # Relative paths start at the directory of this file.\n\
             # After a reload (SIGHUP), new values apply to new connections and streams, unless a\n\
             # key says otherwise.\n",
        );
        Self::default().describe(&mut out);
        out
    }
}

/// Returns the position of `key`, or else of its section, or else of the file's start.
fn position(table: &DeTable<'_>, section: &str, key: &str) -> Range<usize> {
    let Some((header, body)) = table.iter().find(|(name, _)| name.get_ref() == section) else {
        return 0..0;
    };
    let keys = body.get_ref().as_table();
    let found = keys.and_then(|keys| keys.keys().find(|name| name.get_ref() == key));
    found.map_or_else(|| header.span(), Spanned::span)
}

/// Returns a quotation of `text` for errors: its first line, at most 60 characters.
fn excerpt(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(60).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// Whether the key holds a secret, although its type is an ordinary string.
fn is_secret(section: &str, key: &str) -> bool {
    matches!((section, key), ("play" | "publish", "key") | ("hooks", "secret") | ("admin", "token"))
}

/// Whether `text` may contain a password or query outside well-formed URLs, as in a mistyped one.
fn has_secrets(text: &str) -> bool {
    without_secrets(text).replace("?…", "").contains(['@', '?'])
}

/// Returns `text` without user names, passwords and queries of URLs, since errors are logged.
fn without_secrets(text: &str) -> String {
    let mut parts = text.split("://");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (url, rest) = part.split_at(part.find(['"', '\'', ',', '\n']).unwrap_or(part.len()));
        let (place, query) = url.split_at(url.find('?').unwrap_or(url.len()));
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        let query = if query.is_empty() { "" } else { "?…" };
        let _ = write!(out, "://{place}{query}{rest}");
    }
    out
}

/// Reason why a key could not be set.
enum Problem {
    /// Unknown key. Contains the known ones.
    Key(String),
    /// Wrong value. Contains the expectation.
    Value(String),
    /// Wrong value of a secret. Contains the expectation.
    Secret(String),
}

/// The keys of a section.
trait Section {
    fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), Problem>;
    /// Checks required keys. The error has the missing key and the expectation.
    fn check(&self) -> Result<(), (&'static str, String)>;
    fn describe(&self, out: &mut String);
    /// Makes relative paths start at `base`.
    fn resolve(&mut self, base: &Path);
}

/// Sets `slot` to `value`, if that has the right type and is in `range`.
fn assign<T: Value + PartialOrd>(
    slot: &mut T,
    value: &DeValue<'_>,
    range: Option<RangeInclusive<T>>,
) -> Result<(), Problem> {
    match (T::read(value), &range) {
        (Some(read), None) => *slot = read,
        (Some(read), Some(range)) if range.contains(&read) => *slot = read,
        (_, None) if !T::may_be_quoted() => return Err(Problem::Secret(T::expected())),
        (_, None) => return Err(Problem::Value(T::expected())),
        (_, Some(range)) => return Err(Problem::Value(range_text(range))),
    }
    Ok(())
}

fn range_text<T: Value>(range: &RangeInclusive<T>) -> String {
    let end = |value: &T| value.toml().unwrap_or_default();
    format!("{} to {}", end(range.start()), end(range.end()))
}

/// Writes one key of `--print-defaults`.
fn describe_key<T: Value>(
    out: &mut String,
    key: &str,
    docs: &[&str],
    value: &T,
    range: Option<RangeInclusive<T>>,
    example: Option<&str>,
    effect: Effect,
) {
    out.push('\n');
    for line in docs {
        let _ = writeln!(out, "#{line}");
    }
    match range {
        Some(range) => drop(writeln!(out, "# Expected: {}.", range_text(&range))),
        None => drop(writeln!(out, "# Expected: {}.", T::expected())),
    }
    match effect {
        Effect::ForNew => {}
        Effect::AtOnce => out.push_str("# A reload applies new values immediately.\n"),
        Effect::AtStart => out.push_str("# New values require a restart.\n"),
    }
    match (example, value.toml()) {
        (Some(example), _) => drop(writeln!(out, "# {key} = {example}")),
        (None, Some(value)) => drop(writeln!(out, "{key} = {value}")),
        (None, None) => drop(writeln!(out, "# {key} =")),
    }
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

macro_rules! effect {
    () => {
        Effect::ForNew
    };
    ($effect:ident) => {
        Effect::$effect
    };
}

macro_rules! sections {
    (
        $($(#[doc = $about:literal])+ [$section:ident] $Type:ident { $($keys:tt)+ })+
        ; $($(#[doc = $each:literal])+ [[$list:ident]] $Item:ident { $($item_keys:tt)+ })+
    ) => {
        /// Configuration, with one field per section of the file.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Config {
            $($(#[doc = $about])+ pub $section: $Type,)+
            $($(#[doc = $each])+ pub $list: Vec<$Item>,)+
        }

        impl Config {
            /// Returns the section of this name, or a new item of the list of this name.
            pub(super) fn section(&mut self, name: &str) -> Option<&mut dyn Section> {
                match name {
                    $(stringify!($section) => Some(&mut self.$section),)+
                    $(stringify!($list) => {
                        self.$list.push($Item::default());
                        self.$list.last_mut().map(|item| item as &mut dyn Section)
                    })+
                    _ => None,
                }
            }

            pub(super) fn is_list(name: &str) -> bool {
                [$(stringify!($list)),+].contains(&name)
            }

            pub(super) fn sections() -> String {
                [
                    $(concat!("[", stringify!($section), "]"),)+
                    $(concat!("[[", stringify!($list), "]]")),+
                ].join(", ")
            }

            pub(super) fn resolve(&mut self, base: &std::path::Path) {
                $(self.$section.resolve(base);)+
                $(self.$list.iter_mut().for_each(|item| item.resolve(base));)+
            }

            pub(super) fn compare(&mut self, running: &Self, changes: &mut Changes) {
                $(self.$section.compare(
                    concat!("[", stringify!($section), "]"), &running.$section, changes,
                );)+
                $({
                    const NAME: &str = concat!("[[", stringify!($list), "]]");
                    if self.$list.len() == running.$list.len() {
                        let pairs = self.$list.iter_mut().zip(&running.$list);
                        pairs.for_each(|(new, old)| new.compare(NAME, old, changes));
                    } else {
                        // Old and new items cannot be matched.
                        let (new, old) = (&mut self.$list, &running.$list);
                        changes.compare(format_args!("{NAME}"), Effect::ForNew, new, old);
                    }
                })+
            }

            pub(super) fn describe(&self, out: &mut String) {
                $(
                    out.push('\n');
                    $(let _ = writeln!(out, "#{}", $about);)+
                    let _ = writeln!(out, "[{}]", stringify!($section));
                    self.$section.describe(out);
                )+
                $(
                    out.push('\n');
                    $(let _ = writeln!(out, "#{}", $each);)+
                    let _ = writeln!(out, "# [[{}]]", stringify!($list));
                    let mut keys = String::new();
                    $Item::default().describe(&mut keys);
                    for line in keys.lines() {
                        let is_value = !line.is_empty() && !line.starts_with('#');
                        let _ = writeln!(out, "{}{line}", if is_value { "# " } else { "" });
                    }
                )+
            }
        }

        $(sections!(@struct $(#[doc = $about])+ $Type { $($keys)+ });)+
        $(sections!(@struct $(#[doc = $each])+ $Item { $($item_keys)+ });)+
    };
    (@struct $(#[doc = $about:literal])+ $Type:ident {
        $($(#[doc = $doc:literal])+
        $key:ident: $Value:ty = $default:expr
            $(, in $range:expr)? $(, example $example:literal)? $(, required $required:literal)?
            $(, effect $effect:ident)?;)+
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Type {
            $($(#[doc = $doc])+ pub $key: $Value,)+
        }

        impl Default for $Type {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }

        impl $Type {
            fn compare(&mut self, section: &str, running: &Self, changes: &mut Changes) {
                $(changes.compare(
                    format_args!("{section} {}", stringify!($key)),
                    effect!($($effect)?),
                    &mut self.$key,
                    &running.$key,
                );)+
            }
        }

        impl Section for $Type {
            fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), Problem> {
                match key {
                    $(stringify!($key) => {
                        assign(&mut self.$key, value, optional!($($range)?))
                    })+
                    _ => Err(Problem::Key([$(stringify!($key)),+].join(", "))),
                }
            }

            fn check(&self) -> Result<(), (&'static str, String)> {
                $($(
                    if self.$key == Self::default().$key {
                        let expected = <$Value as Value>::expected();
                        let example = $required;
                        let what = format!("expected {expected} such as {example}, got nothing");
                        return Err((stringify!($key), what));
                    }
                )?)+
                Ok(())
            }

            fn describe(&self, out: &mut String) {
                $(describe_key(
                    out,
                    stringify!($key),
                    &[$($doc),+],
                    &self.$key,
                    optional!($($range)?),
                    optional!($($example)? $($required)?),
                    effect!($($effect)?),
                );)+
            }

            fn resolve(&mut self, base: &std::path::Path) {
                $(self.$key.resolve(base);)+
            }
        }
    };
}

mod keys;

pub use keys::*;

#[cfg(test)]
mod tests;
