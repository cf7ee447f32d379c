//! The record of the session that was asked for.

use std::path::PathBuf;

use records::{Column, Error, Input, Location, Row};

use super::facts::{Facts, plain, utc};

/// Minimum digits of an abbreviated viewer ID.
const MIN_DIGITS: usize = 4;
/// Digits of a viewer ID.
const DIGITS: usize = 16;
/// Number of near sessions that an error names, and of other sessions that a report names.
const MAX_NAMED: usize = 5;

/// The record, and facts about the search.
#[derive(Debug)]
pub(super) struct Found {
    pub facts: Facts,
    /// Other sessions of the same viewer, such as `FILE:3 (2.0 s frozen)`; names at most 5.
    pub others: Vec<String>,
    pub records: Input,
}

/// Reads the files, and chooses the session with the most frozen time if a viewer has several.
///
/// # Errors
/// A path does not exist, or not exactly one viewer matches.
pub(super) fn session(wanted: &str, paths: &[PathBuf]) -> Result<Found, Error> {
    let wanted = wanted.trim();
    let mut search = Search { wanted, matches: Vec::new(), near: Vec::new() };
    let records = records::read(paths, &Column::ALL, |place, row| {
        search.take(place, row);
        Ok(())
    })?;
    let Search { mut matches, near, .. } = search;
    if matches.is_empty() {
        return Err(unknown(wanted, &near, &records));
    }
    let viewers = |facts: &Facts| facts.text(Column::viewer);
    if matches.iter().any(|facts| viewers(facts) != viewers(&matches[0])) {
        return Err(ambiguous(wanted, &matches));
    }
    matches.sort_by(|a, b| b.frozen_s().total_cmp(&a.frozen_s()));
    let facts = matches.remove(0);
    let named = |other: &Facts| format!("{} ({:.1} s frozen)", other.place, other.frozen_s());
    let mut others: Vec<String> = matches.iter().take(MAX_NAMED).map(named).collect();
    if matches.len() > MAX_NAMED {
        others.push(format!("and {} more", matches.len() - MAX_NAMED));
    }
    Ok(Found { facts, others, records })
}

/// Maximum number of matching records that are kept.
const MAX_MATCHES: usize = 10_000;

struct Search<'a> {
    wanted: &'a str,
    matches: Vec<Facts>,
    /// Edit distance and description of the nearest sessions, nearest first.
    near: Vec<(usize, String)>,
}

impl Search<'_> {
    fn take(&mut self, place: Location<'_>, row: &Row) {
        let viewer = row.text(Column::viewer).unwrap_or("");
        let number = row.number(Column::session).filter(|n| n.fract() == 0.0);
        let is_prefix = || {
            let is_hex = self.wanted.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_hex && self.wanted.len() >= MIN_DIGITS && viewer.starts_with(self.wanted)
        };
        let is_match = viewer == self.wanted && !viewer.is_empty()
            || is_prefix()
            || number.is_some_and(|number| number.to_string() == self.wanted)
            || is_place(place, self.wanted);
        if is_match && self.matches.len() < MAX_MATCHES {
            return self.matches.push(Facts::new(place, row));
        }
        if viewer.is_empty() || !self.matches.is_empty() {
            return;
        }
        let distance = distance(viewer, self.wanted);
        let is_full = self.near.len() >= MAX_NAMED;
        if is_full && self.near.last().is_some_and(|(last, _)| *last <= distance) {
            return;
        }
        let described = describe(&Facts::new(place, row));
        if self.near.iter().any(|(_, other)| *other == described) {
            return;
        }
        let at = self.near.partition_point(|(other, _)| *other <= distance);
        self.near.insert(at, (distance, described));
        self.near.truncate(MAX_NAMED);
    }
}

/// Returns whether `wanted` is this `FILE:ROW`, with or without directories.
fn is_place(place: Location<'_>, wanted: &str) -> bool {
    let Some((file, row)) = wanted.rsplit_once(':') else { return false };
    row.parse() == Ok(place.row)
        && !file.is_empty()
        && (place.file.ends_with(file) || place.file.file_stem().is_some_and(|stem| stem == file))
}

/// Viewer, stream and time of a session.
fn describe(facts: &Facts) -> String {
    let text = |column| facts.text(column).unwrap_or_else(|| "?".to_owned());
    let at = facts[Column::started_ms].map_or_else(|| "?".to_owned(), utc);
    format!("{} ({} at {at})", text(Column::viewer), text(Column::stream))
}

fn unknown(wanted: &str, near: &[(usize, String)], records: &Input) -> Error {
    let counts = format!(
        "no session `{}` in {} records (files: {}, unreadable: {}, broken lines: {})",
        plain(wanted),
        records.records,
        records.files,
        records.unreadable_files,
        records.broken_lines
    );
    let near: Vec<&str> = near.iter().map(|(_, described)| described.as_str()).collect();
    let near = match near.is_empty() {
        true => String::new(),
        false => format!("; nearest: {}", near.join(", ")),
    };
    Error::new(format!(
        "{counts}{near}; give a viewer ID of {DIGITS} digits, a session number or FILE:ROW; \
         `mendcast records export PATH --columns viewer,stream,prefix,started_ms,player_freeze_s` \
         lists them"
    ))
}

fn ambiguous(wanted: &str, matches: &[Facts]) -> Error {
    let named: Vec<String> = matches
        .iter()
        .take(MAX_NAMED)
        .map(|facts| format!("{} {}", facts.place, describe(facts)))
        .collect();
    let (count, named) = (matches.len(), named.join(", "));
    let wanted = plain(wanted);
    Error::new(format!(
        "{count} sessions of several viewers match `{wanted}`; give FILE:ROW: {named}"
    ))
}

/// Levenshtein distance of the first 64 bytes.
fn distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|text| &text.as_bytes()[..text.len().min(64)]);
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
