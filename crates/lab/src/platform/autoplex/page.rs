//! The Markdown page and its plots.

use std::fmt::Write as _;

use qoe::stats::Estimate;

use super::figures::{Figures, METRICS, ORDERS, PolicyLine, PolicyResults};
use super::policy::FREE;
use super::world::{PERIODS, STEP};
use analysis::{Chart, Series};

pub(super) const PAGE: &str = "autoplex.md";

/// Changes reported by the paper for its policies: mean, 50th, 75th and 90th percentile (sections
/// 5.1 and 5.2).
const PAPER_RETRANSMISSION: [&str; 4] = ["−24…−27", "about 0", "−28…−41", "−32…−44"];
const PAPER_GOODPUT: [&str; 4] = ["+14…+32", "+44…+128", "+19…+56", "about 0"];

pub(super) fn page(figures: &Figures, command: &str) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut out, figures, command);
    out
}

fn write_page(out: &mut String, figures: &Figures, command: &str) -> std::fmt::Result {
    writeln!(out, "# AutoPlex on the virtual platform\n")?;
    writeln!(
        out,
        "Written by `mendcast lab groups`; do not edit. `{command}`: {} days of {PERIODS} \
         periods, {} sessions under each policy. All policies get the same sessions on the same \
         paths. In period {STEP} the path rate halves for a third of the groups and doubles for \
         another third. ± is Student's 95 % interval over days.\n",
        figures.days, figures.sessions
    )?;
    let orders = ORDERS.map(|order| format!("p{:.0}", order * 100.0)).join(" | ");
    writeln!(out, "## Retransmission ratio (AutoPlex, figure 6)\n")?;
    writeln!(
        out,
        "| policy | mean | {orders} | change: mean | {orders} |\n|---|{}",
        "---|".repeat(8)
    )?;
    paper(out, &PAPER_RETRANSMISSION)?;
    for policy in &figures.policies {
        row(out, policy, &policy.retransmission, " %")?;
    }
    picture(out, "Retransmission ratio", "retransmission")?;
    writeln!(out, "\n## Goodput ÷ round-trip time, Mbps/s (AutoPlex, figure 7)\n")?;
    writeln!(
        out,
        "| policy | mean | {orders} | change: mean | {orders} |\n|---|{}",
        "---|".repeat(8)
    )?;
    paper(out, &PAPER_GOODPUT)?;
    for policy in &figures.policies {
        row(out, policy, &policy.goodput, "")?;
    }
    viewers(out, figures)?;
    picture(out, "Streams capped below their own rate", "starved")?;
    groups(out, figures)?;
    steps(out, figures)?;
    picture(out, "Caps relative to the path rate", "follows")
}

/// Links one of [`plots`], at the location used by `make lab`.
fn picture(out: &mut String, title: &str, name: &str) -> std::fmt::Result {
    writeln!(out, "\n![{title}](pictures/autoplex-{name}.svg)")
}

fn paper(out: &mut String, changes: &[&str; 4]) -> std::fmt::Result {
    write!(out, "| the paper |{}", " |".repeat(4))?;
    changes.iter().try_for_each(|change| write!(out, " {change} % |"))?;
    writeln!(out)
}

fn plus_minus(estimate: &Estimate, unit: &str) -> String {
    match estimate.half {
        Some(half) => format!("{:+.1} ± {half:.1}{unit}", estimate.mean),
        None => format!("{:+.1}{unit}", estimate.mean),
    }
}

fn row(
    out: &mut String,
    policy: &PolicyResults,
    lines: &[PolicyLine],
    unit: &str,
) -> std::fmt::Result {
    write!(out, "| {} |", policy.name)?;
    lines.iter().try_for_each(|line| write!(out, " {:.2}{unit} |", line.value.mean))?;
    for line in lines {
        match line.relative.as_ref().filter(|_| policy.name != FREE) {
            Some(change) => write!(out, " {} |", plus_minus(change, " %"))?,
            None => write!(out, " – |")?,
        }
    }
    writeln!(out)
}

