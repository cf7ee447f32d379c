//! The comparison as a Markdown page: tables next to the paper's figures, and one plot.

use std::fmt::Write as _;

use qoe::stats::Sample;
use startup::decision::Mode;

use super::figures::{BASELINE, Figures, ModeLine, VisitClass, find};
use super::run::Usual;
use analysis::{Chart, Series};

/// File name of the page.
pub(super) const PAGE: &str = "first-frame.md";
/// File name of the plot.
pub(super) const PLOT: &str = "first-frame.svg";
/// Quantile at which the plot ends.
const PLOT_QUANTILE: f64 = 0.98;

/// The paper's result for a startup mode: the change from its baseline, in per cent.
struct Paper {
    mode: Mode,
    mean: Option<f64>,
    p70: Option<f64>,
    p90: Option<f64>,
}

/// Section VI-A and figure 11.
const FIGURE_11: [Paper; 4] = [
    Paper { mode: Mode::Iw10, mean: Some(26.5), p70: None, p90: Some(16.3) },
    Paper { mode: Mode::WiraFf, mean: Some(-6.0), p70: Some(-14.7), p90: None },
    Paper { mode: Mode::WiraHx, mean: Some(-7.4), p70: None, p90: Some(-14.1) },
    Paper { mode: Mode::Wira, mean: Some(-10.6), p70: Some(-18.7), p90: Some(-16.7) },
];

fn percent(value: f64) -> String {
    format!("{:+.1} %", value * 100.0)
}

/// Change of a quantile from the baseline's.
fn change_at(line: &ModeLine, base: &ModeLine, order: f64) -> String {
    percent(line.times.quantile(order) / base.times.quantile(order) - 1.0)
}

fn beside(ours: String, paper: Option<f64>) -> String {
    paper.map_or_else(|| ours.clone(), |paper| format!("{ours} ({paper:+.1} %)"))
}

/// Renders the whole page.
pub(super) fn page(figures: &Figures, usual: &Usual, command: &str) -> String {
    let mut out = include_str!("intro.md").to_owned();
    let _ = write_page(&mut out, figures, usual, command);
    out
}

fn write_page(
    out: &mut String,
    figures: &Figures,
    usual: &Usual,
    command: &str,
) -> std::fmt::Result {
    let (visits, returns) = (figures.visits, figures.returns);
    writeln!(out, "## Measured\n")?;
    writeln!(
        out,
        "`{command}`: {visits} visits, {returns} of them by returning viewers, each simulated \
         under every mode. The first-frame time runs from the request, without the handshake, to \
         the last byte of the first picture at the viewer. Loss rates cover all packets until \
         the first frame is acknowledged. `usual_window` is {:.1} KB, `usual_rtt` {:.1} ms. \
         Brackets hold the paper's production results.\n",
        usual.window as f64 / 1e3,
        usual.rtt.as_secs_f64() * 1e3
    )?;
    writeln!(out, "![Share of visits with a complete first frame](pictures/{PLOT})\n")?;
    overall(out, &figures.all)?;
    losses(out, &figures.all)?;
    for (title, classes) in [
        (
            "Returning viewers (Wira, figure 12: Wira −9.5 % with 0-RTT, −21.3 % with 1-RTT)",
            &figures.kinds,
        ),
        (
            "By size of the first frame (figure 13a: Wira −4.1 % at 30 to 50 KB, −20.2 % at 80 to 150 KB)",
            &figures.sizes,
        ),
        (
            "By round-trip time (figure 13b: Wira −6.6 to −12.7 % up to 100 ms, slower above)",
            &figures.rtts,
        ),
        (
            "By path rate (figure 13c: Wira less than −2.8 % up to 10 Mbps, −9.4 and −4.9 % above)",
            &figures.rates,
        ),
    ] {
        by_class(out, title, classes)?;
    }
    fell(out, &figures.fell)
}

