//! A cause of freezes, with its evidence and remedies.

use serde::Serialize;

/// Cause of freezes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Single losses and short loss bursts, repaired too late.
    Loss,
    /// Silence of the path: no packet passed for a while.
    Outage,
    /// A queue on the path: the round-trip time grew.
    Queue,
    /// A path slower than the stream.
    Capacity,
    /// The cap of the viewer's user group.
    Cap,
    /// Losses over TCP, where no recovery scheme acts.
    Tcp,
    /// A congestion controller that reduced its rate after random losses.
    Controller,
    /// Nothing to send: the publisher or upstream stalled.
    Publisher,
    /// The server's process did not run.
    Server,
    /// The viewer's address changed.
    PathChange,
    /// The player, although the network delivered the stream.
    Player,
    /// A slow start without freezes.
    Startup,
}

impl Cause {
    /// Returns the title in reports.
    pub fn title(self) -> &'static str {
        match self {
            Self::Loss => "loss bursts",
            Self::Outage => "outage of the path",
            Self::Queue => "queue on the path",
            Self::Capacity => "path slower than the stream",
            Self::Cap => "cap of the user group",
            Self::Tcp => "losses over TCP",
            Self::Controller => "congestion controller",
            Self::Publisher => "publisher or upstream",
            Self::Server => "server",
            Self::PathChange => "change of the path",
            Self::Player => "player",
            Self::Startup => "slow start",
        }
    }
}

/// Certainty of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// One of several explanations that the record allows.
    Possible,
    /// The record's totals point to it.
    Likely,
    /// The qlog shows it, with times.
    Shown,
}

impl Certainty {
    /// Returns the word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::Shown => "shown",
        }
    }
}

/// Source of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The session's record.
    Record,
    /// Records of sessions at the same time.
    Records,
    /// The qlog of the connection.
    Qlog,
    /// The connection log.
    ConnectionLog,
}

/// A number that supports a sentence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// Column, or name of the quantity.
    pub name: String,
    /// Value.
    pub value: f64,
    /// Unit; empty for counts without one.
    pub unit: &'static str,
    /// Source.
    pub source: Source,
}

/// A cause of freezes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// Certainty.
    pub certainty: Certainty,
    /// Explanation in one or two sentences.
    pub sentence: String,
    /// Numbers.
    pub evidence: Vec<Evidence>,
    /// Remedies, most effective first.
    pub help: Vec<String>,
    /// Rank among findings of the same certainty, from 0 to 1.
    pub strength: f64,
}

impl Finding {
    pub(super) fn new(cause: Cause, certainty: Certainty, strength: f64, sentence: String) -> Self {
        let strength = if strength.is_finite() { strength.clamp(0.0, 1.0) } else { 0.0 };
        let (evidence, help) = (Vec::new(), Vec::new());
        Self { cause, certainty, sentence, evidence, help, strength }
    }

    /// Adds a number.
    #[must_use]
    pub(super) fn with(mut self, name: &str, value: f64, unit: &'static str, by: Source) -> Self {
        if value.is_finite() {
            let (name, source) = (name.to_owned(), by);
            self.evidence.push(Evidence { name, value, unit, source });
        }
        self
    }

    /// Adds a remedy.
    #[must_use]
    pub(super) fn helped_by(mut self, remedy: impl Into<String>) -> Self {
        self.help.push(remedy.into());
        self
    }

    /// Adds evidence and remedies of a less certain finding of this cause.
    pub(super) fn absorb(&mut self, other: Self) {
        self.evidence.extend(other.evidence);
        for remedy in other.help {
            if !self.help.contains(&remedy) {
                self.help.push(remedy);
            }
        }
    }
}