fn viewers(out: &mut String, figures: &Figures) -> std::fmt::Result {
    writeln!(out, "\n## Viewers\n")?;
    write!(out, "| |")?;
    figures.policies.iter().try_for_each(|policy| write!(out, " {} |", policy.name))?;
    writeln!(out, "\n|---|{}", "---|".repeat(figures.policies.len()))?;
    for (place, metric) in METRICS.iter().enumerate() {
        write!(out, "| {} |", metric.name)?;
        for policy in &figures.policies {
            match &policy.viewers[place] {
                None => write!(out, " – |")?,
                Some(line) => {
                    write!(out, " {:.3}{}", line.value.mean, metric.unit)?;
                    if let Some(change) = line.change.as_ref().filter(|_| policy.name != FREE) {
                        let half = change.half.unwrap_or(f64::NAN);
                        write!(out, " ({:+.3} ± {half:.3})", change.mean)?;
                    }
                    write!(out, " |")?;
                }
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

fn groups(out: &mut String, figures: &Figures) -> std::fmt::Result {
    writeln!(out, "\n## By user group\n")?;
    writeln!(
        out,
        "Each group with at least fifty sessions on a day is compared with the same sessions \
         without caps. \"Worse\" and \"better\" count significant changes (5 % after Holm's \
         correction).\n"
    )?;
    writeln!(
        out,
        "| policy | groups | freezes: worse | better | retransmission in each day's four largest groups: minimum | median | maximum |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for policy in figures.policies.iter().filter(|policy| policy.name != FREE) {
        let (all, changes) = (&policy.groups, &policy.groups.largest);
        write!(out, "| {} | {} | {} | {} |", policy.name, all.groups, all.worse, all.better)?;
        let ends = [changes.first(), changes.get(changes.len() / 2), changes.last()];
        for change in ends.into_iter().flatten() {
            write!(out, " {change:+.1} % |")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn steps(out: &mut String, figures: &Figures) -> std::fmt::Result {
    writeln!(out, "\n## When paths change\n")?;
    writeln!(
        out,
        "Change of the mean retransmission ratio from uncapped BBR, before and from period \
         {STEP} on, by the change of the group's path rate.\n"
    )?;
    writeln!(
        out,
        "| policy | halved: before | after | doubled: before | after | unchanged: before | after |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for policy in figures.policies.iter().filter(|policy| policy.name != FREE) {
        write!(out, "| {} |", policy.name)?;
        for estimate in policy.steps.iter().flat_map(|(_, before, after)| [before, after]) {
            let text = estimate.as_ref().map_or("–".to_owned(), |e| plus_minus(e, " %"));
            write!(out, " {text} |")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Renders the plots by name.
pub(super) fn plots(figures: &Figures) -> Vec<(&'static str, String)> {
    let curve = |policy: &PolicyResults| {
        let mut series = Series { dots: false, ..Series::line(policy.name.clone()) };
        let at = |n: u32| (policy.ratios.quantile(f64::from(n) / 100.0), f64::from(n));
        series.points = (0..=97).map(at).collect();
        series
    };
    let ratios: Vec<Series> = figures.policies.iter().map(curve).collect();
    let starved = |policy: &PolicyResults| {
        let mut series = Series { dots: false, ..Series::line(policy.name.clone()) };
        series.points = policy.starved.clone();
        series
    };
    let starved: Vec<Series> = figures.policies.iter().map(starved).collect();
    let mut follows = Vec::new();
    for policy in figures
        .policies
        .iter()
        .filter(|policy| policy.name == "safe" || policy.name.starts_with("paper"))
    {
        for (factor, points) in policy.follows.iter().filter(|(factor, _)| *factor != 1.0) {
            let mut series =
                Series { dots: false, ..Series::line(format!("{}, × {factor}", policy.name)) };
            series.points = points.clone();
            follows.push(series);
        }
    }
    let chart = |title: &str, x: &str, y: &str| Chart {
        title: title.to_owned(),
        x: x.to_owned(),
        y: y.to_owned(),
    };
    let charts = [
        (
            "autoplex-retransmission.svg",
            chart(
                "Retransmission ratio",
                "retransmissions ÷ first transmissions, %",
                "sessions, %",
            ),
            ratios,
        ),
        (
            "autoplex-starved.svg",
            chart("Capped below the stream's own rate", "period", "sessions, %"),
            starved,
        ),
        (
            "autoplex-follows.svg",
            chart("Caps relative to the path rate", "period", "cap ÷ path rate, median"),
            follows,
        ),
    ];
    // Smoke test of plots: a day with few sessions shows no effect.
    let drawn =
        charts.into_iter().filter(|(_, _, series)| series.iter().any(|s| !s.points.is_empty()));
    drawn.map(|(name, chart, series)| (name, chart.svg(&series))).collect()
}
