//! One record of a study: its columns, checked against their ranges. Impossible values are
//! reported, counted and treated as absent. The rest of the record is used.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use records::Location;
use serde::Serialize;
use serde_json::{Map, Value};

/// Maximum number of values reported in full.
const MAX_NAMED: usize = 20;

/// Range of a number.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Range {
    /// From 0 to 1.
    Ratio,
    /// 0 or more.
    Amount,
}

impl Range {
    fn contains(self, number: f64) -> bool {
        match self {
            Self::Ratio => (0.0..=1.0).contains(&number),
            Self::Amount => (0.0..f64::INFINITY).contains(&number),
        }
    }
}

macro_rules! columns {
    ($($name:ident: $range:ident,)+) => {
        /// Numbers of one record; `None` if absent or impossible.
        #[derive(Clone, Debug, Default)]
        pub(super) struct Row {
            $(pub $name: Option<f64>,)+
            /// Hash of the stream's name.
            pub stream: Option<u64>,
            pub viewer: Option<u64>,
            pub prefix: Option<u64>,
            pub group: Option<u64>,
            /// Name of the user group: untrusted text of any length.
            pub group_name: Option<String>,
        }

        /// Numeric columns and their ranges.
        const NUMBERS: &[(&str, Range)] = &[$((stringify!($name), Range::$range),)+];

        impl Row {
            fn numbers(&mut self) -> [&mut Option<f64>; NUMBERS.len()] {
                [$(&mut self.$name,)+]
            }
        }
    };
}

columns! {
    started_ms: Amount,
    duration_s: Amount,
    bytes: Amount,
    goodput_mbps: Amount,
    early_data: Ratio,
    first_frame_ms: Amount,
    first_frame_bytes: Amount,
    rtt_min_ms: Amount,
    rtt_ms: Amount,
    max_window: Amount,
    max_in_flight: Amount,
    max_bandwidth_mbps: Amount,
    loss_rate: Ratio,
    packets_settled: Amount,
    packets_lost: Amount,
    packets_spurious: Amount,
    bursts: Amount,
    burst_longest: Amount,
    after_1ms_sent: Amount,
    after_1ms_lost: Amount,
    after_5ms_sent: Amount,
    after_5ms_lost: Amount,
    after_20ms_sent: Amount,
    after_20ms_lost: Amount,
    after_50ms_sent: Amount,
    after_50ms_lost: Amount,
    after_100ms_sent: Amount,
    after_100ms_lost: Amount,
    after_200ms_sent: Amount,
    after_200ms_lost: Amount,
    first_transmissions: Amount,
    retransmissions: Amount,
    replicas: Amount,
    recovery_count: Amount,
    recovery_mean_ms: Amount,
    recovery_max_ms: Amount,
    units_finished: Amount,
    units_late: Amount,
    rounds: Amount,
    rounds_max: Amount,
    recovery_deterioration: Ratio,
    off_mode_ms_per_s: Amount,
    off_mode_entries_per_s: Amount,
    player_first_frame_ms: Amount,
    player_played_s: Amount,
    player_freezes: Amount,
    player_freeze_s: Amount,
    player_frames: Amount,
    player_late_frames: Amount,
}

/// Text columns.
const TEXTS: [&str; 4] = ["stream", "viewer", "prefix", "group"];

/// A column and its number.
type Cell<'a> = (&'static str, &'a mut Option<f64>);

macro_rules! parts {
    ($($part:ident of $whole:ident,)+) => {
        impl Row {
            /// Returns pairs of counts, the first a part of the second.
            fn parts(&mut self) -> impl Iterator<Item = (Cell<'_>, Cell<'_>)> {
                [$(
                    (
                        (stringify!($part), &mut self.$part),
                        (stringify!($whole), &mut self.$whole),
                    ),
                )+]
                .into_iter()
            }
        }
    };
}

parts! {
    packets_lost of packets_settled,
    after_1ms_lost of after_1ms_sent,
    after_5ms_lost of after_5ms_sent,
    after_20ms_lost of after_20ms_sent,
    after_50ms_lost of after_50ms_sent,
    after_100ms_lost of after_100ms_sent,
    after_200ms_lost of after_200ms_sent,
    units_late of units_finished,
    player_late_frames of player_frames,
}

