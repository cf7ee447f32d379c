//! Experiments: what to sweep comes from `experiments/*.toml`, what comes out are `results.csv` (a
//! row per run), `summary.json`, plots and one `report.html`.

pub(crate) mod output;
mod report;
mod speed;
mod transport;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use output::{Statistics, Summary, write_file, write_page};

use crate::figures;
use indicatif::{ProgressBar, ProgressStyle};

/// How experiments are run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Runs per point, with seeds from `seed` on.
    pub runs: u64,
    /// Threads.
    pub jobs: usize,
    /// The first seed.
    pub seed: u64,
}

/// The experiments that exist: name and title.
pub fn list() -> Vec<(&'static str, String)> {
    let mut all = vec![
        (transport::NAME, transport::Spec::built_in().title),
        (speed::NAME, speed::TITLE.to_owned()),
    ];
    all.extend(figures::list());
    all
}

/// Runs the experiment `name` and writes its results into `out`. Returns whether its claims hold.
/// `spec` is the text of a specification in place of the built-in one. Without `runs`, there are as
/// many per point as the specification says. `set` are settings (key and value) that win over those
/// that the specification has for all runs.
///
/// # Errors
/// One line: there is no such experiment, the specification is not one for it, or `out` cannot be
/// written.
pub fn run(
    name: &str,
    spec: Option<&str>,
    set: &[(String, String)],
    runs: Option<u64>,
    options: Options,
    out: &Path,
) -> Result<bool, String> {
    if !set.is_empty() && [transport::NAME, speed::NAME].contains(&name) {
        return Err(format!("`{name}` has no settings of that kind"));
    }
    let options = Options { runs: runs.unwrap_or(options.runs), ..options };
    match name {
        transport::NAME => {
            let spec = spec.map_or_else(|| Ok(transport::Spec::built_in()), transport::Spec::parse);
            transport::run(&spec?, options, out)
        }
        speed::NAME if spec.is_some() => Err("`speed` takes no specification".to_owned()),
        speed::NAME => speed::run(options, out),
        _ => {
            let text = figures::built_in(name)
                .ok_or_else(|| format!("no experiment `{name}`; `mendcast lab list` shows them"))?;
            figures::run(spec.unwrap_or(text), set, runs, options, out)
        }
    }
}

/// The results in these directories as one page of Markdown: docs/results.md.
///
/// # Errors
/// One line: the results cannot be read.
pub fn results(folders: &[&Path]) -> Result<String, String> {
    figures::markdown(folders)
}

/// Writes `report.html` again from the results in a directory.
///
/// # Errors
/// One line: the results cannot be read, or the report cannot be written.
pub fn report(out: &Path) -> Result<(), String> {
    if figures::is_of(out) {
        return figures::report(out).map(|_| ());
    }
    let rows = report::read_rows(&out.join("results.csv"))?;
    report::write(out, &transport::Spec::built_in(), &rows)
}

/// A row of `results.csv`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub rtt_ms: u64,
    pub rate_mbps: u64,
    pub loss_percent: f64,
    pub queue_bdp: f64,
    pub congestion: String,
    pub client: String,
    pub seed: u64,
    pub completed: bool,
    pub intact: bool,
    pub same_log_twice: bool,
    pub fct_ms: f64,
    pub goodput_mbps: f64,
    /// Goodput over link rate × stream bytes ÷ wire bytes; without loss, and where the client's
    /// window is at least one and a half bandwidth-delay products.
    pub utilisation: Option<f64>,
    pub packets_lost: u64,
    pub event_log: String,
    /// Why the run did not complete; empty if it did.
    pub error: String,
}

/// Works through `items` on several threads, with a progress bar; results in the items' order.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(items.len() as u64).with_style(style);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    let result = work(item);
                    bar.inc(1);
                    if let Ok(mut done) = done.lock() {
                        done.push((index, result));
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_work_keeps_the_order() {
        let items: Vec<u64> = (0..100).collect();
        assert_eq!(
            in_parallel(&items, 3, |n| n * 2),
            items.iter().map(|n| n * 2).collect::<Vec<_>>()
        );
    }

    #[test]
    fn an_unknown_experiment_is_an_error() {
        let options = Options { runs: 1, jobs: 1, seed: 1 };
        assert!(run("nothing", None, &[], None, options, Path::new(".")).is_err());
    }
}
