//! End-to-end virtual A/B tests with a few short sessions.

use super::*;
use crate::platform::specification::FLEET;
use std::path::PathBuf;

/// The built-in population, but every viewer stays for 8 s on a lossy path.
fn short(folder: &Path) -> PathBuf {
    let text = FLEET
        .replace("stay = \"lognormal:median=50s,sigma=1.29,low=5s,high=900s\"", "stay = '8s'")
        .replace("lossless = 0.1", "lossless = 0")
        .replace("median = 0.0105\n", "median = 0.05\n");
    assert!(text.contains("stay = '8s'") && text.contains("median = 0.05"));
    let path = folder.join("short.toml");
    std::fs::write(&path, text).expect("written");
    path
}

struct Test<'a> {
    population: &'a Path,
    out: &'a Path,
    schemes: &'a [&'a str],
    paired: bool,
    jobs: usize,
}

impl Test<'_> {
    fn run(&self, sessions: u32) -> Result<(), Error> {
        let schemes: Vec<String> = self.schemes.iter().map(|name| (*name).to_owned()).collect();
        ab(&AbOptions {
            sessions,
            population: Some(self.population),
            schemes: &schemes,
            cohorts: &[],
            paired: self.paired,
            seed: 3,
            seeds: 1,
            jobs: self.jobs,
            out: self.out,
        })
    }
}

fn json(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).expect("a file");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the lines of all records in a folder.
fn lines(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = std::fs::read_to_string(&path).expect("records");
            all.extend(text.lines().map(str::to_owned));
        }
    }
    all
}

#[test]
fn results_are_the_same_for_any_number_of_threads() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let population = short(folder.path());
    let outs = [1, 3].map(|jobs| {
        let out = folder.path().join(jobs.to_string());
        let schemes = &["arq", "spare", "clairvoyant"];
        let test = Test { population: &population, out: &out, schemes, paired: true, jobs };
        test.run(8).expect("a test");
        out
    });
    for name in ["summary.json", "report.md", "viewers.md", "pictures/viewers-late.svg"] {
        let [one, three] = outs.each_ref().map(|out| std::fs::read(out.join(name)).expect(name));
        assert_eq!(one, three, "{name}");
    }
    for arm in ["arq", "spare", "clairvoyant"] {
        let [one, three] = outs.each_ref().map(|out| lines(&out.join("records").join(arm)));
        assert_eq!(one, three, "{arm}");
        assert_eq!(one.len(), 8, "{arm}");
    }
    let summary = json(&outs[0].join("summary.json"));
    assert_eq!((&summary["baseline"], &summary["sessions"]), (&"arq".into(), &8.into()));
    assert_eq!(summary["dominance"].as_array().map(Vec::len), Some(3));
    // Percentiles over sessions, against the records.
    let metrics = summary["metrics"].as_array().expect("keys");
    let place = metrics.iter().position(|key| key == "first_frame_ms").expect("known");
    for (arm, percentiles) in summary["percentiles"].as_array().expect("arms").iter().enumerate() {
        let name = percentiles["name"].as_str().expect("a name");
        assert_eq!(summary["arms"][arm]["name"], name);
        let first = lines(&outs[0].join("records").join(name)).into_iter().filter_map(|line| {
            let record: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            record["player_first_frame_ms"].as_f64()
        });
        let sample = qoe::stats::Sample::new(first).expect("pictures");
        for (key, p) in [("p90", 0.9), ("p95", 0.95)] {
            let found = percentiles[key][place].as_f64().expect("a number");
            assert!((found - sample.quantile(p)).abs() < 1e-6, "{name} {key}: {found}");
        }
    }
    // A directory with records is not reused.
    let schemes = &["arq"];
    let again = Test { population: &population, out: &outs[0], schemes, paired: true, jobs: 1 };
    let error = again.run(1).expect_err("refused").to_string();
    assert!(error.contains("already holds records"), "{error}");
    // The page again, from the stored results.
    let path = outs[0].join("viewers.md");
    let before = std::fs::read_to_string(&path).expect("a page");
    assert!(
        before.contains("(pictures/viewers-late.svg)") && before.contains("| paper | ours | ratio")
    );
    std::fs::remove_file(&path).expect("removed");
    rewrite(&outs[0]).expect("written");
    assert_eq!(std::fs::read_to_string(&path).expect("a page"), before);
}

