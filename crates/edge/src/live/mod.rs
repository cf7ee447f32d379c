//! The live streams of the process, with their publishers, pulls and HLS packagers.

mod accounted;
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
mod renditions;

use relay::Registry;
use tokio::runtime::Handle;

use crate::client::Clients;
use crate::config::Config;
use crate::push::Pushes;
use crate::record::{Recordings, TimeShifts};
use crate::upload::Uploads;

pub use delivery::{relay_settings as settings, start_policy as start};

pub(crate) use accounted::AccountedSegmenter;
pub use events::{DeviationLog, Events};
pub use flv::FlvBody;
pub use hls_viewers::HlsViewers;
pub(crate) use key_frames::KeyFrame;
pub use key_frames::KeyFrames;
pub use ladders::Ladders;
pub(crate) use ladders::Packagers;
pub use lookups::{NameLookup, NameLookups};
pub use outlet::{Outlet, Outlets};
pub use publishers::{ActivePublishers, Admission, Claim, Dismissal, Publication};
pub use pulls::{Budget, Missing, Pull, Pulls};
pub(crate) use renditions::RenditionFollower;

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
    /// Streams sent to other servers.
    pub pushes: Pushes,
    /// Streams recorded to disk.
    pub recordings: Recordings,
    /// Uploads of recordings and session records.
    pub uploads: Uploads,
    /// Streams with viewers in the past.
    pub time_shifts: TimeShifts,
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
            pushes: Pushes::default(),
            recordings: Recordings::default(),
            uploads: Uploads::default(),
            time_shifts: TimeShifts::default(),
            ladders: Ladders::default(),
        }
    }

    /// Starts and ends pushes, recordings and uploads by the rules of `config`. Called each second.
    pub(crate) fn tend_outputs(&self, config: &Config, clients: &Clients, runtime: &Handle) {
        self.pushes.tend(&config.push, clients, &self.streams, runtime);
        self.recordings.tend(&config.record, &self.streams, runtime);
        self.uploads.tend(config);
    }
}
