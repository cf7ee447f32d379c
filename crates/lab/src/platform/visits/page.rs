//! The comparison as a Markdown page: the paper's numbers beside ours, a table of all modes, and one
//! plot.

use std::fmt::Write as _;

use qoe::stats::{Estimate, Sample};
use startup::decision::Mode;

use super::condition::{ConditionResult, FITTED};
use super::figures::{BASELINE, Figures, MetricNumber, ModeLine, VisitClass, find};
use super::lines::CONDITION;
use crate::error::Error;
use crate::experiments::papers::{Conditions, ResultLine};
use analysis::{Chart, Series};

/// File name of the page.
pub(super) const PAGE: &str = "first-frame.md";
/// File name of the plot.
pub(super) const PLOT: &str = "first-frame.svg";
/// Quantile at which the plot ends.
const PLOT_QUANTILE: f64 = 0.98;

fn percent(value: f64) -> String {
    format!("{:+.1} %", value * 100.0)
}

/// A change in per cent with its interval.
fn change(gain: Option<Estimate>) -> String {
    let Some(gain) = gain else { return "–".to_owned() };
    let half = gain.half.map_or_else(String::new, |half| format!(" ± {:.1}", half * 100.0));
    format!("{}{half}", percent(gain.mean))
}

/// Renders the whole page.
///
/// # Errors
/// The catalogue of the papers is malformed.
pub(super) fn page(
    results: &[ConditionResult],
    lines: Vec<ResultLine>,
    command: &str,
) -> Result<String, Error> {
    let values: Vec<&str> = results.iter().map(|one| one.name).collect();
    let conditions =
        Conditions { paper: "wira", results: "visits", axis: CONDITION, values: &values };
    let tables = conditions.tables(lines)?;
    let mut out = include_str!("intro.md").to_owned();
    // Writing to a string does not fail.
    let _ = write_page(&mut out, results, &tables, command);
    Ok(out)
}

fn write_page(
    out: &mut String,
    results: &[ConditionResult],
    tables: &str,
    command: &str,
) -> std::fmt::Result {
    let Some(first) = results.first() else { return Ok(()) };
    let (visits, returns) = (first.figures.visits, first.figures.returns);
    writeln!(out, "## Measured\n")?;
    writeln!(
        out,
        "`{command}`: {visits} visits, {returns} of them by returning viewers, each simulated \
         under every mode. The first-frame time runs from the request, without the handshake, to \
         the last byte of the first picture at the viewer; only the comparison with the paper has \
         the paper's FFCT. Loss rates cover all packets until \
         the frame is acknowledged. Changes are from the baseline (`fixed`) over paired visits, \
         with 95 % intervals.\n",
    )?;
    writeln!(out, "| condition | `usual_window` | `usual_rtt` |\n|---|---|---|")?;
    for one in results {
        let (window, rtt) = (one.usual.window as f64 / 1e3, one.usual.rtt.as_secs_f64() * 1e3);
        writeln!(out, "| {} | {window:.1} KB | {rtt:.1} ms |", one.name)?;
    }
    writeln!(out, "\n## Against the paper's production (figures 11 to 15)\n")?;
    // The text describes these conditions only.
    if first.name == FITTED {
        writeln!(out, "{}", include_str!("conditions.md"))?;
    }
    writeln!(out, "{tables}")?;
    writeln!(out, "## All modes, condition `{}`\n", first.name)?;
    writeln!(out, "![Share of visits with a complete first frame](pictures/{PLOT})\n")?;
    all_modes(out, &first.figures)
}

fn all_modes(out: &mut String, figures: &Figures) -> std::fmt::Result {
    overall(out, &figures.all)?;
    losses(out, &figures.all)?;
    for (title, classes) in [
        ("Returning viewers", &figures.kinds),
        ("By size of the first frame", &figures.sizes),
        ("By round-trip time", &figures.rtts),
        ("By path rate", &figures.rates),
        ("By retransmission ratio under `iw10`", &figures.retransmissions),
    ] {
        by_class(out, title, classes)?;
    }
    fell(out, &figures.fell)
}

/// First-frame times.
fn overall(out: &mut String, lines: &[ModeLine]) -> std::fmt::Result {
    writeln!(out, "### First-frame time\n")?;
    writeln!(out, "| mode | mean | change | median | p70 | p90 | cookie | jumped, failed |")?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    for line in lines {
        let of = |key: &str| line.number(key);
        let quantile = |key: &str| match of(key) {
            Some(MetricNumber { value, .. }) if line.mode == BASELINE => {
                format!("{:.1} ms", value.mean)
            }
            number => change(number.and_then(|number| number.gain)),
        };
        let gain = of("first_frame_ms").and_then(|number| number.gain);
        writeln!(
            out,
            "| {}{} | {:.1} ms | {} | {:.1} ms | {} | {} | {:.0} % | {:.0} %, {:.1} % |",
            line.mode,
            if line.mode == BASELINE { " (baseline)" } else { "" },
            line.times.mean(),
            change(gain.filter(|_| line.mode != BASELINE)),
            line.times.median(),
            quantile("first_frame_p70_ms"),
            quantile("first_frame_p90_ms"),
            line.with_past * 100.0,
            line.jumped * 100.0,
            line.failed * 100.0,
        )?;
    }
    writeln!(out)
}

