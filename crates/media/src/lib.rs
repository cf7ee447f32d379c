//! Live media formats without I/O: FLV, RTMP, HLS, MPEG-TS and fragmented MP4, and the cache of
//! recent groups of pictures.
//!
//! Everything here maps bytes to bytes, without clocks or sockets. Media is never transcoded: the
//! server only needs to know whether playback can start at a tag. A tag is one shared buffer from
//! the publisher to every viewer.

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
pub use gop_cache::{CacheLimits, GopCache};
pub use timeline::Timeline;
pub use tracks::default_track;
