//! The live streams of the process, with their publishers, pulls and HLS packagers.

mod events;
mod flv;
mod hls_viewers;
mod key_frames;
mod ladders;
mod lookups;
pub(crate) mod memory;
mod outlet;
mod publishers;
mod pulls;

use relay::Registry;

use crate::config::Config;

pub use delivery::{relay_settings as settings, start_policy as start};

pub use events::{DeviationLog, Events};
pub use flv::FlvBody;
pub use hls_viewers::HlsViewers;
pub(crate) use key_frames::KeyFrame;
pub use key_frames::KeyFrames;
pub use ladders::Ladders;
pub use lookups::{NameLookup, NameLookups};
pub use outlet::{Outlet, Outlets};
pub use publishers::{ActivePublisher, ActivePublishers, Dismissal, Publication};
pub use pulls::{Budget, Missing, Pull, Pulls};

/// The live streams of the process. Reloads keep them.
#[derive(Debug)]
pub struct Live {
    /// Streams by name.
    pub streams: Registry,
    /// Counters of publisher and upstream events.
    pub events: Events,
    /// Tolerated deviations from media formats, by reason.
    pub tolerated: Events,
    /// Corrections of incoming tags, by [`media::Repair::name`].
    pub repairs: Events,
    /// RTMP publishers.
    pub publishers: ActivePublishers,
    /// Running pulls.
    pub pulls: Pulls,
    /// Look-ups of unknown names at the hook and at upstreams.
    pub lookups: NameLookups,
    /// HLS packagers.
    pub outlets: Outlets,
    /// Ladders: alignment of their renditions, and viewers.
    pub ladders: Ladders,
}

impl Live {
    /// Creates the registries without streams.
    pub fn new(config: &Config) -> Self {
        Self {
            streams: Registry::new(config.live.max_streams as usize),
            events: Events::default(),
            tolerated: Events::default(),
            repairs: Events::default(),
            publishers: ActivePublishers::default(),
            pulls: Pulls::default(),
            lookups: NameLookups::default(),
            outlets: Outlets::default(),
            ladders: Ladders::default(),
        }
    }
}
