//! Detection of codecs that the HLS container cannot carry.

use super::config::Container;
use super::retained::Tracks;
use super::segmenter::Segmenter;
use crate::codec::{Class, Codec, Role};

/// Media time after which a stream with only unsupported codecs is reported. Other tracks may start
/// late.
const REPORT_AFTER_MS: u32 = 1_000;

impl Segmenter {
    /// Records a frame at the media time `now` (milliseconds) if its codec is unsupported.
    pub(super) fn record_codec(&mut self, class: &Class, now: u32) {
        if let Some(codec) = class.codec
            && matches!(class.role, Role::KeyFrame | Role::InterFrame | Role::AudioFrame)
            && !self.carries(codec)
        {
            let first = self.unsupported.map_or(now, |(_, first, _)| first);
            self.unsupported = Some((codec, first, now));
        }
    }

    fn carries(&self, codec: Codec) -> bool {
        let is_fragmented = self.config.container == Container::Fmp4;
        match codec {
            Codec::Avc | Codec::Hevc | Codec::Aac | Codec::Mp3 => true,
            Codec::Av1 | Codec::Opus => is_fragmented,
            _ => false,
        }
    }

    /// Returns the codec of the newest frame that the container cannot carry.
    pub fn unsupported_codec(&self) -> Option<Codec> {
        self.unsupported.map(|(codec, ..)| codec)
    }

    /// Returns the unsupported codec of a stream that has had no other codec for a second.
    pub fn unsupported_stream(&self) -> Option<Codec> {
        let (codec, first, last) = self.unsupported?;
        let has_tracks = self.tracks != Tracks::default() || !self.retained.versions.is_empty();
        let is_long = (REPORT_AFTER_MS..1 << 31).contains(&last.wrapping_sub(first));
        (is_long && !has_tracks).then_some(codec)
    }
}
