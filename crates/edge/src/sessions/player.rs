//! The reports of one session's player. They are cut to the session's length ([`records::Claim`]),
//! and no count ever falls.

use core::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering};

use records::{Claim, Excess, MAX_BUFFER_MS, Record, SLACK_S};

use super::Beacon;

/// Sums of times are this exact.
const ROUNDING_S: f64 = 1e-6;
/// If a first report claims so many times the session's room, its page had counted before the
/// session.
const EARLIER: f64 = 2.0;

/// The reports of one session's player.
#[derive(Clone, Debug, Default)]
pub(super) struct Player {
    /// The page's last report, cumulative since its opening.
    last: Option<Beacon>,
    /// Its last report before this session.
    before: Option<Beacon>,
    words: Option<Words>,
}

/// The sum of a player's reports of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Words {
    /// The first report that had one counts.
    pub first_frame_ms: Option<f64>,
    pub played_s: f64,
    pub freezes: u64,
    pub freeze_s: f64,
    /// Whether a report was beyond its bounds.
    pub is_clamped: bool,
}

impl Player {
    /// A player whose page had reported this before the session.
    pub(super) fn new(before: Option<Beacon>) -> Self {
        Self { before, ..Self::default() }
    }

    /// Returns the page's last report.
    pub(super) fn last(&self) -> Option<&Beacon> {
        self.last.as_ref()
    }

    /// Returns the sum of the reports of this session.
    pub(super) fn words(&self) -> Option<&Words> {
        self.words.as_ref()
    }

    /// Takes a report, `lasted` after the session began. Returns what of it was beyond its bounds.
    pub(super) fn on_report(&mut self, beacon: Beacon, lasted: Duration) -> Vec<Excess> {
        let said = beacon.clone().since(self.before.as_ref());
        let mut claim = Claim {
            first_frame_ms: said.first_frame_ms,
            played_s: Some(said.played_s),
            freezes: Some(said.freezes as f64),
            freeze_s: Some(said.freeze_s),
            ..Claim::default()
        };
        let mut excess = claim.clamp(lasted.as_secs_f64());
        let is_first = self.words.is_none() && self.before.is_none();
        let room_s = lasted.as_secs_f64() + SLACK_S;
        if is_first && said.played_s + said.freeze_s > EARLIER * room_s {
            // The page had counted before this session. Only its further counts belong here.
            self.before = Some(beacon.clone());
            claim = Claim::default();
            excess = vec![Excess::Earlier];
        }
        let words = self.words.get_or_insert_default();
        if words.add(&claim, lasted) && !excess.contains(&Excess::Time) {
            excess.push(Excess::Time);
        }
        words.is_clamped |= !excess.is_empty();
        if said.buffer_ms.is_some_and(|ms| ms > MAX_BUFFER_MS) {
            excess.push(Excess::Buffer);
        }
        self.last = Some(beacon);
        excess
    }
}

/// Reports beyond their bounds, by [`Excess`].
#[derive(Debug, Default)]
pub(super) struct Beyond([AtomicU64; Excess::ALL.len()]);

impl Beyond {
    pub(super) fn count(&self, excess: &[Excess]) {
        for why in excess {
            self.0[*why as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts by name.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Excess::ALL.into_iter().map(Excess::name).zip(counts)
    }
}

impl Words {
    /// Raises the sums to those of a claim, within the room of a session that has `lasted` so long.
    /// Returns true if it has too little.
    fn add(&mut self, claim: &Claim, lasted: Duration) -> bool {
        let more = |now: Option<f64>, known: f64| (now.unwrap_or(0.0) - known).max(0.0);
        let played = more(claim.played_s, self.played_s);
        let frozen = more(claim.freeze_s, self.freeze_s);
        let room = (lasted.as_secs_f64() + SLACK_S - self.played_s - self.freeze_s).max(0.0);
        let is_too_much = played + frozen > room + ROUNDING_S;
        let share = if is_too_much { room / (played + frozen) } else { 1.0 };
        self.played_s += played * share;
        self.freeze_s += frozen * share;
        let mut sum =
            Claim { freezes: claim.freezes, freeze_s: Some(self.freeze_s), ..Claim::default() };
        sum.clamp(lasted.as_secs_f64());
        self.freezes = self.freezes.max(sum.freezes.unwrap_or(0.0) as u64);
        self.first_frame_ms = self.first_frame_ms.or(claim.first_frame_ms);
        is_too_much
    }

    /// Writes the sums into the session's record.
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

    fn said(player: &Player) -> (f64, u64, f64, bool) {
        let words = player.words().expect("a report");
        (words.played_s, words.freezes, words.freeze_s, words.is_clamped)
    }

    #[test]
    fn counts_never_fall_and_the_first_picture_is_seen_once() {
        let mut player = Player::default();
        assert_eq!(player.on_report(beacon(9.0, 3, 0.9, 250.0), seconds(10)), []);
        for (later, at) in [(beacon(0.0, 0, 0.0, 1.0), 20), (beacon(4.0, 1, 0.2, 9_000.0), 30)] {
            assert_eq!(player.on_report(later, seconds(at)), []);
            assert_eq!(said(&player), (9.0, 3, 0.9, false));
        }
        assert_eq!(player.words().and_then(|words| words.first_frame_ms), Some(250.0));
        assert_eq!(player.on_report(beacon(35.0, 4, 1.5, 250.0), seconds(40)), []);
        assert_eq!(said(&player), (35.0, 4, 1.5, false));
    }

    #[test]
    fn one_report_of_thirty_days_is_cut_and_marked() {
        let mut player = Player::default();
        assert_eq!(player.on_report(beacon(9.0, 0, 0.0, 250.0), seconds(10)), []);
        let evil = beacon(0.0, 2_500_000_000, 2_592_000.0, 2_592_000_000.0);
        let excess = player.on_report(evil.clone(), seconds(12));
        assert_eq!(excess, [Excess::FirstFrame, Excess::Time, Excess::Freezes]);
        assert_eq!(said(&player), (9.0, 68, 8.0, true), "what was played leaves room for 8 s");
        player.on_report(beacon(12.0, 0, 0.0, 250.0), seconds(13));
        assert_eq!(said(&player), (10.0, 68, 8.0, true), "marked once, marked for good");
        let mut first = Player::default();
        assert_eq!(first.on_report(evil, seconds(1)), [Excess::Earlier]);
        assert_eq!(said(&first), (0.0, 0, 0.0, true));
        let mut mild = Player::default();
        assert_eq!(mild.on_report(beacon(9.0, 2, 3.0, 250.0), seconds(5)), [Excess::Time]);
        assert_eq!(said(&mild), (7.5, 2, 2.5, true));
    }

    #[test]
    fn a_page_that_counted_before_counts_on_from_there() {
        let mut player = Player::default();
        player.on_report(beacon(1_000.0, 30, 12.0, 250.0), seconds(5));
        player.on_report(beacon(1_010.0, 32, 12.5, 250.0), seconds(15));
        assert_eq!(said(&player), (10.0, 2, 0.5, true));
        let mut known = Player::new(Some(beacon(1_000.0, 30, 12.0, 250.0)));
        assert_eq!(known.on_report(beacon(1_010.0, 32, 12.5, 250.0), seconds(15)), []);
        assert_eq!(said(&known), (10.0, 2, 0.5, false));
    }
}
