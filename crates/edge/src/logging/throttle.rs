//! Rate limit on log lines per kind of event. A kind is one callsite, so their number is bounded.

use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use crate::sync::lock;

/// Burst of lines per kind, and time to regain one.
const BURST: u32 = 50;
const PERIOD: Duration = Duration::from_millis(200);
/// The same per kind of event in a library.
const LIBRARY_BURST: u32 = 10;
const LIBRARY_PERIOD: Duration = Duration::from_secs(2);
/// Minimum interval between reports of dropped lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum length of an example in a report, in bytes.
const MAX_EXAMPLE: usize = 120;
/// Prefix of the targets of our crates.
const OWN_PREFIX: &str = "mendcast";

/// The log level and the budgets.
#[derive(Debug)]
pub(super) struct Throttle {
    /// Index into [`LEVELS`].
    level: AtomicUsize,
    budgets: Mutex<Budgets>,
    left_out: AtomicU64,
}

const LEVELS: [LevelFilter; 6] = [
    LevelFilter::OFF,
    LevelFilter::ERROR,
    LevelFilter::WARN,
    LevelFilter::INFO,
    LevelFilter::DEBUG,
    LevelFilter::TRACE,
];

impl Throttle {
    pub(super) fn new(level: LevelFilter) -> Self {
        let throttle = Self {
            level: AtomicUsize::new(0),
            budgets: Mutex::default(),
            left_out: AtomicU64::new(0),
        };
        throttle.set_level(level);
        throttle
    }

    pub(super) fn set_level(&self, level: LevelFilter) {
        let place = LEVELS.iter().position(|known| *known == level).unwrap_or(0);
        self.level.store(place, Ordering::Relaxed);
    }

    /// Returns the level.
    pub(super) fn level(&self) -> LevelFilter {
        LEVELS[self.level.load(Ordering::Relaxed)]
    }

    /// Returns the number of dropped lines.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Returns a summary of the lines dropped since the last report; `None` if none, or too soon.
    pub(super) fn report(&self, now: Instant) -> Option<String> {
        lock(&self.budgets).report(now)
    }

    /// Whether the level admits the event. At `info`, libraries log only warnings and errors.
    fn is_of_level(&self, metadata: &Metadata<'_>) -> bool {
        let level = LEVELS[self.level.load(Ordering::Relaxed)];
        let level =
            if level == LevelFilter::INFO && !is_own(metadata) { LevelFilter::WARN } else { level };
        *metadata.level() <= level
    }
}

impl<S: Subscriber> Filter<S> for &'static Throttle {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.is_of_level(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.is_of_level(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LEVELS[self.level.load(Ordering::Relaxed)])
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        // Operators who enable traces look for single packets. A slow reader still costs lines.
        if *event.metadata().level() == Level::TRACE && is_own(event.metadata()) {
            return true;
        }
        let kind = event.metadata().callsite();
        let example = || {
            let mut message = EventMessage::default();
            event.record(&mut message);
            message.0
        };
        let is_admitted =
            lock(&self.budgets).take(kind, is_own(event.metadata()), Instant::now(), example);
        if !is_admitted {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        is_admitted
    }
}

fn is_own(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(OWN_PREFIX)
}

/// The truncated message of an event.
#[derive(Default)]
struct EventMessage(String);

impl Visit for EventMessage {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.0, "{value:?}");
            let end =
                self.0.char_indices().map(|(at, _)| at).take_while(|at| *at <= MAX_EXAMPLE).last();
            if self.0.len() > MAX_EXAMPLE {
                self.0.truncate(end.unwrap_or(0));
            }
        }
    }
}

/// The remaining budget of one kind.
#[derive(Debug)]
struct Budget {
    lines: u32,
    /// Time of the last refill.
    refilled: Instant,
    /// Lines dropped since the last report, and the first of them.
    left_out: u64,
    example: String,
}

#[derive(Debug, Default)]
struct Budgets {
    kinds: HashMap<Identifier, Budget>,
    reported: Option<Instant>,
}

impl Budgets {
    /// Takes a line from a kind's budget. Returns false if it is used up.
    fn take(
        &mut self,
        kind: Identifier,
        is_own: bool,
        now: Instant,
        example: impl FnOnce() -> String,
    ) -> bool {
        let (burst, period) =
            if is_own { (BURST, PERIOD) } else { (LIBRARY_BURST, LIBRARY_PERIOD) };
        let budget = self.kinds.entry(kind).or_insert_with(|| Budget {
            lines: burst,
            refilled: now,
            left_out: 0,
            example: String::new(),
        });
        let passed = now.saturating_duration_since(budget.refilled).as_nanos() / period.as_nanos();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        if passed >= burst {
            (budget.lines, budget.refilled) = (burst, now);
        } else {
            budget.lines = (budget.lines + passed).min(burst);
            budget.refilled += period * passed;
        }
        if budget.lines > 0 {
            budget.lines -= 1;
            return true;
        }
        if budget.left_out == 0 {
            budget.example = example();
        }
        budget.left_out += 1;
        false
    }

