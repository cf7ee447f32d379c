//! Comparisons with known results.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use super::*;
use records::{Record, RecordWriter, Retention};

fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// A session of viewer `unit` with six minutes of playback.
fn session(cohort: &str, unit: u64, first_frame_ms: f64) -> Record {
    let mut record = Record::default();
    record.session.protocol = Some("h3".into());
    record.session.cohort = Some(cohort.into());
    record.session.scheme = Some(if cohort == "control" { "arq" } else { "autorec" }.into());
    record.session.unit = Some(format!("{unit:016x}"));
    record.session.prefix = Some("192.0.2.0/24".into());
    record.session.started_ms = Some(1_795_000_000_000 + unit as i64 * 600_000);
    record.session.duration_s = Some(400.0);
    // Rounded to six decimals, as in JSON lines.
    record.startup.first_frame_ms = Some((first_frame_ms * 1e6).round() / 1e6);
    record.player.player_played_s = Some(350.0);
    record.player.player_freeze_s = Some(10.0);
    record.player.player_freezes = Some(2);
    record
}

fn changed(mut record: Record, change: impl FnOnce(&mut Record)) -> Record {
    change(&mut record);
    record
}

/// Picks a cohort with a fair coin.
fn coin(rng: &mut ChaCha8Rng) -> &'static str {
    if rng.next_u64() & 1 == 0 { "control" } else { "treatment" }
}

/// Sessions of viewers in different networks: `each` per viewer, first-frame times multiplied by
/// `shift` in the treatment.
fn experiment(viewers: u64, each: u64, shift: f64, rng: &mut ChaCha8Rng) -> Vec<Record> {
    let mut all = Vec::new();
    for unit in 0..viewers {
        let cohort = coin(rng);
        let network = -80.0 * (1.0 - uniform(rng)).ln();
        for _ in 0..each {
            let time = (60.0 + network + 20.0 * uniform(rng))
                * if cohort == "treatment" { shift } else { 1.0 };
            all.push(session(cohort, unit, time));
        }
    }
    all
}

fn write(path: &Path, records: &[Record]) {
    let mut text = String::new();
    for record in records {
        writeln!(text, "{}", record.json()).expect("text grows");
    }
    std::fs::write(path, text).expect("written");
}

fn options(files: &Path, metrics: &[&str]) -> CompareOptions {
    CompareOptions {
        files: vec![files.to_owned()],
        metrics: metrics.iter().map(|name| (*name).to_owned()).collect(),
        baseline: None,
        seed: 1,
        resamples: 2_000,
        min_duration: Duration::ZERO,
        protocol: None,
        weights: Vec::new(),
    }
}

/// Compares the records through a file.
fn compared(records: &[Record], change: impl FnOnce(&mut CompareOptions)) -> CohortReport {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("sessions.jsonl");
    write(&path, records);
    let mut options = options(&path, &["first_frame_ms"]);
    change(&mut options);
    compare(&options).expect("compared")
}

fn of_mean(report: &CohortReport) -> &Difference {
    &report.metrics[0].comparisons[0].differences[0]
}

