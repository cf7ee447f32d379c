//! Consequences of a redundancy level: F, G and H of AutoRec (journal version, section V-A,
//! equations 1 to 3), the levels that follow from them, and exact values where they are
//! approximations.
//!
//! The model assumes independent losses with probability R. A lost packet is retransmitted at once,
//! and K replicas follow in its life, T_unit ÷ (K + 1) apart. After the last one, plain
//! retransmission continues once per T_unit. F and H are exact in the model; G is if no
//! acknowledgement arrives before the last replica.
//!
//! All functions are total: a loss rate of NaN counts as 0, and others are clamped to [0, 1].

use core::time::Duration;

/// Tolerance for rounding, so that a level at the bound is accepted (6 × 0.05 > 0.3 in binary).
const ROUNDING: f64 = 1e-9;

fn rate(loss: f64) -> f64 {
    if loss.is_nan() { 0.0 } else { loss.clamp(0.0, 1.0) }
}

fn power(base: f64, exponent: u32) -> f64 {
    base.powi(i32::try_from(exponent).unwrap_or(i32::MAX))
}

/// Returns `share` of T_unit; [`Duration::MAX`] if it is infinite.
fn of_unit(t_unit: Duration, share: f64) -> Duration {
    if share.is_finite() {
        Duration::try_from_secs_f64(t_unit.as_secs_f64() * share).unwrap_or(Duration::MAX)
    } else {
        Duration::MAX
    }
}

/// F(K), equation 1: mean recovery latency in on-mode of data lost more than once.
/// [`Duration::MAX`] if everything is lost.
pub fn recovery_latency(loss: f64, t_unit: Duration, level: u32) -> Duration {
    let (r, k) = (rate(loss), f64::from(level));
    of_unit(t_unit, (1.0 + k * power(r, level)) / ((1.0 - r) * (1.0 + k)))
}

/// F'(K): F(K) if every round had K replicas of its own.
pub fn recovery_latency_renewed(loss: f64, t_unit: Duration, level: u32) -> Duration {
    let (r, k) = (rate(loss), f64::from(level));
    let gone = power(r, level.saturating_add(1));
    of_unit(t_unit, (1.0 / (1.0 - r) + k * power(r, level) / (1.0 - gone)) / (1.0 + k))
}

/// G(K), equation 2: replicas per packet that is not a copy.
pub fn redundancy_cost(loss: f64, level: u32) -> f64 {
    f64::from(level) * rate(loss)
}

/// G'(K): G(K) if every round had K replicas of its own; infinite if everything is lost.
pub fn redundancy_cost_renewed(loss: f64, level: u32) -> f64 {
    if level == 0 {
        return 0.0;
    }
    redundancy_cost(loss, level) / (1.0 - power(rate(loss), level.saturating_add(1)))
}

/// G(K) of a sender that cancels replicas of acknowledged data: replica j is cancelled if a copy i
/// with t_i + RTT ≤ t_j arrived, where copies leave T_unit ÷ (K + 1) apart.
pub fn redundancy_cost_cancelled(loss: f64, t_unit: Duration, rtt: Duration, level: u32) -> f64 {
    let r = rate(loss);
    let copies = u128::from(level) + 1;
    // Among the copies before j, j − reach + 1 can have been acknowledged.
    let reach = match t_unit.as_nanos() {
        0 => copies,
        t_unit => (rtt.as_nanos() * copies).div_ceil(t_unit).clamp(1, copies),
    };
    let (free, late) = ((reach - 1) as u32, (copies - reach) as u32);
    let sent = if r < 1.0 { r * (1.0 - power(r, late)) / (1.0 - r) } else { f64::from(late) };
    r * (f64::from(free) + sent)
}

/// H(K), equation 3: fraction of goodput lost to replicas in on-mode.
pub fn goodput_reduction(loss: f64, level: u32) -> f64 {
    let (r, k) = (rate(loss), f64::from(level));
    let sent = 1.0 + k * r - (1.0 + k) * r * r + power(r, level.saturating_add(2));
    (1.0 - 1.0 / sent).max(0.0)
}

/// H(K) of a sender that cancels replicas of acknowledged data: [`redundancy_cost_cancelled`]
/// replaces K R.
pub fn goodput_reduction_cancelled(loss: f64, t_unit: Duration, rtt: Duration, level: u32) -> f64 {
    let r = rate(loss);
    let replicas = redundancy_cost_cancelled(loss, t_unit, rtt, level);
    // (1 − R) N, where N = 1 + R + G + R^(K+2) ÷ (1 − R) transmissions per packet; 1 at level 0.
    let sent = 1.0 + ((1.0 - r) * replicas + (power(r, level.saturating_add(2)) - r * r));
    (1.0 - 1.0 / sent).max(0.0)
}

/// Recovery deterioration rate R^(K+1): fraction of lost data that takes T_unit or longer.
pub fn deterioration_rate(loss: f64, level: u32) -> f64 {
    power(rate(loss), level.saturating_add(1))
}

/// K_α: lowest level in [0, `cap`] with F(K) ≤ `tolerance`; `cap` if there is none.
pub fn level_for_latency(loss: f64, t_unit: Duration, tolerance: Duration, cap: u32) -> u32 {
    // F falls strictly (journal, appendix C).
    first_without(cap, |k| recovery_latency(loss, t_unit, k) > tolerance).min(cap)
}

/// K_β: highest level in [0, `cap`] with G(K) ≤ `tolerance`; 0 if there is none.
pub fn level_for_cost(loss: f64, tolerance: f64, cap: u32) -> u32 {
    first_without(cap, |k| redundancy_cost(loss, k) <= tolerance + ROUNDING).saturating_sub(1)
}

/// K_γ: highest level in [0, `cap`] with H(K) ≤ `tolerance`; 0 if there is none.
pub fn level_for_goodput(loss: f64, tolerance: f64, cap: u32) -> u32 {
    // H rises (journal, appendix G).
    first_without(cap, |k| goodput_reduction(loss, k) <= tolerance + ROUNDING).saturating_sub(1)
}

/// Returns the first level in [0, `cap`] for which the monotone predicate `holds` is false, or
/// `cap` + 1. Binary search.
fn first_without(cap: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, cap.saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
