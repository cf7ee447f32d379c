//! Transport statistics of a viewer's session, and the columns of its record that follow from them.
//! Shared by the server and the testbed, so that their records agree.

use core::time::Duration;

use quic::Connection;
use records::Record;
use records::schema::{AfterLoss as AfterLossColumns, BurstLengths};
use recovery::{BurstCounts, LAGS, Latencies, LossCorrelation, OffTime, Totals, UnitTimes};
use startup::Guided;
use startup::cookie::Verdict;
use units::{Rate, Timestamp};

use crate::start::guided;

/// Last class of [`LAGS`] in each pair of columns `after_…_sent` and `after_…_lost`: up to 1, 5,
/// 20, 50, 100 and 200 ms. They cover packets of one batch, of one frame, of the next frame at 50
/// frames per second, and the spacing of copies.
const LAST_CLASSES: [usize; 6] = [0, 2, 4, 5, 6, 7];

/// Packets sent some time after a loss, and losses among them, by the classes of [`LAGS`].
pub type AfterLoss = [(u32, u32); LAGS.len()];

/// Transport statistics of a connection. Round-trip times, maxima and the highest round cover the
/// whole connection; counts may cover a session only ([`TransportStats::since`]).
#[derive(Clone, Debug, Default)]
pub struct TransportStats {
    /// Minimum round-trip time.
    pub rtt_min: Duration,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Name of the congestion controller.
    pub congestion_controller: &'static str,
    /// Maximum congestion window, in bytes.
    pub max_window: u64,
    /// Maximum of bytes in flight.
    pub max_in_flight: u64,
    /// Maximum delivery rate of any flight.
    pub max_delivery_rate: Option<Rate>,
    /// Maximum delivery rate of any flight that was not application-limited.
    pub max_open_rate: Option<Rate>,
    /// Counters of loss recovery.
    pub totals: Totals,
    /// Recovery latencies of data lost more than once.
    pub latencies: Latencies,
    /// Time with nothing to send but replicas.
    pub off_mode: OffTime,
    /// T_unit: times from the first transmission of data to its first copy.
    pub unit_times: UnitTimes,
    /// Runs of consecutive lost packets by size, including spurious losses.
    pub bursts: BurstCounts,
    /// Length of the longest run, in packets.
    pub longest_burst: u32,
    /// Packets sent after a loss; `None` if it is not measured
    /// ([`Scheme::correlation`](recovery::Scheme::correlation)).
    pub after_loss: Option<Box<AfterLoss>>,
    /// Verdict on a first flight beyond the initial window.
    pub jump: Verdict,
    /// Names and values that determined the recovery scheme's decisions.
    pub reasons: Vec<(&'static str, f64)>,
    /// Whether the TLS session was resumed.
    pub resumed: bool,
    /// Whether 0-RTT data was accepted.
    pub early_data: bool,
}

/// Returns the counts of a connection.
fn after_loss(known: &LossCorrelation) -> AfterLoss {
    let count = |packets: u64| u32::try_from(packets).unwrap_or(u32::MAX);
    known.counts().map(|(sent, lost)| (count(sent), count(lost)))
}

impl TransportStats {
    /// Collects the statistics of the whole connection.
    pub fn of(now: Timestamp, connection: &Connection) -> Self {
        let (stats, recovery) = (connection.stats(), connection.recovery());
        let mut reasons = Vec::new();
        connection.explain_recovery(&mut |name, value| reasons.push((name, value)));
        reasons.shrink_to_fit();
        Self {
            rtt_min: connection.rtt().min(),
            rtt: connection.rtt().smoothed(),
            congestion_controller: connection.congestion_controller(),
            max_window: stats.max_window,
            max_in_flight: stats.max_in_flight,
            max_delivery_rate: stats.max_delivery_rate,
            max_open_rate: stats.max_open_rate,
            totals: recovery.totals,
            latencies: recovery.losses.latencies.clone(),
            off_mode: recovery.off_mode(now),
            unit_times: recovery.losses.unit_times,
            bursts: *recovery.losses.bursts.counts(),
            longest_burst: recovery.losses.bursts.longest(),
            after_loss: recovery.correlation.as_ref().map(|known| Box::new(after_loss(known))),
            jump: guided(connection).map(Guided::verdict).unwrap_or_default(),
            reasons,
            resumed: stats.resumed,
            early_data: stats.early_data,
        }
    }