#[test]
fn statistics_of_known_sessions() {
    let mut records = Vec::new();
    for n in 0..101 {
        records.push(session("b", n, n as f64));
        records.push(session("a", 1_000 + n, 100.0 + n as f64));
        // A long session has more weight.
        let played = if n == 0 { 3_590.0 } else { 350.0 };
        let record = &mut records[2 * n as usize];
        (record.session.duration_s, record.player.player_played_s) =
            (Some(played + 50.0), Some(played));
    }
    let report = compared(&records, |options| {
        options.metrics.push("freezes_per_hour".into());
        options.metrics.push("loss_rate".into());
        options.baseline = Some("b".into());
    });
    let metric = &report.metrics[0];
    assert_eq!((metric.cohorts[0].cohort.as_str(), metric.cohorts[0].units), ("b", 101));
    let expected =
        Statistics { mean: 50.0, p50: 50.0, p90: 90.0, p95: 95.0, p99: 99.0, robust_mean: 50.0 };
    assert_eq!(metric.cohorts[0].statistics, expected);
    let [mean, p50, p90, p95, p99, _] = &metric.comparisons[0].differences[..] else { panic!() };
    assert_eq!((mean.estimate, mean.relative), (100.0, Some(2.0)));
    assert!(mean.excludes_zero && mean.differs && p50.differs && p90.excludes_zero);
    assert!(p90.p.is_none() && p95.low.is_some(), "5 of 101 viewers lie beyond");
    assert!(p99.low.is_none(), "1 of 101 viewers is beyond: no interval");
    // 2 freezes in 100 × 360 s + 3,600 s against 2 in 360 s: the ratio of sums.
    let freezes = &report.metrics[1].cohorts;
    assert!((freezes[0].statistics.mean - 202.0 / 11.0).abs() < 1e-9, "{:?}", freezes[0]);
    assert!((freezes[1].statistics.mean - 20.0).abs() < 1e-9);
    assert!((freezes[0].statistics.p50 - 20.0).abs() < 1e-9);
    assert_eq!(report.without_data, ["loss_rate"]);
    assert_eq!(report.comparisons, 6, "means, medians and robust means of two metrics");
    // Interval of the difference of two means of 101 values from 0 to 100: ±1.96 × 4.12.
    let half = (mean.high.expect("an interval") - mean.low.expect("an interval")) / 2.0;
    assert!((7.2..9.0).contains(&half), "{half}");
}

/// 1,000 viewers, with a third of the freezes in the treatment, and one more viewer with a forged
/// report.
fn poisoned(report: impl FnOnce(&mut Record)) -> CohortReport {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut all: Vec<Record> = Vec::new();
    for unit in 0..1_000 {
        let cohort = if unit % 2 == 0 { "treatment" } else { "control" };
        let draw = uniform(&mut rng);
        let freezes = match cohort {
            "control" if draw < 0.2 => 2,
            "control" if draw < 0.4 => 1,
            "treatment" if draw < 0.2 => 1,
            _ => 0,
        };
        let mut record = session(cohort, unit, 300.0);
        (record.session.duration_s, record.player.player_played_s) = (Some(120.0), Some(118.0));
        record.player.player_freezes = Some(freezes);
        record.player.player_freeze_s = Some(freezes as f64 * 0.4);
        all.push(record);
    }
    let mut evil = session("treatment", 5_000, 300.0);
    evil.session.duration_s = Some(120.0);
    report(&mut evil);
    all.push(evil);
    compared(&all, |options| options.metrics = vec!["freezes_per_hour".into()])
}

#[test]
fn one_poisoned_row_hides_no_difference() {
    let differs = |report: &CohortReport| -> Vec<(&str, bool)> {
        let all = &report.metrics[0].comparisons[0].differences;
        let tested = all.iter().filter(|one| one.p.is_some());
        tested.map(|one| (one.statistic, one.differs && one.estimate < 0.0)).collect()
    };
    let clean = poisoned(|row| row.player.player_freezes = Some(0));
    let expected = [("mean", true), ("p50", false), ("robust mean", true)];
    assert_eq!(differs(&clean), expected);
    // An out-of-range report is excluded.
    let absurd = poisoned(|row| {
        (row.player.player_played_s, row.player.player_freezes) = (Some(0.0), Some(2_500_000_000));
        row.player.player_freeze_s = Some(2_592_000.0);
    });
    assert_eq!(differs(&absurd), expected);
    assert_eq!(absurd.read.reports_left_out, 1);
    assert!(absurd.text().contains("excluded: 1 player reports beyond"));
    // A report just within the range moves the mean but not the robust mean.
    let sly = poisoned(|row| {
        (row.player.player_played_s, row.player.player_freezes) = (Some(1.0), Some(470));
        row.player.player_freeze_s = Some(118.0);
    });
    assert_eq!(sly.read.reports_left_out, 0);
    assert_eq!(differs(&sly), [("mean", false), ("p50", false), ("robust mean", true)]);
    let negative = poisoned(|row| row.player.player_freezes = Some(-2_500_000_000));
    assert_eq!((differs(&negative), negative.read.impossible_values), (expected.to_vec(), 1));
}

