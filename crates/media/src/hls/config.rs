//! Segmentation and retention settings of a stream.

use core::time::Duration;

use crate::flv::Kind;

/// Container format of segments.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Container {
    /// Fragmented MP4: H.264, H.265, AV1; AAC, Opus, and MP3, which hls.js plays only from
    /// transport streams.
    #[default]
    Fmp4,
    /// MPEG-2 transport stream: H.264, H.265; AAC, MP3. Other tracks are omitted.
    Ts,
}

/// Segmentation and retention settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmenterConfig {
    /// Container format of segments.
    pub container: Container,
    /// Target duration of a segment, at least 100 ms. A segment ends at the first key frame after
    /// it.
    pub segment: Duration,
    /// Target duration of a part, at least 20 ms. Parts divide a segment evenly and may last up to
    /// 15 % more. A longer frame is a part of its own.
    pub part: Duration,
    /// Complete segments in the playlist, at least 1.
    pub window: usize,
    /// Hard limit on the retained media, in bytes. At most 1 GiB.
    pub bytes: usize,
    /// Whether media files are in the parent directory of the playlist, so that per-viewer playlist
    /// directories share them.
    pub shared: bool,
    /// Duration of the slots that number segments, in whole milliseconds. Renditions with aligned
    /// times and equal slots have equal sequence numbers at equal times. `None`, the default:
    /// derived from the first segment.
    pub slot: Option<Duration>,
    /// Difference of wall time and stream time, in milliseconds, that EXT-X-PROGRAM-DATE-TIME
    /// starts from, so that renditions have equal dates at equal times. Ignored if it is more than
    /// 5 s from the arrival. `None`, the default: dates start at the arrival of the first frame.
    pub date_offset_ms: Option<i64>,
    /// The packaged tracks; all by default.
    pub tracks: TrackSelection,
}

/// Tracks of a stream that are packaged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum TrackSelection {
    /// Audio and video.
    #[default]
    All,
    /// Video without audio, for variants with audio renditions.
    Video,
    /// Audio without video, for audio renditions.
    Audio,
}

impl TrackSelection {
    /// Whether tags of this kind are packaged.
    pub(super) fn has(self, kind: Kind) -> bool {
        match self {
            Self::All => true,
            Self::Video => kind != Kind::Audio,
            Self::Audio => kind != Kind::Video,
        }
    }
}

impl Default for SegmenterConfig {
    fn default() -> Self {
        Self {
            container: Container::default(),
            segment: Duration::from_secs(2),
            part: Duration::from_millis(333),
            window: 6,
            bytes: 32 << 20,
            shared: false,
            slot: None,
            date_offset_ms: None,
            tracks: TrackSelection::All,
        }
    }
}
