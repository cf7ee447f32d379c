//! Numbers that the papers report for their fleets, next to ours: calibrated ones, and predicted
//! ones. "Journal" is AutoRec's journal version, "MM'24" its earlier one.

use recovery::{BURST_SIZES, BurstCounts};
use serde::{Deserialize, Serialize};

use super::arm::{FLEET_AUTOREC, FLEET_MM24};
use super::compare::{ArmResults, SessionTrial};
use super::metrics::{COST, DETERIORATION, FREEZES, FROZEN, RECOVERY};
use super::run::SessionRow;
use super::session::Session;
use super::utility;

/// A number of a paper, and ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Prediction {
    pub what: String,
    /// Where the paper states it.
    pub stated: String,
    pub unit: String,
    pub paper: f64,
    /// `None` if no session has this number, or the scheme was not compared.
    pub ours: Option<f64>,
    /// Number of sessions.
    pub sessions: u64,
}

/// Mean of `of` over these rows.
fn mean<'a>(
    rows: impl Iterator<Item = &'a SessionRow>,
    of: impl Fn(&SessionRow) -> Option<f64>,
) -> (Option<f64>, u64) {
    let (mut sum, mut count) = (0.0, 0u64);
    for value in rows.filter_map(of) {
        (sum, count) = (sum + value, count + 1);
    }
    ((count > 0).then(|| sum / count as f64), count)
}

struct PredictionTable {
    all: Vec<Prediction>,
}

impl PredictionTable {
    fn add(&mut self, what: &str, stated: &str, unit: &str, paper: f64, ours: (Option<f64>, u64)) {
        self.all.push(Prediction {
            what: what.to_owned(),
            stated: stated.to_owned(),
            unit: unit.to_owned(),
            paper,
            ours: ours.0,
            sessions: ours.1,
        });
    }
}

/// Calibrated numbers, as measured under the baseline.
pub(super) fn calibrated(
    trials: &[SessionTrial],
    sessions: &[Session],
    baseline: usize,
) -> Vec<Prediction> {
    let rows = || trials.iter().filter(|trial| trial.arm == baseline).map(|trial| &trial.row);
    let drawn = |of: &dyn Fn(&Session) -> f64| {
        let count = sessions.len() as u64;
        (Some(sessions.iter().map(of).sum::<f64>() / count.max(1) as f64), count)
    };
    let mut table = PredictionTable { all: Vec::new() };
    let srtt = mean(rows(), |row| Some(row.srtt_ms).filter(|srtt| *srtt > 0.0));
    table.add("smoothed round-trip time, mean", "journal VIII-A", "ms", 95.5, srtt);
    let loss = mean(rows(), |row| row.loss_rate.map(|rate| rate * 100.0));
    table.add("loss rate, mean", "journal VIII-B", "%", 4.0, loss);
    let bitrate = drawn(&|session| session.bitrate_mbps * 1e3);
    table.add("bit rate, mean", "journal VIII-A", "kbps", 984.5, bitrate);
    let stay = drawn(&|session| session.stay_s);
    table.add("planned viewing time, mean", "journal II-B", "s", 99.6, stay);
    let rates = qoe::stats::Sample::new(sessions.iter().map(|session| session.rate_mbps));
    let median = rates.map(|rates| rates.median());
    table.add("bottleneck, median", "AutoPlex 3.1", "Mbps", 5.4, (median, sessions.len() as u64));
    table.all
}

