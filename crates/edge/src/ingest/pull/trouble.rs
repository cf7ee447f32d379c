//! What goes wrong with an upstream, by reason: said, counted and shown.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use media::hls::pull::Error;
use media::{Deviation, fmp4, ts};
use tokio::time::Instant;

use crate::client::Failure;
use crate::live::{Live, Told};

/// The same reason is said again after this time at the earliest: an origin decides how often it
/// fails.
const QUIET: Duration = Duration::from_secs(10);

/// Why something of an upstream is of no use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// No connection, no TLS, no HTTP, or an answer that is cut off or takes too long.
    Connection,
    /// An HTTP status, or a refusal in another protocol.
    Status,
    /// What it sends cannot be read.
    Content,
    /// What it sends is encrypted.
    Encrypted,
    /// A codec that FLV cannot carry.
    Codec,
    /// The sound is in a rendition of its own.
    Rendition,
    /// Nothing came for too long.
    Silence,
    /// The stream has ended.
    Over,
}

impl Reason {
    /// Its name in metrics.
    const fn event(self) -> &'static str {
        match self {
            Self::Connection => "pull_trouble_connection",
            Self::Status => "pull_trouble_status",
            Self::Content => "pull_trouble_content",
            Self::Encrypted => "pull_trouble_encrypted",
            Self::Codec => "pull_trouble_codec",
            Self::Rendition => "pull_trouble_rendition",
            Self::Silence => "pull_trouble_silence",
            Self::Over => "pull_trouble_over",
        }
    }
}

/// What went wrong: one line, without secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Trouble {
    pub(super) reason: Reason,
    pub(super) text: String,
}

impl Trouble {
    pub(super) fn new(reason: Reason, text: impl fmt::Display) -> Self {
        Self { reason, text: text.to_string() }
    }

    /// Nothing came for this long.
    pub(super) fn silence(limit: Duration) -> Self {
        Self::new(Reason::Silence, format!("nothing came for {limit:?}"))
    }

    /// The same, with what it is about.
    pub(super) fn of(self, what: impl fmt::Display) -> Self {
        Self { text: format!("{what}: {}", self.text), ..self }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::new(Reason::Connection, failure)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let reason = match error {
            Error::Encrypted
            | Error::Mp4(fmp4::read::Error::Encrypted)
            | Error::Ts(ts::read::Error::Encrypted) => Reason::Encrypted,
            Error::Codec
            | Error::Mp4(fmp4::read::Error::NoTrack)
            | Error::Ts(ts::read::Error::NoStream) => Reason::Codec,
            Error::Rendition => Reason::Rendition,
            _ => Reason::Content,
        };
        Self::new(reason, error)
    }
}

/// Where a pull tells what goes wrong.
#[derive(Clone)]
pub(super) struct Notes {
    live: Arc<Live>,
    name: String,
    said: Option<(Reason, Instant)>,
    told: Told,
}

impl Notes {
    pub(super) fn new(live: Arc<Live>, name: &str) -> Self {
        Self { live, name: name.to_owned(), said: None, told: Told::default() }
    }

    /// An upstream failed.
    pub(super) fn failed(&self, upstream: &str, trouble: Trouble) {
        tracing::warn!("{}: upstream {upstream}: {}", self.name, trouble.text);
        self.live.events.count("pull_failed");
        self.live.events.count(trouble.reason.event());
        self.live.pulls.fail(&self.name, Some(trouble.text));
    }

    /// Something is wrong, and the pull goes on.
    pub(super) fn note(&mut self, trouble: Trouble) {
        self.live.events.count(trouble.reason.event());
        let is_quiet =
            |&(reason, at): &(Reason, Instant)| reason == trouble.reason && at.elapsed() < QUIET;
        if !self.said.as_ref().is_some_and(is_quiet) {
            self.said = Some((trouble.reason, Instant::now()));
            tracing::warn!("{}: {}", self.name, trouble.text);
        }
        self.live.pulls.note(&self.name, trouble.text);
    }

    /// What the upstream does against the rules of its format, and is tolerated.
    pub(super) fn tolerate(&mut self, met: impl Iterator<Item = (Deviation, u32)>) {
        self.told.tell(&self.live.tolerated, &self.name, met);
    }

    /// A segment that is left out is noted with its trouble.
    pub(super) fn left_out(&mut self, trouble: Trouble) {
        self.live.events.count("pull_segment_left_out");
        self.note(trouble.of("left out"));
    }
}