#[test]
fn an_a_a_comparison_differs_in_one_of_twenty() {
    let repetitions = 200;
    let (mut excluded, mut tested) = (0, 0);
    for seed in 0..repetitions {
        let records = experiment(2_000, 1, 1.0, &mut ChaCha8Rng::seed_from_u64(seed));
        let report = compared(&records, |options| {
            options.resamples = 200;
            options.seed = seed;
        });
        excluded += u32::from(of_mean(&report).excludes_zero);
        tested += u32::from(of_mean(&report).p.expect("tested") < 0.05);
    }
    // 10 of 200 are expected, with a standard deviation of 3.1: three standard deviations either
    // side.
    assert!((2..=19).contains(&excluded), "intervals: {excluded}");
    assert!((2..=19).contains(&tested), "p-values: {tested}");
}

#[test]
fn a_shift_of_ten_percent_is_found_and_survives_the_correction() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let report = compared(&experiment(4_000, 1, 0.9, &mut rng), |options| {
        options.metrics.push("freezes_per_hour".into());
    });
    let [mean, p50, p90, ..] = &report.metrics[0].comparisons[0].differences[..] else { panic!() };
    assert!(mean.differs && p50.differs && p90.excludes_zero, "{mean:?} {p50:?} {p90:?}");
    assert!(mean.estimate < 0.0 && (-0.15..-0.05).contains(&mean.relative.expect("a baseline")));
    // All sessions have the same freezes.
    let freezes = &report.metrics[1].comparisons[0].differences[0];
    assert!(!freezes.differs && freezes.estimate.abs() < 1e-9);
    let text = report.text();
    assert!(text.contains("DIFFERS: mean of first_frame_ms, treatment: -"), "{text}");
    // The detectable effect is smaller than the one found, and shrinks with more data.
    let power = report.metrics[0].comparisons[0].power.as_ref().expect("viewers");
    let (one, four) = (power.one_week_more.expect("days"), power.four_weeks_more.expect("days"));
    assert!(power.now < mean.estimate.abs() && one < power.now && four < one, "{power:?}");
    // 27.8 days and 28 more: twice the data, √2 less.
    assert!((four / power.now - (report.days / (report.days + 28.0)).sqrt()).abs() < 1e-9);
}

#[test]
fn more_sessions_of_the_same_viewers_do_not_narrow_the_interval() {
    let width = |each| {
        let mut rng = ChaCha8Rng::seed_from_u64(12);
        let report = compared(&experiment(400, each, 1.0, &mut rng), |_| {});
        assert_eq!(report.cohorts.iter().map(|c| c.units).sum::<u64>(), 400);
        let mean = of_mean(&report);
        mean.high.expect("an interval") - mean.low.expect("an interval")
    };
    let (one, ten) = (width(1), width(10));
    assert!((0.75..1.3).contains(&(ten / one)), "{one} {ten}");
}

#[test]
fn few_viewers_give_no_difference() {
    let mut rng = ChaCha8Rng::seed_from_u64(13);
    let report = compared(&experiment(20, 50, 3.0, &mut rng), |_| {});
    let mean = of_mean(&report);
    assert!(mean.low.is_none() && mean.p.is_none() && !mean.differs, "{mean:?}");
    assert_eq!(report.comparisons, 0);
    assert!(report.text().contains("too few viewers"));
}

