//! Reads sections from a file, with errors that name line, key, expectation and value.

use core::fmt::Write as _;
use core::ops::Range;

use records::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::sections::{Problem, Section, Sections, headers};

/// A parsed file.
pub struct File<'a> {
    name: &'a str,
    text: &'a str,
    table: Spanned<DeTable<'a>>,
}

impl<'a> File<'a> {
    /// Parses `text`. Errors call the file `name`.
    ///
    /// # Errors
    /// One line: the text is not TOML.
    pub fn parse(name: &'a str, text: &'a str) -> Result<Self, Error> {
        match DeTable::parse(text) {
            Ok(table) => Ok(Self { name, text, table }),
            Err(e) => {
                let what = e.message().lines().collect::<Vec<_>>().join(", ");
                Err(error(name, text, e.span().unwrap_or_default(), &what))
            }
        }
    }

    /// Returns an error at a position.
    pub fn error(&self, span: Range<usize>, what: &str) -> Error {
        error(self.name, self.text, span, what)
    }

    /// Returns the position of `key`, or else of its section, or else of the file's start.
    pub fn position(&self, section: &str, key: &str) -> Range<usize> {
        let table = self.table.get_ref();
        let Some((header, body)) = table.iter().find(|(name, _)| name.get_ref() == section) else {
            return 0..0;
        };
        let keys = body.get_ref().as_table();
        let found = keys.and_then(|keys| keys.keys().find(|name| name.get_ref() == key));
        found.map_or_else(|| header.span(), Spanned::span)
    }

    /// Returns the position of an item of a list, or else of the file's start.
    pub fn item(&self, list: &str, index: usize) -> Range<usize> {
        let mut sections = self.table.get_ref().iter();
        let body = sections.find(|(name, _)| name.get_ref() == list).map(|(_, body)| body);
        let items = body.and_then(|body| body.get_ref().as_array());
        items.and_then(|items| items.get(index)).map_or(0..0, Spanned::span)
    }

    /// Sets the keys of all sections in `root`, except the top-level names that `is_other` accepts.
    ///
    /// # Errors
    /// One line `name:LINE: [section] key: expected …, got …`.
    pub fn read_into(
        &self,
        root: &mut dyn Sections,
        is_other: impl Fn(&str) -> bool,
    ) -> Result<(), Error> {
        for (section, body) in self.table.get_ref() {
            let name: &str = section.get_ref();
            if is_other(name) {
                continue;
            }
            let is_list = root.lists().contains(&name);
            let bodies: Vec<(Option<&DeTable<'_>>, Range<usize>)> = match body.get_ref() {
                DeValue::Array(items) if is_list => {
                    items.iter().map(|item| (item.get_ref().as_table(), item.span())).collect()
                }
                other if !is_list => vec![(other.as_table(), section.span())],
                _ => vec![(None, section.span())],
            };
            for (keys, span) in bodies {
                let names = headers(root);
                let Some(keys) = keys else {
                    let what = format!("{name}: expected a section, one of {names}");
                    return Err(self.error(span, &what));
                };
                let Some(known) = root.section(name) else {
                    return Err(self.error(span, &unknown_section(name, &names)));
                };
                self.read_section(name, keys, known)?;
                if let Err((key, what)) = known.check() {
                    return Err(self.error(span, &format!("[{name}] {key}: {what}")));
                }
            }
        }
        Ok(())
    }

    fn read_section(
        &self,
        name: &str,
        keys: &DeTable<'_>,
        known: &mut dyn Section,
    ) -> Result<(), Error> {
        for (key, value) in keys {
            known.set(key.get_ref(), value.get_ref()).map_err(|problem| {
                let text = &self.text[value.span()];
                let is_hidden = is_secret(name, key.get_ref()) || has_secrets(text);
                let span =
                    if matches!(problem, Problem::Key(_)) { key.span() } else { value.span() };
                let what = problem.told(key.get_ref(), (!is_hidden).then_some(text));
                self.error(span, &format!("[{name}] {}: {what}", key.get_ref()))
            })?;
        }
        Ok(())
    }
}

fn error(name: &str, text: &str, span: Range<usize>, what: &str) -> Error {
    let line = text.bytes().take(span.start).filter(|&b| b == b'\n').count() + 1;
    Error::new(format!("{name}:{line}: {what}"))
}

/// Sections of experiments, which only the testbed reads.
const LAB_SECTIONS: [&str; 5] = ["path", "player", "source", "rival", "lab"];

fn unknown_section(name: &str, known: &str) -> String {
    match LAB_SECTIONS.contains(&name) {
        true => format!("[{name}]: a section for experiments (`mendcast lab`), not for a server"),
        false => format!("[{name}]: unknown section, expected {known}"),
    }
}

impl Problem {
    /// Describes the problem with `key` and the value `text`, which is `None` if it is secret.
    pub fn told(&self, key: &str, text: Option<&str>) -> String {
        match (self, text) {
            (Self::Key(known), _) => {
                let hint = match nearest(key, known) {
                    Some(near) => format!("unknown key, did you mean {near}? Expected"),
                    None => "unknown key, expected".to_owned(),
                };
                format!("{hint} one of {}", known.join(", "))
            }
            (Self::Value(expected), Some(text)) => {
                format!("expected {expected}, got {}", excerpt(&without_secrets(text)))
            }
            (Self::Value(expected) | Self::Secret(expected), _) => {
                format!("expected {expected}, got something else")
            }
        }
    }
}

/// Returns the known word with the fewest edits to `word`, if they are at most a third of it.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let edits = known.iter().map(|known| (edits(word, known), *known));
    let (count, nearest) = edits.min_by_key(|(count, _)| *count)?;
    (count * 3 <= word.len()).then_some(nearest)
}

/// Returns the number of inserted, deleted, replaced and swapped bytes between two words (optimal
/// string alignment).
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut last: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut next = vec![i + 1];
        for j in 0..b.len() {
            let replaced = row[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(next[j] + 1).min(row[j + 1] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(last[j - 1] + 1);
            }
            next.push(least);
        }
        last = core::mem::replace(&mut row, next);
    }
    row[b.len()]
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
