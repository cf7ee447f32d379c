//! Congestion control for the sending side of QUIC: how much may be in flight and how fast it may
//! leave. CUBIC (RFC 9438) with HyStart++ (RFC 9406), BBRv1
//! (draft-cardwell-iccrg-bbr-congestion-control-00) and Copa (NSDI 2018) behind one trait,
//! delivery-rate sampling (draft-cheng-iccrg-delivery-rate-estimation-00) and a pacer (RFC 9002, section 7.7).
//!
//! Nothing in here knows QUIC's wire image, a clock or a socket. The connection calls, per event:
//!
//! | event | calls, in this order |
//! |---|---|
//! | a packet that counts in flight is sent | [`RateSampler::on_sent`] (keep the stamp), [`Controller::on_sent`], [`Pacer::consumed`] |
//! | an ACK newly acknowledges packets | [`RateSampler::on_acked`] for each; loss detection and its calls (next row); [`RateSampler::finish_batch`]; one [`Controller::on_ack`] |
//! | packets are declared lost, by an ACK or a timer | [`Controller::on_packets_lost`] always; [`Controller::on_congestion_event`] when the loss is a signal |
//! | all losses behind a signal turn out to be none | [`Controller::on_spurious_congestion`] |
//! | nothing is left to send while the window has room | [`RateSampler::set_app_limited`] |
//!
//! Copies of lost data are ordinary packets in all of this. Only the ACK of a packet that was
//! already declared lost is spurious: it counts as delivered for nobody in this crate.

#![forbid(unsafe_code)]

mod algorithm;
mod bbr;
mod controller;
mod copa;
mod cubic;
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

/// Property tests run the same cases each time.
#[cfg(test)]
fn properties(cases: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config {
        cases,
        rng_seed: proptest::test_runner::RngSeed::Fixed(9_438),
        failure_persistence: None,
        ..Default::default()
    }
}

/// A packet of 1,200 bytes, sent at `sent`, signals congestion while nothing else is in flight.
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
