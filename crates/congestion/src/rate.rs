//! Delivery-rate estimation (draft-cheng-iccrg-delivery-rate-estimation-00, section 3). Each packet
//! takes a stamp when it is sent, and its ACK derives the delivery rate from the stamp. `C`, `P`
//! and `rs` of the draft are [`RateSampler`], [`RateStamp`] and [`RateSample`].

use core::time::Duration;

use units::{Rate, Timestamp};

/// Delivery state when a packet was sent; kept in the packet's record until it is acknowledged. 32
/// bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateStamp {
    delivered: u64,
    delivered_time: Timestamp,
    first_sent_time: Timestamp,
    app_limited: bool,
}

/// Delivery rate of the flight that ended with the newest packet of an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// `delivered` per `interval`.
    pub delivery_rate: Rate,
    /// The longer of the flight's send and acknowledgement times; never zero.
    pub interval: Duration,
    /// Bytes delivered in `interval`.
    pub delivered: u64,
    /// Bytes delivered on the path when the newest packet of the ACK was sent. The total is now
    /// `prior_delivered + delivered`.
    pub prior_delivered: u64,
    /// Whether that packet was sent while the application had too little to send. The rate is then
    /// only a lower bound for the path.
    pub is_app_limited: bool,
}

/// Takes one [`RateSample`] per ACK of a path.
#[derive(Clone, Debug, Default)]
pub struct RateSampler {
    /// Stamp of a packet sent now.
    now: RateStamp,
    /// The sender is application-limited until more than this many bytes are delivered; 0 if it is
    /// not.
    app_limited_until: u64,
    /// Stamp and send time of the newest packet of the ACK in progress, ordered by delivered bytes
    /// and then by send time.
    newest: Option<(RateStamp, Timestamp)>,
}

impl RateSampler {
    /// Creates a sampler for a new path.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the stamp of a packet sent at `now` that counts as in flight;
    /// `bytes_in_flight_before` excludes it.
    pub fn on_sent(&mut self, now: Timestamp, bytes_in_flight_before: u64) -> RateStamp {
        if bytes_in_flight_before == 0 {
            // A flight starts. Idle time says nothing about the path.
            self.now.first_sent_time = now;
            self.now.delivered_time = now;
        }
        RateStamp { app_limited: self.is_app_limited(), ..self.now }
    }

    /// Handles the acknowledgement at `now` of a packet of `bytes` bytes, sent at `sent_time` with
    /// `stamp`. Called for each packet of an ACK in any order, then [`finish_batch`].
    ///
    /// [`finish_batch`]: Self::finish_batch
    pub fn on_acked(
        &mut self,
        now: Timestamp,
        stamp: &RateStamp,
        sent_time: Timestamp,
        bytes: u64,
    ) {
        self.now.delivered = self.now.delivered.saturating_add(bytes);
        self.now.delivered_time = now;
        let age = (stamp.delivered, sent_time);
        if self.newest.is_none_or(|(newest, sent)| age >= (newest.delivered, sent)) {
            self.newest = Some((*stamp, sent_time));
        }
    }

    /// Completes an ACK that arrived at `now`, and returns its sample. `min_rtt` is the minimum
    /// round trip of the path including this ACK ([`Duration::ZERO`] if unknown).
    ///
    /// `None` if the ACK acknowledges nothing new, or if the flight would have been delivered in
    /// less than `min_rtt`, which is impossible.
    pub fn finish_batch(&mut self, now: Timestamp, min_rtt: Duration) -> Option<RateSample> {
        let (stamp, sent_time) = self.newest.take()?;
        if self.now.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        self.now.first_sent_time = sent_time;
        // ACKs may be compressed and packets sent in bursts; the slower of the two rates is the one
        // the bottleneck can have caused (section 2.2).
        let interval = now.since(stamp.delivered_time).max(sent_time.since(stamp.first_sent_time));
        if interval < min_rtt || interval.is_zero() {
            return None;
        }
        let delivered = self.now.delivered - stamp.delivered;
        Some(RateSample {
            delivery_rate: Rate::from_bytes_in(delivered, interval),
            interval,
            delivered,
            prior_delivered: stamp.delivered,
            is_app_limited: stamp.app_limited,
        })
    }

