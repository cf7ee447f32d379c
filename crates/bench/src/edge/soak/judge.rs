//! What a soak has to show, rule by rule.
//!
//! Healthy viewers are compared per second of view and not in sums, since the two phases are not equally
//! long. With neighbours they have to get [`SHARE`] of what they get without, freeze no more often and
//! no longer, and come as well as before. Memory has to stay flat, and nothing may be left of those who
//! went. A neighbour that did not reach the server proves nothing: all of them have to have.

mod bounds;

use std::time::Duration;

use qoe::stats::{Clustered, Interval, Observation};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::neighbours::Count;
use super::outcome::{Beside, Outcome, Verdict};
use super::server::Look;
use super::view::View;

/// The least share of what they have without neighbours that viewers have with them.
const SHARE: f64 = 0.95;
/// More freezes, or seconds frozen, per 100 s than without neighbours that still count as none: one in
/// 33 minutes, about as long as the soak. Neighbours, link and viewers share the processors of one machine
/// with the server, so that a viewer's own process is late a little more often, which is none of the
/// server's doing.
const MORE_FREEZES: f64 = 0.05;
/// The first frame may take this many times as long at the 95th percentile as without neighbours,
const LATER: f64 = 1.25;
/// and this much more: what takes turns on the processors of one machine waits for it.
const LATER_BY: Duration = Duration::from_millis(50);
/// The level of the interval of the difference; chance alone fails the rule in 2.5 % of the soaks that are
/// just at the limit.
const LEVEL: f64 = 0.95;
/// Draws of the bootstrap: 2,000 give steady intervals.
const DRAWS: usize = 2_000;
/// Resident memory may grow by this per hour over the second half: what an allocator does.
const DRIFT: f64 = 8e6;
/// Resident memory goes up and down by this as it is: the least growth that counts. In the 12 minutes that are
/// judged by default it is the limit, 10 MB an hour; [`DRIFT`] is the limit of longer soaks.
const SWING: f64 = 2e6;
/// Neighbours who stay come for 75 s before the first of them go, and the server's tables and the allocator
/// take some minutes until they have seen it all. A half that begins earlier, in runs below ten minutes,
/// shows no drift.
const SETTLED: Duration = Duration::from_secs(240);
/// Such a run shows whether memory runs away: by more than this.
const ROUGH: f64 = 64e6;
/// The least share of the attempts made that must have reached the server: of those who only hold a
/// connection this shows when the server ends it, and of the last ones it never does.
const REACHED: f64 = 0.25;

