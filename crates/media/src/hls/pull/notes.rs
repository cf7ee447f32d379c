//! Observations that a pull reports.

use crate::deviation::Deviations;

/// Maximum number of reported unsupported codecs.
const MAX_CODECS: usize = 16;

/// Unsupported codecs, and deviations from standards.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Omitted codecs, and the number of them that were reported.
    codecs: Vec<String>,
    reported: usize,
    pub(super) deviations: Deviations,
}

impl Notes {
    /// Records a codec that FLV cannot carry.
    pub(super) fn record_unsupported(&mut self, codec: &str) {
        let is_known = self.codecs.iter().any(|known| known == codec);
        if !is_known && self.codecs.len() < MAX_CODECS {
            self.codecs.push(codec.to_owned());
        }
    }

    /// Returns the next unreported codec.
    pub(super) fn poll_unsupported(&mut self) -> Option<&str> {
        let codec = self.codecs.get(self.reported)?;
        self.reported += 1;
        Some(codec)
    }
}