    /// Notes that the sender has nothing to send although window and pacer would allow it. Packets
    /// are marked application-limited until the `in_flight` bytes are delivered.
    pub fn set_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = self.now.delivered.saturating_add(in_flight).max(1);
    }

    /// Returns whether the next packet will be marked application-limited.
    pub fn is_app_limited(&self) -> bool {
        self.app_limited_until > 0
    }

    /// Returns the bytes delivered on the path, without those acknowledged after they were declared
    /// lost.
    pub fn delivered(&self) -> u64 {
        self.now.delivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);

    fn ms(n: u64) -> Timestamp {
        Timestamp::from_millis(n)
    }

    /// Sends `count` packets of 1000 bytes from `from` ms on, every `spacing` ms.
    fn flight(s: &mut RateSampler, from: u64, spacing: u64, count: u64) -> Vec<(u64, RateStamp)> {
        (0..count)
            .map(|i| (from + i * spacing, s.on_sent(ms(from + i * spacing), i * 1_000)))
            .collect()
    }

    #[test]
    fn a_stamp_fits_in_32_bytes() {
        assert_eq!(size_of::<RateStamp>(), 32);
    }

    #[test]
    fn a_steady_flight_yields_the_rate_of_its_acknowledgements() {
        let mut s = RateSampler::new();
        let sent = flight(&mut s, 0, 1, 10);
        let mut last = None;
        for (at, stamp) in &sent {
            // The bottleneck takes 2 ms per packet; packets were sent 1 ms apart.
            let now = ms(50 + 2 * at);
            s.on_acked(now, stamp, ms(*at), 1_000);
            last = s.finish_batch(now, RTT);
        }
        let last = last.expect("the tenth ACK gives a sample");
        assert_eq!(last.delivered, 10_000);
        assert_eq!(last.interval, Duration::from_millis(68));
        assert_eq!(last.prior_delivered, 0);
        assert!(!last.is_app_limited);
    }

    #[test]
    fn compressed_acknowledgements_do_not_inflate_the_rate() {
        let mut s = RateSampler::new();
        let sent = flight(&mut s, 0, 10, 10);
        // The first ACK is delayed to 100 ms, and the ten others arrive at 150 ms.
        s.on_acked(ms(100), &sent[0].1, ms(0), 1_000);
        s.finish_batch(ms(100), RTT);
        let last = s.on_sent(ms(100), 9_000);
        for (at, stamp) in sent[1..].iter().chain([&(100, last)]) {
            s.on_acked(ms(150), stamp, ms(*at), 1_000);
        }
        let sample = s.finish_batch(ms(150), RTT).expect("a sample");
        assert_eq!(sample.interval, Duration::from_millis(100), "sending took longer than 50 ms");
        assert_eq!(sample.delivered, 10_000);
    }

    #[test]
    fn the_order_of_packets_within_an_ack_does_not_matter() {
        let run = |reverse: bool| {
            let mut s = RateSampler::new();
            let mut sent = flight(&mut s, 0, 1, 10);
            if reverse {
                sent.reverse();
            }
            for (at, stamp) in &sent {
                s.on_acked(ms(60), stamp, ms(*at), 1_000);
            }
            (s.finish_batch(ms(60), RTT), s.on_sent(ms(61), 1))
        };
        assert_eq!(run(false), run(true));
    }

    #[test]
    fn idle_time_does_not_dilute_the_next_flight() {
        let mut s = RateSampler::new();
        let a = s.on_sent(ms(0), 0);
        s.on_acked(ms(50), &a, ms(0), 1_000);
        s.finish_batch(ms(50), RTT);
        let b = s.on_sent(ms(9_000), 0);
        s.on_acked(ms(9_050), &b, ms(9_000), 1_000);
        let sample = s.finish_batch(ms(9_050), RTT).expect("a sample");
        assert_eq!(sample.interval, RTT);
        assert_eq!(sample.delivered, 1_000);
    }

    #[test]
    fn the_application_limited_mark_ends_when_the_data_in_flight_is_delivered() {
        let mut s = RateSampler::new();
        let a = s.on_sent(ms(0), 0);
        s.set_app_limited(1_000);
        let b = s.on_sent(ms(10), 1_000);
        s.on_acked(ms(50), &a, ms(0), 1_000);
        assert!(!s.finish_batch(ms(50), RTT).expect("a sample").is_app_limited);
        assert!(s.is_app_limited(), "1000 bytes are delivered, not more than 1000");
        s.on_acked(ms(60), &b, ms(10), 1_000);
        assert!(s.finish_batch(ms(60), RTT).expect("a sample").is_app_limited);
        assert!(!s.is_app_limited());
        assert_eq!(s.delivered(), 2_000);
    }

    #[test]
    fn an_impossible_interval_gives_no_sample() {
        let mut s = RateSampler::new();
        assert_eq!(s.finish_batch(ms(1), RTT), None);
        let a = s.on_sent(ms(0), 0);
        s.on_acked(ms(49), &a, ms(0), 1_000);
        assert_eq!(s.finish_batch(ms(49), RTT), None);
        let b = s.on_sent(ms(60), 0);
        s.on_acked(ms(60), &b, ms(60), 1_000);
        assert_eq!(s.finish_batch(ms(60), Duration::ZERO), None);
    }
}
