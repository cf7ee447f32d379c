//! Results of a virtual A/B test in Markdown: a summary page, and the report with every number.

use super::classes::DIMENSIONS;
use super::compare::{ArmResults, JUDGED};
use super::metrics::{FIRST_FRAME, FREEZES, FROZEN, LATE_400, METRICS, MetricEstimate};
use super::predictions::Prediction;
use super::summary::{Part, PopulationSummary, SEED};

/// Directory of the plots, beside the pages.
pub(super) const PICTURES: &str = "pictures";
/// Legend of intervals.
const INTERVALS_LEGEND: &str = "95 % intervals, from a bootstrap over whole viewers. `*`: the \
                                interval of the difference excludes 0; by chance this happens in \
                                one of twenty cells without any difference.";

/// Renders rows as a table; the first row holds the headings.
fn table(rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let Some((head, rest)) = rows.split_first() else { return String::new() };
    let rule = vec!["---".to_owned(); head.len()];
    let mut text = line(head) + &line(&rule);
    rest.iter().for_each(|row| text += &line(row));
    text + "\n"
}

fn cells<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

/// Formats a number with this many decimals. A value that rounds to zero has no minus sign.
fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.trim_start_matches(['-', '0', '.']).is_empty() {
        return text.trim_start_matches('-').to_owned();
    }
    text.replace('-', "−")
}

fn plain(estimate: Option<MetricEstimate>, metric: usize) -> String {
    estimate.map_or("–".to_owned(), |one| number(one.value, METRICS[metric].digits))
}

fn with_interval(estimate: Option<MetricEstimate>, metric: usize) -> String {
    let digits = METRICS[metric].digits;
    let text = |one: MetricEstimate| {
        let ends = [one.low, one.high].map(|end| number(end, digits));
        format!("{} ({} to {})", number(one.value, digits), ends[0], ends[1])
    };
    estimate.map_or("–".to_owned(), text)
}

/// Difference as a share of the baseline's value.
fn change(arm: &ArmResults, base: &ArmResults, metric: usize) -> String {
    let (Some(difference), Some(base)) = (arm.differences[metric], base.means[metric]) else {
        return "–".to_owned();
    };
    if base.value <= 0.0 {
        return "–".to_owned();
    }
    let share = 100.0 * difference.value / base.value;
    let sign = if share > 0.05 { "+" } else { "" };
    let sure = if difference.is_sure() { "*" } else { "" };
    format!("{sign}{} %{sure}", number(share, 1))
}

fn share(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{} %", number(100.0 * value, 0)))
}

impl PopulationSummary {
    fn base<'a>(&self, arms: &'a [ArmResults]) -> Option<&'a ArmResults> {
        arms.iter().find(|arm| arm.name == self.baseline)
    }

    fn has_clairvoyant(&self) -> bool {
        self.paired && self.arms.iter().any(|arm| arm.is_oracle)
    }
}

fn introduction(summary: &PopulationSummary) -> String {
    let how = match summary.paired {
        true => "each under every scheme, with the same random path and stream",
        false => "each under the scheme of its viewer's cohort",
    };
    let mut text = format!(
        "{} sessions of {} viewers, {} hours, {how}. They run in virtual time through the server's \
         relay, HTTP/3, QUIC and congestion control, with an unmodified third-party client. \
         Population: {}.\n\n    {}\n\n",
        summary.sessions,
        summary.viewers,
        number(summary.hours, 1),
        summary.population,
        summary.command,
    );
    let arms = summary.arms.iter().map(|arm| {
        let weight =
            if summary.paired { String::new() } else { format!(", weight {}", arm.weight) };
        format!("- **{}**: `{}`{weight}\n", arm.name, arm.settings)
    });
    text.extend(arms);
    text += "\n";
    if summary.has_clairvoyant() {
        text += "Clairvoyant senders know the fates of their packets, which no real sender can. \
                 `clairvoyant` answers a detected loss with the first copy that will arrive: a \
                 bound for all senders that react to losses. `clairvoyant-from-start` sends such \
                 copies from the first transmission on.\n\n";
    }
    if let Some(read) = &summary.read {
        text += &format!(
            "{} records, {} of them used; {} lack round-trip time, loss rate, goodput or \
             duration, {} have impossible values, and {} lines or files are broken. Buffers, \
             frame rates, players and bottlenecks come from the built-in population, and so does \
             the loss correlation where records lack it.\n\n",
            read.records, read.used, read.incomplete, read.impossible, read.broken
        );
        read.named.iter().for_each(|line| text += &format!("- {line}\n"));
    }
    if !summary.faults.is_empty() {
        text += &format!(
            "**{} runs failed in the testbed; their sessions are excluded from all numbers:**\n\n",
            summary.faults.len()
        );
        summary.faults.iter().take(20).for_each(|line| text += &format!("- {line}\n"));
        text += "\n";
    }
    text
}

