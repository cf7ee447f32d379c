//! Tests of the engine with short specifications, and of every shipped one with shortened runs.

use std::path::PathBuf;
use std::time::Duration;

use links::{Link, LinkConfig, Packet};
use qoe::stats::Estimate;
use units::{Ecn, Timestamp};

use super::super::{claims, metrics};
use super::*;

const TINY: &str = r#"
name = "tiny"
title = "T"
about = "A."
runs = 2
baseline = "ARQ"
metrics = ["recovery_latency_ms", "redundancy_cost", "goodput_reduction"]

[recovery]
max_redundancy = "1000%"

[source]
duration = "4s"
rate = "12mbps"

[lab]
detection = "lsquic"

[[schemes]]
label = "fixed"
set = { recovery.scheme = "autorec-fixed" }

[[schemes]]
label = "ARQ"
set = { recovery.scheme = "arq" }

[[sweeps]]
title = "Level"
axes = [{ key = "lab.level", values = [1, 3] }, { key = "quic.congestion", values = ["bbr"] }]

[[paper]]
on = { scheme = "fixed", at = { lab.level = 3 } }
metric = "redundancy_cost"
value = [0.1, 0.2]
stated = "page 1"

[[claims]]
text = "More replicas, less latency."
on = { scheme = "fixed" }
metric = "recovery_latency_ms"
is = { falls = {} }

[[claims]]
text = "At level 3 they cost as much as on page 1."
on = { scheme = "fixed", at = { lab.level = 3 } }
metric = "redundancy_cost"
is = { near = { bound = 0.15, margin = 0.05 } }

[[claims]]
text = "Replicas cost nothing."
on = { scheme = "fixed" }
metric = "redundancy_cost"
is = { at-most = { bound = 0.001 } }
why = "They do."
"#;

/// The specification without numbers of a paper and without claims.
fn without_claims() -> String {
    TINY[..TINY.find("[[paper]]").expect("it has one")].to_owned()
}

fn options(runs: u64) -> RunOptions<'static> {
    RunOptions { spec: None, set: &[], runs: Some(runs), jobs: 2, seed: 1 }
}

/// Temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("mendcast-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("created");
        Self(folder)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).expect("written")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_tiny_specification_writes_all_files_and_a_failed_claim() {
    let folder = Folder::new("tiny");
    let holds = run(TINY, &options(3), &folder.0).expect("it runs");
    assert!(!holds, "replicas cost something");
    assert_eq!(folder.read("results.csv").lines().count(), 1 + 2 * 2 * 3);
    let html = folder.read("report.html");
    for part in ["<svg", "PASS", "FAIL", "They do.", "page 1", "CPU-seconds"] {
        assert!(html.contains(part), "{part}");
    }
    assert!(folder.read("1-redundancy_cost.svg").contains("fixed, bbr (paper)"));
    let summary: Vec<serde_json::Value> =
        serde_json::from_str(&folder.read("summary.json")).expect("JSON");
    let line = summary
        .iter()
        .find(|line| {
            line["scheme"] == "fixed"
                && line["metric"] == "redundancy_cost"
                && line["point"]["lab.level"] == 3
        })
        .expect("a line");
    assert_eq!(line["paper"], serde_json::json!([0.1, 0.2]));
    assert_eq!(line["runs"], 3);
    let (mean, expected) = (line["mean"].as_f64(), line["expected"].as_f64());
    assert!((mean.expect("a mean") - expected.expect("G")).abs() < 0.03, "{line}");
    // Rewriting the report from the files must give the same text.
    assert!(!report(&folder.0).expect("rewritten"));
    assert_eq!(folder.read("report.html"), html);
    assert!(markdown(&[&std::env::temp_dir().join("nothing")]).is_err());
    let results = markdown(&[&folder.0]).expect("results");
    assert!(results.summary.contains("](../../experiments/tiny.toml) | "), "{}", results.summary);
    let text = results.page;
    assert!(text.contains("(fixed, lab.level=1;quic.congestion=bbr: "), "{text}");
    assert!(text.contains("against 0.100 to 0.200"), "{text}");
    assert!(text.contains("against at most 0.00100"), "{text}");
    assert!(text.contains("- page 1\n"), "{text}");
    assert!(text.contains("**FAIL** (0 of 2) Replicas cost nothing. They do."), "{text}");
}

