//! Errors of upstreams, by reason, and their reporting in log, metrics and status.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use media::hls::pull::Error;
use media::{Deviation, fmp4, ts};
use tokio::time::Instant;

use crate::client::Failure;
use crate::live::{DeviationLog, Live};

/// Minimum interval of log lines with the same reason: the origin controls how often it fails.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Reason of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// Connection, TLS or HTTP failed, or the response is truncated or late.
    Connection,
    /// The upstream rejects the request, by HTTP status or otherwise.
    Status,
    /// Unreadable data.
    Content,
    /// Encrypted media.
    Encrypted,
    /// A codec that FLV cannot carry.
    Codec,
    /// No such variant or audio rendition.
    Rendition,
    /// No data for too long.
    Silence,
    /// The stream has ended.
    Over,
}

impl Reason {
    /// Returns the name in metrics.
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

/// An error of an upstream: one line, without secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PullError {
    pub(super) reason: Reason,
    pub(super) text: String,
}

impl PullError {
    pub(super) fn new(reason: Reason, text: impl fmt::Display) -> Self {
        Self { reason, text: text.to_string() }
    }

    /// Creates the error of an upstream that sent no data for this long.
    pub(super) fn silence(limit: Duration) -> Self {
        Self::new(Reason::Silence, format!("no data for {limit:?}"))
    }

    /// Prefixes the text with its subject.
    pub(super) fn context(self, subject: impl fmt::Display) -> Self {
        Self { text: format!("{subject}: {}", self.text), ..self }
    }
}

impl From<Failure> for PullError {
    fn from(failure: Failure) -> Self {
        Self::new(Reason::Connection, failure)
    }
}

impl From<Error> for PullError {
    fn from(error: Error) -> Self {
        let reason = match error {
            Error::Encrypted
            | Error::Mp4(fmp4::read::Error::Encrypted)
            | Error::Ts(ts::read::Error::Encrypted) => Reason::Encrypted,
            Error::Codec
            | Error::AudioCodec
            | Error::Mp4(fmp4::read::Error::NoTrack)
            | Error::Ts(ts::read::Error::NoStream) => Reason::Codec,
            Error::Rendition => Reason::Rendition,
            _ => Reason::Content,
        };
        Self::new(reason, error)
    }
}

/// Reports the errors of a pull.
#[derive(Clone)]
pub(super) struct Reporter {
    live: Arc<Live>,
    name: String,
    last_logged: Option<(Reason, Instant)>,
    deviations: DeviationLog,
}

impl Reporter {
    pub(super) fn new(live: Arc<Live>, name: &str) -> Self {
        let (last_logged, deviations) = (None, DeviationLog::default());
        Self { live, name: name.to_owned(), last_logged, deviations }
    }

    /// Returns the name of the stream.
    pub(super) fn stream(&self) -> &str {
        &self.name
    }

    /// Reports the failure of an upstream.
    pub(super) fn failed(&self, upstream: &str, error: PullError) {
        tracing::warn!("{}: upstream {upstream}: {}", self.name, error.text);
        self.live.events.count("pull_failed");
        self.live.events.count(error.reason.event());
        self.live.pulls.set_error(&self.name, Some(error.text));
    }

    /// Reports an error after which the pull continues.
    pub(super) fn warn(&mut self, error: PullError) {
        self.live.events.count(error.reason.event());
        let is_recent = |&(reason, at): &(Reason, Instant)| {
            reason == error.reason && at.elapsed() < LOG_INTERVAL
        };
        if !self.last_logged.as_ref().is_some_and(is_recent) {
            self.last_logged = Some((error.reason, Instant::now()));
            tracing::warn!("{}: {}", self.name, error.text);
        }
        self.live.pulls.set_warning(&self.name, error.text);
    }

    /// Reports tolerated deviations from the upstream's format.
    pub(super) fn tolerate(&mut self, deviations: impl Iterator<Item = (Deviation, u32)>) {
        self.deviations.record(&self.live.tolerated, &self.name, deviations);
    }

    /// Reports a skipped segment.
    pub(super) fn skipped_segment(&mut self, error: PullError) {
        self.live.events.count("pull_segment_left_out");
        self.warn(error.context("skipped"));
    }
}
