//! Statistics of the fates of packets 20 ms apart: run lengths, and arrival times of lost data.

use std::fmt::Write as _;

/// Upper ends of classes of run lengths, in slots.
const LENGTHS: [usize; 5] = [1, 5, 15, 50, usize::MAX];
const SLOT_MS: usize = 20;
/// Half of a round-trip time of 80 ms; and time from sending a packet to detecting its loss.
const WAY_MS: usize = 40;
const DETECTION_MS: usize = 95;
/// Bounds of the time from the first transmission to the arrival.
const BOUNDS_MS: [usize; 5] = [150, 200, 300, 400, 600];

/// Senders by the time of their retransmissions.
const SENDERS: [(&str, Sender); 3] = [
    ("ARQ", Sender { knows_after: None }),
    ("clairvoyant, after detection", Sender { knows_after: Some(DETECTION_MS) }),
    ("clairvoyant, from the start", Sender { knows_after: Some(0) }),
];

#[derive(Clone, Copy)]
struct Sender {
    /// Time after the first transmission at which the sender learns fates and sends the first
    /// copy that arrives. Without it, each copy is sent when the loss of the previous one is
    /// detected.
    knows_after: Option<usize>,
}

impl Sender {
    /// Time from the first transmission of the packet in this slot to its arrival, in milliseconds.
    fn delay(self, fates: &[bool], slot: usize) -> usize {
        let begin = slot * SLOT_MS;
        let is_lost = |at: usize| fates.get(at / SLOT_MS).is_some_and(|lost| *lost);
        let (first, step) = match self.knows_after {
            None => (begin + DETECTION_MS, DETECTION_MS),
            Some(after) => (begin + after, 1),
        };
        let arrives = (first..).step_by(step).find(|at| !is_lost(*at));
        arrives.map_or(usize::MAX, |at| at - begin + WAY_MS)
    }
}

/// Fraction of losses.
pub(crate) fn rate(recordings: &[Vec<bool>]) -> f64 {
    let lost = recordings.iter().flatten().filter(|lost| **lost).count();
    lost as f64 / recordings.iter().map(Vec::len).sum::<usize>() as f64
}

/// Fractions of losses in runs of each class of length.
pub(crate) fn in_runs(recordings: &[Vec<bool>]) -> [f64; LENGTHS.len()] {
    let mut counts = [0_usize; LENGTHS.len()];
    let runs = recordings.iter().flat_map(|fates| fates.split(|lost| !lost)).map(<[bool]>::len);
    for run in runs.filter(|run| *run > 0) {
        counts[LENGTHS.iter().position(|most| run <= *most).unwrap_or(LENGTHS.len() - 1)] += run;
    }
    let all: usize = counts.iter().sum();
    counts.map(|losses| losses as f64 / all as f64)
}

/// Fractions of lost packets that arrive later than each bound, by sender.
fn late(recordings: &[Vec<bool>]) -> [[f64; BOUNDS_MS.len()]; SENDERS.len()] {
    SENDERS.map(|(_, sender)| {
        let delays = recordings.iter().flat_map(|fates| {
            let lost = fates.iter().enumerate().filter(|(_, lost)| **lost);
            lost.map(|(slot, _)| sender.delay(fates, slot))
        });
        let delays: Vec<usize> = delays.collect();
        BOUNDS_MS.map(|bound| {
            delays.iter().filter(|delay| **delay > bound).count() as f64 / delays.len() as f64
        })
    })
}

/// Standard errors of [`late`], from the variation between the minutes of a recording.
fn errors(recordings: &[Vec<bool>]) -> [[f64; BOUNDS_MS.len()]; SENDERS.len()] {
    const MINUTE: usize = 60_000 / SLOT_MS;
    let minutes: Vec<Vec<bool>> =
        recordings.iter().flat_map(|fates| fates.chunks(MINUTE)).map(<[bool]>::to_vec).collect();
    let losses: Vec<f64> =
        minutes.iter().map(|fates| fates.iter().filter(|lost| **lost).count() as f64).collect();
    let (all, count) = (losses.iter().sum::<f64>(), minutes.len() as f64);
    let whole = late(&minutes);
    let each: Vec<_> = minutes.iter().map(|fates| late(std::slice::from_ref(fates))).collect();
    core::array::from_fn(|sender| {
        core::array::from_fn(|bound| {
            // For a ratio of sums: late losses of a minute against their expected number.
            let squares = each.iter().zip(&losses).filter(|(_, losses)| **losses > 0.0).map(
                |(late, losses)| {
                    let residual = losses * (late[sender][bound] - whole[sender][bound]);
                    residual * residual
                },
            );
            (squares.sum::<f64>() * count / (count - 1.0)).sqrt() / all
        })
    })
}

fn percent(values: impl IntoIterator<Item = f64>) -> String {
    values.into_iter().map(|value| format!(" {:5.1}", 100.0 * value)).collect()
}

/// Compares recorded and modelled fates.
pub(crate) fn beside(recorded: &[Vec<bool>], modelled: &[Vec<bool>]) -> String {
    let mut text = String::new();
    let both = [("recorded", recorded), ("model", modelled)];
    for (name, fates) in both {
        let _ = writeln!(
            text,
            "  {name:9} lost {:.2} %; of these in runs of 1, 2-5, 6-15, 16-50, more: {}",
            100.0 * rate(fates),
            percent(in_runs(fates))
        );
    }
    let (errors, both) = (errors(recorded), both.map(|(name, fates)| (name, late(fates))));
    let _ = writeln!(text, "  lost packets that arrive later than {BOUNDS_MS:?} ms, in %:");
    for (index, (sender, _)) in SENDERS.iter().enumerate() {
        for (name, late) in &both {
            let _ = writeln!(text, "    {sender:29} {name:9} {}", percent(late[index]));
        }
        let _ = writeln!(text, "    {:29} {:9} {}", "", "+-", percent(errors[index]));
    }
    text
}
