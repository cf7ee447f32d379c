//! Fixtures shared by the tests of several modules.

use core::time::Duration;

use congestion::{AckBatch, CongestionEvent, CongestionKind, RttSnapshot};
use units::{PacketNumber, Rate, Timestamp};

use crate::cookie::{Cookie, Correlation, Verdict};
use crate::prefix::Prefix;

pub(crate) const MTU: u16 = 1_200;

pub(crate) fn ms(n: u64) -> Timestamp {
    Timestamp::from_millis(n)
}

/// Acknowledges at `now` a packet sent at `sent`; `in_flight` bytes remain.
pub(crate) fn ack(now: u64, sent: u64, acked_bytes: u64, in_flight: u64) -> AckBatch {
    let rtt = Duration::from_millis(now - sent);
    AckBatch {
        now: ms(now),
        acked_bytes,
        largest_acked: PacketNumber(1),
        largest_sent_time: ms(sent),
        in_flight_before: in_flight + acked_bytes,
        in_flight,
        rtt: RttSnapshot { latest: rtt, smoothed: rtt, min: rtt, variance: Duration::ZERO },
        rate: None,
        cwnd_limited: true,
        source_paced: false,
        lost_bytes: 0,
        ecn_ce: 0,
    }
}

/// Congestion event at `now` for a packet sent 50 ms earlier; `in_flight` bytes remain.
pub(crate) fn event(now: u64, in_flight: u64, kind: CongestionKind) -> CongestionEvent {
    CongestionEvent {
        now: ms(now),
        lost_bytes: 1_200,
        largest_lost_sent_time: ms(now.saturating_sub(50)),
        largest_lost: PacketNumber(1),
        in_flight,
        rtt: Duration::from_millis(50),
        kind,
    }
}

/// 8 Mbit/s maximum and 6 usual, 50 ms; issued at 1,800,000,000 to a viewer in 192.0.2.0/24.
pub(crate) fn cookie() -> Cookie {
    Cookie {
        issued: 1_800_000_000,
        prefix: Prefix::of("192.0.2.7".parse().expect("an address")),
        min_rtt: Duration::from_millis(50),
        max_rate: Rate::from_mbps(8),
        usual_rate: Rate::from_mbps(6),
        samples: 12,
        loss: 0.03,
        retransmission_loss: Some(0.25),
        correlation: Correlation { burst: Some(0.4), near: Some(0.2), far: None },
        verdict: Verdict::Passed,
        unit: 0x0123_4567_89ab_cdef,
    }
}