#[test]
fn twelve_metrics_do_not_cry_wolf() {
    // Twelve columns of noise in 60 experiments. Some are significant without the correction.
    let columns = [
        "rtt_ms",
        "rtt_min_ms",
        "recovery_mean_ms",
        "recovery_p95_ms",
        "recovery_max_ms",
        "first_frame_ms",
        "player_first_frame_ms",
        "loss_rate",
        "goodput_mbps",
        "redundancy_cost",
        "retransmission_ratio",
        "off_mode_ms_per_s",
    ];
    let (mut alone, mut corrected) = (0, 0);
    for seed in 0..60 {
        let mut rng = ChaCha8Rng::seed_from_u64(1_000 + seed);
        let mut records = experiment(200, 1, 1.0, &mut rng);
        for record in &mut records {
            let mut noise = || Some(uniform(&mut rng));
            record.path.rtt_ms = noise();
            record.path.rtt_min_ms = noise();
            record.recovery.recovery_mean_ms = noise();
            record.recovery.recovery_p95_ms = noise();
            record.recovery.recovery_max_ms = noise();
            record.player.player_first_frame_ms = noise();
            record.path.loss_rate = noise();
            record.delivery.goodput_mbps = noise();
            record.recovery.redundancy_cost = noise();
            record.recovery.retransmission_ratio = noise();
            record.recovery.off_mode_ms_per_s = noise();
        }
        let report = compared(&records, |options| {
            options.metrics = columns.map(String::from).to_vec();
            options.resamples = 300;
        });
        assert_eq!(report.comparisons, 36);
        let all = report.metrics.iter().flat_map(|metric| &metric.comparisons[0].differences);
        let (a, b) = all.fold((false, false), |(a, b), one| {
            (a || one.p.is_some_and(|p| p < 0.05), b || one.differs)
        });
        alone += u32::from(a);
        corrected += u32::from(b);
    }
    // Of 60: at most 3 expected with the correction (standard deviation 1.7), about 35 without.
    assert!(corrected <= 8, "{corrected}");
    assert!(alone >= 20, "{alone}");
}

#[test]
fn broken_lines_are_counted_and_passed_over() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("sessions.jsonl");
    let good = session("control", 1, 100.0).json();
    let long = "x".repeat(200_000);
    let cut = &good[..good.len() / 2];
    let text = format!("{good}\n{cut}\n\n{long}\n[1]\n{good}\r\n{{\"cohort\":7}}\n{cut}");
    std::fs::write(&path, text.as_bytes()).expect("written");
    std::fs::write(directory.path().join("other.parquet"), b"PAR1 no").expect("written");
    let report = compare(&options(directory.path(), &["first_frame_ms"])).expect("compared");
    let (read, input) = (&report.read, &report.read.input);
    assert_eq!((input.records, input.broken_lines, read.without_cohort), (3, 4, 1));
    assert_eq!((input.files, input.unreadable_files), (2, 1));
    assert!(input.unreadable[0].contains("other.parquet"), "{:?}", input.unreadable);
    assert!(report.text().contains("excluded: 4 broken lines"));
    assert_eq!(report.cohorts[0].sessions, 2);
}

#[test]
fn nothing_to_compare_is_one_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let error = |options: &CompareOptions| compare(options).expect_err("nothing").to_string();
    let empty = options(directory.path(), &[]);
    assert_eq!(error(&empty), "no session to compare (files: 0)");
    let path = directory.path().join("sessions.jsonl");
    std::fs::write(&path, "x\n{}\n").expect("written");
    let expected =
        "no session to compare (files: 1, broken lines: 1, sessions without a cohort: 1)";
    assert_eq!(error(&empty), expected);
    assert!(error(&options(&directory.path().join("none"), &[])).contains("No such file"));
    assert!(
        error(&options(&path, &["stream"])).starts_with("no metric \"stream\"; known metrics: ")
    );
    write(&path, &[session("a", 1, 1.0)]);
    let unknown = CompareOptions { baseline: Some("z".into()), ..empty };
    assert_eq!(error(&unknown), "no cohort \"z\"; known cohorts: a");
}

#[test]
fn parquet_and_json_lines_of_the_same_rows_say_the_same_and_both_count_once() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let hour = Duration::from_secs(3_600);
    let writer = RecordWriter::start(directory.path(), hour, Retention::default());
    let writer = writer.expect("started");
    let records = experiment(300, 2, 1.1, &mut ChaCha8Rng::seed_from_u64(14));
    records.iter().for_each(|record| writer.write(record.clone()).expect("room"));
    writer.close();
    let entries = std::fs::read_dir(directory.path()).expect("a directory");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let [lines, parquet] = &paths[..] else { panic!("{paths:?}") };
    let report = |path: &Path| compare(&options(path, &[])).expect("compared");
    let (of_lines, of_parquet, of_both) =
        (report(lines), report(parquet), report(directory.path()));
    assert_eq!(of_lines.read.input.records, 600);
    assert_eq!(of_lines.json(), of_parquet.json());
    assert_eq!(of_lines.json(), of_both.json());
    // The JSON lines replace a damaged Parquet file.
    std::fs::write(parquet, b"no").expect("written");
    let fallen_back = report(directory.path());
    assert_eq!((fallen_back.read.input.records, fallen_back.read.input.unreadable_files), (600, 1));
}

