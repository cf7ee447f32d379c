//! Report of an experiment, as an HTML page and as a part of docs/reproduce/results.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use qoe::stats::Estimate;

use super::claims::{ClaimVerdict, Delivery, short, with_ci};
use super::files::{Made, stated, terms};
use super::metrics::{RunMetric, Term};
use super::rows::{Bundle, RunGroup, RunRow, SenderCurve, bundles, groups};
use super::spec::{Axis, Point, Spec, Sweep, entries, number, plain};
use super::verdict::{CellVerdict, VerdictCounts, floors, ratio};
use crate::setup::Setup;
use crate::simulation::SenderSample;
use analysis::{Chart, Series, Span, escaped};
use toml::Value;

/// Samples (10 per second) over which curves average the delivered rate.
const DELIVERY_SAMPLES: usize = 6;

/// Explanation of the tables.
pub(crate) const LEGEND: &str = "Each number is a mean over runs with half its 95 % confidence \
    interval. After a slash follow the paper's value, our value as a multiple of it, and the \
    verdict.";

/// Explanation of verdicts near zero.
pub(crate) fn near_zero() -> String {
    format!(
        "Deviations from numbers near zero are measured against a floor, by unit: {}; 1 in others.",
        floors()
    )
}

/// Data of a report.
pub(crate) struct ExperimentReport<'a> {
    pub spec: &'a Spec,
    pub made: &'a Made,
    pub rows: &'a [RunRow],
    pub curves: &'a [SenderCurve],
    pub delivery: &'a Delivery,
    pub verdicts: &'a [ClaimVerdict],
}

/// Our value of a metric at a point, and the paper's.
pub(crate) struct Cell<'a> {
    pub sweep: usize,
    pub scheme: &'a str,
    pub point: Point,
    pub term: &'a Term,
    pub ours: Estimate,
    pub paper: (f64, f64),
    pub verdict: CellVerdict,
}

/// A plot as an SVG element, and its file name.
pub(crate) struct Plot {
    pub file: String,
    pub svg: String,
}

/// Formats a number, or both ends of a range.
pub(crate) fn number_or_range(ends: (f64, f64)) -> String {
    match ends {
        (low, high) if low == high => short(low),
        (low, high) => format!("{} to {}", short(low), short(high)),
    }
}

/// Renders the verdicts under a heading, below the invariant, which is no claim.
fn claims_table(delivery: &Delivery, verdicts: &[ClaimVerdict]) -> String {
    let word = if delivery.holds() { "PASS" } else { "FAIL" };
    let mut body = format!(
        "<p class=\"{word}\">Every run delivers the right bytes: {word}. {}</p>\n<h2>Claims</h2>\n",
        escaped(&delivery.text())
    );
    if verdicts.is_empty() {
        return body + "<p>No claims.</p>\n";
    }
    body.push_str("<table>\n");
    for verdict in verdicts {
        let word = verdict.word();
        let why = verdict.why.as_ref().filter(|_| !verdict.holds());
        let why = why.map_or(String::new(), |why| format!("<br>{}", escaped(why)));
        let _ = writeln!(
            body,
            "<tr class=\"{word}\"><td>{word}</td><td>{}{why}</td><td>{}</td>\
             <td>{}</td></tr>",
            escaped(&verdict.text),
            verdict.count(),
            escaped(&verdict.detail)
        );
    }
    body + "</table>\n"
}

/// Renders a list under a heading, unless it is empty.
fn list(body: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(body, "<h3>{title}</h3>\n<ul>");
    for line in lines {
        let _ = writeln!(body, "<li>{}</li>", escaped(line));
    }
    body.push_str("</ul>\n");
}

/// Position of a point on the x axis.
fn x_of(sweep: &Sweep, point: &Point) -> Option<f64> {
    let key = sweep.x()?.key.get_ref();
    let (_, value) = point.iter().find(|(name, _)| name == key)?;
    number(value)
}

