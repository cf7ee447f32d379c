use super::*;

const SMALL: &str = r#"
name = "small"
title = "A small call"
about = "Two schemes."
runs = 2
platform = "call"

[setup]
duration = "2s"

[[conditions]]
label = "clean"

[[conditions]]
label = "lossy"
set = { loss = "20%" }

[[schemes]]
label = "RTX"
set = { scheme = "arq" }

[[schemes]]
label = "Hairpin"
changes = "client"
set = { scheme = "hairpin", lambda = 1e-7 }

[[schemes]]
label = "clairvoyant"
changes = "bound"
set = { scheme = "clairvoyant" }

[[paper]]
condition = "lossy"
scheme = "Hairpin"
metric = "late"
value = [0.0, 0.01]

[[claims]]
text = "Hairpin has fewer late frames."
conditions = ["lossy"]
scheme = "Hairpin"
metric = "late"
is = { below = "RTX" }

[[claims]]
text = "RTX is never late."
scheme = "RTX"
metric = "late"
is = { at-most = 0.0 }
why = "Three losses in a row are late."
"#;

fn results(experiment: &Experiment) -> Results<'_> {
    let jobs = experiment.jobs(2).into_iter();
    Results::new(experiment, 2, jobs.map(|job| experiment.run(job, 1).expect("valid")).collect())
}

#[test]
fn claims_are_judged_in_their_conditions_and_the_paper_stands_beside() {
    let experiment = Experiment::parse("small.toml", SMALL).expect("valid");
    assert_eq!(experiment.jobs(2).len(), 12);
    let results = results(&experiment);
    let verdicts: Vec<_> = results.judged().iter().map(|j| (j.condition, j.verdict)).collect();
    assert_eq!(verdicts[1], ("clean", Verdict::Holds));
    assert_ne!(verdicts[0].1, Verdict::Fails);
    assert_ne!(verdicts[2].1, Verdict::Holds, "20 % loss makes frames late");
    let table = results.table();
    for part in ["| RTX | 0.000 ± 0.000 |", "late frames, %: 0.000 to 1.00", "RTX is never late."]
    {
        assert!(table.contains(part), "{part} in {table}");
    }
}

#[test]
fn a_claim_that_cannot_hold_fails() {
    let text = SMALL.replace("is = { at-most = 0.0 }", "is = { at-least = 1.1 }");
    let experiment = Experiment::parse("small.toml", &text).expect("valid");
    let results = results(&experiment);
    assert!(results.judged()[1..].iter().all(|judged| judged.verdict == Verdict::Fails));
    assert!(results.table().contains("does not hold: Three losses"));
}

#[test]
fn errors_name_key_and_value() {
    let error = |from: &str, to: &str| {
        assert!(SMALL.contains(from), "{from}");
        let text = SMALL.replacen(from, to, 1);
        Experiment::parse("small.toml", &text).expect_err("rejected").to_string()
    };
    assert_eq!(error("runs = 2", "runs = 0"), "runs = 0: expected 1 to 10,000");
    assert_eq!(error("\"20%\"", "\"200%\"").split(": ").next(), Some("loss = 200%"));
    assert_eq!(error("lambda = 1e-7", "lambda = -1.0"), "lambda = -1: expected 0 to 1,000,000");
    assert!(error("lambda", "lamda").contains("lamda"));
    assert!(error("duration = \"2s\"", "duration = \"2\"").starts_with("duration = 2: expected"));
    assert!(error("{ below = \"RTX\" }", "{ below = \"RTY\" }").starts_with("claims.is = RTY"));
    assert!(error("metric = \"late\"", "metric = \"lat\"").starts_with("metric = lat"));
    assert!(error("\"call\"", "\"cal\"").starts_with("small.toml, line 6"));
    assert!(error("{ scheme = \"arq\" }", "{ scheme = \"fec\" }").starts_with("scheme = fec"));
}

fn with_scheme(platform: &str, keys: &str) -> String {
    let text = SMALL.replace("\"call\"", platform);
    let head = text.split("[[schemes]]").next().expect("a head").to_owned();
    head + &format!("[[schemes]]\nlabel = \"a\"\nset = {{ {keys} }}\n")
}