#[test]
fn an_experiment_without_claims_says_so_and_failed_runs_are_no_claim() {
    let folder = Folder::new("no-claims");
    assert!(run(&without_claims(), &options(1), &folder.0).expect("it runs"));
    let results = markdown(&[&folder.0]).expect("results");
    assert!(results.summary.contains(" | T | no claims | – | 1 | "), "{}", results.summary);
    assert!(folder.read("report.html").contains("<p>No claims.</p>"));
    // A run without results makes the command fail.
    let rows = folder.read("results.csv");
    let (last, rest) = (rows.lines().last().expect("a row"), rows.lines().count() - 1);
    let kept: Vec<&str> = rows.lines().take(rest).collect();
    let failed = format!("{}\n{last}wrong bytes\n", kept.join("\n"));
    write_file(&folder.0.join("results.csv"), &failed).expect("written");
    assert!(!report(&folder.0).expect("rewritten"));
    let summary = markdown(&[&folder.0]).expect("results").summary;
    assert!(summary.contains("**1 of 4 runs failed; the first: ARQ at lab.level=3"), "{summary}");
}

#[test]
fn numbers_of_the_paper_are_judged_in_the_report_and_the_summary() {
    let folder = Folder::new("judged");
    run(&TINY.replace("value = [0.1, 0.2]", "value = 0.9"), &options(1), &folder.0).expect("runs");
    assert!(folder.read("report.html").contains(" / 0.900, × 0.1"), "ours and our share");
    assert!(folder.read("report.html").contains(", beyond 2×</td>"));
    assert!(folder.read("summary.json").contains("\"verdict\": \"beyond 2×\""));
    let summary = markdown(&[&folder.0]).expect("results").summary;
    assert!(summary.contains(" of 3 | 0 / 0 / 0 / 1 / 0 | 1 | "), "{summary}");
}

#[test]
fn a_failed_run_is_reported_and_others_continue() {
    let folder = Folder::new("failing");
    let text = TINY.replace("duration = \"4s\"", "kind = \"download\"").replace(
        "lab.level\", values = [1, 3]",
        "source.duration\", values = [\"100ms\", \"60000ms\"]",
    );
    let text = text.replace(", at = { lab.level = 3 }", "");
    let holds = run(&text, &options(1), &folder.0).expect("it runs");
    assert!(!holds);
    let rows = folder.read("results.csv");
    assert_eq!(rows.matches("not completed in time").count(), 2, "{rows}");
    assert!(
        folder
            .read("report.html")
            .contains("source.duration=100ms;quic.congestion=bbr with seed 1")
    );
}

#[test]
fn invalid_keys_and_values_are_rejected_by_name() {
    let refused =
        |from: &str, to: &str| Spec::parse(&TINY.replace(from, to)).expect_err(to).to_string();
    assert!(
        refused("rate = \"12mbps\"", "raet = \"12mbps\"")
            .contains("tiny:14: [source] raet: unknown key, did you mean rate?")
    );
    let line = refused("\"lab.level\", values", "\"lab.levl\", values");
    assert!(line.contains("tiny:") && line.contains("`lab.levl`: unknown key"), "{line}");
    let line = refused("values = [1, 3]", "values = [1, 11]");
    assert!(line.contains("`lab.level`: expected 0 to 10"), "{line}");
    assert!(refused("runs = 2", "runs = 2\nrun = 3").contains("no `run` in experiments"));
    let line = refused("[lab]", "[server]\ncores = 1\n[lab]");
    assert!(line.contains("no `server` in experiments; sections: [recovery], "), "{line}");
    assert!(refused("baseline = \"ARQ\"", "baseline = \"FEC\"").contains("`FEC`"));
    assert!(refused("metric = \"redundancy_cost\"", "metric = \"cost\"").contains("`cost`"));
    assert!(refused("label = \"fixed\"", "label = \"fixed, 3\"").contains("commas"));
    let line = refused("values = [\"bbr\"]", "values = [\"bbr,copa\"]");
    assert!(line.contains("bbr,copa"), "{line}");
    let mut spec = Spec::parse(TINY).expect("it is one");
    let set = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let line = spec.set(&[set("secs", "1")]).expect_err("refused").to_string();
    assert!(line.contains("`secs`"), "{line}");
    let line = spec.set(&[set("detection", "none")]).expect_err("refused").to_string();
    assert!(line.contains("`lab.detection`"), "{line}");
    spec.set(&[set("detection", "rfc9002"), set("source.duration", "1.5s")]).expect("taken");
}

