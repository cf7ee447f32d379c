//! Rules of a soak.
//!
//! Healthy viewers are compared per second of view rather than in sums, because the phases differ
//! in length. With neighbours, viewers must get [`MIN_MEDIA_SHARE`] of their media without
//! neighbours, freeze no more often and no longer, and start as fast. Memory must stay flat, and
//! the server must release everything of departed viewers. A neighbour that did not reach the
//! server proves nothing, so every neighbour must reach it.

mod bounds;

use std::time::Duration;

use qoe::stats::{Clustered, Interval, Observation};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::neighbours::Count;
use super::outcome::{Beside, RuleVerdict, SoakOutcome};
use super::server::Look;
use super::view::View;

/// Minimum share of media with neighbours, relative to the phase without.
const MIN_MEDIA_SHARE: f64 = 0.95;
/// Tolerance for freezes, and for seconds frozen, per 100 s: one in 33 minutes, about the length of
/// the soak. Neighbours, link and viewers share the machine's processors with the server, so a
/// viewer's own process is slightly more often late. The server has no part in that.
const FREEZE_TOLERANCE: f64 = 0.05;
/// Tolerance for first-frame times at the 95th percentile, as a factor,
const START_FACTOR: f64 = 1.25;
/// plus this delay for processes that share the processors.
const START_SLACK: Duration = Duration::from_millis(50);
/// Confidence level of the difference. Chance fails the rule in 2.5 % of the soaks exactly at the
/// limit.
const LEVEL: f64 = 0.95;
/// Bootstrap resamples; 2,000 give stable intervals.
const DRAWS: usize = 2_000;
/// Allowed growth of resident memory per hour in the second half: allocator behaviour.
const MAX_DRIFT: f64 = 8e6;
/// Normal fluctuation of resident memory: the minimum growth that counts. In the 12 minutes judged
/// by default it is the limit, equal to 10 MB an hour; in longer soaks [`MAX_DRIFT`] is.
const MEMORY_NOISE: f64 = 2e6;
/// Time until memory is stable: long-lived neighbours stay for 75 s, and the server's tables and
/// the allocator need some minutes. In runs below ten minutes the second half starts earlier and
/// shows no drift.
const SETTLING_TIME: Duration = Duration::from_secs(240);
/// Growth limit of such short runs, which only detects runaway memory.
const RUNAWAY_GROWTH: f64 = 64e6;
/// Minimum share of attempts that must have reached the server. Neighbours that only hold a
/// connection notice when the server ends it, and the last ones never do.
const MIN_REACHED: f64 = 0.25;

impl SoakOutcome {
    /// Applies all rules.
    pub(super) fn verdicts(&self) -> Vec<RuleVerdict> {
        let mut verdicts = vec![self.nobody_fails()];
        if let Some(Beside { views, neighbours, newcomers }) = &self.beside {
            let (alone, beside) = (&self.alone.0.counted, &views.counted);
            verdicts.push(delivered(alone, beside));
            let [count, time] = freezes(alone, beside);
            verdicts.extend([count, time, no_more_fail(alone, beside), starts(alone, beside)]);
            verdicts.extend(newcomers.iter().map(bounds::let_in));
            verdicts.extend(neighbours.iter().map(reached));
        }
        verdicts.extend([self.flat(), self.no_growth_at_the_end(), self.nothing_left()]);
        verdicts.extend(self.bounds());
        verdicts.extend([self.as_many_sessions_as_views(), self.a_record_each()]);
        verdicts
    }

    fn nobody_fails(&self) -> RuleVerdict {
        let views = &self.alone.0;
        let failed = views.counted.iter().filter(|view| view.failure.is_some()).count();
        RuleVerdict {
            rule: "no view fails without neighbours",
            holds: failed == 0 && !views.counted.is_empty(),
            figures: format!("{} views, {failed} failed", views.counted.len()),
        }
    }

    /// Returns the samples of the second half of the last phase, its length in hours, and the
    /// allowed memory growth.
    fn second_half(&self) -> (&[Look], f64, f64) {
        let half = &self.looks[self.looks.len() / 2..];
        let (Some(begin), Some(first), Some(last)) =
            (self.looks.first(), half.first(), half.last())
        else {
            return (half, 0.0, 0.0);
        };
        let hours = (last.at - first.at).as_secs_f64() / 3_600.0;
        let is_settled = first.at - begin.at >= SETTLING_TIME;
        (
            half,
            hours,
            if is_settled { (MAX_DRIFT * hours).max(MEMORY_NOISE) } else { RUNAWAY_GROWTH },
        )
    }

