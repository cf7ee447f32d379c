//! Who comes to watch what, and how.

use std::net::IpAddr;
use std::time::SystemTime;

use crate::io::SincePath;
use crate::passes::ViewerId;
use crate::viewer::{Protocol, Unit};

/// What is known of a session when it begins.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The stream's name.
    pub stream: String,
    /// HTTP version, or RTMP.
    pub protocol: Protocol,
    /// How the stream is packed: "flv", "hls" or "rtmp".
    pub format: &'static str,
    /// Who watches.
    pub remote: IpAddr,
    /// The viewer, for the player's reports.
    pub viewer: ViewerId,
    /// When it was let in: for HLS when its pass was given out.
    pub granted: SystemTime,
    /// When the permission to play ends; `None` for as long as there is a stream.
    pub until: Option<SystemTime>,
    /// What divided this viewer into its cohort; absent where no scheme can act.
    pub unit: Option<Unit>,
    /// The cohort's name and the scheme in force; empty where none can act.
    pub cohort: String,
    /// The recovery scheme in force.
    pub scheme: &'static str,
    /// How the connection does from here on, if the kernel has it.
    pub tcp: Option<SincePath>,
}
