//! Two links that make a path between a client and a server.

use serde::Deserialize;
use units::Timestamp;

use crate::config::LinkConfig;
use crate::link::Link;

/// The settings of both directions.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PathConfig {
    /// Server to client.
    pub down: LinkConfig,
    /// Client to server.
    pub up: LinkConfig,
}

/// Both directions between a client and a server.
#[derive(Debug)]
pub struct Path<T> {
    /// Server to client.
    pub down: Link<T>,
    /// Client to server.
    pub up: Link<T>,
}

impl<T: Clone> Path<T> {
    /// The path of these settings; the links draw from the streams "`name` down" and "`name` up".
    pub fn new(config: &PathConfig, seed: u64, name: &str) -> Self {
        Self {
            down: Link::new(&config.down, seed, &format!("{name} down")),
            up: Link::new(&config.up, seed, &format!("{name} up")),
        }
    }

    /// When either link has something to do.
    pub fn next_event(&self) -> Option<Timestamp> {
        match (self.down.next_event(), self.up.next_event()) {
            (Some(down), Some(up)) => Some(down.min(up)),
            (down, up) => down.or(up),
        }
    }
}