    fn flat(&self) -> RuleVerdict {
        let (half, hours, allowed) = self.second_half();
        let growth = slope(half) * hours;
        let megabytes = half.iter().map(|look| look.resident as f64 * 1e-6);
        RuleVerdict {
            rule: "memory is flat",
            holds: hours > 0.0 && growth <= allowed,
            figures: format!(
                "{:.1} to {:.1} MB in the second half, {:+.2} MB in its {:.1} min; at most {:.1} MB",
                megabytes.clone().fold(f64::MAX, f64::min),
                megabytes.fold(0.0, f64::max),
                growth * 1e-6,
                hours * 60.0,
                allowed * 1e-6,
            ),
        }
    }

    fn no_growth_at_the_end(&self) -> RuleVerdict {
        let (half, _, allowed) = self.second_half();
        let most = half.iter().map(|look| look.resident).max().unwrap_or(0);
        RuleVerdict {
            rule: "memory does not grow when all viewers leave",
            holds: self.last.resident as f64 <= most as f64 + allowed,
            figures: format!(
                "{:.1} MB after all viewers left, at most {:.1} MB before",
                self.last.resident as f64 * 1e-6,
                most as f64 * 1e-6
            ),
        }
    }

    fn nothing_left(&self) -> RuleVerdict {
        let holds = self.last.is_empty() && self.alone.1.is_empty();
        let left = |look: &Look| {
            format!(
                "{} viewers, {} QUIC connections, {} other places, {} streams",
                look.viewers, look.connections, look.places, look.streams
            )
        };
        RuleVerdict {
            rule: "departed viewers leave nothing behind",
            holds,
            figures: format!(
                "at the end {}; one place and one stream are the publisher's",
                left(&self.last)
            ),
        }
    }

    /// Counted in the absence of neighbours. Viewers that left before the first frame was complete
    /// may have received a part of it.
    fn as_many_sessions_as_views(&self) -> RuleVerdict {
        let (views, look) = &self.alone;
        let sessions = look.sessions as u64;
        RuleVerdict {
            rule: "sessions are views",
            holds: (views.had_media..=views.came).contains(&sessions),
            figures: format!(
                "{sessions} sessions of {} views without neighbours, {} of them with media",
                views.came, views.had_media
            ),
        }
    }

    /// Short sessions of a network with many of them leave no record. Only neighbours have those.
    fn a_record_each(&self) -> RuleVerdict {
        let Look { sessions, without_media, fleeting, records_dropped, .. } = &self.last;
        let [sessions, without, fleeting, dropped] =
            [sessions, without_media, fleeting, records_dropped].map(|count| *count as u64);
        let viewers = self.alone.1.fleeting as u64;
        let rows = self.records.rows;
        RuleVerdict {
            rule: "each session with media has a record",
            holds: sessions == rows + without + fleeting && dropped == 0 && viewers == 0,
            figures: format!(
                "{sessions} sessions, {without} without media, {fleeting} fleeting ones of networks \
                 with many, {viewers} of these without neighbours, {rows} records, {dropped} dropped"
            ),
        }
    }
}

/// Returns the share of media published during the views that arrived in them.
pub(super) fn share(views: &[View]) -> f64 {
    let delivered: u64 = views.iter().map(|view| view.live_bytes).sum();
    delivered as f64 / views.iter().map(View::expected_bytes).sum::<f64>()
}

fn delivered(alone: &[View], beside: &[View]) -> RuleVerdict {
    let (without, with) = (share(alone), share(beside));
    RuleVerdict {
        rule: "viewers keep their media rate",
        holds: with / without >= MIN_MEDIA_SHARE,
        figures: format!(
            "{:.2} % of {:.2} %: {:.2} %, at least {:.0} %",
            with * 100.0,
            without * 100.0,
            with / without * 100.0,
            MIN_MEDIA_SHARE * 100.0
        ),
    }
}

/// Compares freezes, and seconds frozen, per 100 s watched, each with the interval of its
/// difference.
fn freezes(alone: &[View], beside: &[View]) -> [RuleVerdict; 2] {
    let count = |view: &View| view.seen.freezes[0].count as f64;
    let time = |view: &View| view.seen.freezes[0].total.as_secs_f64();
    [
        no_more("viewers freeze no more often", "freezes", alone, beside, count),
        no_more("viewers freeze no longer", "s frozen", alone, beside, time),
    ]
}

