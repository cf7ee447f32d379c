//! The live streams of the process, and what is kept of each beside its media: who pulls it, and how it is
//! packed as HLS.

mod asked;
mod events;
mod flv;
mod holders;
pub(crate) mod memory;
mod outlet;
mod pulls;

use relay::Registry;

use crate::config::Config;

pub use delivery::{relay_settings as settings, start_policy as start};

pub use asked::{AskedName, AskedNames};
pub use events::{Events, Told};
pub use flv::FlvBody;
pub use holders::{Dismissal, Held, Holder, Holders};
pub use outlet::{Outlet, Outlets};
pub use pulls::{Budget, Missing, Pull, Pulls};

/// The live streams of the process; they outlive every configuration.
#[derive(Debug)]
pub struct Live {
    /// The streams by name.
    pub streams: Registry,
    /// What happened to publishers and upstreams.
    pub events: Events,
    /// Breaches of media formats' rules that were tolerated, by reason.
    pub tolerated: Events,
    /// Corrections of what publishers and upstreams sent, by [`media::Repair::name`].
    pub repairs: Events,
    /// Who publishes the streams that come over RTMP.
    pub holders: Holders,
    /// The streams that are pulled.
    pub pulls: Pulls,
    /// The names that clients have looked for at the hook and at upstreams.
    pub asked: AskedNames,
    /// The streams that somebody watches as HLS.
    pub outlets: Outlets,
}

impl Live {
    /// No streams yet.
    pub fn new(config: &Config) -> Self {
        Self {
            streams: Registry::new(config.live.max_streams as usize),
            events: Events::default(),
            tolerated: Events::default(),
            repairs: Events::default(),
            holders: Holders::default(),
            pulls: Pulls::default(),
            asked: AskedNames::default(),
            outlets: Outlets::default(),
        }
    }
}
