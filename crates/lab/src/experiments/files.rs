//! Result files: `results.csv` (one row per run), `curves.csv`, `summary.json`, and `run.json` (how
//! the results were made). A report is rewritten from all but the summary.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Value;
use units::{Rate, Timestamp};

use super::metrics::{ALL, Term};
use super::output::{self, RunStatistics, SummaryLine, write_file, write_json};
use super::rows::{RunRow, SenderCurve, describe, groups, values};
use super::spec::{Paper, Point, Spec};
use super::verdict::CellVerdict;
use crate::error::{Context as _, Error, FileError};
use crate::simulation::SenderSample;

/// Origin of the results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Made {
    pub name: String,
    pub command: String,
    /// Keys given on the command line, and their values.
    pub set: Vec<(String, String)>,
    pub commit: String,
    pub machine: String,
    pub runs: u64,
    pub seed: u64,
    pub cpu_seconds: f64,
    pub wall_seconds: f64,
}

impl Made {
    /// Describes this process and machine. The commit is the one checked out in the current
    /// directory.
    pub(crate) fn here() -> Self {
        let mut arguments: Vec<String> = std::env::args().collect();
        if let Some(program) = arguments.first_mut() {
            *program = "mendcast".to_owned();
        }
        let git = |arguments: &[&str]| {
            let output = std::process::Command::new("git").args(arguments).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
            (output.status.success()).then_some(text)
        };
        let commit = git(&["rev-parse", "--short=12", "HEAD"]).map_or("unknown".into(), |head| {
            match git(&["status", "--porcelain", "--untracked-files=no"]) {
                Some(changes) if changes.is_empty() => head,
                _ => format!("{head} with changes"),
            }
        });
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let model = after(&read("/proc/cpuinfo"), "model name").unwrap_or("unknown".to_owned());
        let memory = after(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok())
            .map_or(String::new(), |kib| format!(", {:.0} GB", kib / 1e6));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            command: arguments.join(" "),
            commit,
            machine: format!("{cores} cores of {model}{memory}"),
            ..Self::default()
        }
    }
}

/// Returns the paper's number for a term at a point, if stated.
pub(crate) fn stated<'a>(
    spec: &'a Spec,
    sweep: usize,
    scheme: &str,
    point: &Point,
    term: &Term,
) -> Option<&'a Paper> {
    let sweep = &spec.sweeps[sweep];
    spec.paper.iter().find(|paper| paper.metric == *term && paper.on.covers(sweep, scheme, point))
}

/// Returns all terms that are shown or stated by the paper.
pub(crate) fn terms(spec: &Spec) -> Vec<Term> {
    let mut all = spec.metrics.clone();
    for paper in &spec.paper {
        if !all.contains(&paper.metric) {
            all.push(paper.metric.clone());
        }
    }
    all
}

pub(crate) fn write_summary(out: &Path, spec: &Spec, rows: &[RunRow]) -> Result<(), Error> {
    let mut all = Vec::new();
    let groups = groups(rows);
    let mut every = terms(spec);
    for metric in ALL {
        if !every.iter().any(|term| term.text == metric.name) {
            every.push(Term::parse(metric.name)?);
        }
    }
    for group in &groups {
        let setup = group.rows.values().next().and_then(|row| row.setup(spec).ok());
        let is_fixed = setup.is_some_and(|setup| setup.scheme_name() == "autorec-fixed");
        for term in &every {
            let of =
                |term: &Term| RunStatistics::of(values(spec, &groups, group, term).into_values());
            let Some(statistics) = of(term) else { continue };
            let formula = term.expected().filter(|_| is_fixed);
            let formula = formula.map(Term::parse).transpose()?;
            let paper = stated(spec, group.sweep, group.scheme, group.point, term);
            all.push(SummaryLine {
                experiment: &spec.name,
                sweep: Some(&spec.sweeps[group.sweep].title),
                scheme: group.scheme,
                point: group
                    .point
                    .iter()
                    .map(|(key, value)| (key.as_str(), value.clone()))
                    .collect(),
                metric: &term.text,
                unit: term.unit(),
                statistics,
                paper: paper.map(|paper| match paper.value.ends() {
                    (low, high) if low == high => vec![low],
                    (low, high) => vec![low, high],
                }),
                verdict: paper.map(|paper| {
                    CellVerdict::of(statistics.mean, paper.value.ends(), term.unit()).word()
                }),
                expected: formula.and_then(|term| Some(of(&term)?.mean)),
            });
        }
    }
    output::write_summary(out, &all)
}

fn head() -> String {
    let names: Vec<&str> = ALL.iter().map(|metric| metric.name).collect();
    format!("sweep,scheme,point,drawn,seed,{},error", names.join(","))
}

/// Replaces field separators.
pub(super) fn clean(text: &str) -> String {
    text.replace([',', '\n', '"'], " ")
}

pub(crate) fn write_rows(out: &Path, rows: &[RunRow]) -> Result<(), Error> {
    let mut text = head();
    text.push('\n');
    for row in rows {
        let (point, drawn) = (describe(&row.point), describe(&row.drawn));
        let _ = write!(text, "{},{},{point},{drawn},{}", row.sweep, clean(&row.scheme), row.seed);
        for value in &row.values {
            text.push(',');
            if let Some(value) = value {
                let _ = write!(text, "{value}");
            }
        }
        let _ = writeln!(text, ",{}", clean(&row.error));
    }
    write_file(&out.join("results.csv"), &text)
}

