//! How the replicas of a round are spread over time, so that one burst of losses does not hit all
//! copies of a round.
//!
//! ART draws random times within an *escape space* (section 6.2). Equation 6: escape_space =
//! min(bdp, α · B_max), in sending cycles. A cycle is the time per packet at the pacing rate, or at
//! a window per round trip without one. Since bdp cycles last one round trip, the first term is the
//! paper's rule that "all replicas should be sent in one RTT". R copies sent at once take R cycles,
//! so the space is never smaller.
//!
//! "We randomly select a time interval less than escape_space" (section 6.3): with α = 1 no replica
//! is B_max cycles after the retransmission, so the longest burst may hit all copies, contrary to
//! section 6.2. A greater α avoids that.

use crate::{PathState, View};
use core::time::Duration;

/// How the replicas of a round are spread over time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Spread {
    /// All leave at once.
    AtOnce,
    /// Each leaves at a random time in the paper's escape space.
    EscapeSpace {
        /// α, at least 1; other values count as 1.
        alpha: f64,
    },
    /// As in the paper's code: the first at a random time in one minimum round-trip time, each next
    /// one at a random time in the rest of it. (The code reseeds its generator from the second of
    /// the day before every draw; here draws are independent.)
    RoundTrip,
    /// Evenly, by a step of `rtts` smoothed round-trip times, at least `least` ([`crate::spare`]).
    Apart {
        /// Minimum step.
        least: Duration,
        /// Step in round-trip times, 0 and above; other values count as 0.
        rtts: f64,
    },
}

/// Returns the time per packet at the current sending rate.
fn cycle(path: &PathState) -> Duration {
    let packet = u64::from(path.packet);
    match path.pacing_rate {
        Some(rate) => rate.time_for(packet),
        None => path.smoothed_rtt.mul_f64(packet as f64 / path.window.max(packet).max(1) as f64),
    }
}

impl Spread {
    /// Returns the period over which `level` replicas are spread.
    pub fn span(self, level: u32, view: &View<'_>) -> Duration {
        let path = &view.path;
        match self {
            Self::AtOnce => Duration::ZERO,
            Self::EscapeSpace { .. } if path.smoothed_rtt.is_zero() => Duration::ZERO,
            Self::EscapeSpace { alpha } => {
                let alpha = if alpha.is_finite() { alpha.clamp(1.0, 1e6) } else { 1.0 };
                let cycles = (alpha * f64::from(view.longest_burst)).max(f64::from(level));
                let rtt = path.smoothed_rtt;
                let share = cycle(path).as_secs_f64() * cycles / rtt.as_secs_f64();
                rtt.mul_f64(share.min(1.0))
            }
            Self::Apart { least, rtts } => {
                let rtts = if rtts.is_finite() { rtts.clamp(0.0, 1e3) } else { 0.0 };
                path.smoothed_rtt.mul_f64(rtts).max(least) * level
            }
            // The minimum is zero before the first sample.
            Self::RoundTrip if path.min_rtt.is_zero() => path.smoothed_rtt,
            Self::RoundTrip => path.min_rtt,
        }
    }
}