#[test]
fn tables_end_with_the_clairvoyant_sender_and_show_the_closed_share() {
    let folder = Folder::new("clairvoyant");
    let text = TINY
        .replace("baseline = \"ARQ\"", "baseline = \"ARQ\"\nclairvoyant = \"all-knowing\"")
        .replace(
            "[[schemes]]\nlabel = \"fixed\"",
            "[[schemes]]\nlabel = \"all-knowing\"\nset = { recovery.scheme = \"arq\", lab.oracle = \"after-detection\" }\n\n\
             [[schemes]]\nlabel = \"fixed\"",
        )
        .replace("\"goodput_reduction\"", "\"closed:rdr\"");
    run(&text, &options(3), &folder.0).expect("it runs");
    let summary: Vec<serde_json::Value> =
        serde_json::from_str(&folder.read("summary.json")).expect("JSON");
    let of = |scheme: &str| {
        let line = summary.iter().find(|line| {
            line["scheme"] == scheme
                && line["metric"] == "closed:rdr"
                && line["point"]["lab.level"] == 3
        });
        line.and_then(|line| line["mean"].as_f64()).expect("a share")
    };
    assert_eq!(of("ARQ"), 0.0);
    assert!((of("all-knowing") - 1.0).abs() < 1e-9);
    let fixed = of("fixed");
    assert!((0.8..1.2).contains(&fixed), "three replicas of each lost packet: {fixed}");
    let table = markdown(&[&folder.0]).expect("text").page;
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| level 3")).collect();
    assert_eq!(rows.len(), 3, "{table}");
    assert!(rows[2].contains("all-knowing"), "{table}");
    let refused = |from: &str, to: &str| {
        Spec::parse(&text.replace(from, to)).expect_err("refused").to_string()
    };
    assert!(refused("clairvoyant = \"all-knowing\"", "").contains("`closed:rdr` needs"));
    assert!(
        refused("clairvoyant = \"all-knowing\"", "clairvoyant = \"nobody\"").contains("`nobody`")
    );
    assert!(refused("closed:rdr", "closed:rdr@FEC").contains("`FEC`"));
}

#[test]
fn merged_axes_are_one_line_and_a_run_made_twice_gives_the_same_event_log() {
    let folder = Folder::new("merged");
    let axes = "{ key = \"path.rtt\", values = [\"20ms\", \"40ms\"] }, { key = \"player.client\", values = \
                [\"quinn\", \"noq\"], merged = true }";
    let text = TINY
        .replace("duration = \"4s\"", "kind = \"download\"")
        .replace("[lab]", "[lab]\ntwice = true\ncipher = \"real\"")
        .replace(
            "{ key = \"lab.level\", values = [1, 3] }, { key = \"quic.congestion\", values = [\"bbr\"] }",
            axes,
        )
        .replace(", at = { lab.level = 3 }", "")
        .replace("\"goodput_reduction\"", "\"same_log\"");
    run(&text, &options(1), &folder.0).expect("it runs");
    let spec = Spec::parse(&text).expect("it is one");
    let rows = files::read_rows(&folder.0, &spec).expect("readable");
    let of = |name| metrics::RunMetric::index(name).expect("known");
    assert_eq!(rows.len(), 8);
    assert!(rows.iter().all(|row| row.values[of("same_log")] == Some(1.0)));
    // Another client gives another event log, but the table merges the clients.
    assert_ne!(rows[0].values[of("event_log")], rows[2].values[of("event_log")]);
    let html = folder.read("report.html");
    assert_eq!(html.matches("<td>rtt 20ms</td><td>ARQ</td>").count(), 1, "{html}");
}

/// Sends packets over a link at the given times and returns which are lost.
fn lost(loss: &str, times: &[Timestamp], size: u32) -> Vec<bool> {
    let loss = Some(loss.parse().expect("a loss"));
    let config = LinkConfig { loss, delay: Some(Duration::from_millis(1)), ..<_>::default() };
    let mut link: Link<usize> = Link::new(&config, 7, "link");
    let mut lost = vec![true; times.len()];
    for (place, &at) in times.iter().enumerate() {
        link.send(at, Packet { size, ecn: Ecn::NotEct, payload: place });
        while let Some(delivered) = link.poll(at) {
            lost[delivered.packet.payload] = false;
        }
    }
    while let Some(delivered) = link.poll(Timestamp::from_millis(1_000_000)) {
        lost[delivered.packet.payload] = false;
    }
    lost
}