/// Values of all schemes.
fn values(
    arms: &[ArmResults],
    metrics: &[usize],
    cell: impl Fn(Option<MetricEstimate>, usize) -> String,
) -> String {
    let mut head = cells(["", "sessions"]);
    head.extend(metrics.iter().map(|metric| METRICS[*metric].title.to_owned()));
    let mut rows = vec![head];
    for arm in arms {
        let mut row = vec![arm.name.clone(), arm.sessions.to_string()];
        row.extend(metrics.iter().map(|metric| cell(arm.means[*metric], *metric)));
        rows.push(row);
    }
    table(&rows)
}

/// Changes of each scheme against the baseline.
fn changes(summary: &PopulationSummary, arms: &[ArmResults]) -> String {
    const SHOWN: [usize; 4] = [LATE_400, FREEZES, FROZEN, FIRST_FRAME];
    let Some(base) = summary.base(arms) else { return String::new() };
    let mut head = vec![format!("against {}", summary.baseline)];
    for metric in SHOWN {
        head.push(METRICS[metric].title.split(',').next().unwrap_or_default().to_owned());
        head.push("difference".to_owned());
    }
    if summary.has_clairvoyant() {
        head.extend(cells(["share of the gap to `clairvoyant` closed: late", "frozen"]));
    }
    let mut rows = vec![head];
    for arm in arms.iter().filter(|arm| arm.name != summary.baseline) {
        let mut row = vec![arm.name.clone()];
        for metric in SHOWN {
            row.push(change(arm, base, metric));
            row.push(with_interval(arm.differences[metric], metric));
        }
        if summary.has_clairvoyant() {
            row.extend([LATE_400, FROZEN].map(|metric| share(arm.closed[metric])));
        }
        rows.push(row);
    }
    table(&rows)
}

/// Two metrics under the baseline, and the other schemes' changes, by class.
fn by_class(summary: &PopulationSummary, dimension: &str, metrics: [usize; 2]) -> String {
    let parts: Vec<&Part> =
        summary.parts.iter().filter(|part| part.dimension == dimension).collect();
    let others = || summary.arms.iter().filter(|arm| arm.name != summary.baseline);
    let mut head = cells(["", "sessions"]);
    let titles = metrics.map(|metric| METRICS[metric].title);
    head.push(format!("{}: {}; {}", summary.baseline, titles[0], titles[1]));
    head.extend(others().map(|arm| arm.name.clone()));
    let mut rows = vec![head];
    for part in &parts {
        let Some(base) = summary.base(&part.arms) else { continue };
        let mut row = vec![part.class.clone(), part.sessions.to_string()];
        row.push(metrics.map(|metric| plain(base.means[metric], metric)).join(", "));
        for arm in part.arms.iter().filter(|arm| arm.name != summary.baseline) {
            row.push(metrics.map(|metric| change(arm, base, metric)).join(", "));
        }
        rows.push(row);
    }
    let Some(first) = parts.first() else { return String::new() };
    let title = &first.title;
    format!("### {title}\n\n{}", table(&rows))
}

fn dominance(summary: &PopulationSummary) -> String {
    if summary.dominance.is_empty() {
        return String::new();
    }
    let mut rows = vec![cells([
        "",
        "> 400 ms",
        "> buffer",
        "time frozen",
        "all three",
        "more late frames than the baseline",
        "fewer",
    ])];
    for one in &summary.dominance {
        let mut row = vec![one.name.clone()];
        let all =
            one.not_worse.into_iter().chain([one.worse_than_baseline, one.better_than_baseline]);
        row.extend(all.map(|value| format!("{} %", number(100.0 * value, 1))));
        rows.push(row);
    }
    format!(
        "## Sessions in which a scheme matches the best one\n\nShare of sessions in which a scheme \
         is not worse than the best realisable one. \"Not worse\" allows {} % more late frames \
         (by 400 ms, by the player's buffer) and {} s more frozen time in 100 s. Small shifts of \
         packets change results by chance, so no scheme reaches 100 %.\n\n{}",
        JUDGED[0].1,
        JUDGED[2].1,
        table(&rows)
    )
}

fn beside(all: &[Prediction]) -> String {
    let mut rows = vec![cells(["", "stated in", "paper", "ours", "ratio", "sessions"])];
    for one in all {
        let digits = if one.paper.abs() < 10.0 { 2 } else { 1 };
        let unit = if one.unit == "1" { String::new() } else { format!(" {}", one.unit) };
        let ours = one.ours.map_or("–".to_owned(), |ours| number(ours, digits) + &unit);
        let ratio = one.ours.filter(|_| one.paper != 0.0).map(|ours| ours / one.paper);
        rows.push(vec![
            one.what.clone(),
            one.stated.clone(),
            number(one.paper, digits) + &unit,
            ours,
            ratio.map_or("–".to_owned(), |ratio| number(ratio, 2)),
            one.sessions.to_string(),
        ]);
    }
    table(&rows)
}

fn predictions(summary: &PopulationSummary) -> String {
    format!(
        "## Comparison with the papers' fleets\n\nThe population is calibrated to the papers' \
         descriptions of their fleets:\n\n{}The following results are predictions: nothing was \
         tuned for them, so a ratio far from 1 is a finding. \"None is 0\": sessions without a \
         lost first retransmission count as 0, which alone explains table I.\n\n{}",
        beside(&summary.calibrated),
        beside(&summary.predictions)
    )
}

