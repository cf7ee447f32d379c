//! How a server's connection starts: the product's start-up (`startup`, through `delivery`), with what a cookie would
//! have said.

use delivery::Started;
use quic::Connection;
use startup::decision::{Inputs, Limits, Mode};
use startup::{Carrier, PathState};

/// How a connection starts, and what is known when it does.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// The way to start.
    pub mode: Mode,
    /// What the viewer's last connection measured.
    pub past: Option<PathState>,
    /// Whether the request came in 0-RTT data, so that no round trip has been measured. The testbed's clients ask after
    /// their handshake in any case; this says what the decision gets to know.
    pub is_early: bool,
    /// What the operator sets.
    pub limits: Limits,
}

impl Default for Beginning {
    /// As the edge does where nothing is configured.
    fn default() -> Self {
        Self { mode: Mode::Iw10, past: None, is_early: false, limits: Limits::default() }
    }
}

/// The start of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    beginning: Beginning,
    known: Option<Inputs>,
    /// How it started, once it has.
    pub started: Option<Started>,
}

impl Opening {
    pub(crate) fn new(beginning: Beginning) -> Self {
        Self { beginning, known: None, started: None }
    }

    /// The live response is about to begin, or goes on; `first_frame` is its size up to the end of the first frame, if
    /// that is there.
    pub(crate) fn look(&mut self, connection: &mut Connection, first_frame: Option<u64>) {
        let Beginning { mode, past, is_early, limits } = self.beginning;
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
