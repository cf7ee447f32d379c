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

/// Renders the page; `all` has the results of each number of user groups.
pub(super) fn page(all: &[Figures], command: &str) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut out, all, command);
    out
}

fn write_page(out: &mut String, all: &[Figures], command: &str) -> std::fmt::Result {
    let days = all.first().map_or(0, |figures| figures.days);
    let sessions = all.first().map_or(0, |figures| figures.sessions);
    writeln!(out, "# AutoPlex on the virtual platform\n")?;
    writeln!(
        out,
        "Written by `mendcast lab groups`; do not edit. `{command}`: {days} days of {PERIODS} \
         periods, {sessions} sessions under each policy. All policies get the same sessions on \
         the same paths. In period {STEP} the path rate halves for a third of the groups and \
         doubles for another third. Changes are from uncapped BBR. ± is Student's 95 % interval \
         over days; a single day has none.\n"
    )?;
    writeln!(out, "{VARIANTS}")?;
    all.iter().try_for_each(|figures| part(out, figures))
}

/// Names of the paper's policies.
const VARIANTS: &str = "\
Policies named `paper-…` apply algorithm 1 and equation 1. The paper does not define goodput. By default it is stream
bytes over the duration of the session; `-sending` divides by the time with data to send. The paper's partial
deployment (section 4.3) caps VIP users and lets low-priority sessions explore: `-vip`. `-low` is the reverse: VIP users
are never capped. Half of the viewers are VIP users, which is an assumption. Rows of both variants compare the capped
sessions with the same sessions without caps. `-decide` applies the rules of `mendcast autoplex decide`. A session is
*starved* if fewer than 95 % as many frames arrive in some 10 s as are published.";

/// Writes the results of one number of user groups.
fn part(out: &mut String, figures: &Figures) -> std::fmt::Result {
    match figures.groups {
        Some(groups) => writeln!(out, "\n## User groups: {groups}")?,
        None => writeln!(out, "\n## Results")?,
    }
    let orders = ORDERS.map(|order| format!("p{:.0}", order * 100.0)).join(" | ");
    let head = |out: &mut String, title: &str, changes: &[&str; 4]| {
        writeln!(out, "\n### {title}\n")?;
        writeln!(out, "| policy | mean | {orders} | change: mean | {orders} |")?;
        writeln!(out, "|---|{}", "---|".repeat(8))?;
        paper(out, changes)
    };
    head(out, "Retransmission ratio (figure 6)", &PAPER_RETRANSMISSION)?;
    figures.policies.iter().try_for_each(|p| row(out, p, &p.retransmission, " %"))?;
    picture(out, figures, "Retransmission ratio", "retransmission")?;
    head(out, "Goodput over the session ÷ round-trip time, Mbps/s (figure 7)", &PAPER_GOODPUT)?;
    figures.policies.iter().try_for_each(|p| row(out, p, &p.goodput[0], ""))?;
    head(out, "Goodput while sending ÷ round-trip time, Mbps/s (figure 7)", &PAPER_GOODPUT)?;
    figures.policies.iter().try_for_each(|p| row(out, p, &p.goodput[1], ""))?;
    bands(out, figures)?;
    viewers(out, figures)?;
    picture(out, figures, "Starved sessions", "starved")?;
    groups(out, figures)?;
    steps(out, figures)?;
    picture(out, figures, "Caps relative to the path rate", "follows")
}

/// Averages of the paper's better and worse sessions (section 3.4), by [`super::figures::BandLine`].
const PAPER_BANDS: [[&str; 2]; 3] = [["0.03", "2.9"], ["872", "53"], ["872", "53"]];

fn bands(out: &mut String, figures: &Figures) -> std::fmt::Result {
    writeln!(out, "\n### Better and worse sessions of the largest group (figure 2)\n")?;
    writeln!(out, "Without caps, over a day.\n")?;
    writeln!(
        out,
        "| metric | paper: better | worse | here: better | worse |\n|---|---|---|---|---|"
    )?;
    for (line, [better, worse]) in figures.bands.iter().zip(PAPER_BANDS) {
        let (name, unit) = (line.name, line.unit);
        let own = [&line.better, &line.worse].map(|value| format!("{:.2} {unit}", value.mean));
        writeln!(out, "| {name} | {better} {unit} | {worse} {unit} | {} | {} |", own[0], own[1])?;
    }
    Ok(())
}