#[test]
fn a_mismatch_of_the_sample_ratio_is_an_alarm() {
    let records = experiment(1_000, 1, 1.0, &mut ChaCha8Rng::seed_from_u64(15));
    let weights = |a: u32, b: u32| vec![("control".to_owned(), a), ("treatment".to_owned(), b)];
    let sound = compared(&records, |options| options.weights = weights(50, 50));
    let ratio = sound.sample_ratio.as_ref().expect("weights");
    assert!(!ratio.mismatch && ratio.p.expect("viewers") > 0.001, "{ratio:?}");
    let wrong = compared(&records, |options| options.weights = weights(60, 40));
    let ratio = wrong.sample_ratio.as_ref().expect("weights");
    assert!(ratio.mismatch && ratio.chi_square > 10.8, "{ratio:?}");
    assert!(wrong.warnings[0].starts_with("sample ratio mismatch"), "{:?}", wrong.warnings);
    // A cohort without sessions is missing too.
    let missing = compared(&records, |options| {
        options.weights = weights(1, 1);
        options.weights.push(("third".to_owned(), 1));
    });
    assert!(missing.sample_ratio.expect("weights").mismatch);
}

#[test]
fn exclusions_are_reported_and_viewers_identified_by_unit_or_network() {
    let mut records = vec![session("control", 1, 1.0), session("control", 1, 2.0)];
    records.push(changed(session("control", 2, 3.0), |record| record.session.unit = None));
    records.push(changed(session("treatment", 3, 3.0), |record| record.session.unit = None));
    records
        .push(changed(session("control", 4, 4.0), |record| record.session.duration_s = Some(4.9)));
    records.push(changed(session("control", 5, 4.0), |record| {
        record.session.protocol = Some("h2".into())
    }));
    records.push(changed(session("control", 6, 4.0), |record| record.session.cohort = None));
    let report = compared(&records, |options| {
        options.protocol = Some("h3".into());
        options.min_duration = Duration::from_secs(5);
    });
    let read = &report.read;
    assert_eq!((read.other_protocol, read.too_short, read.without_cohort), (1, 1, 1));
    assert_eq!((read.unit_from_network, read.units_in_several_cohorts), (2, 1));
    let control = &report.cohorts[0];
    assert_eq!((control.sessions, control.units, control.too_short), (3, 3, 1));
    assert!(report.warnings.iter().any(|warning| warning.contains("more than one cohort")));
}

#[test]
fn a_dominant_network_gives_a_warning_and_no_difference() {
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let mut records = experiment(1_000, 1, 1.0, &mut rng);
    assert!(!compared(&records, |_| {}).text().contains("one viewer"));
    // One distant viewer, assigned to the treatment.
    records.extend((0..200).map(|_| session("treatment", 5_000, 600.0)));
    let report = compared(&records, |_| {});
    let warned = |text: &str| report.warnings.iter().any(|warning| warning.contains(text));
    assert!(warned("one viewer has 30 % of the sessions of cohort treatment"), "{}", report.text());
    assert!(of_mean(&report).estimate > 50.0 && !of_mean(&report).differs, "{}", report.text());
}

#[test]
fn the_page_is_self_contained_and_escapes_names() {
    let mut records = experiment(200, 1, 1.0, &mut ChaCha8Rng::seed_from_u64(16));
    for record in &mut records {
        if record.session.cohort.as_deref() == Some("treatment") {
            record.session.cohort = Some("<script>&\"".into());
        }
    }
    let html = compared(&records, |_| {}).html();
    assert!(html.contains("&lt;script&gt;&amp;&quot;") && !html.contains("<script"));
    for outside in ["http:", "https:", "src=", "href=", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert_eq!(html.matches("<svg").count(), 1);
    // Two cohorts and two legend entries.
    assert_eq!(html.matches("<polyline").count(), 4);
    assert!(!html.contains("NaN") && !html.contains("inf"));
}