#[test]
fn packet_fates_are_independent_of_send_times() {
    let at = |gap: u64| (0..5_000).map(|n| Timestamp::from_millis(n * gap)).collect::<Vec<_>>();
    let (one, two) = (lost("5%", &at(1), 1_200), lost("5%", &at(3), 90));
    assert!(one.iter().any(|&lost| lost));
    assert_eq!(one, two);
    // In time slots the state follows the clock: every packet of a bad slot is lost.
    let model = "ge:p=0.2,r=0.8,good=0%,bad=100%,slot=30ms";
    let bad_slots = |gap: u64| {
        let times: Vec<_> = (0..6_000 / gap).map(|n| Timestamp::from_millis(n * gap)).collect();
        let lost = lost(model, &times, 1_200);
        let slots = times.iter().zip(lost).filter(|(_, lost)| *lost);
        slots.map(|(at, _)| at.as_nanos() / 30_000_000).collect::<std::collections::BTreeSet<_>>()
    };
    assert!(!bad_slots(1).is_empty());
    assert_eq!(bad_slots(1), bad_slots(10));
}

#[test]
fn two_schemes_meet_the_same_path_and_the_same_seed_gives_the_same_row() {
    let spec = Spec::parse(TINY).expect("it is one");
    let run = || engine::run(&spec, &options(2), Some(2.0)).expect("it runs");
    let (one, two) = (run(), run());
    assert_eq!(one.rows, two.rows);
    // Level 0 is plain retransmission, packet by packet.
    let zero = without_claims().replace("values = [1, 3]", "values = [0]");
    let spec = Spec::parse(&zero).expect("it is one");
    let rows = engine::run(&spec, &options(1), Some(2.0)).expect("it runs").rows;
    assert_eq!(rows[0].values, rows[1].values);
}

/// Returns freezes per 100 s, milliseconds frozen and the share of late frames of a 1.5 Mbps stream
/// over a lossless path of this rate, with this player.
fn watched(rate: &str, player: &str) -> [f64; 3] {
    let text = without_claims()
        .replace("rate = \"12mbps\"", "rate = \"1.5mbps\"\nkind = \"live\"\ncached = \"3s\"")
        .replace("duration = \"4s\"", "duration = \"40s\"")
        .replace(
            "[lab]",
            &format!(
                "[path]\nloss = 0\nrate = \"{rate}\"\n[player]\nmodel = \"{player}\"\n\
                 [startup]\nmode = \"iw10\"\n[lab]"
            ),
        )
        .replace("key = \"lab.level\", values = [1, 3]", "key = \"lab.level\", values = [1]");
    let spec = Spec::parse(&text).expect("it is one");
    let rows = engine::run(&spec, &options(1), None).expect("it runs").rows;
    assert!(rows.iter().all(|row| row.error.is_empty()), "{rows:?}");
    let of =
        |name| rows[0].values[metrics::RunMetric::index(name).expect("known")].expect("a value");
    ["freezes_per_100s", "freeze_ms_per_100s", "late_frames"].map(of)
}

#[test]
fn a_player_freezes_on_a_path_narrower_than_the_stream() {
    assert_eq!(watched("20mbps", "low-latency"), [0.0; 3]);
    let [freezes, frozen, late] = watched("1mbps", "low-latency");
    assert!(freezes > 1.0 && frozen > 1_000.0, "{freezes} {frozen}");
    // At most two thirds of the stream can arrive.
    assert!((0.33..=1.0).contains(&late), "{late}");
    let [cautious, ..] = watched("1mbps", "cautious");
    assert!(cautious < freezes, "three seconds to resume: {cautious} {freezes}");
    let bad = TINY.replace("[lab]", "[player]\nmodel = \"vlc\"\n[lab]");
    let line = Spec::parse(&bad).expect_err("refused").to_string();
    assert!(line.contains("[player] model: expected \"low-latency\""), "{line}");
}