/// Figure 11.
fn overall(out: &mut String, lines: &[ModeLine]) -> std::fmt::Result {
    let Some(base) = find(lines, BASELINE) else { return Ok(()) };
    writeln!(out, "### First-frame time (Wira, figure 11)\n")?;
    writeln!(
        out,
        "| mode | mean | change of the mean | median | at p70 | at p90 | cookie | jumped, failed |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    for line in lines {
        let paper = FIGURE_11.iter().find(|paper| paper.mode == line.mode);
        let is_base = line.mode == BASELINE;
        let half =
            line.change.half.map_or_else(String::new, |half| format!(" ± {:.1}", half * 100.0));
        let change = match is_base {
            true => "–".to_owned(),
            false => {
                beside(format!("{}{half}", percent(line.change.mean)), paper.and_then(|p| p.mean))
            }
        };
        let at = |order: f64, stated: Option<f64>| match is_base {
            true => format!("{:.1} ms", line.times.quantile(order)),
            false => beside(change_at(line, base, order), stated),
        };
        writeln!(
            out,
            "| {}{} | {:.1} ms | {change} | {:.1} ms | {} | {} | {:.0} % | {:.0} %, {:.1} % |",
            line.mode,
            if is_base { " (baseline)" } else { "" },
            line.times.mean(),
            line.times.median(),
            at(0.7, paper.and_then(|p| p.p70)),
            at(0.9, paper.and_then(|p| p.p90)),
            line.with_past * 100.0,
            line.jumped * 100.0,
            line.failed * 100.0,
        )?;
    }
    writeln!(
        out,
        "\nThe paper's baseline takes 158.9 ms on average, 130.0 ms at p70 and 409.6 ms at p90. \
         Changes of the mean are over paired visits, with Student's 95 % interval (±).\n"
    )
}

/// Figures 14 and 15.
fn losses(out: &mut String, lines: &[ModeLine]) -> std::fmt::Result {
    let Some(base) = find(lines, BASELINE) else { return Ok(()) };
    writeln!(
        out,
        "### Loss during the first frame, and the time of later pictures (Wira, figures 14 and 15)\n"
    )?;
    writeln!(
        out,
        "| mode | loss, mean | change | against iw10 | loss, p90 | change | picture 1 | 2 | 3 | 4 |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
    for line in lines {
        let change = |ours: f64, theirs: f64, stated: Option<f64>| match line.mode == BASELINE {
            true => "–".to_owned(),
            false => beside(percent(ours / theirs.max(1e-9) - 1.0), stated),
        };
        let is_wira = line.mode == Mode::Wira;
        let tail = |line: &ModeLine| line.losses.quantile(0.9);
        let [one, two, three, four] = line.pictures_ms;
        let over = &line.losses_over_iw10;
        let over_iw10 = match (line.mode, over.half) {
            (Mode::Iw10, _) | (_, None) => "–".to_owned(),
            (_, Some(half)) => format!("{:+.2} ± {:.2} points", over.mean * 100.0, half * 100.0),
        };
        writeln!(
            out,
            "| {} | {:.2} % | {} | {} | {:.2} % | {} | {one:.1} ms | {two:.1} ms | {three:.1} ms | {four:.1} ms |",
            line.mode,
            line.losses.mean() * 100.0,
            change(line.losses.mean(), base.losses.mean(), is_wira.then_some(-27.3)),
            over_iw10,
            tail(line) * 100.0,
            change(tail(line), tail(base), is_wira.then_some(-34.4)),
        )?;
    }
    writeln!(
        out,
        "\nThe paper's baseline loses 8.8 % of the first frame on average, and 25.3 % at p90.\n"
    )
}

/// Changes of mean and p90 by class.
fn by_class(out: &mut String, title: &str, classes: &[VisitClass]) -> std::fmt::Result {
    writeln!(out, "### {title}\n")?;
    let others: Vec<Mode> = Mode::ALL.into_iter().filter(|mode| *mode != BASELINE).collect();
    write!(out, "| visits | number | baseline |")?;
    others.iter().try_for_each(|mode| write!(out, " {mode} |"))?;
    writeln!(out, "\n|---|---|---|{}", "---|".repeat(others.len()))?;
    for class in classes {
        let Some(base) = find(&class.lines, BASELINE) else { continue };
        let (mean, p90) = (base.times.mean(), base.times.quantile(0.9));
        write!(out, "| {} | {} | {mean:.0}, {p90:.0} ms |", class.name, base.visits)?;
        for line in others.iter().filter_map(|mode| find(&class.lines, *mode)) {
            write!(out, " {}, {} |", percent(line.change.mean), change_at(line, base, 0.9))?;
        }
        writeln!(out)?;
    }
    writeln!(out, "\nEach cell: mean and 90th percentile, as changes from the baseline.\n")
}

/// Visits with wrong cookies.
fn fell(out: &mut String, lines: &[ModeLine]) -> std::fmt::Result {
    let Some(base) = find(lines, Mode::Iw10) else { return Ok(()) };
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
            percent(line.times.mean() / base.times.mean() - 1.0),
            change_at(line, base, 0.9),
            line.losses.mean() * 100.0,
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
