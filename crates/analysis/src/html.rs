//! The report as a page of its own: tables, and the distribution of each metric as a drawing. It
//! loads nothing.

use core::fmt::Write as _;

use crate::compare::{MetricReport, Report};
use crate::text::figure;

/// Colours that can be told apart with any kind of colour vision (Okabe and Ito, 2008), without
/// the yellow, which paper swallows.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"];
const STYLE: &str = "body{font:16px system-ui;max-width:60em;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;\
    text-align:right;white-space:pre}td:first-child,th:first-child{text-align:left}\
    .warning{color:#b3261e;font-weight:bold}.differs{color:#197a2b}.remark{color:#555}\
    svg{max-width:100%;height:auto;font:13px sans-serif}";
/// Where a drawing's axes lie, in pixels.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 270.0;
const SIZE: (u32, u32) = (900, 320);
/// Lines of the grid across values.
const TICKS: f64 = 6.0;

impl Report {
    /// A page that needs nothing but itself.
    pub fn html(&self) -> String {
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <title>Cohorts compared</title>\n<style>{STYLE}</style>\n<h1>Cohorts compared</h1>\n"
        );
        let mut paragraphs = |class: &str, lines: &[String]| {
            for line in lines {
                let _ = writeln!(out, "<p class=\"{class}\">{}</p>", escaped(line));
            }
        };
        paragraphs("warning", &self.warnings);
        for line in self.verdict() {
            paragraphs(if line.starts_with("DIFFERS") { "differs" } else { "" }, &[line]);
        }
        paragraphs("remark", &self.summary());
        out.push_str("<h2>Cohorts</h2>\n");
        out.push_str(&table(&self.cohort_rows()));
        let cohorts: Vec<&str> = self.cohorts.iter().map(|cohort| cohort.name.as_str()).collect();
        for metric in &self.metrics {
            let _ = writeln!(out, "<h2>{}</h2>", escaped(&metric.title()));
            let _ = writeln!(out, "<p>{}</p>", escaped(metric.meaning));
            out.push_str(&table(&metric.rows()));
            for remark in metric.remarks() {
                let _ = writeln!(out, "<p class=\"remark\">{}</p>", escaped(&remark));
            }
            out.push_str(&drawing(metric, &cohorts));
        }
        out.push_str(
            "<p class=\"remark\">Drawings show the share of sessions with at most that value, up to the 99th percentile of each \
             cohort.</p>\n</html>\n",
        );
        out
    }
}

fn table(rows: &[Vec<String>]) -> String {
    let mut out = "<table>\n".to_owned();
    for (at, row) in rows.iter().enumerate() {
        let tag = if at == 0 { "th" } else { "td" };
        let cells: String =
            row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        let _ = writeln!(out, "<tr>{cells}</tr>");
    }
    out + "</table>\n"
}

/// The distribution functions of all cohorts.
fn drawing(metric: &MetricReport, cohorts: &[&str]) -> String {
    let values = || metric.cohorts.iter().flat_map(|cohort| &cohort.curve).map(|point| point.0);
    let (low, high) = values().fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
    // One value for all sessions has no extent.
    let high = if high > low { high } else { low + low.abs().max(1.0) };
    let x = |value: f64| LEFT + (value - low) / (high - low) * (RIGHT - LEFT);
    let y = |share: f64| BOTTOM - share * (BOTTOM - TOP);
    let mut out = format!(
        "<svg viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" role=\"img\">\n<title>Distribution of {}</title>\n",
        SIZE.0,
        SIZE.1,
        SIZE.0,
        SIZE.1,
        escaped(metric.name)
    );
    let mut line = |x1: f64, y1: f64, x2: f64, y2: f64| {
        let _ = writeln!(
            out,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>"
        );
    };
    let shares = [0.0, 0.25, 0.5, 0.75, 1.0];
    let step = step((high - low) / TICKS);
    let first = (low / step).ceil();
    let ticks = || (0..20).map(|i| (first + f64::from(i)) * step).take_while(|tick| *tick <= high);
    shares.iter().for_each(|share| line(LEFT, y(*share), RIGHT, y(*share)));
    ticks().for_each(|tick| line(x(tick), TOP, x(tick), BOTTOM));
    let mut text = |x: f64, y: f64, anchor: &str, text: &str| {
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(text)
        );
    };
    for share in shares {
        text(LEFT - 8.0, y(share) + 4.0, "end", &format!("{:.0} %", share * 100.0));
    }
    ticks().for_each(|tick| text(x(tick), BOTTOM + 18.0, "middle", &label(tick, step)));
    text((LEFT + RIGHT) / 2.0, BOTTOM + 40.0, "middle", &metric.title());
    for (at, cohort) in metric.cohorts.iter().enumerate() {
        text(RIGHT + 44.0, TOP + 16.0 + 20.0 * at as f64, "start", &cohort.cohort);
    }
    for (at, cohort) in metric.cohorts.iter().enumerate() {
        let place = cohorts.iter().position(|name| *name == cohort.cohort).unwrap_or(0);
        // The second time round the lines are broken.
        let dashes = if place < COLOURS.len() { "" } else { " stroke-dasharray=\"6 4\"" };
        let mut polyline = |points: &str| {
            let _ = writeln!(
                out,
                "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{dashes} points=\"{points}\"/>",
                COLOURS[place % COLOURS.len()]
            );
        };
        let points: Vec<_> = cohort
            .curve
            .iter()
            .map(|(v, share)| format!("{:.1},{:.1}", x(*v), y(*share)))
            .collect();
        polyline(&points.join(" "));
        let height = TOP + 12.0 + 20.0 * at as f64;
        polyline(&format!("{:.1},{height:.1} {:.1},{height:.1}", RIGHT + 12.0, RIGHT + 36.0));
    }
    out + "</svg>\n"
}

/// The next of 1, 2, 5, 10, … times a power of ten.
fn step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0].iter().map(|of| of * power).find(|step| *step >= rough).unwrap_or(10.0 * power)
}

/// A number on an axis with that step.
fn label(tick: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).max(0.0);
    if digits <= 8.0 { format!("{tick:.0$}", digits as usize) } else { figure(tick) }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}