/// Table I of the journal version: recovery latency by loss rate and by smoothed round-trip time.
const TABLE_I: [(&str, PathClass, f64, f64); 8] = [
    ("loss 0 to 3 %", PathClass::Loss(0.0, 0.03), 26.8, 51.8),
    ("loss 3 to 10 %", PathClass::Loss(0.03, 0.1), 94.5, 204.9),
    ("loss 10 to 30 %", PathClass::Loss(0.1, 0.3), 186.4, 451.3),
    ("loss 30 to 50 %", PathClass::Loss(0.3, 0.5), 530.2, 1_288.4),
    ("SRTT 0 to 50 ms", PathClass::Srtt(0.0, 50.0), 68.2, 149.2),
    ("SRTT 50 to 200 ms", PathClass::Srtt(50.0, 200.0), 170.2, 391.3),
    ("SRTT 200 to 500 ms", PathClass::Srtt(200.0, 500.0), 273.6, 698.8),
    ("SRTT 500 to 2000 ms", PathClass::Srtt(500.0, 2_000.0), 418.0, 960.9),
];

#[derive(Clone, Copy)]
enum PathClass {
    Loss(f64, f64),
    Srtt(f64, f64),
}

impl PathClass {
    fn has(self, row: &SessionRow) -> bool {
        match self {
            Self::Loss(low, high) => row.loss_rate.is_some_and(|loss| (low..high).contains(&loss)),
            Self::Srtt(low, high) => (low..high).contains(&row.srtt_ms),
        }
    }
}

/// Predicted numbers. `overall` are the schemes over all sessions.
pub(super) fn predictions(
    trials: &[SessionTrial],
    overall: &[ArmResults],
    baseline: usize,
) -> Vec<Prediction> {
    let rows = trials.iter().filter(|trial| trial.arm == baseline).map(|trial| &trial.row);
    let rows: Vec<&SessionRow> = rows.collect();
    let mut table = PredictionTable { all: Vec::new() };
    recovery(&mut table, &rows, &overall[baseline]);
    stream(&mut table, &rows, &overall[baseline]);
    for (arm, name, gains) in [
        (FLEET_AUTOREC, "AutoRec", &GAINS_JOURNAL[..]),
        (FLEET_MM24, "AutoRec of MM'24", &GAINS_MM24[..]),
    ] {
        let arm = overall.iter().find(|known| known.name == arm);
        for (metric, what, stated, paper) in gains {
            let gain = arm.and_then(|arm| gain(arm, &overall[baseline], *metric));
            let sessions = arm.map_or(0, |arm| arm.sessions);
            table.add(&format!("{name}: {what}"), stated, "%", *paper, (gain, sessions));
        }
    }
    if let Some(arm) = overall.iter().position(|arm| arm.name == FLEET_MM24) {
        for change in utility::changes(trials, baseline, arm) {
            let what = format!("AutoRec of MM'24: {}", change.what);
            let ours = (change.ours, change.sessions);
            table.add(&what, change.stated, "%", change.paper, ours);
        }
    }
    table.all
}

fn value(arm: &ArmResults, metric: usize) -> Option<f64> {
    arm.means[metric].map(|estimate| estimate.value)
}

/// Change of a scheme against the baseline, in per cent; for the cost, its value.
fn gain(arm: &ArmResults, base: &ArmResults, metric: usize) -> Option<f64> {
    let own = value(arm, metric)?;
    match metric {
        COST => Some(own),
        _ => value(base, metric).filter(|base| *base > 0.0).map(|base| 100.0 * (own / base - 1.0)),
    }
}

