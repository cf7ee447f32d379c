//! Comparison of cohorts as a self-contained HTML page with tables and distribution plots, and page
//! elements shared with other reports.

use core::fmt::Write as _;

use crate::chart::escaped;
use crate::compare::{CohortReport, MetricReport};
use crate::plot::{Curve, Plot, YAxis};

const STYLE: &str = "body{font:16px system-ui;max-width:75em;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;\
    text-align:right;white-space:pre}td:first-child,th:first-child{text-align:left}\
    .warning{color:#b3261e;font-weight:bold}.differs{color:#197a2b}.remark{color:#555}\
    .sourced{overflow-x:auto;margin:1em 0}.sourced td:last-child{white-space:normal;\
    text-align:left;color:#555;min-width:14em}\
    svg{max-width:100%;height:auto;font:13px sans-serif}";

impl CohortReport {
    /// Renders a self-contained page.
    pub fn html(&self) -> String {
        let mut out = String::new();
        out.push_str(&paragraphs("warning", &self.warnings));
        for line in self.verdict() {
            let class = if line.starts_with("DIFFERS") { "differs" } else { "" };
            out.push_str(&paragraphs(class, &[line]));
        }
        out.push_str(&paragraphs("remark", &self.summary()));
        out.push_str("<h2>Cohorts</h2>\n");
        out.push_str(&table(&self.cohort_rows()));
        let cohorts: Vec<&str> = self.cohorts.iter().map(|cohort| cohort.name.as_str()).collect();
        for metric in &self.metrics {
            let _ = writeln!(out, "<h2>{}</h2>", escaped(&metric.title()));
            let _ = writeln!(out, "<p>{}</p>", escaped(metric.meaning));
            out.push_str(&table(&metric.rows()));
            out.push_str(&paragraphs("remark", &metric.remarks()));
            out.push_str(&drawing(metric, &cohorts).svg());
        }
        out.push_str(
            "<p class=\"remark\">Plots show the cumulative share of sessions by value, up to the \
             99th percentile of each cohort.</p>\n",
        );
        page("Cohorts compared", &out)
    }
}

/// Wraps content in a whole page.
pub(crate) fn page(title: &str, content: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n{content}</html>\n"
    )
}

/// Renders each line as a paragraph.
pub(crate) fn paragraphs(class: &str, lines: &[String]) -> String {
    let mut out = String::new();
    for line in lines {
        let _ = writeln!(out, "<p class=\"{class}\">{}</p>", escaped(line));
    }
    out
}

/// Renders a table; the first row is the head.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let mut out = "<table>\n".to_owned();
    for (at, row) in rows.iter().enumerate() {
        let tag = if at == 0 { "th" } else { "td" };
        let cells: String =
            row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        let _ = writeln!(out, "<tr>{cells}</tr>");
    }
    out + "</table>\n"
}

/// Plots the distribution functions of all cohorts. A cohort keeps its colour in all plots.
fn drawing(metric: &MetricReport, cohorts: &[&str]) -> Plot {
    let curve = |of: &crate::compare::CohortMetric| Curve {
        name: of.cohort.clone(),
        colour: cohorts.iter().position(|name| *name == of.cohort).unwrap_or(0),
        points: of.curve.clone(),
    };
    Plot {
        title: format!("Distribution of {}", metric.name),
        x: metric.title(),
        y: YAxis::Share,
        lines: metric.cohorts.iter().map(curve).collect(),
    }
}