#[test]
fn impossible_codes_are_rejected_by_their_keys() {
    const BLOCK: &str = "scheme = \"arq\", block = true";
    const TAMBUR: &str = "scheme = \"tambur\"";
    const HAIRPIN: &str = "scheme = \"hairpin\"";
    for (platform, keys, expected) in [
        ("transfer", format!("{BLOCK}, repair = 256"), "block.repair = 256: expected 1 to 255"),
        ("transfer", format!("{BLOCK}, repair = 0"), "block.repair = 0: expected 1 to 255"),
        ("transfer", format!("{BLOCK}, data = 0"), "block.data = 0: expected 1 to 255"),
        ("transfer", format!("{BLOCK}, data = 200, repair = 57"), "block = 257: expected at most"),
        ("transfer", format!("{BLOCK}, repair = -1"), "scheme a = "),
        ("transfer", format!("{BLOCK}, repair = 9223372036854775807"), "scheme a = "),
        ("transfer", format!("{BLOCK}, timeout = \"0ms\""), "timeout = 0ms: expected a duration"),
        ("transfer", "scheme = \"arq\", repair = 2".to_owned(), "repair = set for `arq`"),
        ("conference", format!("{TAMBUR}, tau = 0"), "tau = 0: expected 1 to 16 frames"),
        ("conference", format!("{TAMBUR}, tau = 17"), "tau = 17: expected 1 to 16 frames"),
        ("conference", format!("{TAMBUR}, parity = nan"), "parity = NaN: expected 0 to 1"),
        ("conference", format!("{TAMBUR}, parity = 1.1"), "parity = 1.1: expected 0 to 1"),
        ("conference", format!("{TAMBUR}, lambda = 1.0"), "lambda = set for `tambur`"),
        ("call", format!("{HAIRPIN}, lambda = nan"), "lambda = NaN: expected 0 to 1,000,000"),
        ("call", format!("{HAIRPIN}, lambda = inf"), "lambda = inf: expected 0 to 1,000,000"),
        ("call", format!("{HAIRPIN}, tau = 3"), "tau = set for `hairpin`"),
        ("call", "scheme = \"autorec\", cost = nan".to_owned(), "cost = "),
        ("call", "scheme = \"deadline\", price = \"-1ms\"".to_owned(), "price = -1ms: expected"),
        ("call", "scheme = \"deadline\", max_redundancy = nan".to_owned(), "max_redundancy = NaN"),
        ("call", "scheme = \"tambur\"".to_owned(), "scheme = tambur: expected a known scheme"),
    ] {
        let text = with_scheme(&format!("\"{platform}\""), &keys);
        let error = Experiment::parse("a.toml", &text).expect_err(&keys).to_string();
        assert!(error.contains(expected) && error.lines().count() == 1, "{keys}: {error}");
    }
}

#[test]
fn masks_must_fit_the_largest_frame() {
    let keys = "scheme = \"webrtc-now\", masks = true";
    let text = with_scheme("\"call\"", keys);
    let mut experiment = Experiment::parse("a.toml", &text).expect("6 packets");
    assert!(experiment.set("packets", "48").is_ok());
    let error = experiment.set("key_factor", "1.5").expect_err("72 packets").to_string();
    assert_eq!(error, "packets = 72: expected at most 48 packets per frame with masks");
}

