//! The reports of one session's player. They are clamped to the session's duration
//! ([`records::Claim`]), and counts never decrease.

use core::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering};

use records::{Claim, Excess, MAX_BUFFER_MS, Record, SLACK_S};

use super::Beacon;

/// Tolerance for rounding of sums of times.
const ROUNDING_S: f64 = 1e-6;
/// Multiple of the session's duration above which a first report must include an earlier session of
/// the page.
const EARLIER_SESSION_FACTOR: f64 = 2.0;

/// The reports of one session's player. Most players send none, so reports have their own memory.
#[derive(Clone, Debug, Default)]
pub(super) struct PlayerReports {
    /// The page's last report, cumulative since its opening.
    last: Option<Box<Beacon>>,
    /// Its last report before this session.
    before: Option<Box<Beacon>>,
    totals: Option<PlayerTotals>,
}

/// Totals of a player's reports of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PlayerTotals {
    /// From the first report that has it.
    pub first_frame_ms: Option<f64>,
    pub played_s: f64,
    pub freezes: u64,
    pub freeze_s: f64,
    /// Whether a report was clamped.
    pub is_clamped: bool,
}

impl PlayerReports {
    /// Creates a player. `before` is the last report of its page in an earlier session.
    pub(super) fn new(before: Option<Beacon>) -> Self {
        Self { before: before.map(Box::new), ..Self::default() }
    }

    /// Returns the page's last report.
    pub(super) fn last(&self) -> Option<&Beacon> {
        self.last.as_deref()
    }

    /// Returns the totals of this session; `None` before the first report.
    pub(super) fn totals(&self) -> Option<&PlayerTotals> {
        self.totals.as_ref()
    }

    /// Adds a report, `lasted` after the start of the session. Returns the exceeded bounds.
    pub(super) fn on_report(&mut self, beacon: Beacon, lasted: Duration) -> Vec<Excess> {
        let report = beacon.clone().since(self.before.as_deref());
        let mut claim = Claim {
            first_frame_ms: report.first_frame_ms,
            played_s: Some(report.played_s),
            freezes: Some(report.freezes as f64),
            freeze_s: Some(report.freeze_s),
            ..Claim::default()
        };
        let mut excess = claim.clamp(lasted.as_secs_f64());
        let is_first = self.totals.is_none() && self.before.is_none();
        let max_s = lasted.as_secs_f64() + SLACK_S;
        if is_first && report.played_s + report.freeze_s > EARLIER_SESSION_FACTOR * max_s {
            // The page's counts include an earlier session. Only later increments belong here.
            self.before = Some(beacon.clone().into());
            claim = Claim::default();
            excess = vec![Excess::Earlier];
        }
        let totals = self.totals.get_or_insert_default();
        if totals.add(&claim, lasted) && !excess.contains(&Excess::Time) {
            excess.push(Excess::Time);
        }
        totals.is_clamped |= !excess.is_empty();
        if report.buffer_ms.is_some_and(|ms| ms > MAX_BUFFER_MS) {
            excess.push(Excess::Buffer);
        }
        self.last = Some(beacon.into());
        excess
    }
}

/// Counts of clamped reports, by exceeded bound.
#[derive(Debug, Default)]
pub(super) struct ExcessCounts([AtomicU64; Excess::ALL.len()]);