/// Holds unless the lower end of the difference's interval is above the tolerance.
fn no_more(
    rule: &'static str,
    unit: &str,
    alone: &[View],
    beside: &[View],
    what: impl Fn(&View) -> f64,
) -> RuleVerdict {
    // The rate over all time watched, so views are weighted by length; the views of a viewer form a
    // cluster.
    let rates = |views: &[View]| {
        let watched = views.iter().filter(|view| !view.seen.watched().is_zero());
        Clustered::new(watched.map(|view| {
            let hundreds = view.seen.watched().as_secs_f64() / 100.0;
            Observation { value: what(view) / hundreds, weight: hundreds, cluster: view.viewer }
        }))
    };
    let difference = rates(alone).zip(rates(beside)).and_then(|(alone, beside)| {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let interval = beside.difference(&alone, &[], DRAWS, rng)?.first()?.bca(LEVEL);
        Some((alone.mean(), beside.mean(), interval))
    });
    let Some((without, with, Interval { low, high })) = difference else {
        return RuleVerdict { rule, holds: false, figures: "too few views".to_owned() };
    };
    RuleVerdict {
        rule,
        holds: low <= FREEZE_TOLERANCE,
        figures: format!(
            "{with:.3} {unit} per 100 s, {without:.3} without: {low:+.3} to {high:+.3} \
             difference; its lower end at most {FREEZE_TOLERANCE:+}"
        ),
    }
}

fn no_more_fail(alone: &[View], beside: &[View]) -> RuleVerdict {
    let failed = |views: &[View]| views.iter().filter(|view| view.failure.is_some()).count();
    let (without, with) = (failed(alone), failed(beside));
    RuleVerdict {
        rule: "no more views fail",
        holds: with == 0 && !beside.is_empty(),
        figures: format!("{with} of {}, {without} of {} without", beside.len(), alone.len()),
    }
}

/// A view without a picture after ten seconds has failed.
fn starts(alone: &[View], beside: &[View]) -> RuleVerdict {
    let [without, with] = [alone, beside].map(|views| first_frames(views, [0.95])[0]);
    RuleVerdict {
        rule: "first frames come no later",
        holds: !with.is_zero() && with <= without.mul_f64(START_FACTOR) + START_SLACK,
        figures: format!(
            "95 % of first frames within {} ms, {} ms without; tolerance {:.0} % and {} ms",
            with.as_millis(),
            without.as_millis(),
            (START_FACTOR - 1.0) * 100.0,
            START_SLACK.as_millis()
        ),
    }
}

/// Checks that a neighbour reached the server, and that no forbidden attempt succeeded.
fn reached(count: &Count) -> RuleVerdict {
    let Count { name, due, attempted, reached, breaches, ends } = count;
    let arrived = *reached as f64 >= MIN_REACHED * *attempted as f64;
    let ends: Vec<String> = ends.iter().map(|(how, count)| format!("{how} {count}")).collect();
    RuleVerdict {
        rule: name,
        holds: count.is_enough() && arrived && *breaches == 0,
        figures: format!(
            "{attempted} attempts of {due:.0} due, {reached} reached the server, {breaches} \
             should have been rejected; {}",
            ends.join(", ")
        ),
    }
}

/// Returns these quantiles of first-frame times, over views with a first frame.
pub(super) fn first_frames<const N: usize>(views: &[View], shares: [f64; N]) -> [Duration; N] {
    let mut all: Vec<Duration> = views.iter().filter_map(|view| view.first).collect();
    all.sort_unstable();
    let rank = |share: f64| ((all.len() as f64 * share) as usize).min(all.len().saturating_sub(1));
    shares.map(|share| all.get(rank(share)).copied().unwrap_or_default())
}

/// Bytes per hour, by least squares.
fn slope(looks: &[Look]) -> f64 {
    let n = looks.len() as f64;
    let hours = |look: &Look| look.at.as_secs_f64() / 3_600.0;
    let (mean_x, mean_y) = looks
        .iter()
        .fold((0.0, 0.0), |(x, y), look| (x + hours(look) / n, y + look.resident as f64 / n));
    let (mut above, mut below) = (0.0, f64::MIN_POSITIVE);
    for look in looks {
        let x = hours(look) - mean_x;
        above += x * (look.resident as f64 - mean_y);
        below += x * x;
    }
    above / below
}

#[cfg(test)]
mod tests;