#[test]
fn impossible_values_of_a_set_up_are_rejected_by_their_keys() {
    for (key, value, expected) in [
        ("duration", "0s", "duration = 0s: expected a duration from 1s to 3600s"),
        ("duration", "1000000000s", "duration = 1000000000s: expected a duration from 1s"),
        ("duration", "nan", "setup of small = "),
        ("deadline", "0ms", "deadline = 0ms: expected a duration from 1ms to 60s"),
        ("deadline", "1000000000s", "deadline = 1000000000s: expected"),
        ("rtt", "18446744073709551615ns", "rtt = 18446744073709551615ns: expected"),
        ("rtt", "-1ms", "rtt = -1ms: expected a duration from 0ms to 10s"),
        ("rate", "0mbps", "rate = 0mbps: expected a rate from 10kbps to 100gbps"),
        ("rate", "1bps", "rate = 1bps: expected a rate"),
        ("rate", "nanmbps", "rate = nanmbps: expected a rate"),
        ("key_after", "0ms", "key_after = 0ms: expected a duration"),
        ("file", "0", "file = 0: expected 1 to 1,000,000 packets"),
        ("file", "4294967295", "file = 4294967295: expected 1 to 1,000,000 packets"),
        ("file", "18446744073709551615", "setup of small = "),
        ("fps", "-1", "setup of small = "),
        ("fps", "241", "fps = 241: expected 1 to 240"),
        ("packets", "4294967295", "packets = 4294967295: expected 1 to 48"),
        ("key_factor", "nan", "key_factor = NaN: expected 1 to 9"),
        ("variation", "nan", "variation = NaN: expected 0 to below 1"),
        ("loss", "nan%", "loss = nan%: expected"),
        ("loss", "-5%", "loss = -5%: expected"),
        ("colour", "blue", "colour"),
    ] {
        let mut experiment = Experiment::parse("small.toml", SMALL).expect("valid");
        let error = experiment.set(key, value).expect_err(key).to_string();
        assert!(error.contains(expected) && error.lines().count() == 1, "{key}: {error}");
    }
    let mut experiment = Experiment::parse("small.toml", SMALL).expect("valid");
    for (key, value) in [("fps", "240"), ("packets", "48")] {
        experiment.set(key, value).expect("in range");
    }
    let error = experiment.set("duration", "3600s").expect_err("too long").to_string();
    assert!(error.starts_with("duration = 41472000 packets in 3600s: expected at most"), "{error}");
}

#[test]
fn impossible_tables_are_rejected_by_their_keys() {
    for (from, to, expected) in [
        ("\"small\"", "\"../small\"", "name = ../small: expected letters, digits and hyphens"),
        ("runs = 2", "runs = 10001", "runs = 10001: expected 1 to 10,000"),
        ("runs = 2", "runs = -1", "small.toml, line 5"),
        ("runs = 2", "runs = nan", "small.toml, line 5"),
        ("runs = 2\n", "", "small.toml, line 1 = missing field `runs`"),
        ("\"lossy\"", "\"clean\"", "conditions.label = clean: expected a label of its own"),
        ("label = \"Hairpin\"", "label = \"RTX\"", "schemes.label = RTX: expected a label"),
        ("[0.0, 0.01]", "[0.01, 0.0]", "paper.value = [0.01, 0]: expected a range"),
        ("[0.0, 0.01]", "[0.0, nan]", "paper.value = [0, NaN]: expected a range"),
        ("at-most = 0.0", "at-most = nan", "claims.is = NaN: expected a number"),
        (
            "{ at-most = 0.0 }",
            "{ within = { scheme = \"Hairpin\", factor = 0.0 } }",
            "claims.is = 0: expected a number, a factor above 0",
        ),
    ] {
        assert!(SMALL.contains(from), "{from}");
        let text = SMALL.replacen(from, to, 1);
        let error = Experiment::parse("small.toml", &text).expect_err(to).to_string();
        assert!(error.contains(expected) && error.lines().count() == 1, "{to}: {error}");
    }
    let head = SMALL.split("[[conditions]]").next().expect("a head");
    let empty = format!("{head}conditions = []\nschemes = []\n").replace("[setup]\n", "");
    let empty = empty.replace("duration = \"2s\"\n", "");
    let error = Experiment::parse("small.toml", &empty).expect_err("empty").to_string();
    assert_eq!(error, "conditions = 0: expected at least one");
}

#[test]
fn an_error_does_not_repeat_a_trace() {
    let rows: String = (0..1_000).map(|n| format!("{} 5 20ms 0\n", f64::from(n) * 0.015)).collect();
    let keys = toml::Table::from_iter([
        ("trace".to_owned(), toml::Value::from(&*rows)),
        ("colour".to_owned(), toml::Value::from("blue")),
    ]);
    let error = parsed::<SetupKeys>("setup", keys).expect_err("unknown key").to_string();
    assert!(error.starts_with("setup = colour = \"blue\", trace = …: expected"), "{error}");
    let mut experiment = Experiment::parse("small.toml", SMALL).expect("valid");
    experiment.add_trace("a", &rows).expect("rows");
    let error = experiment.add_trace("a", &rows).expect_err("twice").to_string();
    assert_eq!(error, "conditions.label = trace a: expected a label of its own");
}

