//! Tests of the catalogue, and of pages from small stored results.

use std::path::PathBuf;

use toml::Value;

use super::super::figures::built_in;
use super::super::files::{Made, write_made, write_rows};
use super::super::metrics::{ALL, RunMetric};
use super::super::rows::RunRow;
use super::super::spec::Spec;
use super::*;

const CATALOGUE: &str = r#"
[[papers]]
key = "journal"
title = "Journal"
stands = "One."
fails = "Two."
depends = "Three."
diagrams = "Figure 1"

[[papers.figures]]
name = "Figure 18"
subject = "Round-trip time"
experiment = "autorec-fig18"
plots = ["1-rdr.svg", "missing.svg"]
cause = "Detection."

[[papers.figures.numbers]]
of = "latency"
paper = 15.76
unit = "ms"

[papers.figures.numbers.from]
results = "autorec-fig18"
scheme = "AutoRec"
metric = "recovery_latency_ms"
at = { "path.rtt" = "20ms" }

[[papers.figures.numbers]]
of = "cost"
paper = 5.1
unit = "%"

[papers.figures.numbers.from]
results = "autorec-fig18"
scheme = "AutoRec"
metric = "redundancy_cost"
at = { "path.rtt" = "20ms" }

[[papers.figures]]
name = "Figure 11"
subject = "First frame"

[[papers.figures.numbers]]
of = "gain"
paper = -10.6
unit = "%"
from = { results = "visits", scheme = "wira", metric = "gain:first_frame_ms", sweep = "all" }

[[papers.figures]]
name = "Figure 11, inputs"
subject = "First frame"
fitted = true

[[papers.figures.numbers]]
of = "fitted gain"
paper = 4
unit = "%"
from = { results = "visits", scheme = "wira", metric = "gain:first_frame_ms", sweep = "all" }

[[papers.figures]]
name = "Figure 22"
subject = "Freezes"

[[papers.figures.numbers]]
of = "change"
paper = -10.1
unit = "%"
from = { results = "population", scheme = "autorec", metric = "gain:freezes_per_100s" }

[[papers.figures.numbers]]
of = "90th"
paper = -24.4
unit = "%"
from = { results = "population", scheme = "autorec", metric = "gain:p90:freezes_per_100s" }

[[papers.figures.numbers]]
of = "95th"
paper = -34.1
unit = "%"
from = { results = "population", scheme = "autorec", metric = "gain:p95:freezes_per_100s" }

[[papers.figures.numbers]]
of = "area"
paper = 2
unit = "s"
not_measured = "no areas"
"#;

/// Temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("mendcast-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("created");
        Self(folder)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        std::fs::write(path, text).expect("written");
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.0.join(path)).expect("written")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Stores two runs of figure 18 with these latencies and this cost.
fn store(folder: &Folder, latencies: [f64; 2], cost: f64, error: &str) {
    let text = built_in("autorec-fig18").expect("built in");
    let spec = Spec::parse(text).expect("valid");
    let row = |(seed, latency)| {
        let mut values = vec![None; ALL.len()];
        let mut set = |name, value| {
            values[RunMetric::index(name).expect("known")] = Some(value);
        };
        set("recovery_latency_ms", latency);
        set("redundancy_cost", cost);
        let point = vec![("path.rtt".to_owned(), Value::String("20ms".to_owned()))];
        assert!(spec.sweeps[0].points().contains(&point));
        let (scheme, drawn, error) = ("AutoRec".to_owned(), Vec::new(), error.to_owned());
        RunRow { sweep: 0, scheme, point, drawn, seed, values, error }
    };
    let rows: Vec<RunRow> = (1..).zip(latencies).map(row).collect();
    let out = folder.0.join("out/autorec-fig18");
    std::fs::create_dir_all(&out).expect("created");
    write_made(&out, &Made { name: spec.name.clone(), ..Made::default() }, text).expect("written");
    write_rows(&out, &rows).expect("written");
}

fn pages(folder: &Folder) -> (String, String) {
    let catalogue = Catalogue::parse(CATALOGUE).expect("valid");
    let results = AllResults::read(&[&folder.0.join("out")]).expect("readable");
    write(&catalogue, &results, &folder.0.join("pages")).expect("written");
    (folder.read("pages/papers.md"), folder.read("pages/papers/journal.md"))
}