fn picture(name: &str, text: &str) -> String {
    format!("![{text}]({PICTURES}/{name})\n\n")
}

/// Renders the summary page, docs/reproduce/viewers.md.
pub(super) fn page(summary: &PopulationSummary) -> String {
    let mut text = String::from("# What viewers gain\n\n");
    text += "Written by `mendcast lab population`; do not edit. ";
    text += &introduction(summary);
    text += "## All viewers\n\n";
    text += &values(&summary.overall, &[0, 1, 2, 3, 4, 5, 6, 7, 10, 11], plain);
    text += "A frame is late if it is complete and in order more than 200 or 400 ms after its \
             capture, or never. Sessions that failed or that the viewer left are included.\n\n";
    text += &changes(summary, &summary.overall);
    text += &by_class(summary, SEED, [FREEZES, FROZEN]);
    text += INTERVALS_LEGEND;
    text += "\n\n";
    text += &picture("viewers-cost.svg", "Seconds frozen against the cost of copies");
    text += &picture("viewers-frozen.svg", "Shares of sessions by seconds frozen");
    text += "## By path and player\n\nThe baseline's column holds the share of frames later than \
             400 ms and the seconds frozen in 100 s. The other columns hold the changes of \
             both.\n\n";
    for dimension in &DIMENSIONS {
        text += &by_class(summary, dimension.key, [LATE_400, FROZEN]);
    }
    text += &picture("viewers-late.svg", "Late frames by loss rate");
    text += &picture("viewers-freezes.svg", "Freezes by round-trip time");
    text += &dominance(summary);
    text += &predictions(summary);
    text += "Numbers that no paper states are assumptions, marked as such in \
             `experiments/populations/fleet.toml`. All sessions are first visits: none resumes an \
             earlier connection.\n";
    text
}

/// Renders the report with every number.
pub(super) fn whole(summary: &PopulationSummary) -> String {
    let mut text = String::from("# Virtual A/B test\n\n");
    text += &introduction(summary);
    text += &format!("{INTERVALS_LEGEND}\n\n");
    for metric in &METRICS {
        text += &format!("- **{}**: {}\n", metric.title, metric.meaning);
    }
    text += "\n## All sessions\n\n";
    let all: Vec<usize> = (0..METRICS.len()).collect();
    text += &values(&summary.overall, &all, with_interval);
    text += &endings(&summary.overall);
    text += &changes(summary, &summary.overall);
    text += &by_class(summary, SEED, [FREEZES, FROZEN]);
    for name in
        ["viewers-cost.svg", "viewers-frozen.svg", "viewers-late.svg", "viewers-freezes.svg"]
    {
        text += &picture(name, name);
    }
    text += &dominance(summary);
    text += &predictions(summary);
    for dimension in &DIMENSIONS {
        text += &format!("## {}\n\n", dimension.title);
        text += &by_class(summary, dimension.key, [LATE_400, FROZEN]).replacen("###", "####", 1);
        for part in summary.parts.iter().filter(|part| part.dimension == dimension.key) {
            text += &format!("### {}\n\n", part.class);
            text += &values(&part.arms, &all, with_interval);
            text += &changes(summary, &part.arms);
        }
    }
    text
}

/// Table of session endings.
fn endings(arms: &[ArmResults]) -> String {
    let mut rows = vec![cells(["", "sessions", "left", "failed", "without a picture"])];
    for arm in arms {
        let counts = [arm.sessions, arm.left, arm.failed, arm.without_picture];
        let mut row = vec![arm.name.clone()];
        row.extend(counts.map(|count| count.to_string()));
        rows.push(row);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_without_a_negative_zero() {
        assert_eq!(number(-0.0004, 2), "0.00");
        assert_eq!(number(-1.256, 2), "−1.26");
        assert_eq!(number(20.0, 0), "20");
    }

    #[test]
    fn a_change_says_whether_it_is_sure() {
        let estimate = |value, low, high| Some(MetricEstimate { value, low, high });
        let arm = |mean, difference| ArmResults {
            name: "x".to_owned(),
            sessions: 1,
            left: 0,
            failed: 0,
            without_picture: 0,
            means: vec![mean; METRICS.len()],
            differences: vec![difference; METRICS.len()],
            closed: vec![None; METRICS.len()],
        };
        let base = arm(estimate(2.0, 1.0, 3.0), None);
        let of = |difference| change(&arm(None, difference), &base, LATE_400);
        assert_eq!(of(estimate(-0.5, -0.7, -0.1)), "−25.0 %*");
        assert_eq!(of(estimate(0.2, -0.7, 0.9)), "+10.0 %");
        assert_eq!(of(None), "–");
        let nothing = arm(estimate(0.0, 0.0, 0.0), None);
        assert_eq!(change(&arm(None, estimate(0.1, 0.0, 0.2)), &nothing, FREEZES), "–");
    }
}
