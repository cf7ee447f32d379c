//! Segmentation and retention of a stream.

use core::time::Duration;

/// The form of segments.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Container {
    /// Fragmented MP4: H.264, H.265, AV1; AAC, Opus, MP3 (which hls.js plays from transport
    /// streams only).
    #[default]
    Fmp4,
    /// MPEG-2 transport stream: H.264, H.265; AAC, MP3. Other tracks are left out.
    Ts,
}

/// How to cut, and what to keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The form of segments.
    pub container: Container,
    /// A segment ends at the first key frame after about this time; at least 100 ms.
    pub segment: Duration,
    /// About how long a part is, at least 20 ms. Segments are divided evenly: parts are up to 15 %
    /// longer, or shorter, and a frame that is longer is a part.
    pub part: Duration,
    /// Complete segments in the playlist; at least 1.
    pub window: usize,
    /// Hard limit of kept data, in bytes. At most 1 GiB.
    pub bytes: usize,
    /// Whether media files are one directory above the playlist, so that per-viewer playlist
    /// directories share them.
    pub shared: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            container: Container::default(),
            segment: Duration::from_secs(2),
            part: Duration::from_millis(333),
            window: 6,
            bytes: 32 << 20,
            shared: false,
        }
    }
}