#[test]
fn pages_hold_our_numbers_against_the_papers() {
    let folder = Folder::new("papers");
    store(&folder, [15.0, 17.0], 0.029, "");
    folder.write("out/autorec-fig18/1-rdr.svg", "<svg/>");
    folder.write(
        "out/visits/summary.json",
        r#"[{"experiment":"visits","sweep":"all","scheme":"wira","point":{},
            "metric":"gain:first_frame_ms","unit":"1","mean":0.04,"ci95":0.01}]"#,
    );
    folder.write(
        "out/population/summary.json",
        r#"{"command":"","baseline":"arq","metrics":["freezes_per_100s"],"overall":[
            {"name":"arq","means":[{"value":0.5,"low":0.4,"high":0.6}],"differences":[null]},
            {"name":"autorec","means":[{"value":0.45,"low":0.4,"high":0.5}],
             "differences":[{"value":-0.05,"low":-0.06,"high":-0.04}]}],
            "percentiles":[{"name":"arq","p90":[2.0],"p95":[4.0]},
             {"name":"autorec","p90":[1.5],"p95":[null]}]}"#,
    );
    let (overview, page) = pages(&folder);
    let row = "| Figure 18 | Round-trip time: latency | 15.8 ms | 16 ± 13 ms | within 10 % | \
               Detection. |";
    assert!(overview.contains(row), "{overview}");
    // Five judged numbers: latency and cost of the experiment, one of visits, two of
    // the population. The fitted figure's number does not count.
    let counts = "| 3 of 4 | **3 of 5** | 3 | 0 | 1 | 0 | 1 |";
    assert!(overview.contains(counts), "{overview}");
    assert!(overview.contains("| -10.6 % | 4.0 ± 1.0 % | opposite sign |"), "{overview}");
    assert!(overview.contains("| 4.00 % | 4.0 ± 1.0 % | within 10 % |"), "{overview}");
    assert!(overview.contains("| -10.1 % | -10.0 ± 2.0 % | within 10 % |"), "{overview}");
    assert!(page.contains("| 90th | -24.4 % | -25.0 % | within 10 % |"), "{page}");
    assert!(page.contains("| 95th | -34.1 % | – | not measured: no results given |"), "{page}");
    assert!(overview.contains("- **Holds**: One."), "{overview}");
    assert!(page.contains("| cost | 5.10 % | 2.90 ± 0 % | within 2× |"), "{page}");
    assert!(page.contains("![Figure 18](pictures/autorec-fig18-1-rdr.svg)"), "{page}");
    assert!(!page.contains("missing.svg"), "{page}");
    let (plot, table) =
        (page.find("![").expect("a plot"), page.find("| ---").or(page.find("|---")));
    assert!(plot < table.expect("a table"), "{page}");
    assert_eq!(folder.read("pages/papers/pictures/autorec-fig18-1-rdr.svg"), "<svg/>");
}

#[test]
fn a_page_lists_what_a_choice_changes() {
    let folders = [Folder::new("ours"), Folder::new("calls"), Folder::new("noise")];
    store(&folders[0], [15.0, 15.2], 0.12, "");
    store(&folders[1], [30.0, 30.2], 0.12, "");
    // A change of 13 % within the confidence intervals.
    store(&folders[2], [14.0, 20.2], 0.125, "");
    let catalogue = Catalogue::parse(CATALOGUE).expect("valid");
    let read = |which: usize| AllResults::read(&[&folders[which].0.join("out")]).expect("readable");
    let choices = [(1, "calls"), (2, "noise")].map(|(n, title)| Choice { title, results: read(n) });
    let page = choices::page(&catalogue, &read(0), &choices);
    assert!(page.contains("| calls | 1 | 1 of 2 | 1 | 0 |"), "{page}");
    assert!(page.contains("| noise | 1 | 0 of 2 | 0 | 0 |"), "{page}");
    assert!(page.contains("| latency | 15.8 ms | 15.1 ± 1.3 ms | 30.1 ± 1.3 ms |"), "{page}");
    let lost = "- Holds only without the change: AutoRec keeps latency below α = 30 ms";
    assert!(page.contains(lost) && !page.contains("| cost |"), "{page}");
    // A figure without results of both kinds does not count.
    let none = [Choice { title: "none", results: AllResults::default() }];
    assert!(choices::page(&catalogue, &read(0), &none).contains("| none | 0 | 0 of 0 | 0 | 0 |"));
}

