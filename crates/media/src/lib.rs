//! Media without IO: FLV tags, RTMP, HLS, and the cache of the newest groups of pictures.
//!
//! Bytes in, bytes out: no clock, no socket. Codecs pass through; the server only needs to know
//! whether playback can start with a tag. A tag is one shared buffer from the publisher to every
//! viewer.

#![forbid(unsafe_code)]

pub mod amf0;
pub mod assemble;
pub mod codec;
pub mod deviation;
pub mod disposable;
pub mod flv;
pub mod fmp4;
pub mod gop_cache;
pub mod hls;
pub mod rtmp;
pub mod timeline;
pub mod tracks;
pub mod ts;

pub use assemble::{Assembler, Repair};
pub use codec::{Codec, Role};
pub use deviation::{Deviation, Deviations};
pub use disposable::Marks;
pub use flv::{Kind, Tag};
pub use gop_cache::{GopCache, Limits};
pub use timeline::Timeline;
pub use tracks::default_track;
