//! Segments on their way from a stream's task to the writer of a directory.

use std::time::Duration;

use bytes::Bytes;

use crate::config;

/// Keys of a rule that the writer needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub segment: Duration,
    pub rotate: Duration,
    pub keep: Duration,
    pub max_size: u64,
    /// Whether recordings are uploaded.
    pub is_uploaded: bool,
}

impl Settings {
    pub(super) fn of(rule: &config::Recording) -> Self {
        let config::Recording { segment, rotate, keep, max_size, .. } = *rule;
        let is_uploaded = rule.upload.is_some();
        Self { segment, rotate, keep, max_size: max_size.0, is_uploaded }
    }
}

/// A segment that was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gap {
    /// Start in milliseconds since 1970.
    pub wall_ms: i64,
    /// Duration in milliseconds.
    pub duration_ms: i64,
}

/// A segment on its way to the disk.
#[derive(Debug)]
pub(super) struct WrittenSegment {
    pub stream: String,
    /// ID and bytes of the initialisation segment.
    pub init: (u64, Bytes),
    pub parts: Vec<Bytes>,
    pub discontinuity: bool,
    pub wall_ms: i64,
    pub duration_ms: i64,
    /// Segments before it that were dropped.
    pub gaps: Vec<Gap>,
    pub settings: Settings,
}

impl WrittenSegment {
    /// Bytes of all parts.
    pub(super) fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}