#[test]
fn results_of_several_seeds_are_pooled_and_reported_for_each() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let population = short(folder.path());
    let schemes = ["arq".to_owned(), "deadline".to_owned()];
    let summary = |seed, seeds| {
        let out = folder.path().join(format!("{seed}-{seeds}"));
        let population = Some(&*population);
        let options = AbOptions {
            sessions: 4,
            population,
            schemes: &schemes,
            cohorts: &[],
            paired: true,
            seed,
            seeds,
            jobs: 2,
            out: &out,
        };
        ab(&options).expect("a test");
        json(&out.join("summary.json"))
    };
    let (one, two, pooled) = (summary(7, 1), summary(8, 1), summary(7, 2));
    assert_eq!(pooled["seeds"], serde_json::json!([7, 8]));
    assert_eq!(pooled["sessions"], 8);
    let viewers = |summary: &serde_json::Value| summary["viewers"].as_u64().expect("a count");
    assert_eq!(viewers(&pooled), viewers(&one) + viewers(&two));
    for (place, alone) in [&one, &two].into_iter().enumerate() {
        let part = &pooled["parts"][place];
        assert_eq!(part["class"], format!("seed {}", 7 + place));
        assert_eq!(part["arms"], alone["overall"]);
    }
    let report = std::fs::read_to_string(folder.path().join("7-2/report.md")).expect("a report");
    assert!(report.contains("### Random seed") && report.contains("| seed 8 | 4 |"), "{report}");
}

#[test]
fn records_of_cohorts_are_read_by_the_tools_of_production() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (population, out) = (short(folder.path()), folder.path().join("out"));
    let schemes = &["arq", "spare"];
    let test = Test { population: &population, out: &out, schemes, paired: false, jobs: 2 };
    test.run(16).expect("a test");
    let report = analysis::compare(&analysis::CompareOptions {
        files: vec![out.join("records")],
        metrics: Vec::new(),
        baseline: None,
        seed: 1,
        resamples: 100,
        min_duration: Duration::ZERO,
        protocol: Some("h3".to_owned()),
        weights: vec![("arq".to_owned(), 1), ("spare".to_owned(), 1)],
    });
    let report = report.expect("compared");
    assert_eq!((report.read.input.records, report.read.input.broken_lines), (16, 0));
    assert_eq!((report.read.without_cohort, report.read.units_in_several_cohorts), (0, 0));
    let sessions: Vec<(&str, u64)> =
        report.cohorts.iter().map(|cohort| (&*cohort.name, cohort.sessions)).collect();
    assert_eq!(sessions.iter().map(|(_, sessions)| sessions).sum::<u64>(), 16, "{sessions:?}");
    assert_eq!(report.without_data, [""; 0], "every metric has values");
    for cohort in &report.cohorts {
        assert_eq!(cohort.schemes, std::slice::from_ref(&cohort.name));
    }
    // The written records serve as a population in turn.
    let text = RecordHistory::read(&out.join("records")).expect_err("too few").to_string();
    assert!(text.contains("16 of 16 records"), "{text}");
}

#[test]
fn an_operators_records_are_a_population() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut text = String::new();
    for n in 0..60 {
        text += &format!(
            "{{\"unit\":\"{n:016x}\",\"rtt_min_ms\":40,\"loss_rate\":0.03,\"goodput_mbps\":0.8,\"duration_s\":6}}\n"
        );
    }
    text += "{\"rtt_min_ms\":-4,\"loss_rate\":0.03,\"goodput_mbps\":0.8,\"duration_s\":6}\n";
    let past = folder.path().join("past");
    std::fs::create_dir(&past).expect("made");
    std::fs::write(past.join("sessions-1.jsonl"), text).expect("written");
    let out = folder.path().join("out");
    let schemes = &["arq", "spare"];
    Test { population: &past, out: &out, schemes, paired: true, jobs: 2 }.run(4).expect("a test");
    let summary = json(&out.join("summary.json"));
    assert_eq!((&summary["read"]["used"], &summary["read"]["impossible"]), (&60.into(), &1.into()));
    let report = std::fs::read_to_string(out.join("report.md")).expect("a report");
    assert!(report.contains("sessions-1.jsonl:61: `rtt_min_ms` is -4"), "{report}");
    for line in lines(&out.join("records/arq")) {
        let record: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(record["stream"], "live/0.8");
    }
}

#[test]
fn invalid_options_are_rejected() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let out = folder.path();
    let (schemes, cohorts) = (["arq".to_owned()], ["a=arq:1".to_owned()]);
    let good = AbOptions {
        sessions: 1,
        population: None,
        schemes: &schemes,
        cohorts: &[],
        paired: true,
        seed: 1,
        seeds: 1,
        jobs: 1,
        out,
    };
    let refused = |options: &AbOptions<'_>| ab(options).expect_err("refused").to_string();
    assert!(refused(&AbOptions { sessions: 0, ..good }).contains("`--sessions` is 0"));
    assert!(refused(&AbOptions { seeds: 0, ..good }).contains("`--seeds` is 0"));
    assert!(refused(&AbOptions { cohorts: &cohorts, ..good }).contains("not both"));
    let nowhere = Path::new("/nowhere.toml");
    assert!(refused(&AbOptions { population: Some(nowhere), ..good }).contains("/nowhere.toml"));
    let bad = out.join("bad.toml");
    std::fs::write(&bad, FLEET.replace("count = 18620", "count = -1")).expect("written");
    let line = refused(&AbOptions { population: Some(&bad), ..good });
    assert!(line.contains("bad.toml: `groups.count` is -1; it may be 1 to 1000000"), "{line}");
    assert!(rewrite(out).expect_err("nothing").to_string().contains("summary.json"));
}
