//! `mendcast lab rtc`: calls, conferences and files under schemes that change the client.

mod chart;
mod page;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ::lab::experiments::origin;
use ::rtc::experiment::{
    BUILT_IN, Changes, Experiment, Job, Metrics, Results, Verdict, metric_name, scale,
};
use analysis::{Chart, Series};
use clap::Args;

use super::execution::Execution;
use super::run::key_and_value;
use crate::error::Error;

/// Interval of progress lines.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Longest specification or trace, in bytes. The traces of SparkTraces have up to 1 MB.
const MAX_FILE: u64 = 32 << 20;

const EXAMPLES: &str = "\
Examples:
  mendcast lab rtc --runs 5
  mendcast lab rtc rtc-fig19 --runs 2 --set duration=10s
  mendcast lab rtc rtc-fig19 --trace cell-trace4.log
  mendcast lab rtc --out out --page docs/reproduce/client-changes.md";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Rtc {
    /// Experiments: rtc-fig19, rtc-fig20, block-fig22, block-fig6 [default: all].
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Specification in place of the built-in ones (see experiments/rtc-fig19.toml).
    #[arg(long, value_name = "FILE", conflicts_with = "names")]
    spec: Option<PathBuf>,
    /// Runs per point [default: as the experiment states].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    runs: Option<u64>,
    /// Trace to replay as a further condition of calls; may be repeated.
    ///
    /// Rows of time (s), bandwidth (Mbps), round-trip time and loss rate, as in SparkTraces.
    ///
    /// The bandwidth is ignored.
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// Key of all conditions, such as duration=10s; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
    #[command(flatten)]
    execution: Execution,
    /// Directory of results: a directory per experiment with tables.md, summary.json and plots.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    out: Option<PathBuf>,
    /// Page that compares schemes with and without a changed client; its chart goes to pictures/.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    page: Option<PathBuf>,
}

impl Rtc {
    pub(super) fn run(self) -> Result<(), Error> {
        let experiments = self.experiments()?;
        let mut all = Vec::new();
        for (experiment, runs) in &experiments {
            let results = self.results(experiment, *runs)?;
            let table = results.table();
            print_line!("{table}");
            if let Some(out) = &self.out {
                write_results(&out.join(&experiment.name), &results, &table)?;
            }
            all.push(results);
        }
        if let Some(path) = &self.page {
            self.write_page(path, &all)?;
        }
        let judged = all.iter().flat_map(Results::judged);
        let failed = judged.filter(|judged| judged.verdict == Verdict::Fails);
        let failed: Vec<_> =
            failed.map(|judged| format!("{} ({})", judged.claim.text, judged.condition)).collect();
        if failed.is_empty() {
            return Ok(());
        }
        Err(Error::new(format_args!("claims that do not hold: {}", failed.join(" "))))
    }

    /// Returns the chosen experiments with their runs.
    fn experiments(&self) -> Result<Vec<(Experiment, u64)>, Error> {
        let mut texts = Vec::new();
        if let Some(path) = &self.spec {
            texts.push((path.display().to_string(), read(path)?));
        }
        for wanted in &self.names {
            let found = BUILT_IN.iter().find(|(name, _)| name == wanted);
            let known = BUILT_IN.map(|(name, _)| name).join(", ");
            let unknown = || Error::new(format_args!("no experiment `{wanted}`; known: {known}"));
            let (name, text) = found.ok_or_else(unknown)?;
            texts.push(((*name).to_owned(), (*text).to_owned()));
        }
        if texts.is_empty() {
            texts = BUILT_IN.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        }
        let experiments: Result<Vec<_>, _> =
            texts.iter().map(|(file, text)| self.experiment(file, text)).collect();
        let experiments = experiments?;
        if !self.trace.is_empty() && !experiments.iter().any(|(e, _)| e.replays_traces()) {
            return Err(Error::new(
                "--trace: expected an experiment with calls, such as rtc-fig19",
            ));
        }
        Ok(experiments)
    }

    fn experiment(&self, file: &str, text: &str) -> Result<(Experiment, u64), Error> {
        let mut experiment = Experiment::parse(file, text).map_err(Error::new)?;
        for (key, value) in &self.set {
            experiment.set(key, value).map_err(Error::new)?;
        }
        let traces: &[PathBuf] = if experiment.replays_traces() { &self.trace } else { &[] };
        for path in traces {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            experiment.add_trace(&name, &read(path)?).map_err(Error::new)?;
        }
        let runs = self.runs.unwrap_or(experiment.runs);
        Ok((experiment, runs))
    }

