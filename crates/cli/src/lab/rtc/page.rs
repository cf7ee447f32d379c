//! The page `docs/reproduce/client-changes.md`: what changing every client would gain.

use core::fmt::Write as _;

use qoe::stats::Estimate;

use super::chart::{self, Block, Mark, Row};
use rtc::experiment::{Changes, Experiment, Platform, Results};

/// A sender-only scheme follows if it has at most this multiple of late frames.
const FOLLOWS: f64 = 1.5;
/// Shares closer than this are equal: one frame in 10,000.
const EQUAL: f64 = 1e-4;
/// Completion times closer than this are equal, as a share.
const EQUAL_TIMES: f64 = 0.01;

const INTRODUCTION: &str = "\
A changed client restores lost packets from repair packets. Each row has the best scheme that \
changes the sender alone, beside the best scheme that needs such a client. Best means the fewest \
late frames or the earliest completion. Of schemes within 0.01 % (completion: 1 %) of the best \
one, it is the cheapest. Each is the best of several schemes in the same runs, so small \
differences are chance.

- *Late* is the share of frames that miss their deadline in calls, and the share of frozen time in \
conferences, with its 95 % interval.
- *Cost* is the number of replicas and repair packets per first transmission; the second number \
includes retransmissions.
- *Within 1.5×* compares the shares of late frames, and allows one frame in 10,000 on top.
- The *clairvoyant* sender knows which packets will be lost: the bound of all senders.
- The *reactive* sender learns of each loss when the acknowledgement is missing, and its \
retransmissions are never lost: the bound of senders whose copies wait for signs of a loss.
";

/// A scheme in a condition.
#[derive(Clone, Copy)]
struct Best<'a> {
    label: &'a str,
    /// Share of late frames, share of frozen time, or completion time in ms.
    metric: Estimate,
    redundancy: f64,
    overhead: f64,
}

/// Returns the schemes of one kind in a condition. Schemes without a finite value are left out.
fn schemes<'a>(results: &Results<'a>, condition: usize, changes: Changes) -> Vec<Best<'a>> {
    let experiment = results.experiment();
    let estimate = |scheme, metric| results.estimate(condition, scheme, metric);
    let all = experiment.schemes.iter().enumerate().filter(|(_, s)| s.changes == changes);
    all.filter_map(|(at, scheme)| {
        Some(Best {
            label: &scheme.label,
            metric: estimate(at, experiment.platform.metrics()[0])?,
            redundancy: estimate(at, "redundancy")?.mean,
            overhead: estimate(at, "overhead")?.mean,
        })
    })
    .collect()
}

/// Returns the scheme with the lowest metric; of equal ones, the one with the lowest overhead.
fn best<'a>(all: &[Best<'a>], platform: Platform) -> Option<Best<'a>> {
    let least = all.iter().map(|best| best.metric.mean).reduce(f64::min)?;
    let most = match platform {
        Platform::Transfer => least * (1.0 + EQUAL_TIMES),
        Platform::Call | Platform::Conference => least + EQUAL,
    };
    let equal = all.iter().filter(|best| best.metric.mean <= most);
    equal.min_by(|a, b| a.overhead.total_cmp(&b.overhead)).copied()
}

fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn with_interval(Estimate { mean, half }: Estimate, factor: f64) -> String {
    let half = half.map_or(String::new(), |half| format!(" ± {}", number(half * factor)));
    format!("{}{half}", number(mean * factor))
}

/// A condition with the best schemes of each kind, and all bounds.
struct Found<'a> {
    condition: &'a str,
    platform: Platform,
    sender: Option<Best<'a>>,
    client: Option<Best<'a>>,
    bounds: Vec<Best<'a>>,
}

impl<'a> Found<'a> {
    fn of(results: &Results<'a>, at: usize) -> Self {
        let experiment = results.experiment();
        let of = |changes| best(&schemes(results, at, changes), experiment.platform);
        Self {
            condition: &experiment.conditions[at].label,
            platform: experiment.platform,
            sender: of(Changes::Sender),
            client: of(Changes::Client),
            bounds: schemes(results, at, Changes::Bound),
        }
    }

    /// Factor from the metric to the unit of the table.
    fn factor(&self) -> f64 {
        if self.platform == Platform::Transfer { 1.0 } else { 100.0 }
    }

    /// Whether the sender-only scheme follows; `None` if a kind is missing.
    fn follows(&self) -> Option<bool> {
        let (sender, client) = (self.sender?, self.client?);
        Some(sender.metric.mean <= FOLLOWS * client.metric.mean + EQUAL)
    }

    fn row(&self) -> String {
        let cells = |best: Option<Best<'_>>| match best {
            Some(Best { label, metric, redundancy, overhead }) => format!(
                "{label} | {} | {} / {}",
                with_interval(metric, self.factor()),
                number(redundancy * 100.0),
                number(overhead * 100.0)
            ),
            None => "– | – | –".to_owned(),
        };
        let compared = match (self.platform, self.sender, self.client) {
            (Platform::Transfer, Some(sender), Some(client)) => {
                format!("{:.2}×", sender.metric.mean / client.metric.mean)
            }
            _ => match self.follows() {
                Some(true) => "yes".to_owned(),
                Some(false) => "no".to_owned(),
                None => "–".to_owned(),
            },
        };
        let bounds = self.bounds.iter().map(|bound| {
            let mean = number(bound.metric.mean * self.factor());
            format!("{} {mean}", bound.label)
        });
        let bounds = bounds.collect::<Vec<_>>().join("; ");
        let (condition, sender, client) = (self.condition, cells(self.sender), cells(self.client));
        format!("| {condition} | {sender} | {client} | {compared} | {bounds} |\n")
    }

    /// The row of the chart, in %. Completion times are shown as the excess over the bound.
    fn drawn(&self) -> Row {
        let bound = best(&self.bounds, self.platform);
        let mark = |best: Best<'_>| {
            let Estimate { mean, half } = best.metric;
            let (base, scale) = match (self.platform, bound) {
                (Platform::Transfer, Some(bound)) => (1.0, bound.metric.mean),
                _ => (0.0, 1.0),
            };
            let mean = (mean / scale - base) * 100.0;
            let half = half.map(|half| half / scale * 100.0);
            Mark { metric: Estimate { mean, half }, cost: best.overhead * 100.0 }
        };
        let marks = [self.sender, self.client, bound].map(|best| best.map(mark));
        Row { label: self.condition.to_owned(), marks }
    }
}

