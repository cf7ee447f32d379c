//! Start of a server's connection: the product's startup (`startup`, through `delivery`) with a
//! given cookie.

use delivery::Started;
use quic::Connection;
use startup::decision::{Inputs, Limits, Mode};
use startup::{Carrier, PathState};

/// Startup options of a connection.
#[derive(Clone, Copy, Debug)]
pub struct StartOptions {
    /// Startup mode.
    pub mode: Mode,
    /// Path state saved by the viewer's last connection.
    pub past: Option<PathState>,
    /// Whether startup assumes a request in 0-RTT data, without a round-trip sample. The testbed's
    /// clients always request after the handshake; this only hides the sample from startup.
    pub is_early: bool,
    /// Limits set by the operator.
    pub limits: Limits,
}

impl Default for StartOptions {
    /// The edge's defaults.
    fn default() -> Self {
        Self { mode: Mode::Iw10, past: None, is_early: false, limits: Limits::default() }
    }
}

/// Startup of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    start_options: StartOptions,
    known: Option<Inputs>,
    /// Result of the startup decision, once made.
    pub started: Option<Started>,
}

impl Opening {
    pub(crate) fn new(start_options: StartOptions) -> Self {
        Self { start_options, known: None, started: None }
    }

    /// Called when the response with a file of this size begins or continues. As in the edge, only
    /// saved path state and a response above the initial window lead to a decision.
    pub(crate) fn look_at_file(&mut self, connection: &mut Connection, length: u64) {
        let is_long = length > congestion::initial_window(connection.mtu());
        if is_long && self.start_options.past.is_some() {
            self.look(connection, Some(length));
        }
    }

    /// Called when the live response begins or continues. `first_frame` is the response's size up
    /// to the end of the first frame, if known.
    pub(crate) fn look(&mut self, connection: &mut Connection, first_frame: Option<u64>) {
        let StartOptions { mode, past, is_early, limits } = self.start_options;
        if self.known.is_some_and(|known| known.first_frame.is_some() || first_frame.is_none()) {
            return;
        }
        let rtt = connection.rtt();
        let measured = rtt.first_sample().filter(|_| !is_early).map(|_| rtt.min());
        let known = Inputs { first_frame, past, handshake_rtt: measured };
        self.known = Some(known);
        let started = delivery::start(connection, mode, &known, &limits);
        if self.started.is_none() || started.window.is_some() {
            self.started = Some(Started { carrier: past.map(|_| Carrier::Token), ..started });
        }
    }
}
