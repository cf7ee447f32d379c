//! A video with several bitrates (DASH, ISO/IEC 23009-1) in virtual time: segments over HTTP/3 from
//! the product's server, and a player that adapts the bitrate.

mod adaptation;
mod origin;
mod playback;
mod reception;
mod video;

pub use adaptation::Adaptation;
pub(crate) use origin::Origin;
pub use playback::{DashOutcome, DashPlayer, SegmentArrival};
pub(crate) use reception::Reception;
pub use video::{Ladder, Video};

/// A playback of a video.
#[derive(Clone, Debug)]
pub struct Dash {
    /// The video.
    pub video: Video,
    /// Its player.
    pub player: DashPlayer,
}

#[cfg(test)]
mod tests;
