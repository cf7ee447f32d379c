//! A path of two links between a client and a server.

use units::{Rate, Timestamp};

use crate::config::LinkConfig;
use crate::link::Link;

/// Settings of both directions.
#[derive(Clone, Debug, Default)]
pub struct PathConfig {
    /// Server to client.
    pub down: LinkConfig,
    /// Client to server.
    pub up: LinkConfig,
}

impl PathConfig {
    /// Applies the settings to both directions, except rate and loss of a trace, which apply only
    /// to the downlink. Both share its RTT.
    pub fn both(link: LinkConfig) -> Self {
        let up = LinkConfig {
            rate: Some(link.rate.unwrap_or(Rate::MAX)),
            loss: Some(link.loss.clone().unwrap_or_default()),
            ..link.clone()
        };
        Self { down: link, up }
    }
}

/// Both directions of a path.
#[derive(Debug)]
pub struct Path<T> {
    /// Server to client.
    pub down: Link<T>,
    /// Client to server.
    pub up: Link<T>,
}

impl<T: Clone> Path<T> {
    /// Creates the path. Its links draw from the streams "`name` down" and "`name` up".
    pub fn new(config: &PathConfig, seed: u64, name: &str) -> Self {
        Self {
            down: Link::new(&config.down, seed, &format!("{name} down")),
            up: Link::new(&config.up, seed, &format!("{name} up")),
        }
    }

    /// Returns the time of the next event on either link.
    pub fn next_event(&self) -> Option<Timestamp> {
        self.down.next_event().into_iter().chain(self.up.next_event()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Loss, Trace};

    #[test]
    fn a_trace_shapes_the_downlink_and_shares_its_rtt() {
        let trace: Trace = "0 1 20ms 0.5\n".parse().unwrap();
        let path = PathConfig::both(LinkConfig { trace: Some(trace), ..LinkConfig::default() });
        assert_eq!((path.down.rate, &path.down.loss), (None, &None));
        assert_eq!((path.up.rate, &path.up.loss), (Some(Rate::MAX), &Some(Loss::None)));
        assert!(path.up.trace.is_some() && path.up.delay.is_none());
    }

    #[test]
    fn explicit_settings_apply_to_both_directions() {
        let loss = Some("5%".parse::<Loss>().unwrap());
        let rate = Some(Rate::from_mbps(12));
        let path =
            PathConfig::both(LinkConfig { rate, loss: loss.clone(), ..LinkConfig::default() });
        assert_eq!((path.down.rate, path.up.rate), (rate, rate));
        assert_eq!((&path.down.loss, &path.up.loss), (&loss, &loss));
    }
}