    /// Returns the statistics with counts since `earlier`, a former state of the same connection.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        self.totals = self.totals.since(&earlier.totals);
        self.latencies = self.latencies.since(&earlier.latencies);
        self.off_mode = self.off_mode.since(&earlier.off_mode);
        self.unit_times = self.unit_times.since(&earlier.unit_times);
        for (now, then) in self.bursts.iter_mut().zip(earlier.bursts) {
            *now = now.saturating_sub(then);
        }
        if let (Some(now), Some(before)) = (&mut self.after_loss, &earlier.after_loss) {
            // These counts are reset on a new path, so all of them may be newer.
            let is_newer = now.iter().zip(before.iter()).all(|(now, then)| now.0 >= then.0);
            if is_newer {
                for (now, then) in now.iter_mut().zip(before.iter()) {
                    *now = (now.0 - then.0, now.1.saturating_sub(then.1));
                }
            }
        }
        self
    }

    /// Writes the transport columns of `record` for a session of this duration. They stay absent if
    /// no packet has been settled.
    pub fn write_to(&self, duration: Duration, record: &mut Record) {
        if self.totals.settled() == 0 {
            return;
        }
        let t = &self.totals;
        let count = |count: u64| Some(count as i64);
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let rate = |amount: f64| (!duration.is_zero()).then(|| amount / duration.as_secs_f64());
        let startup = &mut record.startup;
        startup.resumed = count(self.resumed.into());
        startup.early_data = count(self.early_data.into());
        startup.jump = self.jump.name().map(Into::into);
        let path = &mut record.path;
        path.congestion_controller =
            Some(self.congestion_controller.into()).filter(|name: &String| !name.is_empty());
        path.rtt_min_ms = Some(ms(self.rtt_min));
        path.rtt_ms = Some(ms(self.rtt));
        path.max_window = count(self.max_window);
        path.max_in_flight = count(self.max_in_flight);
        path.max_bandwidth_mbps = self.max_delivery_rate.map(Rate::as_mbps_f64);
        path.open_rate_mbps = self.max_open_rate.map(Rate::as_mbps_f64);
        path.loss_rate = ratio(t.lost, t.settled());
        path.packets_settled = count(t.settled());
        path.packets_lost = count(t.lost);
        path.packets_spurious = count(t.spurious);
        path.bursts = count(self.bursts.iter().map(|&runs| u64::from(runs)).sum());
        path.burst_longest = count(self.longest_burst.into());
        let recovery = &mut record.recovery;
        recovery.first_transmissions = count(t.first_transmissions);
        recovery.first_bytes = count(t.first_bytes);
        recovery.retransmissions = count(t.retransmissions);
        recovery.repeated_retransmissions = count(t.repeated);
        recovery.retransmission_ratio = ratio(t.retransmissions, t.first_transmissions);
        recovery.replicas = count(t.replicas);
        recovery.replica_bytes = count(t.replica_bytes);
        recovery.redundancy_cost = ratio(t.replicas, t.first_transmissions);
        recovery.recovery_count = count(self.latencies.count());
        recovery.recovery_mean_ms = self.latencies.mean().map(ms);
        recovery.recovery_p95_ms = self.latencies.quantile(0.95).map(ms);
        recovery.recovery_max_ms = self.latencies.max().map(ms);
        recovery.t_unit_ms = self.unit_times.mean().map(ms);
        recovery.units_finished = count(t.finished);
        recovery.units_late = count(t.finished_late);
        recovery.rounds = count(t.rounds);
        recovery.rounds_max = count(t.rounds_max.into());
        recovery.recovery_deterioration = ratio(t.finished_late, t.finished);
        recovery.off_mode_ms_per_s = rate(ms(self.off_mode.total));
        recovery.off_mode_entries_per_s = rate(self.off_mode.entries as f64);
        self.write_burst_lengths(&mut record.burst_lengths);
        self.write_after_loss(&mut record.after_loss);
    }

    fn write_burst_lengths(&self, to: &mut BurstLengths) {
        let columns = [
            &mut to.bursts_1,
            &mut to.bursts_2,
            &mut to.bursts_4,
            &mut to.bursts_8,
            &mut to.bursts_16,
            &mut to.bursts_32,
            &mut to.bursts_64,
            &mut to.bursts_128,
        ];
        for (column, runs) in columns.into_iter().zip(self.bursts) {
            *column = Some(runs.into());
        }
    }

