//! Start of a connection (`startup`): applies the decision to its congestion controller, and saves
//! the path state in a cookie for the next connection. Shared by the server and the testbed.

use core::any::Any;
use std::sync::Arc;

use congestion::Algorithm;
use quic::{Connection, ControllerFactory};
use records::Record;
use startup::cookie::{Correlation, Verdict};
use startup::decision::{self, Inputs, Limits, Mode};
use startup::{Carrier, Cookie, Guided, Prefix};
use units::Rate;

/// Returns a factory of controllers that follow start decisions and measure the path for the
/// cookie.
pub fn controller(algorithm: Algorithm) -> ControllerFactory {
    Arc::new(move |mtu, seed| Box::new(Guided::new(algorithm.build(mtu, seed), mtu)))
}

/// Result of starting a viewer's connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Started {
    /// Start mode of the viewer's cohort.
    pub mode: Mode,
    /// Source of the saved path state, if it was used.
    pub carrier: Option<Carrier>,
    /// Initial congestion window in bytes; `None` for the controller's own.
    pub window: Option<u64>,
    /// Initial pacing rate.
    pub rate: Option<Rate>,
}

impl Started {
    /// Writes the start columns of `record`.
    pub fn write_to(&self, record: &mut Record) {
        let startup = &mut record.startup;
        startup.start = Some(self.mode.name().into());
        startup.start_cookie = self.carrier.map(|carrier| carrier.name().into());
        startup.start_window = self.window.and_then(|window| i64::try_from(window).ok());
        startup.start_rate_mbps = self.rate.map(Rate::as_mbps_f64);
    }
}

/// Returns the controller of the current path, if it was built by [`controller`].
pub fn guided(connection: &Connection) -> Option<&Guided> {
    let controller: &dyn Any = connection.controller();
    controller.downcast_ref()
}

/// Returns whether the connection has not measured its path yet. Measurements supersede any cookie.
pub fn is_unmeasured(connection: &Connection) -> bool {
    guided(connection).is_some_and(|guided| guided.rates().count() == 0)
}

/// Overhead per packet in bytes: short header, STREAM frame header, AEAD tag.
const PACKET_OVERHEAD: u64 = 40;
/// Packets in addition to the first frame's: response head and acknowledgements.
const EXTRA_PACKETS: u64 = 2;

/// Returns the window in bytes that a first frame of this size needs. With a smaller one, the
/// frame's last packet would wait for a round trip.
fn window_for(bytes: u64, mtu: u16) -> u64 {
    let mtu = u64::from(mtu);
    let packets =
        bytes.div_ceil(mtu.saturating_sub(PACKET_OVERHEAD).max(1)).saturating_add(EXTRA_PACKETS);
    packets.saturating_mul(mtu)
}

/// Starts a connection that is about to send its first live response. Nothing changes with
/// [`Mode::Iw10`], the controllers' default; if the path has been measured; or if more is in flight
/// than the decided window.
pub fn start(connection: &mut Connection, mode: Mode, known: &Inputs, limits: &Limits) -> Started {
    let mut started = Started { mode, carrier: None, window: None, rate: None };
    if mode == Mode::Iw10 || !is_unmeasured(connection) {
        return started;
    }
    let mtu = connection.mtu();
    let first_frame = known.first_frame.map(|bytes| window_for(bytes, mtu));
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

/// Returns the path state of this connection, for a cookie issued at `now` (Unix seconds) to the
/// viewer of `unit`.
///
/// The verdict on a jump applies to the `past` it was based on. If the jump passed without a
/// measurement, because everything left in one flight, the old rates are kept. A failed jump
/// without `past` still measures the path, and gets no verdict.
pub fn path_state(connection: &Connection, past: Option<&Cookie>, now: u64, unit: u64) -> Cookie {
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
    fn a_first_frame_takes_whole_packets_plus_two() {
        assert_eq!(window_for(0, 1_200), 2_400);
        assert_eq!(window_for(1, 1_200), 3_600);
        assert_eq!(window_for(1_160, 1_200), 3_600);
        assert_eq!(window_for(66_000, 1_200), 59 * 1_200);
        assert_eq!(window_for(u64::MAX, 1), u64::MAX);
    }
}
