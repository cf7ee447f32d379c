//! Metrics of a run, under the names used by results and specifications. Metrics given by a formula
//! are evaluated with the run's measured R and T_unit.

use core::time::Duration;

use qoe::player::FreezeRates;
use recovery::autorec::formulas;

use super::playback::Playbacks;
use super::viewing::{Viewing, Watched};
use crate::error::NameError;
use crate::recovered::{FinishedUnit, Recovered};
use crate::setup::Setup;
use crate::simulation::ReceivedBytes;

/// Measurements of a run, over all its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measurements {
    pub recovery: Recovered,
    /// Data received by the client during the measurement.
    pub received: ReceivedBytes,
    /// Completion times of requests, in milliseconds.
    pub completions: Vec<f64>,
    /// Packets towards the client.
    pub queue: QueueCounts,
    /// Data received by the rival's client.
    pub rival: Option<ReceivedBytes>,
    pub units: Vec<FinishedUnit>,
    /// Highest round of each request.
    pub rounds_max: Vec<f64>,
    pub decisions: Decisions,
    /// Smoothed round-trip times at the ends of decision intervals, in milliseconds.
    pub round_trips: Vec<f64>,
    pub viewing: Viewing,
    /// Playback at the rival's viewers.
    pub rival_viewing: Viewing,
    pub playbacks: Playbacks,
    /// Stream bytes delivered, and the bytes on the wire that carried them.
    pub payload: [u64; 2],
    pub packets_lost: u64,
    pub log: Option<Logged>,
}

/// Event log of a run made twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    /// First 52 bits of its SHA-256.
    pub start: u64,
    /// Whether both runs produced the same log.
    pub same: bool,
}

/// Packets at the bottleneck.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueCounts {
    pub offered: u64,
    /// Packets dropped because the queue was full.
    pub refused: u64,
}

/// Decision intervals of a scheme.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decisions {
    pub intervals: u64,
    /// Intervals without a loss.
    pub lossless: u64,
    /// Sum of the levels decided.
    pub levels: f64,
}

/// Name, unit, formula and evaluation of a metric.
pub(crate) struct RunMetric {
    pub name: &'static str,
    pub unit: &'static str,
    /// Formula that predicts it for a fixed level.
    pub expected: Option<&'static str>,
    value: fn(&Measurements, &Setup) -> Option<f64>,
}