    fn write_after_loss(&self, to: &mut AfterLossColumns) {
        let Some(after) = &self.after_loss else { return };
        let columns = [
            (&mut to.after_1ms_sent, &mut to.after_1ms_lost),
            (&mut to.after_5ms_sent, &mut to.after_5ms_lost),
            (&mut to.after_20ms_sent, &mut to.after_20ms_lost),
            (&mut to.after_50ms_sent, &mut to.after_50ms_lost),
            (&mut to.after_100ms_sent, &mut to.after_100ms_lost),
            (&mut to.after_200ms_sent, &mut to.after_200ms_lost),
        ];
        let mut first = 0;
        for ((sent, lost), last) in columns.into_iter().zip(LAST_CLASSES) {
            let classes = &after[first..=last];
            *sent = Some(classes.iter().map(|class| i64::from(class.0)).sum());
            *lost = Some(classes.iter().map(|class| i64::from(class.1)).sum());
            first = last + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transport() -> TransportStats {
        let totals =
            Totals { acked: 980, lost: 20, first_transmissions: 1_000, ..Totals::default() };
        TransportStats { totals, ..TransportStats::default() }
    }

    fn written(transport: &TransportStats) -> Record {
        let mut record = Record::default();
        transport.write_to(Duration::from_secs(10), &mut record);
        record
    }

    #[test]
    fn a_connection_of_which_nothing_is_known_leaves_its_columns_absent() {
        assert_eq!(written(&TransportStats::default()), Record::default());
    }

    #[test]
    fn classes_of_lag_are_added_up_between_the_columns_limits() {
        let ms = LAST_CLASSES.map(|last| LAGS[last].as_millis());
        assert_eq!(ms, [1, 5, 20, 50, 100, 200]);
        let after = core::array::from_fn(|class| (10 * (class as u32 + 1), class as u32));
        let seen =
            written(&TransportStats { after_loss: Some(after.into()), ..transport() }).after_loss;
        assert_eq!((seen.after_1ms_sent, seen.after_1ms_lost), (Some(10), Some(0)));
        assert_eq!((seen.after_5ms_sent, seen.after_5ms_lost), (Some(20 + 30), Some(1 + 2)));
        assert_eq!((seen.after_20ms_sent, seen.after_20ms_lost), (Some(40 + 50), Some(3 + 4)));
        assert_eq!((seen.after_50ms_sent, seen.after_50ms_lost), (Some(60), Some(5)));
        assert_eq!((seen.after_100ms_sent, seen.after_100ms_lost), (Some(70), Some(6)));
        assert_eq!((seen.after_200ms_sent, seen.after_200ms_lost), (Some(80), Some(7)));
        let seen = written(&transport()).after_loss;
        assert_eq!((seen.after_1ms_sent, seen.after_200ms_lost), (None, None), "not measured");
    }

    #[test]
    fn counts_start_with_the_session_and_restart_on_a_new_path() {
        let before = TransportStats {
            totals: Totals { lost: 5, finished: 5, rounds: 7, ..transport().totals },
            unit_times: UnitTimes { count: 2, sum: Duration::from_millis(100) },
            bursts: [3, 1, 0, 0, 0, 0, 0, 0, 0],
            after_loss: Some([(10, 2); LAGS.len()].into()),
            ..transport()
        };
        let now = TransportStats {
            totals: Totals { lost: 25, finished: 15, rounds: 27, ..before.totals },
            unit_times: UnitTimes { count: 4, sum: Duration::from_millis(300) },
            bursts: [5, 2, 0, 0, 0, 0, 0, 1, 1],
            after_loss: Some([(30, 5); LAGS.len()].into()),
            ..before.clone()
        };
        let record = written(&now.clone().since(&before));
        assert_eq!(record.path.packets_lost, Some(20));
        assert_eq!(record.recovery.units_finished, Some(10));
        assert_eq!((record.recovery.rounds, record.path.bursts), (Some(20), Some(5)));
        let lengths = record.burst_lengths;
        assert_eq!((lengths.bursts_1, lengths.bursts_2), (Some(2), Some(1)));
        assert_eq!((lengths.bursts_64, lengths.bursts_128), (Some(0), Some(1)));
        assert_eq!(record.recovery.t_unit_ms, Some(100.0));
        let after = record.after_loss;
        assert_eq!((after.after_1ms_sent, after.after_1ms_lost), (Some(20), Some(3)));
        let moved = TransportStats { after_loss: Some([(8, 1); LAGS.len()].into()), ..now };
        let after = written(&moved.since(&before)).after_loss;
        assert_eq!((after.after_1ms_sent, after.after_1ms_lost), (Some(8), Some(1)));
    }
}