/// Returns all columns that a study reads.
pub(super) fn columns() -> Vec<&'static str> {
    NUMBERS.iter().map(|(name, _)| *name).chain(TEXTS).collect()
}

/// Impossible values.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Impossible {
    /// Number of values by column.
    pub columns: BTreeMap<&'static str, u64>,
    /// File, row and value of the first 20.
    pub named: Vec<String>,
}

impl Impossible {
    fn count(&mut self, column: &'static str, what: impl FnOnce() -> String) {
        *self.columns.entry(column).or_default() += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(what());
        }
    }
}

/// Parser of records.
#[derive(Clone, Debug, Default)]
pub(super) struct Reader {
    /// Records with a valid value, by column.
    pub present: BTreeMap<&'static str, u64>,
    pub impossible: Impossible,
}

impl Reader {
    pub(super) fn row(&mut self, place: Location<'_>, record: &Map<String, Value>) -> Row {
        let mut row = Row::default();
        // A player's report that contradicts the server's clock is excluded. The reader of the
        // records counts it.
        let is_clamped = records::is_clamped(record);
        for ((name, range), cell) in NUMBERS.iter().zip(row.numbers()) {
            *cell = self.number(place, record, name, *range);
            *cell = cell.filter(|_| !(is_clamped && records::is_claim(name)));
        }
        for (part, all) in row.parts() {
            // If a part exceeds its whole, both are invalid.
            if let (Some(some), Some(whole)) = (*part.1, *all.1)
                && some > whole
            {
                let what = || format!("{place}: {} = {some} of {} = {whole}", part.0, all.0);
                self.impossible.count(part.0, what);
                (*part.1, *all.1) = (None, None);
            }
        }
        row.stream = self.text(record, "stream").map(number_of);
        row.viewer = self.text(record, "viewer").map(number_of);
        row.prefix = self.text(record, "prefix").map(number_of);
        row.group_name = self.text(record, "group").map(str::to_owned);
        row.group = row.group_name.as_deref().map(number_of);
        for ((name, _), cell) in NUMBERS.iter().zip(row.numbers()) {
            *self.present.entry(name).or_default() += u64::from(cell.is_some());
        }
        row
    }

    fn number(
        &mut self,
        place: Location<'_>,
        record: &Map<String, Value>,
        name: &'static str,
        range: Range,
    ) -> Option<f64> {
        let value = record.get(name).filter(|value| !value.is_null())?;
        let number = value.as_f64().filter(|number| range.contains(*number));
        if number.is_none() {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.impossible.count(name, || format!("{place}: {name} = {shown:.40}"));
        }
        number
    }

    fn text<'a>(&mut self, record: &'a Map<String, Value>, name: &'static str) -> Option<&'a str> {
        let text = record.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        *self.present.entry(name).or_default() += u64::from(text.is_some());
        text
    }
}

/// Hashes a text.
pub(super) fn number_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Row {
    /// Returns the hour of the day (UTC) at the start of the session.
    pub(super) fn hour(&self) -> Option<usize> {
        self.started_ms.map(|ms| (ms / 3_600_000.0) as usize % 24)
    }

    /// Returns seconds of playback and freezes, if any.
    pub(super) fn watched_s(&self) -> Option<f64> {
        let (played, frozen) = self.player_played_s.zip(self.player_freeze_s)?;
        Some(played + frozen).filter(|watched| *watched > 0.0)
    }

    /// By class of lag: its upper end in ms, packets sent in this time after a lost one, and the
    /// lost ones among them.
    pub(super) fn after_loss(&self) -> [(u32, Option<(f64, f64)>); 6] {
        [
            (1, self.after_1ms_sent.zip(self.after_1ms_lost)),
            (5, self.after_5ms_sent.zip(self.after_5ms_lost)),
            (20, self.after_20ms_sent.zip(self.after_20ms_lost)),
            (50, self.after_50ms_sent.zip(self.after_50ms_lost)),
            (100, self.after_100ms_sent.zip(self.after_100ms_lost)),
            (200, self.after_200ms_sent.zip(self.after_200ms_lost)),
        ]
    }
}