#[test]
fn knowledge_is_kept_between_downloads() {
    let spec = |scheme: &str, downloads: u32| {
        let (base, sweep) = (TINY.find("[recovery]"), TINY.find("[[paper]]"));
        let [base, sweep] = [base, sweep].map(|place| place.expect("it has one"));
        let set = TINY[base..sweep]
            .replace(
                "duration = \"4s\"",
                "duration = \"600s\"\nkind = \"download\"\nbytes = \"1MB\"",
            )
            .replace("autorec-fixed", scheme)
            .replace("level\", values = [1, 3]", &format!("warm_up\", values = [0, {downloads}]"));
        Spec::parse(&format!("{}{set}", &TINY[..base])).expect("it is one")
    };
    let place = metrics::RunMetric::index("redundancy_cost").expect("known");
    let costs = |spec: &Spec| {
        let rows = engine::run(spec, &options(1), None).expect("it runs").rows;
        assert!(rows.iter().all(|row| row.error.is_empty()), "{rows:?}");
        let of = rows.iter().filter(|row| row.scheme == "fixed");
        of.map(|row| row.values[place].expect("a cost")).collect::<Vec<_>>()
    };
    // An untrained bandit tries R up to 10. After some downloads it keeps to the best value.
    let ucb = spec("art-ucb", 10);
    let [new, taught] = costs(&ucb)[..] else { panic!("two points") };
    assert!(taught < 0.75 * new, "{taught} {new}");
    assert_eq!(costs(&ucb), [new, taught], "the same seed");
    // A network trains across downloads but not during the measured one.
    let dqn = spec("art-dqn", 1);
    assert_eq!(costs(&dqn), costs(&dqn));
}

#[test]
fn every_shipped_specification_runs() {
    for (name, text) in BUILT_IN {
        let folder = Folder::new(name);
        let start = Instant::now();
        let spec = Spec::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(spec.name, *name);
        // Reduced grid: first and last value of each axis.
        let result = run_for(&thin(text), &options(1), &folder.0, Some(0.5));
        result.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(folder.read("report.html").contains("Every run delivers the right bytes: PASS"));
        println!("{name}: {:?}", start.elapsed());
    }
    assert!(list().all(|(_, title)| !title.is_empty()));
}

/// Returns the specification with the first and last value of each axis. Claims on other values
/// would apply to nothing, so all are left out.
fn thin(text: &str) -> String {
    let mut table: toml::Table = text.parse().expect("TOML");
    table.remove("claims");
    for sweep in table["sweeps"].as_array_mut().expect("sweeps") {
        let axes = sweep.get_mut("axes").and_then(toml::Value::as_array_mut);
        for axis in axes.into_iter().flatten() {
            let values = axis["values"].as_array_mut().expect("values");
            let last = values.len().saturating_sub(1).max(1);
            values.drain(1..last);
        }
    }
    table.to_string()
}

#[test]
fn noise_cannot_make_a_claim_hold_without_ci() {
    let claim = |ci: &str| {
        let text = TINY
            .replace("at-most = { bound = 0.001 }", "near = { bound = 0.08, margin = 0.001 CI }");
        let spec = Spec::parse(&text.replace(" CI", ci)).expect("it is one");
        let all = metrics::ALL.len();
        let place = metrics::RunMetric::index("redundancy_cost").expect("known");
        let row = |seed: u64, cost: f64| {
            let mut values = vec![None; all];
            values[place] = Some(cost);
            let point = spec.sweeps[0].points().remove(0);
            let (scheme, drawn, error) = ("fixed".to_owned(), Vec::new(), String::new());
            RunRow { sweep: 0, scheme, point, drawn, seed, values, error }
        };
        let rows = [row(1, 0.02), row(2, 0.2)];
        verdicts(&spec, &rows).last().expect("a verdict").holds()
    };
    assert!(!claim(""), "0.11 is not 0.08");
    assert!(claim(", ci = true"), "it is within the interval");
}

#[test]
fn summary_and_page_agree_on_the_interval_of_five_runs() {
    let folder = Folder::new("intervals");
    run(TINY, &options(5), &folder.0).expect("it runs");
    let lines: Vec<serde_json::Value> =
        serde_json::from_str(&folder.read("summary.json")).expect("JSON");
    let shown = ["recovery_latency_ms", "redundancy_cost", "goodput_reduction"];
    let text = markdown(&[&folder.0]).expect("text").page;
    let mut seen = 0;
    for line in lines.iter().filter(|line| shown.iter().any(|name| line["metric"] == *name)) {
        assert_eq!(line["runs"], 5);
        let mean = line["mean"].as_f64().expect("a mean");
        let told = claims::with_ci(Estimate { mean, half: line["ci95"].as_f64() });
        assert!(text.contains(&told), "{told} of {line} in {text}");
        seen += 1;
    }
    assert_eq!(seen, 2 * 2 * shown.len(), "levels, schemes and metrics");
}
