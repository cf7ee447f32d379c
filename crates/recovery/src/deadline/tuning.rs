//! Constants of the scheme that operators do not configure.
//!
//! The figures in docs/reproduce/deadline-ablation.md ablate their mechanisms, not their values:
//! `overdue=false` the limits on overdue data, `patient_above_percent=100` the extra patience and
//! the raised price, and `together` the smoothing of loss probabilities.

use core::time::Duration;

/// Tuned constants of the scheme "deadline".
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuning {
    /// Required lead time of data before playback, 60 ms. A frame must be complete and decoded, and
    /// a player stalls as soon as it has shown the frame before.
    pub decode_margin: Duration,
    /// Uncertainty of a deadline that the player reported or its playlist implies: ±75 ms.
    pub reported_uncertainty: Duration,
    /// Uncertainty of a deadline that [`Options::patience`](super::Options::patience) implies: ±200
    /// ms.
    pub assumed_uncertainty: Duration,
    /// Queueing delay, above the recent minimum, that a key frame alone can cause: 25 ms. Longer
    /// queues may count as full.
    pub key_frame_queue: Duration,
    /// Highest loss probability at which a copy of overdue data is sent. 0 to 1, value 0.3.
    pub max_copy_loss: f64,
    /// Least fraction of recent overdue data that was lost for copies to be sent. 0 to 1, value
    /// 1/3: at most two redundant copies per useful one.
    pub min_overdue_loss: f64,
    /// Extra patience of unknown players per unit of loss rate above
    /// [`Options::patient_above`](super::Options::patient_above): 5 s, which is 50 ms per percent.
    pub extra_patience: Duration,
    /// Loss rate above the same threshold that doubles the price of copies that only impatient
    /// players need. Value 0.02.
    pub price_doubling_loss: f64,
    /// Penalty of a missed deadline, in addition to the lateness: 150 ms. A stalled player refills
    /// its buffer before it resumes, so a frame that is 20 ms late costs almost as much as one 100
    /// ms late.
    pub miss_penalty: Duration,
    /// Relative surcharge on the price of a copy at the end of a round against one sent at once.
    /// Value 0.05: early copies have benefits that the model does not cover.
    pub delay_surcharge: f64,
    /// Weight of the loss prior, in episodes of loss. Value 4.
    pub prior_episodes: f64,
    /// Least weight of the prior of a lag class, in packets. Value 16.
    pub prior_packets: f64,
    /// Ratio of the weights of evidence from one lag class to the next further one. Value 4.
    pub class_decay: f64,
    /// Half-life of the excess loss probability beyond the last lag class, in seconds. Value 0.2.
    pub tail_half_life: f64,
    /// Loss probability at long lags, as a fraction of the last class's. 0 to 1, value 0.4.
    pub tail_floor: f64,
    /// Lag at which an earlier loss no longer matters: 2 s.
    pub independence_lag: Duration,
}

/// The values in use.
pub const TUNING: Tuning = Tuning {
    decode_margin: Duration::from_millis(60),
    reported_uncertainty: Duration::from_millis(75),
    assumed_uncertainty: Duration::from_millis(200),
    key_frame_queue: Duration::from_millis(25),
    max_copy_loss: 0.3,
    min_overdue_loss: 1.0 / 3.0,
    extra_patience: Duration::from_secs(5),
    price_doubling_loss: 0.02,
    miss_penalty: Duration::from_millis(150),
    delay_surcharge: 0.05,
    prior_episodes: 4.0,
    prior_packets: 16.0,
    class_decay: 4.0,
    tail_half_life: 0.2,
    tail_floor: 0.4,
    independence_lag: Duration::from_secs(2),
};
