//! Congestion control for the sending side of QUIC: CUBIC (RFC 9438) with HyStart++ (RFC 9406),
//! BBRv1 (draft-cardwell-iccrg-bbr-congestion-control-00) and Copa (NSDI 2018) behind one trait,
//! delivery-rate sampling (draft-cheng-iccrg-delivery-rate-estimation-00), and a pacer (RFC 9002,
//! section 7.7).
//!
//! The crate knows neither QUIC's wire image nor a clock or a socket. The connection makes these
//! calls:
//!
//! - A packet that counts as in flight is sent: [`RateSampler::on_sent`] (keep the stamp),
//!   [`Controller::on_sent`], [`Pacer::consumed`].
//! - An ACK newly acknowledges packets: [`RateSampler::on_acked`] for each; loss detection with its
//!   calls (next item); [`RateSampler::finish_batch`]; [`Controller::on_ack`] once.
//! - Packets are declared lost, by an ACK or a timer: [`Controller::on_packets_lost`]; then
//!   [`Controller::on_congestion_event`] if the loss is a signal.
//! - All losses of a signal turn out to be spurious: [`Controller::on_spurious_congestion`].
//! - Nothing is left to send while the window has room: [`RateSampler::set_app_limited`].
//!
//! Copies of lost data are ordinary packets here. A late ACK of a packet that was declared lost is
//! spurious and does not count as delivered. A late ACK of a superseded copy, which had left the
//! flight without a loss, does count.

#![forbid(unsafe_code)]

mod algorithm;
mod bbr;
mod controller;
mod copa;
mod cubic;
#[cfg(feature = "testbed")]
mod cubic_lsquic;
mod floor;
mod hystart;
mod pacer;
mod rate;
mod recent;

pub use algorithm::Algorithm;
pub use bbr::Bbr;
pub use controller::{
    AckBatch, Cap, CongestionEvent, CongestionKind, Controller, Halfway, RttSnapshot, Snapshot,
    Start, initial_window, minimum_window,
};
pub use copa::Copa;
pub use cubic::Cubic;
pub use pacer::{Pacer, burst};
pub use rate::{RateSample, RateSampler, RateStamp};

/// Returns a reproducible configuration of property tests.
#[cfg(test)]
fn properties(cases: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config {
        cases,
        rng_seed: proptest::test_runner::RngSeed::Fixed(9_438),
        failure_persistence: None,
        ..Default::default()
    }
}

/// Returns a congestion event for a packet of 1,200 bytes sent at `sent`, with nothing else in
/// flight.
#[cfg(test)]
fn event(now: units::Timestamp, sent: units::Timestamp, kind: CongestionKind) -> CongestionEvent {
    CongestionEvent {
        now,
        lost_bytes: 1_200,
        largest_lost_sent_time: sent,
        largest_lost: units::PacketNumber(0),
        in_flight: 0,
        rtt: core::time::Duration::from_millis(50),
        kind,
    }
}