/// Loss recovery of plain retransmission.
fn recovery(table: &mut PredictionTable, rows: &[&SessionRow], base: &ArmResults) {
    let rows = || rows.iter().copied();
    let lossy = rows().filter(|row| row.finished > 0).count() as u64;
    let each = (value(base, DETERIORATION), lossy);
    let all =
        rows().fold((0, 0), |(late, all), row| (late + row.finished_late, all + row.finished));
    let pooled = ((all.1 > 0).then(|| 100.0 * all.0 as f64 / all.1 as f64), lossy);
    for (stated, paper) in [("journal VII-B, figure 21", 23.0), ("MM'24 5.2", 6.8)] {
        table.add("ARQ: deterioration rate, mean over sessions", stated, "%", paper, each);
        table.add("ARQ: deterioration rate, over all lost data", stated, "%", paper, pooled);
    }
    let latency = mean(rows(), |row| Some(row.recovery_ms?.0));
    table.add("ARQ: recovery latency", "journal VII-B, figure 21", "ms", 231.2, latency);
    let latency = mean(rows(), |row| row.recovery_with_zeros().map(|both| both.0));
    let stated = "journal III-C, MM'24 5.2";
    table.add("ARQ: recovery latency, none is 0", stated, "ms", 123.2, latency);
    let longest = mean(rows(), |row| row.recovery_with_zeros().map(|both| both.1));
    table.add("ARQ: largest recovery latency, none is 0", stated, "ms", 279.3, longest);
    for (name, class, latency, longest) in TABLE_I {
        let of = |pick: fn((f64, f64)) -> f64| {
            mean(rows().filter(|row| class.has(row)), |row| row.recovery_with_zeros().map(pick))
        };
        let what = format!("ARQ: recovery latency, none is 0, {name}");
        table.add(&what, "journal, table I", "ms", latency, of(|both| both.0));
        let what = format!("ARQ: largest recovery latency, none is 0, {name}");
        table.add(&what, "journal, table I", "ms", longest, of(|both| both.1));
    }
    let twice = mean(rows(), |row| Some(if row.rounds_max >= 2 { 100.0 } else { 0.0 }));
    let what = "ARQ: connections with two and more retransmissions";
    table.add(what, "journal III-A, figure 3", "%", 43.0, twice);
    bursts(table, rows());
}

/// Sizes of bursts, over all connections.
fn bursts<'a>(table: &mut PredictionTable, rows: impl Iterator<Item = &'a SessionRow>) {
    let mut counts = BurstCounts::default();
    let mut sessions = 0;
    for row in rows.filter(|row| row.bursts.iter().any(|&runs| runs > 0)) {
        counts.iter_mut().zip(row.bursts).for_each(|(sum, runs)| *sum += runs);
        sessions += 1;
    }
    let all: u32 = counts.iter().sum();
    let single = (all > 0).then(|| 100.0 * f64::from(counts[0]) / f64::from(all));
    let stated = "ART 3.2, figure 4a";
    table.add("ARQ: bursts of one packet", stated, "%", 37.2, (single, sessions));
    for (percentile, paper) in [(90.0, 13.0), (95.0, 27.0), (99.0, 125.0)] {
        let what = format!("ARQ: burst size, {percentile}th percentile");
        let size = burst_quantile(&counts, percentile / 100.0);
        table.add(&what, stated, "packets", paper, (size, sessions));
    }
}

/// Quantile of burst sizes, linear within a class; `None` without bursts or above the last limit.
fn burst_quantile(counts: &BurstCounts, q: f64) -> Option<f64> {
    let wanted = q * f64::from(counts.iter().sum::<u32>());
    let (mut below, mut low) = (0.0, 0.0);
    for (&runs, limit) in counts.iter().zip(BURST_SIZES.map(f64::from)) {
        let runs = f64::from(runs);
        if runs > 0.0 && below + runs >= wanted {
            return Some(low + (limit - low) * (wanted - below) / runs);
        }
        (below, low) = (below + runs, limit);
    }
    None
}

/// Stream quality under plain retransmission.
fn stream(table: &mut PredictionTable, rows: &[&SessionRow], base: &ArmResults) {
    let (rows, count) = (|| rows.iter().copied(), rows.len() as u64);
    let stated = "journal III-B, figure 6";
    let off = mean(rows(), |row| Some(row.off_mode_ms_per_s));
    table.add("ARQ: off-mode in a second", stated, "ms", 464.0, off);
    let entries = mean(rows(), |row| Some(row.off_mode_entries_per_s));
    table.add("ARQ: entries into off-mode in a second", stated, "1", 20.0, entries);
    let stated = "journal VII-B, figure 22";
    let pooled = (value(base, FREEZES), count);
    table.add("ARQ: freezes in 100 s, over all time", stated, "1", 0.69, pooled);
    let each = mean(rows(), |row| {
        let seconds = row.watched.seconds();
        (seconds > 0.0).then(|| row.watched.freezes as f64 * 100.0 / seconds)
    });
    table.add("ARQ: freezes in 100 s, mean over sessions", stated, "1", 0.69, each);
    let frozen = (value(base, FROZEN), count);
    let what = "ARQ: seconds frozen in 100 s, least region";
    table.add(what, "journal II-B, figure 2", "s", 1.3, frozen);
}

