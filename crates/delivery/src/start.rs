//! How a connection starts (`startup`): what is decided goes to its congestion controller, and what it has learned
//! about its path becomes the cookie for the next one. The server and the testbed start connections here.

use core::any::Any;
use std::sync::Arc;

use congestion::Algorithm;
use quic::{Connection, ControllerFactory};
use records::Record;
use startup::cookie::{Correlation, Verdict};
use startup::decision::{self, Inputs, Limits, Mode};
use startup::{Carrier, Cookie, Guided, Prefix};
use units::Rate;

/// Controllers that can be told how to start, and that gather what the next cookie says.
pub fn controller(algorithm: Algorithm) -> ControllerFactory {
    Arc::new(move |mtu, seed| Box::new(Guided::new(algorithm.build(mtu, seed), mtu)))
}

/// How a viewer's connection started.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Started {
    /// The way of its cohort.
    pub mode: Mode,
    /// What brought the path's past along, if it was of use.
    pub carrier: Option<Carrier>,
    /// The window that was decided on, in bytes; `None` for the controller's own.
    pub window: Option<u64>,
    /// The pacing rate that was decided on.
    pub rate: Option<Rate>,
}

impl Started {
    /// Fills the columns of `record` that say how the connection started.
    pub fn write_to(&self, record: &mut Record) {
        record.start = Some(self.mode.name().into());
        record.start_cookie = self.carrier.map(|carrier| carrier.name().into());
        record.start_window = self.window.and_then(|window| i64::try_from(window).ok());
        record.start_rate_mbps = self.rate.map(Rate::as_mbps_f64);
    }
}

/// The controller of the connection's present path, where it is one of [`controller`].
pub fn guided(connection: &Connection) -> Option<&Guided> {
    let controller: &dyn Any = connection.controller();
    controller.downcast_ref()
}

/// Whether the connection has not measured its path yet: from then on it knows more than any cookie.
pub fn knows_nothing(connection: &Connection) -> bool {
    guided(connection).is_some_and(|guided| guided.rates().count() == 0)
}

/// Bytes of a packet that are not the stream's: short header, header of the STREAM frame, AEAD tag.
const OVERHEAD: u64 = 40;
/// Packets beside a first frame's: the response's head, acknowledgements.
const BESIDE: u64 = 2;

/// What a congestion window takes of a first frame of so many bytes. Without this its last packet would wait for a round
/// trip, and with it the frame.
fn on_the_wire(bytes: u64, mtu: u16) -> u64 {
    let mtu = u64::from(mtu);
    let packets = bytes.div_ceil(mtu.saturating_sub(OVERHEAD).max(1)).saturating_add(BESIDE);
    packets.saturating_mul(mtu)
}

/// Starts a connection that is about to send its first live response. It goes on as it is where it knows its path, or has more in
/// flight than the window that is decided on; and with [`Mode::Iw10`], which is what controllers do by themselves.
pub fn start(connection: &mut Connection, mode: Mode, known: &Inputs, limits: &Limits) -> Started {
    let mut started = Started { mode, carrier: None, window: None, rate: None };
    if mode == Mode::Iw10 || !knows_nothing(connection) {
        return started;
    }
    let mtu = connection.mtu();
    let first_frame = known.first_frame.map(|bytes| on_the_wire(bytes, mtu));
    let known = Inputs { first_frame, ..*known };
    let decision = decision::decide(mode, &known, &Limits { mtu, ..*limits });
    let start = decision.start;
    let has_room = start.window.is_some_and(|window| connection.in_flight() <= window);
    let controller: &mut dyn Any = connection.controller_mut();
    if let Some(guided) = controller.downcast_mut::<Guided>().filter(|_| has_room) {
        guided.begin(&decision);
        (started.window, started.rate) = (start.window, start.rate);
    }
    started
}

/// What this connection has learned about its path, issued at `now` (Unix seconds) for the viewer of `unit`. A jump judges the
/// `past` that it went by: if it passed, and measured nothing of its own because all left in one flight, the old
/// measure holds on. One that went by nothing and failed has measured the path all the same, and says nothing against that.
pub fn learned(connection: &Connection, past: Option<&Cookie>, now: u64, unit: u64) -> Cookie {
    let recovery = connection.recovery();
    let t = &recovery.totals;
    let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let mut cookie = Cookie {
        min_rtt: connection.rtt().min(),
        loss: ratio(t.lost, t.settled()).unwrap_or(0.0),
        retransmission_loss: ratio(t.repeated, t.retransmissions),
        correlation: recovery.correlation.as_ref().map(Correlation::from).unwrap_or_default(),
        ..Cookie::unmeasured(now, Prefix::of(connection.addresses().remote.ip()), unit)
    };
    if let Some(guided) = guided(connection) {
        let rates = guided.rates();
        cookie.max_rate = rates.max();
        cookie.usual_rate = rates.usual();
        cookie.samples = rates.count();
        cookie.verdict = past.map_or(Verdict::None, |_| guided.verdict());
    }
    match past {
        Some(&Cookie { max_rate, usual_rate, samples, .. })
            if cookie.samples == 0 && cookie.verdict == Verdict::Passed =>
        {
            Cookie { max_rate, usual_rate, samples, ..cookie }
        }
        _ => cookie,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_frame_takes_whole_packets_and_two_beside_it() {
        assert_eq!(on_the_wire(0, 1_200), 2_400);
        assert_eq!(on_the_wire(1, 1_200), 3_600);
        assert_eq!(on_the_wire(1_160, 1_200), 3_600);
        assert_eq!(on_the_wire(66_000, 1_200), 59 * 1_200);
        assert_eq!(on_the_wire(u64::MAX, 1), u64::MAX);
    }
}