#[test]
fn numbers_of_the_benchmarks_are_costs_over_retransmission() {
    let folder = Folder::new("bench-papers");
    folder.write(
        "out/bench.json",
        r#"[{"name":"recovery_cpu_loss/art-paper","ratio":1.05,"pairs":[1.04,1.07]},
            {"name":"loopback","ratio":2.0,"pairs":null}]"#,
    );
    let results = AllResults::read(&[&folder.0.join("out")]).expect("readable");
    let from = r#"results = "bench"
        scheme = "art-paper"
        metric = "over:recovery_cpu_loss""#;
    let found = results.number(&toml::from_str(from).expect("a source")).expect("there");
    assert!(found.is_share && (found.value.mean - 0.05).abs() < 1e-9, "{found:?}");
    assert!(found.value.half.is_some_and(|half| (half - 0.015).abs() < 1e-9), "{found:?}");
    folder.write("out/bench.json", "{}");
    assert!(AllResults::read(&[&folder.0.join("out")]).is_err());
}

#[test]
fn without_results_a_number_is_not_measured() {
    let folder = Folder::new("no-papers");
    store(&folder, [15.0, 17.0], 0.029, "");
    let (with, _) = pages(&folder);
    assert!(with.contains("within 10 %") && with.contains("| 1 of 4 | **1 of 2** |"), "{with}");
    std::fs::remove_dir_all(folder.0.join("out/autorec-fig18")).expect("removed");
    let (without, page) = pages(&folder);
    let row = "| 15.8 ms | – | not measured | no results given |";
    assert!(without.contains(row), "{without}");
    assert!(page.contains("| area | 2.00 s | – | not measured: no areas |"), "{page}");
    // No number of the earlier results is left.
    assert!(!without.contains("16 ±") && !page.contains("16 ±"), "{without} {page}");
}

#[test]
fn failed_runs_are_reported_apart_from_claims() {
    let folder = Folder::new("failed-papers");
    store(&folder, [15.0, 17.0], 0.029, "wrong bytes");
    let (_, page) = pages(&folder);
    assert!(page.contains("**2 of 2 runs failed; the first: AutoRec at path.rtt=20ms"), "{page}");
}

#[test]
fn a_figure_needs_a_number_a_source_and_a_short_cause() {
    let refused = |from: &str, to: &str| {
        assert!(CATALOGUE.contains(from), "{from}");
        Catalogue::parse(&CATALOGUE.replace(from, to)).expect_err(to).to_string()
    };
    let cause = ["word"; 16].join(" ");
    let line = refused("cause = \"Detection.\"", &format!("cause = \"{cause}\""));
    assert_eq!(line, "Journal, Figure 18: a cause of 16 words; at most 15");
    let line = refused("not_measured = \"no areas\"", "");
    assert!(line.contains("Figure 22: area: either `from` or `not_measured`"), "{line}");
    let line = refused("scheme = \"AutoRec\"", "scheme = \"Nobody\"");
    assert!(line.contains("`autorec-fig18` has no such scheme and point"), "{line}");
    let line = refused("\"path.rtt\" = \"20ms\"", "\"path.rtt\" = \"21ms\"");
    assert!(line.contains("no such scheme and point"), "{line}");
    assert!(refused("metric = \"redundancy_cost\"", "metric = \"cost\"").contains("`cost`"));
    let name = "subject = \"First frame\"";
    let line = refused(name, &format!("{name}\nexperiment = \"autorec-fig18\""));
    assert!(line.contains("`autorec-fig18` belongs to another figure"), "{line}");
}

#[test]
fn the_catalogue_names_every_experiment_with_numbers_of_a_paper() {
    let catalogue = Catalogue::built_in().expect("valid");
    assert_eq!(catalogue.papers.len(), 5);
    let figures = || catalogue.papers.iter().flat_map(|paper| &paper.figures);
    for (name, _) in super::super::list() {
        let Ok(text) = built_in(name) else { continue };
        let spec = Spec::parse(text).expect("valid");
        // The numbers of `formula-limits` are of models.
        if !spec.paper.is_empty() && name != "formula-limits" {
            let is_named = figures().any(|figure| figure.experiment.as_deref() == Some(name));
            assert!(is_named, "{name}");
        }
    }
}
