//! Properties of a session known at its start.

use std::net::IpAddr;
use std::time::SystemTime;

use crate::io::SincePath;
use crate::passes::ViewerId;
use crate::viewer::{Protocol, Unit};

/// Properties of a session known at its start.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The stream's name.
    pub stream: String,
    /// HTTP version, or RTMP.
    pub protocol: Protocol,
    /// The container: "flv", "hls" or "rtmp".
    pub format: &'static str,
    /// The viewer's address.
    pub remote: IpAddr,
    /// The viewer, to match the player's reports.
    pub viewer: ViewerId,
    /// Time of admission; for HLS, the issue time of the pass.
    pub granted: SystemTime,
    /// Expiry of the permission to play; `None` if it lasts as long as the stream.
    pub until: Option<SystemTime>,
    /// The unit that chose the cohort; `None` over TCP, where no scheme acts.
    pub unit: Option<Unit>,
    /// The cohort's name; empty over TCP.
    pub cohort: String,
    /// The recovery scheme; empty over TCP.
    pub scheme: &'static str,
    /// Kernel statistics of a TCP connection from here on, if available.
    pub tcp: Option<SincePath>,
}
