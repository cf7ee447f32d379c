//! Peers that withhold acknowledgements. The path has ample room, so only the controller limits the
//! bytes in flight.

use core::time::Duration;
use std::collections::VecDeque;

use mendcast_congestion::{Algorithm, Cap};
use units::Rate;

use crate::sim::{Acks, App, Sim};
use crate::{ms, path, secs, sim};

/// Maximum silence before a bunch that extends the window (`bbr::aggregation::MAX_SILENCE`).
const MAX_SILENCE: Duration = Duration::from_millis(400);
/// Window of a longer path in products of delivered rate and round trip (`bbr::longer`).
const LONGER: f64 = 1.5;
/// Period over which the delivered rate is averaged, and for which it counts (`floor`).
const AVERAGING: Duration = Duration::from_secs(1);
const MEMORY: Duration = Duration::from_secs(10);
/// Sampling interval.
const STEP: Duration = Duration::from_millis(10);
/// A live stream of 2 Mbps.
const STREAM: App = App::Frames { every: Duration::from_millis(40), bytes: 10_000 };

/// A sender under observation.
struct Observed {
    sim: Sim,
    /// Bytes delivered at the samples of the last [`MEMORY`] and [`AVERAGING`], the newest last.
    delivered: VecDeque<u64>,
    /// Maximum excess of the window over the model's, in bytes.
    above_model: u64,
    /// Maximum of sending rate and modelled delivery rate.
    rate: Rate,
    window: u64,
}

impl Observed {
    fn new(sim: Sim) -> Self {
        let (above_model, rate, window) = (0, Rate::ZERO, 0);
        Self { sim, delivered: VecDeque::new(), above_model, rate, window }
    }

    /// Runs for `span`, calling `look` every 10 ms.
    fn run(&mut self, span: Duration, mut look: impl FnMut(&Self)) {
        let end = self.sim.now + span;
        while self.sim.now < end {
            self.sim.run(STEP);
            self.delivered.push_back(self.sim.delivered);
            let memory = (MEMORY + AVERAGING).as_millis() / STEP.as_millis();
            if self.delivered.len() as u128 > memory {
                self.delivered.pop_front();
            }
            let seen = self.sim.controller.snapshot();
            let Some(rate) = seen.bandwidth.max(seen.pacing_rate) else { continue };
            self.rate = self.rate.max(rate);
            self.window = self.window.max(seen.window);
            self.above_model = self.above_model.max(seen.window.saturating_sub(self.model()));
            look(self);
        }
    }

    /// Returns the model's window: two bandwidth-delay products and three send quanta.
    fn model(&self) -> u64 {
        let seen = self.sim.controller.snapshot();
        let Some((bandwidth, rtprop)) = seen.bandwidth.zip(seen.min_rtt) else { return u64::MAX };
        2 * bandwidth.bytes_in(rtprop) + 3 * self.sim.controller.send_quantum()
    }

    /// Returns the maximum rate at which a recent second's data was acknowledged.
    fn delivered_rate(&self) -> Rate {
        let step = (AVERAGING.as_millis() / STEP.as_millis()) as usize;
        let seconds = self.delivered.iter().zip(self.delivered.iter().skip(step));
        let most = seconds.map(|(before, after)| after - before).max();
        Rate::from_bytes_in(most.unwrap_or(0), AVERAGING)
    }
}

#[test]
fn a_bunch_after_silence_extends_the_window_by_the_maximum_silence_at_most() {
    for silence in [400, 700, 1_000, 2_000, 5_000] {
        let mut s = Observed::new(sim(path(20, 40, 20.0), Algorithm::Bbr, 3));
        // Bunches of Startup expire after 8 s.
        s.sim.run(secs(10));
        s.run(secs(2), |_| {});
        assert_eq!(s.above_model, 0, "acknowledgements come one by one");
        for _ in 0..6 {
            s.sim.acks = Acks::At(s.sim.now + ms(silence));
            s.run(ms(silence) + secs(1), |_| {});
        }
        let limit = s.rate.bytes_in(MAX_SILENCE);
        println!("{silence} ms: {} bytes above the model, limit {limit}", s.above_model);
        assert!(s.above_model <= limit, "{silence} ms: {} of {limit}", s.above_model);
        // The window is extended for bunches that networks cause.
        assert!(s.above_model >= limit / 2, "{silence} ms: {} of {limit}", s.above_model);
    }
}

#[test]
fn stretched_round_trips_gain_at_most_half_of_the_delivered_rate() {
    for delay in [100, 200, 400, 1_000, 3_000, 5_000] {
        let mut s = Observed::new(sim(path(20, 20, 20.0), Algorithm::Bbr, 3));
        s.sim.set_app(STREAM);
        s.run(secs(12), |_| {});
        s.sim.acks = Acks::After(ms(delay));
        // A backlog leaves faster than the bottleneck carries it and queues for 100 ms.
        let rtt = s.sim.path.min_rtt() + ms(delay) + ms(100);
        let (mut share, mut most) = (0.0f64, 0);
        // Shorter than the lifetime of `RTprop`.
        s.run(secs(9), |s| {
            let longer = LONGER * s.delivered_rate().bytes_in(rtt) as f64;
            let bunch = s.rate.bytes_in(MAX_SILENCE);
            let limit = longer.max((s.model() + bunch) as f64);
            let window = s.sim.controller.window();
            share = share.max(window as f64 / limit);
            most = most.max(window);
        });
        println!("{delay} ms: window {most}, {share} of the limit");
        assert!(share <= 1.0, "{delay} ms: {share}");
    }
}

#[test]
fn late_acknowledgements_in_bursts_gain_no_more_than_the_limit_in_flight() {
    const LIMIT: u64 = 300_000;
    for silence in [400, 1_000, 3_000, 5_000] {
        let mut s = Observed::new(sim(path(20, 20, 20.0), Algorithm::Bbr, 3));
        s.sim.controller.cap(Cap { in_flight: Some(LIMIT), ..Cap::default() });
        s.sim.set_app(STREAM);
        s.run(secs(5), |_| {});
        for round in 0..12 {
            let acks = [Acks::After(ms(silence)), Acks::At(s.sim.now + ms(silence))];
            s.sim.acks = acks[round % 2];
            s.run(ms(silence), |s| {
                // Probes after a timeout ignore the window.
                assert!(s.sim.in_flight <= LIMIT + 8 * 1_200, "{silence} ms: {}", s.sim.in_flight);
            });
        }
        assert!(s.window <= LIMIT, "{silence} ms: {}", s.window);
        println!("{silence} ms: window {}", s.window);
    }
}
