//! Parallel work on several threads with a progress line.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use super::output::note;

/// Interval of progress lines where no bar can be drawn.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Processes `items` on several threads. Returns results in item order.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let mut done = Vec::with_capacity(items.len());
    in_order(items, jobs, work, |_, result| done.push(result));
    done
}

/// Processes `items` on several threads. `each` receives the results on the calling thread in item
/// order, as soon as all earlier ones are ready. Results are not stored.
pub(crate) fn in_order<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> R + Sync,
    mut each: impl FnMut(&T, R),
) {
    let mut progress = ProgressLine::new(items.len());
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    if sender.send((index, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut due = 0;
        for (index, result) in receiver {
            progress.advance();
            early.insert(index, result);
            while let Some(result) = early.remove(&due) {
                each(&items[due], result);
                due += 1;
            }
        }
    });
    progress.bar.finish_and_clear();
}

/// Progress bar on a terminal, otherwise periodic lines.
struct ProgressLine {
    bar: ProgressBar,
    is_drawn: bool,
    all: usize,
    done: usize,
    began: Instant,
    told: Instant,
}

impl ProgressLine {
    fn new(all: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let began = Instant::now();
        Self {
            bar: ProgressBar::new(all as u64).with_style(style),
            is_drawn: std::io::stderr().is_terminal(),
            all,
            done: 0,
            began,
            told: began,
        }
    }

    fn advance(&mut self) {
        self.done += 1;
        self.bar.inc(1);
        if !self.is_drawn && self.told.elapsed() >= LINE_EVERY && self.done < self.all {
            self.told = Instant::now();
            note(format_args!("{}", line(self.done, self.all, self.began.elapsed())));
        }
    }
}

/// Returns the completed share and the estimated time left.
fn line(done: usize, all: usize, took: Duration) -> String {
    let left = took.mul_f64((all - done) as f64 / done as f64);
    format!("{done}/{all} runs, {} left", HumanDuration(left))
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
    fn results_arrive_in_order_during_parallel_work() {
        let items: Vec<u64> = (0..200).collect();
        let mut seen = Vec::new();
        // The first of each ten takes longest.
        let work = |n: &u64| {
            std::thread::sleep(Duration::from_micros(if n.is_multiple_of(10) {
                2_000
            } else {
                10
            }));
            n + 1
        };
        in_order(&items, 3, work, |item, result| seen.push((*item, result)));
        assert_eq!(seen, items.iter().map(|n| (*n, n + 1)).collect::<Vec<_>>());
    }

    #[test]
    fn remaining_time_is_estimated_from_progress() {
        assert_eq!(line(500, 2_000, Duration::from_secs(60)), "500/2000 runs, 3 minutes left");
    }
}