/// Axis values as text, without sections: `congestion bbr, rtt 60ms`.
pub(crate) fn words(point: &[(String, Value)]) -> String {
    let parts: Vec<String> =
        point.iter().map(|(key, value)| format!("{} {}", name_of(key), plain(value))).collect();
    parts.join(", ")
}

/// Returns a key without its section.
fn name_of(key: &str) -> &str {
    key.split_once('.').map_or(key, |(_, name)| name)
}

/// Label of an x axis: the key and its unit.
fn label(axis: &Axis) -> String {
    let name = name_of(axis.key.get_ref()).replace('_', " ");
    match axis.unit() {
        None | Some("") => name,
        Some(unit) => format!("{name} ({unit})"),
    }
}

/// `12.3 ± 0.5 / 13.0, × 0.95, within 10 %`.
fn told(cell: &Cell<'_>) -> String {
    let factor =
        ratio(cell.ours.mean, cell.paper).filter(|_| cell.verdict != CellVerdict::Opposite);
    let factor = factor.map_or(String::new(), |ratio| format!(", × {}", short(ratio)));
    let (own, paper) = (with_ci(cell.ours), number_or_range(cell.paper));
    format!("{own} / {paper}{factor}, {}", cell.verdict.word())
}

impl ExperimentReport<'_> {
    /// Renders the plots of all sweeps.
    pub(crate) fn plots(&self) -> Vec<Plot> {
        let mut all = Vec::new();
        let groups = groups(self.rows);
        for (place, sweep) in self.spec.sweeps.iter().enumerate() {
            let Some(x) = sweep.x().map(label) else { continue };
            for term in &self.spec.metrics {
                let series = self.series(&groups, place, term);
                if series.iter().all(|series| series.points.len() < 2) {
                    continue;
                }
                let chart = Chart {
                    title: sweep.title.clone(),
                    x: x.clone(),
                    y: term.text.replace('_', " "),
                };
                let file = format!("{}-{}.svg", place + 1, term.text.replace([':', '@', ' '], "-"));
                all.push(Plot { file, svg: chart.svg(&series) });
            }
        }
        all.extend(self.curve_plots());
        all
    }

    fn series(&self, groups: &[RunGroup<'_>], place: usize, term: &Term) -> Vec<Series> {
        let sweep = &self.spec.sweeps[place];
        let mut lines: BTreeMap<(usize, String), (Series, Series)> = BTreeMap::new();
        for group in bundles(self.spec, groups, place) {
            let Some(x) = x_of(sweep, &group.point) else { continue };
            let own = group.estimate(self.spec, groups, term);
            let Some(Estimate { mean, half }) = own else { continue };
            let key = sweep.x().map(|axis| axis.key.get_ref());
            let rest = group.point.iter().filter(|(name, _)| Some(name) != key);
            let mut name = group.scheme.to_owned();
            rest.for_each(|(_, value)| {
                let _ = write!(name, ", {}", plain(value));
            });
            let order = self.spec.schemes.iter().position(|scheme| scheme.label == group.scheme);
            let line = lines.entry((order.unwrap_or(0), name.clone())).or_insert_with(|| {
                (Series::line(name.clone()), Series::marks(format!("{name} (paper)")))
            });
            line.0.points.push((x, mean));
            let half = half.unwrap_or(0.0);
            line.0.band.push(Span { x, low: mean - half, high: mean + half });
            if let Some(paper) = stated(self.spec, place, group.scheme, &group.point, term) {
                let (low, high) = paper.value.ends();
                line.1.points.push((x, low));
                if high != low {
                    line.1.points.push((x, high));
                }
            }
        }
        let (mut all, marks): (Vec<Series>, Vec<Series>) = lines.into_values().unzip();
        all.extend(marks.into_iter().filter(|series| !series.points.is_empty()));
        for series in &mut all {
            series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
            series.band.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        all
    }

    fn curve_plots(&self) -> Vec<Plot> {
        type Pick = fn(&[SenderSample]) -> Option<f64>;
        let kinds: [(&str, &str, Pick); 4] = [
            ("window", "congestion window (kB)", |s| Some(s.last()?.window as f64 / 1e3)),
            ("rate", "pacing rate (Mbps)", |s| Some(s.last()?.pacing_rate?.as_mbps_f64())),
            ("queue", "bytes at the bottleneck (kB)", |s| Some(s.last()?.queued as f64 / 1e3)),
            ("delivered", "delivered rate (Mbps)", delivered_mbps),
        ];
        let mut all = Vec::new();
        for (place, sweep) in self.spec.sweeps.iter().enumerate() {
            for (name, y, pick) in kinds {
                let of_sweep = self.curves.iter().filter(|curve| curve.sweep == place);
                let series: Vec<Series> = of_sweep
                    .map(|curve| {
                        let points = (1..=curve.samples.len()).filter_map(|n| {
                            let recent = &curve.samples[n.saturating_sub(DELIVERY_SAMPLES)..n];
                            Some((recent.last()?.at.as_secs_f64(), pick(recent)?))
                        });
                        let mut series =
                            Series::line(format!("{} {}", curve.scheme, words(&curve.point)));
                        series.points = points.collect();
                        series.dots = false;
                        series
                    })
                    .filter(|series| !series.points.is_empty())
                    .collect();
                if series.is_empty() {
                    continue;
                }
                let chart =
                    Chart { title: sweep.title.clone(), x: "time (s)".to_owned(), y: y.to_owned() };
                let file = format!("{}-{name}-over-time.svg", place + 1);
                all.push(Plot { file, svg: chart.svg(&series) });
            }
        }
        all
    }

    /// Returns our estimate of a term at each point and scheme, with the paper's value if stated.
    fn cell<'b>(
        &'b self,
        groups: &[RunGroup<'b>],
        sweep: usize,
        bundle: &Bundle<'b, '_>,
        term: &'b Term,
    ) -> Option<Cell<'b>> {
        let ours = bundle.estimate(self.spec, groups, term)?;
        let paper = stated(self.spec, sweep, bundle.scheme, &bundle.point, term)?.value.ends();
        let verdict = CellVerdict::of(ours.mean, paper, term.unit());
        let (scheme, point) = (bundle.scheme, bundle.point.clone());
        Some(Cell { sweep, scheme, point, term, ours, paper, verdict })
    }

    /// Judges every number that the paper states, at each of its points.
    pub(crate) fn cells<'b>(&'b self) -> Vec<Cell<'b>> {
        let groups = groups(self.rows);
        let mut terms: Vec<&'b Term> = Vec::new();
        for paper in &self.spec.paper {
            if !terms.contains(&&paper.metric) {
                terms.push(&paper.metric);
            }
        }
        let mut all = Vec::new();
        for sweep in 0..self.spec.sweeps.len() {
            for bundle in bundles(self.spec, &groups, sweep) {
                let cell = |&term: &&'b Term| self.cell(&groups, sweep, &bundle, term);
                all.extend(terms.iter().filter_map(cell));
            }
        }
        all
    }

    /// Renders a table per sweep: a row per point and scheme, a column per metric. A cell holds our
    /// value, then a slash, and the paper's value and the verdict if stated.
    fn tables(&self) -> Vec<(String, Vec<Vec<String>>)> {
        let groups = groups(self.rows);
        let terms = terms(self.spec);
        let table = |(place, sweep): (usize, &Sweep)| {
            let mut head = vec!["point".to_owned(), "scheme".to_owned()];
            for term in &terms {
                head.push(format!("{} ({})", term.text, term.unit()).replace(" (1)", ""));
            }
            let mut lines = vec![head];
            for group in bundles(self.spec, &groups, place) {
                let mut cells = vec![words(&group.point), group.scheme.to_owned()];
                for term in &terms {
                    let own = group.estimate(self.spec, &groups, term);
                    let own = own.map_or("–".to_owned(), with_ci);
                    cells.push(match self.cell(&groups, place, &group, term) {
                        None => own,
                        Some(cell) => told(&cell),
                    });
                }
                lines.push(cells);
            }
            (sweep.title.clone(), lines)
        };
        self.spec.sweeps.iter().enumerate().map(table).collect()
    }

    /// Reports the share of off-mode per sweep, with the authors' measurement on live streams
    /// (AutoRec, journal version, figure 6).
    fn off_mode(&self) -> Vec<String> {
        let [time, entries] = ["off_mode_ms_per_s", "off_mode_entries_per_s"];
        let (Some(time), Some(entries)) = (RunMetric::index(time), RunMetric::index(entries))
        else {
            return Vec::new();
        };
        let told = |(place, sweep): (usize, &Sweep)| {
            let rows = || self.rows.iter().filter(|row| row.sweep == place);
            let of = |metric: usize| Estimate::of(rows().filter_map(|row| row.values[metric]));
            Some(format!(
                "{}: {} ms of off-mode per second in{} entries (464 ms and 20 in the paper's live \
                 streams)",
                sweep.title,
                short(of(time)?.mean),
                short(of(entries)?.mean)
            ))
        };
        self.spec.sweeps.iter().enumerate().filter_map(told).collect()
    }

    /// Returns the keys that all runs share and use, with their values.
    fn set_up(&self) -> Vec<(String, String)> {
        let Some(sweep) = self.spec.sweeps.first() else { return Vec::new() };
        let Some(scheme) = self.spec.schemes.first() else { return Vec::new() };
        let first = sweep.points().into_iter().next().unwrap_or_default();
        let Ok(setup) = self.spec.setup(sweep, &first, &[], scheme) else {
            return Vec::new();
        };
        let mut swept: Vec<String> = vec!["recovery.scheme".to_owned()];
        for sweep in &self.spec.sweeps {
            swept.extend(sweep.axes.iter().map(|axis| axis.key.get_ref().clone()));
            swept.extend(sweep.ranges.iter().map(|range| range.key.get_ref().clone()));
            swept.extend(entries(&sweep.set).map(|(key, _, _)| key));
        }
        for scheme in &self.spec.schemes {
            swept.extend(entries(&scheme.set).map(|(key, _, _)| key));
        }
        let default = Setup::default();
        setup
            .keys()
            .map(|(section, (name, _))| format!("{section}.{name}"))
            .filter(|key| !swept.contains(key) && setup.is_used(key))
            // Of a server's many keys, those with another value.
            .filter(|key| key.starts_with("path.") || setup.text_of(key) != default.text_of(key))
            .map(|key| (setup.text_of(&key), key))
            .filter(|(text, _)| !text.is_empty())
            .map(|(text, key)| (key, text))
            .collect()
    }

    /// Renders the page with inline plots.
    pub(crate) fn html(&self, plots: &[Plot]) -> String {
        let mut body = format!("<p>{}</p>\n", escaped(&self.spec.about));
        body.push_str(&claims_table(self.delivery, self.verdicts));
        plots.iter().for_each(|plot| body.push_str(&plot.svg));
        let _ = writeln!(body, "<h2>Numbers</h2>\n<p>{LEGEND} {}</p>", near_zero());
        for (title, lines) in self.tables() {
            let _ = writeln!(body, "<h3>{}</h3>\n<table>", escaped(&title));
            for (index, line) in lines.iter().enumerate() {
                let tag = if index == 0 { "th" } else { "td" };
                body.push_str("<tr>");
                for cell in line {
                    let _ = write!(body, "<{tag}>{}</{tag}>", escaped(cell));
                }
                body.push_str("</tr>\n");
            }
            body.push_str("</table>\n");
        }
        list(&mut body, "Off-mode, mean over all runs", &self.off_mode());
        let stated = self.spec.paper.iter().map(|paper| {
            let scheme = paper.on.scheme.as_deref().unwrap_or_default();
            let value = number_or_range(paper.value.ends());
            format!("{scheme} {}: {value} ({})", paper.metric.text, paper.stated)
        });
        list(&mut body, "Sources of the paper's numbers", &stated.collect::<Vec<_>>());
        body.push_str("<h2>Set-up</h2>\n<table>\n");
        for (key, value) in self.set_up() {
            let _ = writeln!(body, "<tr><td>{key}</td><td>{}</td></tr>", escaped(&value));
        }
        body.push_str("</table>\n");
        list(&mut body, "Settings that the paper does not state", &self.spec.not_stated);
        let _ = writeln!(body, "<p>{}</p>", escaped(&self.made_by()));
        body
    }

    fn made_by(&self) -> String {
        let Made { command, commit, machine, runs, seed, cpu_seconds, wall_seconds, .. } =
            self.made;
        format!(
            "{runs} runs per point from seed {seed}; {cpu_seconds:.0} CPU-seconds, \
             {wall_seconds:.0} s; `{command}`; commit {commit}; {machine}."
        )
    }

    /// Renders the experiment's row of the summary, with its name as a link to `link`.
    pub(crate) fn summary(&self, link: &str) -> String {
        let Spec { name, title, .. } = self.spec;
        let Made { runs, cpu_seconds, commit, .. } = self.made;
        let counts: VerdictCounts = self.cells().iter().map(|cell| cell.verdict).collect();
        format!(
            "| [{name}]({link}) | {title} | {} | {} | {runs} | {cpu_seconds:.0} | {commit} |\n",
            self.claims_text(),
            counts.text()
        )
    }

    /// `4 of 5`, or `no claims`; failed runs come first.
    fn claims_text(&self) -> String {
        let good = self.verdicts.iter().filter(|verdict| verdict.holds()).count();
        let claims = match self.verdicts.len() {
            0 => "no claims".to_owned(),
            all => format!("{good} of {all}"),
        };
        match self.delivery.holds() {
            true => claims,
            false => format!("**{}** {claims}", self.delivery.text()),
        }
    }

    /// Renders the section of the full page.
    pub(crate) fn markdown(&self) -> String {
        let mut text =
            format!("## {}\n\n{}. {}\n\n", self.spec.name, self.spec.title, self.spec.about);
        if !self.delivery.holds() {
            let _ = writeln!(text, "**{}**\n", self.delivery.text());
        }
        if self.verdicts.is_empty() {
            text.push_str("No claims.\n");
        }
        for verdict in self.verdicts {
            let why = verdict.why.as_ref().filter(|_| !verdict.holds());
            let why = why.map_or(String::new(), |why| format!(" {why}"));
            let detail = match &*verdict.detail {
                "" => String::new(),
                detail => format!(" ({detail})"),
            };
            let (word, count, claim) = (verdict.word(), verdict.count(), &verdict.text);
            let _ = writeln!(text, "- **{word}** ({count}) {claim}{why}{detail}");
        }
        text.push('\n');
        for (title, lines) in self.tables() {
            let _ = writeln!(
                text,
                "**{title}** (ours ± 95 % interval / paper, our share of it, verdict)\n"
            );
            for (index, line) in lines.iter().enumerate() {
                let _ = writeln!(text, "| {} |", line.join(" | "));
                if index == 0 {
                    let _ = writeln!(text, "|{}", "---|".repeat(line.len()));
                }
            }
            text.push('\n');
        }
        let mut stated: Vec<String> = Vec::new();
        for paper in &self.spec.paper {
            if !stated.contains(&paper.stated) {
                stated.push(paper.stated.clone());
            }
        }
        for (title, lines) in [
            ("Numbers after the slashes:", &stated),
            ("Off-mode, mean over all runs:", &self.off_mode()),
            ("Not stated by the paper, and our choice:", &self.spec.not_stated),
        ] {
            if !lines.is_empty() {
                let _ = writeln!(text, "{title}\n\n- {}\n", lines.join("\n- "));
            }
        }
        let _ = writeln!(text, "{}\n", self.made_by());
        text
    }
}

/// Rate of the bytes delivered between the first and the last of these samples.
fn delivered_mbps(samples: &[SenderSample]) -> Option<f64> {
    let (first, last) = (samples.first()?, samples.last()?);
    let seconds = last.at.since(first.at).as_secs_f64();
    (seconds > 0.0).then(|| (last.received - first.received) as f64 * 8.0 / seconds / 1e6)
}