/// Links one of [`plots`], at the location used by `make lab`.
fn picture(out: &mut String, figures: &Figures, title: &str, name: &str) -> std::fmt::Result {
    writeln!(out, "\n![{title}](pictures/{})", plot_name(figures, name))
}

/// Returns the file name of a plot.
fn plot_name(figures: &Figures, name: &str) -> String {
    match figures.groups {
        Some(groups) => format!("autoplex-{groups}-{name}.svg"),
        None => format!("autoplex-{name}.svg"),
    }
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
    writeln!(out, "\n### Viewers\n")?;
    write!(out, "| policy |")?;
    METRICS
        .iter()
        .try_for_each(|metric| write!(out, " {}{} |", metric.name, in_unit(metric.unit)))?;
    writeln!(out, "\n|---|{}", "---|".repeat(METRICS.len()))?;
    for policy in &figures.policies {
        write!(out, "| {} |", policy.name)?;
        for line in &policy.viewers {
            let Some(line) = line else {
                write!(out, " – |")?;
                continue;
            };
            write!(out, " {:.3}", line.value.mean)?;
            match line.change.as_ref().filter(|_| policy.name != FREE) {
                Some(Estimate { mean, half: Some(half) }) => {
                    write!(out, " ({mean:+.3} ± {half:.3})")?;
                }
                Some(Estimate { mean, half: None }) => write!(out, " ({mean:+.3})")?,
                None => {}
            }
            write!(out, " |")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn in_unit(unit: &str) -> String {
    if unit.is_empty() { String::new() } else { format!(",{unit}") }
}

fn groups(out: &mut String, figures: &Figures) -> std::fmt::Result {
    writeln!(out, "\n### By user group\n")?;
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
    writeln!(out, "\n### When paths change\n")?;
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
pub(super) fn plots(figures: &Figures) -> Vec<(String, String)> {
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
        .filter(|policy| ["safe", "paper-retransmission", "paper-goodput"].contains(&&*policy.name))
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
            "retransmission",
            chart(
                "Retransmission ratio",
                "retransmissions ÷ first transmissions, %",
                "sessions, %",
            ),
            ratios,
        ),
        ("starved", chart("Starved sessions", "period", "sessions, %"), starved),
        (
            "follows",
            chart("Caps relative to the path rate", "period", "cap ÷ path rate, median"),
            follows,
        ),
    ];
    // Smoke test of plots: a day with few sessions shows no effect.
    let drawn =
        charts.into_iter().filter(|(_, _, series)| series.iter().any(|s| !s.points.is_empty()));
    drawn.map(|(name, chart, series)| (plot_name(figures, name), chart.svg(&series))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::policy::CapPolicy;
    use super::super::row::GroupRow;
    use super::*;

    fn page_of(days: u32) -> String {
        let row = |session: u32| GroupRow {
            session,
            group: session % 2,
            packets: 1_000,
            retransmissions: 10,
            goodput_mbps: 2.0,
            sending_mbps: 8.0,
            rtt_ms: 50.0,
            played_s: 20.0,
            duration_s: 20.0,
            is_starved: session.is_multiple_of(4),
            ..GroupRow::default()
        };
        let days: Vec<Vec<GroupRow>> = (0..days).map(|_| (0..40).map(row).collect()).collect();
        let policies = ["bbr", "paper-retransmission"]
            .map(|name| (name, CapPolicy::parse(name).expect("known"), &days[..]));
        page(&[Figures::of(Some(4), &policies).expect("comparable")], "a command")
    }

    #[test]
    fn a_single_day_has_no_interval_and_several_have_one() {
        let (one, two) = (page_of(1), page_of(2));
        assert!(!one.contains("NaN") && !one.contains("0.000 ±"), "{one}");
        assert!(one.contains("25.000 (+0.000)"), "{one}");
        assert!(two.contains("25.000 (+0.000 ± 0.000)"), "{two}");
    }
}