pub(super) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).at(path)
}

pub(crate) fn read_rows(out: &Path, spec: &Spec) -> Result<Vec<RunRow>, Error> {
    let path = out.join("results.csv");
    let text = read(&path)?;
    let mut lines = text.lines();
    if lines.next() != Some(head().as_str()) {
        return Err(FileError::Version).at(&path);
    }
    let rows = (2..)
        .zip(lines)
        .map(|(number, line)| read_row(line, spec).ok_or_else(|| malformed(&path, number)));
    rows.collect()
}

pub(super) fn malformed(path: &Path, line: usize) -> Error {
    FileError::Malformed { path: path.to_owned(), line }.into()
}

fn read_row(line: &str, spec: &Spec) -> Option<RunRow> {
    let fields: Vec<&str> = line.split(',').collect();
    let [sweep, scheme, point, drawn, seed, values @ .., error] = &fields[..] else { return None };
    let sweep = sweep.parse().ok().filter(|place| *place < spec.sweeps.len())?;
    let value = |text: &&str| match *text {
        "" => Some(None),
        number => number.parse().ok().map(Some),
    };
    let values: Vec<Option<f64>> = values.iter().map(value).collect::<Option<_>>()?;
    (values.len() == ALL.len()).then_some(())?;
    Some(RunRow {
        sweep,
        scheme: (*scheme).to_owned(),
        point: read_point(point, spec, sweep)?,
        drawn: read_drawn(drawn)?,
        seed: seed.parse().ok()?,
        values,
        error: (*error).to_owned(),
    })
}

/// Finds the point that has this text.
pub(super) fn read_point(text: &str, spec: &Spec, sweep: usize) -> Option<Point> {
    spec.sweeps[sweep].points().into_iter().find(|point| describe(point) == text)
}

fn read_drawn(text: &str) -> Option<Point> {
    let parts = text.split(';').filter(|part| !part.is_empty());
    let read = |part: &str| {
        let (key, value) = part.split_once('=')?;
        let value = value.parse().map_or(Value::String(value.to_owned()), Value::Float);
        Some((key.to_owned(), value))
    };
    parts.map(read).collect()
}

const CURVES: &str = "sweep,scheme,point,t_s,window,in_flight,rate_mbps,received,queued";

pub(crate) fn write_curves(out: &Path, curves: &[SenderCurve]) -> Result<(), Error> {
    if curves.is_empty() {
        return Ok(());
    }
    let mut text = format!("{CURVES}\n");
    for curve in curves {
        for sample in &curve.samples {
            let rate = sample.pacing_rate.map_or(String::new(), |r| format!("{}", r.as_mbps_f64()));
            let _ = writeln!(
                text,
                "{},{},{},{:.3},{},{},{rate},{},{}",
                curve.sweep,
                clean(&curve.scheme),
                describe(&curve.point),
                sample.at.as_secs_f64(),
                sample.window,
                sample.in_flight,
                sample.received,
                sample.queued,
            );
        }
    }
    write_file(&out.join("curves.csv"), &text)
}

/// Reads the curves, if present.
pub(crate) fn read_curves(out: &Path, spec: &Spec) -> Result<Vec<SenderCurve>, Error> {
    if !spec.curves {
        return Ok(Vec::new());
    }
    let path = out.join("curves.csv");
    let text = read(&path)?;
    let mut curves: Vec<SenderCurve> = Vec::new();
    for (number, line) in (1..).zip(text.lines()).skip(1) {
        let sample = read_sample(line, spec).ok_or_else(|| malformed(&path, number))?;
        let (sweep, scheme, point, sample) = sample;
        match curves.last_mut() {
            Some(curve)
                if (curve.sweep, &curve.scheme, &curve.point) == (sweep, &scheme, &point) =>
            {
                curve.samples.push(sample);
            }
            _ => curves.push(SenderCurve { sweep, scheme, point, samples: vec![sample] }),
        }
    }
    Ok(curves)
}

fn read_sample(line: &str, spec: &Spec) -> Option<(usize, String, Point, SenderSample)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [sweep, scheme, point, at, window, in_flight, rate, received, queued] = fields[..] else {
        return None;
    };
    let sweep = sweep.parse().ok().filter(|place| *place < spec.sweeps.len())?;
    let sample = SenderSample {
        at: Timestamp::from_nanos((at.parse::<f64>().ok()? * 1e9) as u64),
        window: window.parse().ok()?,
        in_flight: in_flight.parse().ok()?,
        pacing_rate: match rate {
            "" => None,
            mbps => Some(Rate::from_kbps((mbps.parse::<f64>().ok()? * 1e3) as u64)),
        },
        received: received.parse().ok()?,
        queued: queued.parse().ok()?,
    };
    Some((sweep, scheme.to_owned(), read_point(point, spec, sweep)?, sample))
}

/// Writes the origin of the results and the specification.
pub(crate) fn write_made(out: &Path, made: &Made, text: &str) -> Result<(), Error> {
    write_json(&out.join("run.json"), made)?;
    write_file(&out.join("spec.toml"), text)
}

/// Reads the output of [`write_made`].
pub(crate) fn read_made(out: &Path) -> Result<(Made, String), Error> {
    let path = out.join("run.json");
    let made = serde_json::from_str(&read(&path)?).at(&path)?;
    Ok((made, read(&out.join("spec.toml"))?))
}
