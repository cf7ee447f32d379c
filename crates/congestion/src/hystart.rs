//! HyStart++: leaves slow start when round trips grow, before the queue overflows (RFC 9406,
//! section 4). Conservative slow start (CSS) tests whether the growth was real. The sender paces,
//! so `L` is infinite (section 4.3) and only the pacer limits growth.
//!
//! Two additions concern long fat paths, where the RFC's five rounds of CSS overfill a queue by
//! thousands of packets. A round of CSS adds at most [`CSS_GROWTH_LIMIT`] packets. Round trips that
//! rise in CSS by another threshold end slow start at once, since a queue that grows with the
//! window is not jitter.

use core::time::Duration;

use units::PacketNumber;

// RFC 9406, section 4.3: the recommended constants.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_ROUNDS: u32 = 5;

/// Growth in CSS per growth in slow start (`CSS_GROWTH_DIVISOR` is its inverse).
pub(crate) const CSS_GROWTH_FRACTION: f64 = 0.25;
/// Maximum packets that a round of CSS adds to the window. Packets that overflow the queue one by
/// one leave as many gaps in the stream, and clients close the connection at about a thousand.
pub(crate) const CSS_GROWTH_LIMIT: f64 = 256.0;

/// Growth of the window after an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrowthPhase {
    /// By the bytes acknowledged.
    SlowStart,
    /// By [`CSS_GROWTH_FRACTION`] of them, within [`CSS_GROWTH_LIMIT`].
    ConservativeSlowStart,
    /// Not at all: slow start has ended.
    Done,
}

/// Conservative slow start in progress.
#[derive(Clone, Copy, Debug)]
struct Css {
    baseline_min_rtt: Duration,
    rounds: u32,
}

/// State of the initial slow start.
#[derive(Clone, Debug, Default)]
pub(crate) struct HyStart {
    /// `windowEnd`: the next packet when the round started. Its acknowledgement ends the round.
    window_end: PacketNumber,
    last_round_min_rtt: Option<Duration>,
    current_round_min_rtt: Option<Duration>,
    rtt_sample_count: u32,
    css: Option<Css>,
}

impl HyStart {
    /// Handles an ACK in slow start with a round trip of `rtt`; `next` is the next packet number.
    /// Numbers of the handshake's packet number spaces may occur, but can only affect the
    /// handshake's rounds, which are too small for [`N_RTT_SAMPLE`].
    pub(crate) fn on_ack(
        &mut self,
        largest_acked: PacketNumber,
        next: PacketNumber,
        rtt: Duration,
    ) -> GrowthPhase {
        if largest_acked >= self.window_end {
            self.window_end = next;
            self.last_round_min_rtt = self.current_round_min_rtt.take();
            self.rtt_sample_count = 0;
            if let Some(css) = &mut self.css {
                // RFC 9406, section 4.2: the partial round of the transition counts too.
                css.rounds += 1;
                if css.rounds >= CSS_ROUNDS {
                    return GrowthPhase::Done;
                }
            }
        }
        let current = self.current_round_min_rtt.map_or(rtt, |min| min.min(rtt));
        self.current_round_min_rtt = Some(current);
        self.rtt_sample_count += 1;
        if self.rtt_sample_count >= N_RTT_SAMPLE {
            let has_grown = |since: Duration| {
                current >= since + (since / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH)
            };
            match (&mut self.css, self.last_round_min_rtt) {
                // The growth was spurious: resume slow start.
                (Some(css), _) if current < css.baseline_min_rtt => self.css = None,
                (Some(css), _) if has_grown(css.baseline_min_rtt) => css.rounds = CSS_ROUNDS,
                (None, Some(last)) if has_grown(last) => {
                    self.css = Some(Css { baseline_min_rtt: current, rounds: 0 });
                }
                _ => {}
            }
        }
        self.phase()
    }

    /// Returns the phase until the next ACK.
    pub(crate) fn phase(&self) -> GrowthPhase {
        match self.css {
            Some(css) if css.rounds >= CSS_ROUNDS => GrowthPhase::Done,
            Some(_) => GrowthPhase::ConservativeSlowStart,
            None => GrowthPhase::SlowStart,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a round of `samples` ACKs with round trips of `rtt` ms; returns the last phase.
    fn round(h: &mut HyStart, next: &mut u64, samples: u64, rtt: u64) -> GrowthPhase {
        let first = *next;
        *next += samples;
        let mut phase = GrowthPhase::SlowStart;
        for i in 0..samples {
            phase =
                h.on_ack(PacketNumber(first + i), PacketNumber(*next), Duration::from_millis(rtt));
        }
        phase
    }

    #[test]
    fn five_conservative_rounds_end_slow_start() {
        let (mut h, mut next) = (HyStart::default(), 0);
        assert_eq!(round(&mut h, &mut next, 10, 40), GrowthPhase::SlowStart);
        // The threshold is 40 ms / 8 = 5 ms.
        assert_eq!(round(&mut h, &mut next, 20, 44), GrowthPhase::SlowStart);
        assert_eq!(round(&mut h, &mut next, 40, 50), GrowthPhase::ConservativeSlowStart);
        for _ in 0..4 {
            assert_eq!(round(&mut h, &mut next, 40, 50), GrowthPhase::ConservativeSlowStart);
        }
        assert_eq!(round(&mut h, &mut next, 1, 50), GrowthPhase::Done);
    }

    #[test]
    fn a_temporary_increase_of_the_round_trip_resumes_slow_start() {
        let (mut h, mut next) = (HyStart::default(), 0);
        round(&mut h, &mut next, 10, 40);
        assert_eq!(round(&mut h, &mut next, 20, 60), GrowthPhase::ConservativeSlowStart);
        assert_eq!(round(&mut h, &mut next, 20, 59), GrowthPhase::SlowStart);
    }

    #[test]
    fn further_growth_of_the_round_trip_in_css_ends_slow_start_at_once() {
        let (mut h, mut next) = (HyStart::default(), 0);
        round(&mut h, &mut next, 10, 40);
        assert_eq!(round(&mut h, &mut next, 20, 60), GrowthPhase::ConservativeSlowStart);
        // The threshold is 60 ms / 8 = 7.5 ms.
        assert_eq!(round(&mut h, &mut next, 20, 67), GrowthPhase::ConservativeSlowStart);
        assert_eq!(round(&mut h, &mut next, 7, 68), GrowthPhase::ConservativeSlowStart);
        assert_eq!(round(&mut h, &mut next, 8, 68), GrowthPhase::Done);
    }

    #[test]
    fn fewer_than_eight_samples_prove_nothing() {
        let (mut h, mut next) = (HyStart::default(), 0);
        round(&mut h, &mut next, 10, 40);
        assert_eq!(round(&mut h, &mut next, 7, 400), GrowthPhase::SlowStart);
    }

    #[test]
    fn the_threshold_stays_between_4_and_16_ms() {
        for (base, short, enough) in [(8, 11, 12), (400, 415, 416)] {
            for (rtt, phase) in
                [(short, GrowthPhase::SlowStart), (enough, GrowthPhase::ConservativeSlowStart)]
            {
                let (mut h, mut next) = (HyStart::default(), 0);
                round(&mut h, &mut next, 10, base);
                assert_eq!(round(&mut h, &mut next, 10, rtt), phase, "{base} ms, then {rtt} ms");
            }
        }
    }
}