/// Nothing arrives, or a file does not fit into 10 minutes. Runs end at the limit of the platform.
#[test]
fn runs_without_an_end_are_ended_by_the_platform() {
    for (platform, schemes) in [
        ("call", &["arq", "deadline", "hairpin", "webrtc-now", "autorec"][..]),
        ("conference", &["arq", "tambur", "autorec"]),
        ("transfer", &["arq", "art-code"]),
    ] {
        for scheme in schemes {
            let text = with_scheme(&format!("\"{platform}\""), &format!("scheme = \"{scheme}\""));
            let mut experiment = Experiment::parse("a.toml", &text).expect("valid");
            experiment.set("loss", "100%").expect("valid");
            let results = results(&experiment);
            let first = experiment.platform.metrics()[0];
            let all_lost = results.estimate(0, 0, first).map(|estimate| estimate.mean);
            let expected = if platform == "transfer" { None } else { Some(1.0) };
            assert_eq!(all_lost, expected, "{platform} {scheme}");
        }
    }
    let mut slow = Experiment::parse("a.toml", &with_scheme("\"transfer\"", "scheme = \"arq\""));
    let slow = slow.as_mut().expect("valid");
    for (key, value) in [("rate", "10kbps"), ("file", "1000")] {
        slow.set(key, value).expect("valid");
    }
    let results = results(slow);
    assert!(results.table().contains("| a | never |"), "{}", results.table());
    assert!(results.summary().iter().all(|line| line.metric != "completion_ms"));
}

#[test]
fn the_summary_has_shares_counts_and_ratios() {
    let experiment = Experiment::parse("small.toml", SMALL).expect("valid");
    let results = results(&experiment);
    let lines = results.summary();
    let find = |scheme: &str, metric: &str| {
        let of = |line: &&SummaryLine<'_>| {
            line.point["condition"] == "lossy" && line.scheme == scheme && line.metric == metric
        };
        lines.iter().find(of).unwrap_or_else(|| panic!("{scheme}, {metric}"))
    };
    let late = find("RTX", "late");
    assert!(late.mean > 0.0 && late.unit == "1" && late.runs == 2);
    assert!((find("RTX", "late_per_10000").mean - late.mean * 1e4).abs() < 1e-9);
    let ratio = find("Hairpin", "ratio:late@RTX");
    assert!((ratio.mean - find("Hairpin", "late").mean / late.mean).abs() < 1e-9);
    // The mean of both runs' deviations is 0, so the interval is about the ratio of means.
    assert!(ratio.ci95.is_some_and(|half| half >= 0.0));
}

/// The catalogue of the papers' numbers reads `summary.json`.
#[test]
fn every_line_of_the_papers_catalogue_is_in_a_summary() {
    let text = include_str!("../../../../experiments/papers.toml");
    let catalogue: toml::Table = toml::from_str(text).expect("valid");
    let all = |value: &toml::Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let papers = catalogue["papers"].as_array().expect("papers").iter();
    let figures = papers.flat_map(|paper| all(paper, "figures"));
    let numbers: Vec<_> = figures.flat_map(|figure| all(&figure, "numbers")).collect();
    let mut checked = 0;
    for (name, text) in BUILT_IN {
        let mut experiment = Experiment::parse(name, text).expect("valid");
        if experiment.replays_traces() {
            experiment
                .add_trace("cell-trace4.log", "0.0 5 20ms 0\n0.015 5 20ms 0\n")
                .expect("rows");
        }
        let metrics = experiment.platform.metrics().iter().map(|name| (*name, 0.1)).collect();
        let jobs = experiment.jobs(1).len();
        let results = Results::new(&experiment, 1, vec![metrics; jobs]);
        let summary = results.summary();
        for from in numbers.iter().filter_map(|number| number.get("from")) {
            if from["results"].as_str() != Some(name) {
                continue;
            }
            checked += 1;
            let is_found = summary.iter().any(|line| {
                from["scheme"].as_str() == Some(line.scheme)
                    && from["metric"].as_str() == Some(&line.metric)
                    && from["at"]["condition"].as_str() == Some(line.point["condition"])
            });
            assert!(is_found, "{from}");
        }
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn built_in_specifications_are_valid_and_named_like_their_files() {
    for (name, text) in BUILT_IN {
        let experiment = Experiment::parse(name, text).expect("valid");
        assert_eq!((&experiment.name, experiment.claims.is_empty()), (&name.to_string(), false));
    }
}