impl ExcessCounts {
    pub(super) fn count(&self, excess: &[Excess]) {
        for why in excess {
            self.0[*why as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counts by name.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Excess::ALL.into_iter().map(Excess::name).zip(counts)
    }
}

impl PlayerTotals {
    /// Raises the totals to a claim, limited by the session's duration `lasted`. Returns true if
    /// the limit applied.
    fn add(&mut self, claim: &Claim, lasted: Duration) -> bool {
        let more = |now: Option<f64>, known: f64| (now.unwrap_or(0.0) - known).max(0.0);
        let played = more(claim.played_s, self.played_s);
        let frozen = more(claim.freeze_s, self.freeze_s);
        let room = (lasted.as_secs_f64() + SLACK_S - self.played_s - self.freeze_s).max(0.0);
        let is_limited = played + frozen > room + ROUNDING_S;
        let share = if is_limited { room / (played + frozen) } else { 1.0 };
        self.played_s += played * share;
        self.freeze_s += frozen * share;
        let mut sum =
            Claim { freezes: claim.freezes, freeze_s: Some(self.freeze_s), ..Claim::default() };
        sum.clamp(lasted.as_secs_f64());
        self.freezes = self.freezes.max(sum.freezes.unwrap_or(0.0) as u64);
        self.first_frame_ms = self.first_frame_ms.or(claim.first_frame_ms);
        is_limited
    }

    /// Writes the totals into the session's record.
    pub(super) fn write_to(&self, record: &mut Record) {
        let player = &mut record.player;
        player.player_first_frame_ms = self.first_frame_ms;
        player.player_played_s = Some(self.played_s);
        player.player_freezes = i64::try_from(self.freezes).ok();
        player.player_freeze_s = Some(self.freeze_s);
        player.report_clamped = Some(i64::from(self.is_clamped));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beacon(played_s: f64, freezes: u64, freeze_s: f64, first_frame_ms: f64) -> Beacon {
        let (viewer, stream) = (String::new(), String::new());
        let first_frame_ms = Some(first_frame_ms);
        Beacon { viewer, stream, first_frame_ms, played_s, freezes, freeze_s, buffer_ms: None }
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn totals(player: &PlayerReports) -> (f64, u64, f64, bool) {
        let totals = player.totals().expect("a report");
        (totals.played_s, totals.freezes, totals.freeze_s, totals.is_clamped)
    }

    #[test]
    fn counts_never_decrease_and_the_first_frame_counts_once() {
        let mut player = PlayerReports::default();
        assert_eq!(player.on_report(beacon(9.0, 3, 0.9, 250.0), seconds(10)), []);
        for (later, at) in [(beacon(0.0, 0, 0.0, 1.0), 20), (beacon(4.0, 1, 0.2, 9_000.0), 30)] {
            assert_eq!(player.on_report(later, seconds(at)), []);
            assert_eq!(totals(&player), (9.0, 3, 0.9, false));
        }
        assert_eq!(player.totals().and_then(|totals| totals.first_frame_ms), Some(250.0));
        assert_eq!(player.on_report(beacon(35.0, 4, 1.5, 250.0), seconds(40)), []);
        assert_eq!(totals(&player), (35.0, 4, 1.5, false));
    }

    #[test]
    fn a_report_beyond_the_session_is_clamped_and_marked() {
        let mut player = PlayerReports::default();
        assert_eq!(player.on_report(beacon(9.0, 0, 0.0, 250.0), seconds(10)), []);
        let evil = beacon(0.0, 2_500_000_000, 2_592_000.0, 2_592_000_000.0);
        let excess = player.on_report(evil.clone(), seconds(12));
        assert_eq!(excess, [Excess::FirstFrame, Excess::Time, Excess::Freezes]);
        assert_eq!(totals(&player), (9.0, 68, 8.0, true), "9 s played leave 8 s");
        player.on_report(beacon(12.0, 0, 0.0, 250.0), seconds(13));
        assert_eq!(totals(&player), (10.0, 68, 8.0, true), "the mark stays");
        let mut first = PlayerReports::default();
        assert_eq!(first.on_report(evil, seconds(1)), [Excess::Earlier]);
        assert_eq!(totals(&first), (0.0, 0, 0.0, true));
        let mut mild = PlayerReports::default();
        assert_eq!(mild.on_report(beacon(9.0, 2, 3.0, 250.0), seconds(5)), [Excess::Time]);
        assert_eq!(totals(&mild), (7.5, 2, 2.5, true));
    }

    #[test]
    fn counts_of_an_earlier_session_of_the_page_are_subtracted() {
        let mut player = PlayerReports::default();
        player.on_report(beacon(1_000.0, 30, 12.0, 250.0), seconds(5));
        player.on_report(beacon(1_010.0, 32, 12.5, 250.0), seconds(15));
        assert_eq!(totals(&player), (10.0, 2, 0.5, true));
        let mut known = PlayerReports::new(Some(beacon(1_000.0, 30, 12.0, 250.0)));
        assert_eq!(known.on_report(beacon(1_010.0, 32, 12.5, 250.0), seconds(15)), []);
        assert_eq!(totals(&known), (10.0, 2, 0.5, false));
    }
}