/// Changes against ARQ in production: metric, name, source, value.
type Gain = (usize, &'static str, &'static str, f64);

const GAINS_JOURNAL: [Gain; 5] = [
    (RECOVERY, "recovery latency", "journal VII-B, figure 21", -15.8),
    (DETERIORATION, "deterioration rate", "journal VII-B, figure 21", -1.7),
    (FREEZES, "freezes", "journal VII-B, figure 22", -10.1),
    (FROZEN, "time frozen", "journal VII-B, figure 22", -4.74),
    (COST, "replicas for each packet", "journal VII-B, figure 21", 0.47),
];

const GAINS_MM24: [Gain; 4] = [
    (RECOVERY, "recovery latency", "MM'24 5.2, figure 14", -24.6),
    (DETERIORATION, "deterioration rate", "MM'24 5.2, figure 14", -37.1),
    (FREEZES, "freezes", "MM'24 5.2, figure 16", -11.4),
    (FROZEN, "time frozen", "MM'24 5.2, figure 16", -5.2),
];

#[cfg(test)]
mod tests {
    use super::super::compare::{compare, tests::row};
    use super::*;

    #[test]
    fn quantiles_of_bursts_exist_up_to_the_largest_limit() {
        assert_eq!(burst_quantile(&[0; 9], 0.5), None);
        assert_eq!(burst_quantile(&[10, 0, 0, 0, 0, 0, 0, 0, 0], 0.9), Some(0.9));
        assert_eq!(burst_quantile(&[5, 0, 0, 0, 0, 0, 0, 0, 5], 0.5), Some(1.0));
        assert_eq!(burst_quantile(&[5, 0, 0, 0, 0, 0, 0, 0, 5], 0.9), None);
    }

    #[test]
    fn predictions_stand_beside_the_papers_numbers_and_a_scheme_that_is_not_there_has_none() {
        let names = ["arq".to_owned(), FLEET_AUTOREC.to_owned()];
        let mut trials = Vec::new();
        for session in 0..20 {
            for (arm, freezes) in [4, 3].into_iter().enumerate() {
                trials.push(SessionTrial { session, viewer: session, arm, row: row(10, freezes) });
            }
        }
        trials[0].row.rounds_max = 1;
        let overall = compare(&trials.iter().collect::<Vec<_>>(), &names, 0, None);
        let all = predictions(&trials, &overall, 0);
        let ours = |what: &str| all.iter().find(|one| one.what == what).expect(what).ours;
        assert_eq!(ours("ARQ: recovery latency"), Some(200.0));
        assert_eq!(ours("ARQ: largest recovery latency, none is 0, loss 3 to 10 %"), Some(400.0));
        assert_eq!(ours("ARQ: recovery latency, none is 0, loss 10 to 30 %"), None);
        assert_eq!(ours("ARQ: connections with two and more retransmissions"), Some(95.0));
        // 20 sessions with 4, 2, 1 and 1 bursts of at most 1, 2, 4 and 8 packets.
        assert_eq!(ours("ARQ: bursts of one packet"), Some(50.0));
        assert_eq!(ours("ARQ: burst size, 95th percentile"), Some(4.0 + 4.0 * 0.6));
        assert_eq!(ours("AutoRec: freezes"), Some(-25.0));
        assert_eq!(ours("AutoRec of MM'24: freezes"), None);
        let deterioration = ours("ARQ: deterioration rate, over all lost data").expect("known");
        assert!((deterioration - 20.0).abs() < 1e-9);
    }
}