/// Losses, and times of later pictures.
fn losses(out: &mut String, lines: &[ModeLine]) -> std::fmt::Result {
    writeln!(out, "### Loss during the first frame, and the time of later pictures\n")?;
    writeln!(
        out,
        "| mode | loss, mean | against iw10 | loss, p90 | picture 2 | 3 | 4 | loss until 2 | 3 | 4 |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
    for line in lines {
        let value = |key: &str| line.number(key).map_or(0.0, |number| number.value.mean);
        let over = &line.losses_over_iw10;
        let over_iw10 = match (line.mode, over.half) {
            (Mode::Iw10, _) | (_, None) => "–".to_owned(),
            (_, Some(half)) => format!("{:+.2} ± {:.2} points", over.mean * 100.0, half * 100.0),
        };
        write!(
            out,
            "| {} | {:.2} % | {over_iw10} | {:.2} % |",
            line.mode,
            value("first_frame_loss"),
            value("first_frame_loss_p90"),
        )?;
        for picture in 2..=4 {
            write!(out, " {:.1} ms |", value(&format!("frame_{picture}_ms")))?;
        }
        for picture in 2..=4 {
            write!(out, " {:.2} % |", value(&format!("frame_{picture}_loss")))?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

/// Changes of mean and p90 by class.
fn by_class(out: &mut String, title: &str, classes: &[VisitClass]) -> std::fmt::Result {
    let others: Vec<Mode> = Mode::ALL.into_iter().filter(|mode| *mode != BASELINE).collect();
    writeln!(out, "### {title}\n")?;
    write!(out, "| visits | number | baseline |")?;
    others.iter().try_for_each(|mode| write!(out, " {mode} |"))?;
    writeln!(out, "\n|---|---|---|{}", "---|".repeat(others.len()))?;
    for class in classes {
        let Some(base) = find(&class.lines, BASELINE) else { continue };
        let (mean, p90) = (base.times.mean(), base.times.quantile(0.9));
        write!(out, "| {} | {} | {mean:.0}, {p90:.0} ms |", class.name, base.visits)?;
        for line in others.iter().filter_map(|mode| find(&class.lines, *mode)) {
            let gain = |key: &str| line.number(key).and_then(|number| number.gain);
            let both = [gain("first_frame_ms"), gain("first_frame_p90_ms")];
            let [mean, p90] = both.map(|gain| gain.map_or("–".to_owned(), |g| percent(g.mean)));
            write!(out, " {mean}, {p90} |")?;
        }
        writeln!(out)?;
    }
    writeln!(out, "\nEach cell: mean and 90th percentile, as changes from the baseline.\n")
}

/// Visits with wrong cookies.
fn fell(out: &mut String, lines: &[ModeLine]) -> std::fmt::Result {
    let Some(base) = find(lines, Mode::Iw10) else { return Ok(()) };
    let against = |ours: f64, theirs: f64| percent(ours / theirs - 1.0);
    writeln!(out, "### Outdated cookies: the path's rate fell to a quarter\n")?;
    writeln!(
        out,
        "| mode | mean | against iw10 | p90 against iw10 | loss, mean | jumped, failed |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for line in lines {
        writeln!(
            out,
            "| {} | {:.1} ms | {} | {} | {:.2} % | {:.0} %, {:.1} % |",
            line.mode,
            line.times.mean(),
            against(line.times.mean(), base.times.mean()),
            against(line.times.quantile(0.9), base.times.quantile(0.9)),
            line.number("first_frame_loss").map_or(0.0, |number| number.value.mean),
            line.jumped * 100.0,
            line.failed * 100.0,
        )?;
    }
    writeln!(out)
}

/// Cumulative share of visits with a complete first frame, over time.
pub(super) fn plot(figures: &Figures) -> String {
    let curve = |line: &ModeLine| {
        let mut series = Series { dots: false, ..Series::line(line.mode.to_string()) };
        series.points = steps(&line.times);
        series
    };
    let series: Vec<Series> = figures.all.iter().map(curve).collect();
    let chart = Chart {
        title: "Complete first frames".to_owned(),
        x: "time since the request, ms".to_owned(),
        y: "visits, %".to_owned(),
    };
    chart.svg(&series)
}

/// The distribution in steps of one hundredth.
fn steps(times: &Sample) -> Vec<(f64, f64)> {
    let most = (PLOT_QUANTILE * 100.0) as u32;
    (0..=most).map(|n| (times.quantile(f64::from(n) / 100.0), f64::from(n))).collect()
}