fn ratio(a: u64, b: u64) -> Option<f64> {
    (b > 0).then(|| a as f64 / b as f64)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn loss_rate(m: &Measurements) -> Option<f64> {
    let totals = &m.recovery.totals;
    ratio(totals.lost, totals.acked + totals.lost)
}

fn t_unit(m: &Measurements) -> Option<Duration> {
    m.recovery.unit_times.mean()
}

fn per_second(m: &Measurements, value: f64) -> Option<f64> {
    let seconds = m.recovery.time.as_secs_f64();
    (seconds > 0.0).then(|| value / seconds)
}

fn mbps(ReceivedBytes { bytes, time }: ReceivedBytes) -> Option<f64> {
    (!time.is_zero()).then(|| bytes as f64 * 8.0 / time.as_secs_f64() / 1e6)
}

/// Replicas per first transmission.
fn cost(m: &Measurements) -> Option<f64> {
    ratio(m.recovery.totals.replicas, m.recovery.totals.first_transmissions)
}

/// F at this level.
fn latency(m: &Measurements, level: u32) -> Option<f64> {
    Some(ms(formulas::recovery_latency(loss_rate(m)?, t_unit(m)?, level)))
}

fn waits(m: &Measurements, q: f64) -> Option<f64> {
    let sample = qoe::stats::Sample::new(m.units.iter().map(|unit| ms(unit.wait)))?;
    Some(sample.quantile(q))
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn freezes(of: &Watched) -> Option<f64> {
    Some(of.rates()?.freezes_per_100s)
}

fn frozen(of: &Watched) -> Option<f64> {
    Some(of.rates()?.freeze_s_per_100s * 1e3)
}

fn noticed(of: &Watched) -> Option<FreezeRates> {
    FreezeRates::of(of.noticed, of.time)
}

/// Loss rate of packets in this class of distances from a lost packet.
fn after_loss(m: &Measurements, class: usize) -> Option<f64> {
    ratio(m.recovery.correlation[class].lost, m.recovery.correlation[class].sent)
}

fn round_trip(m: &Measurements) -> Option<Duration> {
    mean(&m.round_trips).map(|ms| Duration::from_secs_f64(ms / 1e3))
}

macro_rules! metrics {
    ($($name:literal, $unit:literal, $expected:expr, $value:expr;)*) => {
        /// All metrics, in the column order of `results.csv`.
        pub(crate) const ALL: &[RunMetric] = &[$(RunMetric {
            name: $name,
            unit: $unit,
            expected: $expected,
            value: $value,
        }),*];
    };
}

metrics! {
    // For lost data whose first retransmission was lost too: time from loss detection to sending
    // the copy that arrived.
    "recovery_latency_ms", "ms", Some("f_ms"), |m, _| m.recovery.latencies.mean().map(ms);
    "recovery_latency_p95_ms", "ms", None, |m, _| m.recovery.latencies.quantile(0.95).map(ms);
    "recovery_latency_max_ms", "ms", None, |m, _| m.recovery.latencies.max().map(ms);
    // Share of lost data that needed a second round.
    "rdr", "1", Some("rdr_model"), |m, _| {
        ratio(m.recovery.totals.finished_late, m.recovery.totals.finished)
    };
    // Share of lost data with a recovery latency of at least T_unit, to within 4 % of T_unit.
    "rdr_latency", "1", None, |m, _| {
        let all = &m.recovery.latencies;
        ratio(all.count() - all.count_up_to(t_unit(m)?).min(all.count()), m.recovery.totals.finished)
    };
    // Replicas per first transmission, in packets and in bytes.
    "redundancy_cost", "1", Some("g"), |m, _| cost(m);
    "redundancy_cost_bytes", "1", None, |m, _| {
        ratio(m.recovery.totals.replica_bytes, m.recovery.totals.first_bytes)
    };
    // Playback of a stream: number and duration of all freezes per 100 s of viewing.
    "freezes_per_100s", "1", None, |m, _| freezes(&m.viewing.player);
    "freeze_ms_per_100s", "ms", None, |m, _| frozen(&m.viewing.player);
    // Freezes of 200 ms or more, the ones that web players report.
    "noticed_freezes_per_100s", "1", None, |m, _| Some(noticed(&m.viewing.player)?.freezes_per_100s);
    "noticed_freeze_ms_per_100s", "ms", None, |m, _| {
        Some(noticed(&m.viewing.player)?.freeze_s_per_100s * 1e3)
    };
    // Share of viewing time frozen from `measure_from` on, and share of the frames
    // published since then that arrive within 2 s.
    "frozen_share", "1", None, |m, _| m.viewing.settled.frozen_share();
    "arrived", "1", None, |m, _| m.viewing.late(2_000.0).map(|late| 1.0 - late);
    // Share of frames published from `measure_from` on that took more than 400 ms or never
    // arrived.
    "late_frames", "1", None, |m, _| m.viewing.late(400.0);
    // Share of all frames delayed, relative to the fastest earlier one, by more than the player's
    // buffer. These frames empty the buffer.
    "late_for_player", "1", None, |m, _| ratio(m.viewing.player.late, m.viewing.player.frames);
    // Error of the server's playhead estimate at each report: signed and mean absolute error with
    // earlier reports, and with acknowledgements alone.
    "playhead_off_ms", "ms", None, |m, _| mean(&m.viewing.playhead_off[0]);
    "playhead_error_ms", "ms", None, |m, _| {
        mean(&m.viewing.playhead_off[0].iter().map(|off| off.abs()).collect::<Vec<_>>())
    };
    "playhead_off_unheard_ms", "ms", None, |m, _| mean(&m.viewing.playhead_off[1]);
    // Share of packets declared lost that arrived.
    "spurious_losses", "1", None, |m, _| {
        let totals = &m.recovery.totals;
        ratio(totals.spurious, totals.acked + totals.lost)
    };
    "goodput_mbps", "Mbps", None, |m, _| mbps(m.received);
    "t_unit_ms", "ms", None, |m, _| t_unit(m).map(ms);
    "loss_rate", "1", None, |m, _| loss_rate(m);
    "off_mode_ms_per_s", "ms/s", None, |m, _| per_second(m, ms(m.recovery.off_mode.total));
    "off_mode_entries_per_s", "1/s", None, |m, _| per_second(m, m.recovery.off_mode.entries as f64);
    // Rate at which the guard starts to refuse replicas.
    "guard_refusals_per_s", "1/s", None, |m, _| per_second(m, m.recovery.refusals as f64);
    "n_max", "1", None, |m, _| Some(m.recovery.totals.rounds_max.into());
    // Mean over the requests of a run.
    "n_max_mean", "1", None, |m, _| mean(&m.rounds_max);
    "rounds_mean", "1", None, |m, _| {
        ratio(m.recovery.totals.rounds, m.recovery.totals.finished)
    };
    "copies_mean", "1", None, |m, _| {
        ratio(m.recovery.totals.copies, m.recovery.totals.finished)
    };
    // Replicas of a run: the cost measure of ART.
    "replicas", "1", None, |m, _| Some(m.recovery.totals.replicas as f64);
    "replica_loss_rate", "1", None, |m, _| {
        let totals = &m.recovery.totals;
        ratio(totals.replicas_lost, totals.replicas_lost + totals.replicas_acked)
    };
    "burst_mean", "1", None, |m, _| ratio(m.recovery.bursts.packets, m.recovery.bursts.runs);
    "burst_max", "1", None, |m, _| Some(m.recovery.bursts.longest.into());
    "fct_ms", "ms", None, |m, _| mean(&m.completions);
    // From the first transmission of lost data to its acknowledgement: T_wait plus the return path.
    "wait_mean_ms", "ms", None, |m, _| {
        mean(&m.units.iter().map(|unit| ms(unit.wait)).collect::<Vec<_>>())
    };
    "wait_p50_ms", "ms", None, |m, _| waits(m, 0.5);
    "wait_p95_ms", "ms", None, |m, _| waits(m, 0.95);
    "wait_p99_ms", "ms", None, |m, _| waits(m, 0.99);
    "queue_loss", "1", None, |m, _| ratio(m.queue.refused, m.queue.offered);
    "rival_goodput_mbps", "Mbps", None, |m, _| mbps(m.rival?);
    // Jain's fairness index of the goodputs of two senders.
    "fairness", "1", None, |m, _| {
        let (a, b) = (mbps(m.received)?, mbps(m.rival?)?);
        (a + b > 0.0).then(|| (a + b).powi(2) / (2.0 * (a * a + b * b)))
    };
    // Mean of the smoothed round-trip time.
    "srtt_ms", "ms", None, |m, _| mean(&m.round_trips);
    // Formulas of AutoRec's journal version at the measured R and T_unit.
    "f_ms", "ms", None, |m, s| latency(m, s.lab.lab.level);
    "g", "1", None, |m, s| Some(formulas::redundancy_cost(loss_rate(m)?, s.lab.lab.level));
    "h", "1", None, |m, s| Some(formulas::goodput_reduction(loss_rate(m)?, s.lab.lab.level));
    "rdr_model", "1", None, |m, s| Some(formulas::deterioration_rate(loss_rate(m)?, s.lab.lab.level));
    "f10_ms", "ms", None, |m, _| latency(m, 10);
    // Measured latency less F, and measured cost less G.
    "f_off_ms", "ms", None, |m, s| {
        Some(m.recovery.latencies.mean().map(ms)? - latency(m, s.lab.lab.level)?)
    };
    "g_off", "1", None, |m, s| {
        Some(cost(m)? - formulas::redundancy_cost(loss_rate(m)?, s.lab.lab.level))
    };
    // Redundancy renewed in every round, which an acknowledgement stops.
    "f_renewed_ms", "ms", None, |m, s| {
        let time = formulas::recovery_latency_renewed(loss_rate(m)?, t_unit(m)?, s.lab.lab.level);
        Some(ms(time))
    };
    "g_renewed", "1", None, |m, s| {
        Some(formulas::redundancy_cost_renewed(loss_rate(m)?, s.lab.lab.level))
    };
    "g_cancelled", "1", None, |m, s| {
        let (time, rtt) = (t_unit(m)?, round_trip(m)?);
        Some(formulas::redundancy_cost_cancelled(loss_rate(m)?, time, rtt, s.lab.lab.level))
    };
    "h_cancelled", "1", None, |m, s| {
        let (loss, time, rtt) = (loss_rate(m)?, t_unit(m)?, round_trip(m)?);
        Some(formulas::goodput_reduction_cancelled(loss, time, rtt, s.lab.lab.level))
    };
    // Share of decision intervals without a loss, the same share under independent losses, and the
    // mean level decided.
    "lossless_intervals", "1", None, |m, _| ratio(m.decisions.lossless, m.decisions.intervals);
    "lossless_model", "1", None, |m, _| {
        let totals = &m.recovery.totals;
        let packets = ratio(totals.acked + totals.lost, m.decisions.intervals)?;
        Some((1.0 - loss_rate(m)?).powf(packets))
    };
    "level_mean", "1", None, |m, _| {
        let Decisions { intervals, levels, .. } = m.decisions;
        (intervals > 0).then(|| levels / intervals as f64)
    };
    // Loss rate of packets sent up to 1 ms after a lost one, and 20 to 50 ms after it.
    "loss_after_1ms", "1", None, |m, _| after_loss(m, 0);
    "loss_after_50ms", "1", None, |m, _| after_loss(m, 5);
    // Goodput over link capacity less headers. Meaningful without loss and with a non-limiting
    // client window.
    "utilisation", "1", None, |m, s| {
        let path = &s.lab.path;
        let is_judged =
            path.loss == 0.0 && path.trace.is_none() && s.window() >= s.bdp() * 3 / 2;
        let share = ratio(m.payload[0], m.payload[1])?;
        is_judged.then_some(mbps(m.received)? / (path.rate.as_mbps_f64() * share))
    };
    "packets_lost", "1", None, |m, _| Some(m.packets_lost as f64);
    // For runs made twice: fingerprint of the event log, and whether both runs agree.
    "event_log", "1", None, |m, _| Some(m.log?.start as f64);
    "same_log", "1", None, |m, _| Some(f64::from(u8::from(m.log?.same)));
    // From the capture of a frame until it is complete and in order, including frames that never
    // arrived. No value if the percentile falls among those.
    "frame_delay_p50_ms", "ms", None, |m, _| m.viewing.delay(0.5);
    "frame_delay_p95_ms", "ms", None, |m, _| m.viewing.delay(0.95);
    "frame_delay_p99_ms", "ms", None, |m, _| m.viewing.delay(0.99);
    "frame_delay_p999_ms", "ms", None, |m, _| m.viewing.delay(0.999);
    // `late_frames` with other bounds.
    "late_100ms", "1", None, |m, _| m.viewing.late(100.0);
    "late_200ms", "1", None, |m, _| m.viewing.late(200.0);
    "late_300ms", "1", None, |m, _| m.viewing.late(300.0);
    "late_600ms", "1", None, |m, _| m.viewing.late(600.0);
    "late_1s", "1", None, |m, _| m.viewing.late(1_000.0);
    // `freezes_per_100s` and `freeze_ms_per_100s` for the three player presets.
    "freezes_low_latency", "1", None, |m, _| freezes(&m.viewing.presets[0]);
    "freeze_ms_low_latency", "ms", None, |m, _| frozen(&m.viewing.presets[0]);
    "freezes_mobile", "1", None, |m, _| freezes(&m.viewing.presets[1]);
    "freeze_ms_mobile", "ms", None, |m, _| frozen(&m.viewing.presets[1]);
    "freezes_cautious", "1", None, |m, _| freezes(&m.viewing.presets[2]);
    "freeze_ms_cautious", "ms", None, |m, _| frozen(&m.viewing.presets[2]);
    // From the request to the first displayable frame, and the final distance to the live edge.
    "first_frame_ms", "ms", None, |m, _| mean(&m.viewing.first_frames);
    "live_delay_ms", "ms", None, |m, _| mean(&m.viewing.behind);
    "skips_per_100s", "1", None, |m, _| {
        let seconds = m.viewing.player.time.as_secs_f64();
        (seconds > 0.0).then(|| m.viewing.skips as f64 * 100.0 / seconds)
    };
    // Disposable pictures skipped because the viewer had fallen behind.
    "thinned_per_100s", "1", None, |m, _| {
        let seconds = m.viewing.player.time.as_secs_f64();
        (seconds > 0.0).then(|| m.viewing.thinned as f64 * 100.0 / seconds)
    };
    // From the request, without the handshake, until the first to fourth picture is complete at the
    // client.
    "frame_1_ms", "ms", None, |m, s| m.viewing.completion(0, s);
    "frame_2_ms", "ms", None, |m, s| m.viewing.completion(1, s);
    "frame_3_ms", "ms", None, |m, s| m.viewing.completion(2, s);
    "frame_4_ms", "ms", None, |m, s| m.viewing.completion(3, s);
    // Loss rate until the first frame was acknowledged.
    "first_frame_loss", "1", None, |m, _| {
        let (lost, settled) = m.viewing.first_loss;
        ratio(lost, settled)
    };
    // The same metrics of the rival.
    "rival_freezes_per_100s", "1", None, |m, _| freezes(&m.rival_viewing.player);
    "rival_frame_1_ms", "ms", None, |m, s| m.rival_viewing.completion(0, s);
    "rival_first_frame_loss", "1", None, |m, _| {
        let (lost, settled) = m.rival_viewing.first_loss;
        ratio(lost, settled)
    };
    // Playback of a video: mean bitrate, number and time of rebufferings, time until playback
    // starts, changes of the bitrate, and download rate while segments are requested.
    "bitrate_kbps", "kbps", None, |m, _| m.playbacks.bitrate_kbps();
    "rebufferings", "1", None, |m, _| m.playbacks.rebufferings();
    "rebuffering_s", "s", None, |m, _| m.playbacks.rebuffering_s();
    "startup_delay_ms", "ms", None, |m, _| m.playbacks.startup_ms();
    "bitrate_switches", "1", None, |m, _| m.playbacks.switches();
    "download_kbps", "kbps", None, |m, _| m.playbacks.download_kbps();
}

impl RunMetric {
    /// Returns the index of a metric in [`ALL`].
    pub(crate) fn index(name: &str) -> Option<usize> {
        ALL.iter().position(|metric| metric.name == name)
    }
}

/// Evaluates all metrics of a run, in the order of [`ALL`].
pub(crate) fn evaluate(measured: &Measurements, setup: &Setup) -> Vec<Option<f64>> {
    let values = ALL.iter().map(|metric| (metric.value)(measured, setup));
    values.map(|value| value.filter(|value| value.is_finite())).collect()
}

/// A metric as specifications refer to it: one of [`ALL`], or its difference from the run of a
/// reference scheme with the same seed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Term {
    pub text: String,
    pub how: How,
    /// Index in [`ALL`].
    pub metric: usize,
    /// Label of the reference scheme: a baseline, or for [`How::Closed`] the clairvoyant sender.
    /// `None` for the specification's own.
    pub other: Option<String>,
}

/// Comparison that a term makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The metric itself.
    Plain,
    /// `saved:M`: the baseline's value less this run's.
    Saved,
    /// `cut:M`: the saving as a share of the baseline's value. `goodput_reduction` is
    /// `cut:goodput_mbps`.
    Cut,
    /// `gain:M`: the increase over the baseline as a share of its value.
    Gain,
    /// `closed:M`: share of the gap between baseline and clairvoyant sender that the scheme closes
    /// (1 for all of it): (baseline − this) ÷ (baseline − clairvoyant), each summed over the runs
    /// of a point.
    Closed,
}

