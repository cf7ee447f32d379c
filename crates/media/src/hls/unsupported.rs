//! Codecs that HLS cannot carry here.

use super::config::Container;
use super::kept::Tracks;
use super::segmenter::Segmenter;
use crate::codec::{Class, Codec, Role};

/// Media time after which a stream with only unsupported codecs is reported as such: other tracks
/// may start later.
const UNPACKED_MS: u32 = 1_000;

impl Segmenter {
    /// Takes note of a frame, at this time in milliseconds, that cannot be packed.
    pub(super) fn note_codec(&mut self, class: &Class, now: u32) {
        if let Some(codec) = class.codec
            && matches!(class.role, Role::KeyFrame | Role::InterFrame | Role::AudioFrame)
            && !self.carries(codec)
        {
            let first = self.unpacked.map_or(now, |(_, first, _)| first);
            self.unpacked = Some((codec, first, now));
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

    /// The codec of the newest frame that HLS cannot carry.
    pub fn left_out(&self) -> Option<Codec> {
        self.unpacked.map(|(codec, ..)| codec)
    }

    /// The codec for which HLS cannot carry the stream: after a second of it nothing else has come.
    pub fn refuses(&self) -> Option<Codec> {
        let (codec, first, last) = self.unpacked?;
        let has_tracks = self.tracks != Tracks::default() || !self.kept.versions.is_empty();
        let is_long = (UNPACKED_MS..1 << 31).contains(&last.wrapping_sub(first));
        (is_long && !has_tracks).then_some(codec)
    }
}