    fn results<'a>(&self, experiment: &'a Experiment, runs: u64) -> Result<Results<'a>, Error> {
        let jobs = experiment.jobs(runs);
        let all = in_parallel(&experiment.name, &jobs, self.execution.jobs(), |job| {
            experiment.run(*job, self.execution.seed)
        });
        let all: Result<Vec<Metrics>, _> = all.into_iter().collect();
        Ok(Results::new(experiment, runs, all.map_err(Error::new)?))
    }

    /// The command that repeats these runs, with the names of traces in place of their paths.
    fn command(&self) -> String {
        let mut command = "mendcast lab rtc".to_owned();
        let mut add = |text: String| command.extend([" ", &text]);
        let name = |path: &Path| {
            path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
        };
        self.names.iter().for_each(|name| add(name.clone()));
        self.spec.iter().for_each(|path| add(format!("--spec {}", name(path))));
        self.runs.iter().for_each(|runs| add(format!("--runs {runs}")));
        self.trace.iter().for_each(|path| add(format!("--trace {}", name(path))));
        self.set.iter().for_each(|(key, value)| add(format!("--set {key}={value}")));
        add(format!("--seed {}", self.execution.seed));
        command
    }

    /// Writes the page, and its chart beside it.
    fn write_page(&self, path: &Path, all: &[Results<'_>]) -> Result<(), Error> {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let picture = format!("pictures/{stem}.svg");
        let made = format!("`{}`. {}", self.command(), origin());
        let (page, chart) = page::client_changes(all, &made, &picture);
        write(&path.with_file_name(&picture), &chart)?;
        write(path, &page)?;
        log_line!("{}", path.display());
        Ok(())
    }
}

/// Reads a file of text up to [`MAX_FILE`].
fn read(path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(Error::at(path.display()))?;
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(Error::at(path.display()))?;
    if text.len() as u64 > MAX_FILE {
        let why = format!("above {} MB; expected a specification or a trace", MAX_FILE >> 20);
        return Err(Error::at(path.display())(why));
    }
    Ok(text)
}

/// Writes a file, and its directory if missing.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(Error::at(folder.display()))?;
    }
    std::fs::write(path, text).map_err(Error::at(path.display()))
}

/// Writes tables, `summary.json`, and a plot of late frames by cost for each condition.
fn write_results(folder: &Path, results: &Results<'_>, table: &str) -> Result<(), Error> {
    write(&folder.join("tables.md"), &format!("{table}\n{}\n", origin()))?;
    let lines = results.summary();
    let lines = serde_json::to_string_pretty(&lines).map_err(Error::at(folder.display()))?;
    write(&folder.join("summary.json"), &lines)?;
    let experiment = results.experiment();
    for (at, condition) in experiment.conditions.iter().enumerate() {
        let plot = tradeoff(results, at, &condition.label);
        write(&folder.join(format!("{}-tradeoff.svg", at + 1)), &plot)?;
    }
    log_line!("{}", folder.join("tables.md").display());
    Ok(())
}

/// Draws the schemes of a condition: the most important metric by the cost.
fn tradeoff(results: &Results<'_>, condition: usize, label: &str) -> String {
    let experiment = results.experiment();
    let metric = experiment.platform.metrics()[0];
    let kinds = [
        (Changes::Sender, "sender-only"),
        (Changes::Client, "changed client"),
        (Changes::Bound, "bound"),
    ];
    let series = kinds.map(|(kind, name)| {
        let schemes = experiment.schemes.iter().enumerate().filter(|(_, s)| s.changes == kind);
        let mean = |scheme, metric| results.estimate(condition, scheme, metric).map(|e| e.mean);
        let points = schemes.filter_map(|(at, _)| {
            Some((mean(at, "overhead")? * 100.0, mean(at, metric)? * scale(metric)))
        });
        Series { points: points.collect(), ..Series::marks(name.to_owned()) }
    });
    let chart = Chart {
        title: format!("{}: {label}", experiment.title),
        x: "retransmissions, replicas and repair packets, %".to_owned(),
        y: metric_name(metric).to_owned(),
    };
    chart.svg(&series)
}

/// Processes jobs on several threads with progress lines. Returns results in the jobs' order.
fn in_parallel<R: Send>(
    name: &str,
    jobs: &[Job],
    threads: usize,
    work: impl Fn(&Job) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new((Vec::with_capacity(jobs.len()), Instant::now()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { break };
                    let result = work(job);
                    let mut done = done.lock().expect("no thread panics while it holds the lock");
                    done.0.push((at, result));
                    if done.1.elapsed() >= LINE_EVERY {
                        done.1 = Instant::now();
                        log_line!("{name}: {} of {} runs", done.0.len(), jobs.len());
                    }
                }
            });
        }
    });
    let (mut results, _) = done.into_inner().expect("all threads have ended");
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