impl Term {
    /// Parses `METRIC`, `saved:METRIC`, `cut:METRIC`, `gain:METRIC` or `closed:METRIC`; the last
    /// four also with `@LABEL`.
    pub(crate) fn parse(text: &str) -> Result<Self, NameError> {
        let plain = match text {
            "goodput_reduction" => "cut:goodput_mbps",
            text => text,
        };
        let (how, rest) = match plain.split_once(':') {
            None => (How::Plain, plain),
            Some(("saved", rest)) => (How::Saved, rest),
            Some(("cut", rest)) => (How::Cut, rest),
            Some(("gain", rest)) => (How::Gain, rest),
            Some(("closed", rest)) => (How::Closed, rest),
            Some((comparison, _)) => {
                let (term, comparison) = (text.to_owned(), comparison.to_owned());
                return Err(NameError::Comparison { term, comparison });
            }
        };
        let (name, other) = match rest.split_once('@') {
            Some((name, label)) => (name, Some(label.to_owned())),
            None => (rest, None),
        };
        let metric = RunMetric::index(name).ok_or_else(|| NameError::Metric(name.to_owned()))?;
        Ok(Self { text: text.to_owned(), how, metric, other })
    }

    pub(crate) fn unit(&self) -> &'static str {
        match self.how {
            How::Plain | How::Saved => ALL[self.metric].unit,
            How::Cut | How::Gain | How::Closed => "1",
        }
    }

    /// Returns the formula that predicts the term for a fixed level.
    pub(crate) fn expected(&self) -> Option<&'static str> {
        match (self.how, ALL[self.metric].name) {
            (How::Plain, _) => ALL[self.metric].expected,
            (How::Cut, "goodput_mbps") => Some("h"),
            _ => None,
        }
    }

    /// Computes the term from a run's value and the baseline's. `None` for [`How::Closed`], which
    /// is undefined for a single run.
    pub(crate) fn value(&self, own: Option<f64>, baseline: Option<f64>) -> Option<f64> {
        match self.how {
            How::Plain => own,
            How::Saved => Some(baseline? - own?),
            How::Cut => baseline.filter(|&b| b != 0.0).and_then(|b| Some(1.0 - own? / b)),
            How::Gain => baseline.filter(|&b| b != 0.0).and_then(|b| Some(own? / b - 1.0)),
            How::Closed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_and_evaluated() {
        let term = Term::parse("cut:redundancy_cost@OR3").expect("a term");
        assert_eq!(term.other.as_deref(), Some("OR3"));
        assert_eq!(term.value(Some(1.0), Some(4.0)), Some(0.75));
        assert_eq!(term.value(Some(1.0), Some(0.0)), None);
        assert_eq!(
            Term::parse("saved:n_max").expect("a term").value(Some(1.0), Some(4.0)),
            Some(3.0)
        );
        let goodput = Term::parse("goodput_reduction").expect("a term");
        assert_eq!((goodput.how, goodput.expected()), (How::Cut, Some("h")));
        assert!(Term::parse("cut:nothing").is_err() && Term::parse("x:n_max").is_err());
    }

    #[test]
    fn the_round_trip_time_of_a_run_is_the_mean_over_its_intervals() {
        let measured = Measurements { round_trips: vec![60.0, 90.0], ..<_>::default() };
        let values = evaluate(&measured, &Setup::default());
        assert_eq!(values[RunMetric::index("srtt_ms").expect("known")], Some(75.0));
    }

    #[test]
    fn names_are_unique() {
        for (place, metric) in ALL.iter().enumerate() {
            assert_eq!(RunMetric::index(metric.name), Some(place));
        }
    }

    #[test]
    fn a_run_without_loss_has_no_latency_and_no_cost() {
        let measured = Measurements {
            received: ReceivedBytes { bytes: 1_000, time: Duration::from_secs(1) },
            ..<_>::default()
        };
        let values = evaluate(&measured, &Setup::default());
        let of = |name| values[RunMetric::index(name).expect("known")];
        assert_eq!(of("recovery_latency_ms"), None);
        assert_eq!(of("goodput_mbps"), Some(0.008));
        assert_eq!(of("rdr"), None);
    }
}