    fn report(&mut self, now: Instant) -> Option<String> {
        if self.reported.is_some_and(|at| now.saturating_duration_since(at) < REPORT_INTERVAL) {
            return None;
        }
        let mut kinds = 0;
        let mut all = 0;
        let mut most: Option<(u64, String)> = None;
        for budget in self.kinds.values_mut().filter(|budget| budget.left_out > 0) {
            let (count, example) =
                (core::mem::take(&mut budget.left_out), core::mem::take(&mut budget.example));
            kinds += 1;
            all += count;
            if most.as_ref().is_none_or(|(most, _)| count > *most) {
                most = Some((count, example));
            }
        }
        let (count, example) = most?;
        self.reported = Some(now);
        Some(format!(
            "log: {all} lines of {kinds} kinds dropped, {count} of them like \"{example}\""
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tracing_subscriber::Layer as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    /// Counts admitted events.
    #[derive(Clone, Default)]
    struct Passed(Arc<AtomicU64>);

    impl<S: Subscriber> tracing_subscriber::Layer<S> for Passed {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn with(level: LevelFilter, work: impl FnOnce()) -> (u64, &'static Throttle) {
        let throttle: &'static Throttle = Box::leak(Box::new(Throttle::new(level)));
        let passed = Passed::default();
        let subscriber = tracing_subscriber::registry().with(passed.clone().with_filter(throttle));
        tracing::subscriber::with_default(subscriber, work);
        (passed.0.load(Ordering::Relaxed), throttle)
    }

    #[test]
    fn flood_of_one_kind_leaves_room_for_others_and_is_reported_once() {
        let (passed, throttle) = with(LevelFilter::INFO, || {
            for number in 0..5_000 {
                tracing::info!("viewer refused: {number}");
            }
            tracing::info!("published");
        });
        let burst = u64::from(BURST);
        assert!((burst + 1..burst + 20).contains(&passed), "{passed}");
        assert_eq!(throttle.left_out() + passed, 5_001);
        let line = throttle.report(Instant::now()).expect("something was left out");
        let count = throttle.left_out();
        let expected = format!(
            "log: {count} lines of 1 kinds dropped, {count} of them like \"viewer refused: 50\""
        );
        assert_eq!(line, expected);
        assert_eq!(throttle.report(Instant::now() + REPORT_INTERVAL), None);
    }

    #[test]
    fn budgets_refill_over_time() {
        let (start, mut budgets) = (Instant::now(), Budgets::default());
        let kind = || {
            static PLACE: std::sync::OnceLock<Identifier> = std::sync::OnceLock::new();
            let (sender, place) = std::sync::mpsc::channel();
            let _ = with(LevelFilter::INFO, || {
                let subscriber = tracing_subscriber::registry().with(Kind(sender));
                tracing::subscriber::with_default(subscriber, || tracing::info!("kind"));
            });
            PLACE.get_or_init(|| place.recv().expect("an event")).clone()
        };
        let kind = kind();
        let mut take = |after: Duration, count: u32| {
            let taken = |_: &u32| budgets.take(kind.clone(), true, start + after, String::new);
            (0..count).filter(taken).count() as u32
        };
        assert_eq!(take(Duration::ZERO, 1_000), BURST);
        assert_eq!(take(PERIOD / 2, 1_000), 0);
        assert_eq!(take(PERIOD * 5, 1_000), 5);
        assert_eq!(take(PERIOD * 1_000, 1_000), BURST, "no more than at the start");
        // Clocks of other threads may be behind.
        assert_eq!(take(Duration::ZERO, 10), 0);
    }

    /// Sends the kind of each event.
    struct Kind(std::sync::mpsc::Sender<Identifier>);

    impl<S: Subscriber> tracing_subscriber::Layer<S> for Kind {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let _ = self.0.send(event.metadata().callsite());
        }
    }

    #[test]
    fn libraries_log_few_lines_and_only_warnings() {
        let (passed, _) = with(LevelFilter::INFO, || {
            for _ in 0..1_000 {
                tracing::info!(target: "h2::proto", "a frame");
                tracing::warn!(target: "h2::proto", "an odd frame");
            }
        });
        assert_eq!(passed, u64::from(LIBRARY_BURST));
    }

    #[test]
    fn only_our_own_traces_have_no_budget() {
        let (passed, _) = with(LevelFilter::TRACE, || {
            for _ in 0..1_000 {
                tracing::trace!(target: "mendcast_quic", "packet lost");
                tracing::trace!(target: "h2::proto", "a frame");
            }
        });
        let libraries = u64::from(LIBRARY_BURST);
        assert!((1_000 + libraries..1_010 + libraries).contains(&passed), "{passed}");
    }

    #[test]
    fn level_applies_until_changed() {
        let throttle: &'static Throttle = Box::leak(Box::new(Throttle::new(LevelFilter::WARN)));
        let passed = Passed::default();
        let subscriber = tracing_subscriber::registry().with(passed.clone().with_filter(throttle));
        tracing::subscriber::with_default(subscriber, || {
            let say = || tracing::info!("a detail");
            say();
            throttle.set_level(LevelFilter::DEBUG);
            tracing::callsite::rebuild_interest_cache();
            say();
        });
        assert_eq!(passed.0.load(Ordering::Relaxed), 1);
    }
}