/// Returns the page and its chart. `made` states their origin; `picture` is the chart's path in
/// the page.
pub(super) fn client_changes(all: &[Results<'_>], made: &str, picture: &str) -> (String, String) {
    let mut sections = String::new();
    let mut blocks = Vec::new();
    let mut judged = Vec::new();
    for results in all {
        let experiment = results.experiment();
        let conditions = 0..experiment.conditions.len();
        let found: Vec<Found<'_>> = conditions.map(|at| Found::of(results, at)).collect();
        section(&mut sections, experiment, results.runs());
        found.iter().for_each(|found| sections.push_str(&found.row()));
        for finding in &experiment.findings {
            // Writing to a string does not fail.
            let _ = write!(sections, "\n{finding}\n");
        }
        blocks.push(Block {
            title: experiment.title.clone(),
            axis: axis(experiment.platform).to_owned(),
            rows: found.iter().map(Found::drawn).collect(),
        });
        judged.extend(found.into_iter().filter(|found| found.platform != Platform::Transfer));
    }
    let page = format!(
        "# What a changed client would gain\n\nGenerated by {made} Do not edit.\n\n{}\n\
         ![late frames and cost by condition]({picture})\n\n{INTRODUCTION}{sections}",
        answer(&judged)
    );
    (page, chart::svg(&blocks))
}

/// The answer in three sentences, from calls and conferences.
fn answer(judged: &[Found<'_>]) -> String {
    let compared: Vec<_> = judged.iter().filter(|found| found.follows().is_some()).collect();
    let behind: Vec<_> = compared.iter().filter(|found| found.follows() == Some(false)).collect();
    let overhead = |best: Option<Best<'_>>| best.map_or(f64::NAN, |best| best.overhead);
    let cheaper = compared.iter().filter(|found| overhead(found.sender) <= overhead(found.client));
    let list = |all: &[&&Found<'_>]| {
        all.iter().map(|found| found.condition).collect::<Vec<_>>().join(", ")
    };
    let cannot = match behind.len() {
        0 => "There is no condition in which it cannot follow.".to_owned(),
        _ => format!("It cannot follow in: {}.", list(&behind)),
    };
    format!(
        "The best scheme that changes the sender alone has at most {FOLLOWS} times as many late \
         frames as the best one with a changed client in {} of {} conditions of calls and \
         conferences. {cannot} It costs less, or as much, in {}.\n",
        compared.len() - behind.len(),
        compared.len(),
        cheaper.count()
    )
}

fn axis(platform: Platform) -> &'static str {
    match platform {
        Platform::Call => "late frames, %",
        Platform::Conference => "frozen time, %",
        Platform::Transfer => "completion after the clairvoyant sender's, %",
    }
}

fn section(page: &mut String, experiment: &Experiment, runs: usize) {
    let (metric, compared, bound) = match experiment.platform {
        Platform::Call => ("late, %", "within 1.5×", "bounds: late, %"),
        Platform::Conference => ("frozen, %", "within 1.5×", "bound: frozen, %"),
        Platform::Transfer => ("completion, ms", "ratio", "bound: ms"),
    };
    // Writing to a string does not fail.
    let _ = write!(
        page,
        "\n## {}\n\n{} {runs} runs per point.\n\n\
         | condition | sender-only | {metric} | cost, % | changed client | {metric} | cost, % \
         | {compared} | {bound} |\n|---|---|---|---|---|---|---|---|---|\n",
        experiment.title, experiment.about
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
name = "small"
title = "A small call"
about = "Three schemes."
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
"#;

    #[test]
    fn the_page_lists_the_best_schemes_of_each_kind() {
        let experiment = Experiment::parse("small.toml", SMALL).expect("valid");
        let jobs = experiment.jobs(2).into_iter();
        let all = jobs.map(|job| experiment.run(job, 1).expect("valid")).collect();
        let results = Results::new(&experiment, 2, all);
        let (page, chart) = client_changes(&[results], "`made`. Commit 1; a machine.", "chart.svg");
        for part in [
            "Generated by `made`. Commit 1; a machine. Do not edit.",
            "| clean | RTX | 0.00 ± 0.00 | 0.00 / 0.00 | Hairpin | 0.00 ± 0.00 | 0.00 / 0.00 |",
            "in 1 of 2 conditions of calls and conferences. It cannot follow in: lossy.",
            "2 runs per point.",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        let lossy = page.lines().find(|line| line.starts_with("| lossy"));
        assert!(lossy.is_some_and(|l| l.ends_with("| no | clairvoyant 0.00 |")), "{page}");
        assert!(chart.contains(">clean</text>") && chart.contains(">lossy</text>"));
    }
}