impl Outcome {
    /// Every rule that applies.
    pub(super) fn verdicts(&self) -> Vec<Verdict> {
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

    fn nobody_fails(&self) -> Verdict {
        let views = &self.alone.0;
        let failed = views.counted.iter().filter(|view| view.failure.is_some()).count();
        Verdict {
            rule: "without neighbours nobody fails",
            holds: failed == 0 && !views.counted.is_empty(),
            figures: format!("{} views, {failed} failed", views.counted.len()),
        }
    }

    /// The looks of the second half of the last phase, its length in hours, and by how much memory may grow
    /// in it.
    fn second_half(&self) -> (&[Look], f64, f64) {
        let half = &self.looks[self.looks.len() / 2..];
        let (Some(begin), Some(first), Some(last)) =
            (self.looks.first(), half.first(), half.last())
        else {
            return (half, 0.0, 0.0);
        };
        let hours = (last.at - first.at).as_secs_f64() / 3_600.0;
        let is_settled = first.at - begin.at >= SETTLED;
        (half, hours, if is_settled { (DRIFT * hours).max(SWING) } else { ROUGH })
    }

    fn flat(&self) -> Verdict {
        let (half, hours, allowed) = self.second_half();
        let growth = slope(half) * hours;
        let megabytes = half.iter().map(|look| look.resident as f64 * 1e-6);
        Verdict {
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

    fn no_growth_at_the_end(&self) -> Verdict {
        let (half, _, allowed) = self.second_half();
        let most = half.iter().map(|look| look.resident).max().unwrap_or(0);
        Verdict {
            rule: "memory does not grow when everybody goes",
            holds: self.last.resident as f64 <= most as f64 + allowed,
            figures: format!(
                "{:.1} MB after everybody went, {:.1} MB at most before",
                self.last.resident as f64 * 1e-6,
                most as f64 * 1e-6
            ),
        }
    }

    fn nothing_left(&self) -> Verdict {
        let holds = self.last.is_empty() && self.alone.1.is_empty();
        let left = |look: &Look| {
            format!(
                "{} viewers, {} connections of QUIC, {} other places, {} streams",
                look.viewers, look.connections, look.places, look.streams
            )
        };
        Verdict {
            rule: "nothing is left of those who went",
            holds,
            figures: format!(
                "at the end {}; one place and one stream are the publisher's",
                left(&self.last)
            ),
        }
    }

    /// Counted while nobody else was there. Who left before the first frame was complete may have had
    /// a part of it.
    fn as_many_sessions_as_views(&self) -> Verdict {
        let (views, look) = &self.alone;
        let sessions = look.sessions as u64;
        Verdict {
            rule: "sessions are views",
            holds: (views.had_media..=views.came).contains(&sessions),
            figures: format!(
                "{sessions} sessions of {} views without neighbours, {} of them with media",
                views.came, views.had_media
            ),
        }
    }

    /// Fleeting sessions of a network with many of them have none; those are neighbours'.
    fn a_record_each(&self) -> Verdict {
        let Look { sessions, without_media, fleeting, records_dropped, .. } = &self.last;
        let [sessions, without, fleeting, dropped] =
            [sessions, without_media, fleeting, records_dropped].map(|count| *count as u64);
        let viewers = self.alone.1.fleeting as u64;
        let rows = self.records.rows;
        Verdict {
            rule: "each session with media has a record",
            holds: sessions == rows + without + fleeting && dropped == 0 && viewers == 0,
            figures: format!(
                "{sessions} sessions, {without} without media, {fleeting} fleeting ones of networks \
                 with many, {viewers} of these without neighbours, {rows} records, {dropped} dropped"
            ),
        }
    }
}

/// The share of what was published during the views that arrived in them.
pub(super) fn share(views: &[View]) -> f64 {
    let delivered: u64 = views.iter().map(|view| view.live_bytes).sum();
    delivered as f64 / views.iter().map(View::expected_bytes).sum::<f64>()
}

fn delivered(alone: &[View], beside: &[View]) -> Verdict {
    let (without, with) = (share(alone), share(beside));
    Verdict {
        rule: "viewers keep what they have",
        holds: with / without >= SHARE,
        figures: format!(
            "{:.2} % of {:.2} %: {:.2} %, at least {:.0} %",
            with * 100.0,
            without * 100.0,
            with / without * 100.0,
            SHARE * 100.0
        ),
    }
}

/// Freezes, and seconds frozen, per 100 s watched, each with the interval of its difference.
fn freezes(alone: &[View], beside: &[View]) -> [Verdict; 2] {
    let count = |view: &View| view.seen.freezes[0].count as f64;
    let time = |view: &View| view.seen.freezes[0].total.as_secs_f64();
    [
        no_more("nobody freezes more often", "freezes", alone, beside, count),
        no_more("nobody freezes longer", "s frozen", alone, beside, time),
    ]
}

/// Holds if the difference is not above the tolerance, by the lower end of its interval.
fn no_more(
    rule: &'static str,
    unit: &str,
    alone: &[View],
    beside: &[View],
    what: impl Fn(&View) -> f64,
) -> Verdict {
    // The rate over all time watched, in which views weigh by their length; those of one viewer come
    // together.
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
        return Verdict { rule, holds: false, figures: "too few views".to_owned() };
    };
    Verdict {
        rule,
        holds: low <= MORE_FREEZES,
        figures: format!(
            "{with:.3} {unit} per 100 s, {without:.3} without: {low:+.3} to {high:+.3} more; the lower \
             end at most {MORE_FREEZES:+}"
        ),
    }
}

fn no_more_fail(alone: &[View], beside: &[View]) -> Verdict {
    let failed = |views: &[View]| views.iter().filter(|view| view.failure.is_some()).count();
    let (without, with) = (failed(alone), failed(beside));
    Verdict {
        rule: "no more views fail",
        holds: with == 0 && !beside.is_empty(),
        figures: format!("{with} of {}, {without} of {} without", beside.len(), alone.len()),
    }
}

/// Who has no picture after ten seconds has failed.
fn starts(alone: &[View], beside: &[View]) -> Verdict {
    let [without, with] = [alone, beside].map(|views| first_frames(views, [0.95])[0]);
    Verdict {
        rule: "pictures come as soon",
        holds: !with.is_zero() && with <= without.mul_f64(LATER) + LATER_BY,
        figures: format!(
            "95 % of first frames within {} ms, {} ms without; at most {:.0} % and {} ms more",
            with.as_millis(),
            without.as_millis(),
            (LATER - 1.0) * 100.0,
            LATER_BY.as_millis()
        ),
    }
}

/// Whether a neighbour really ran, and had nothing that it may not have.
fn reached(count: &Count) -> Verdict {
    let Count { name, due, attempted, reached, breaches, ends } = count;
    let arrived = *reached as f64 >= REACHED * *attempted as f64;
    let ends: Vec<String> = ends.iter().map(|(how, count)| format!("{how} {count}")).collect();
    Verdict {
        rule: name,
        holds: count.is_enough() && arrived && *breaches == 0,
        figures: format!(
            "{attempted} attempts of {due:.0} due, {reached} reached the server, {breaches} should have been \
             refused; {}",
            ends.join(", ")
        ),
    }
}

/// The longest that these shares of the views waited for their first frame, of those that had one.
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
