//! How the loss of one packet goes with that of another, by the time between them: what decides
//! whether copies should leave at once or apart (the reference model of correlated loss
//! replaces R^j by the chance that copies 0 to j are lost given that the packet was).

use core::time::Duration;
use units::Timestamp;

/// Upper ends of the classes of lag.
pub const LAGS: [Duration; 8] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
];
/// For each class of [`LAGS`] the chance, 0 to 1, that a packet is lost that leaves at its end after a lost one.
pub type Chances = [f64; LAGS.len()];
/// Those of calls with a loss of 5 %, as far as their conditional chances are known (43 % at 20 ms, 24 % at 100 ms): what
/// is expected of a path of which nothing is known. Closer than 20 ms they are between that and 1; a value between is
/// taken, since copies that leave a little too far apart lose little.
pub const CALLS: Chances = [0.8, 0.77, 0.7, 0.6, 0.43, 0.33, 0.24, 0.17];
/// When what is sent so long after a loss is settled, so is all that the lags ask about: 50 ms behind the last of them,
/// since packets just before an acknowledged one may still be declared lost.
const OLD: Duration = Duration::from_millis(250);
/// A loss so long after the one before it says something new: those of one outage tell of one outage, however many packets
/// fell into it.
const EPISODE: Duration = Duration::from_millis(50);
/// Packets that are remembered. Where more than these are sent within [`OLD`], one in two, four, ... is remembered,
/// whatever its fate.
const RING: usize = 256;
/// Where fewer than these are remembered within it, twice as many are from then on.
const FEW: usize = RING / 4;
/// Behind so many episodes half of what was counted is forgotten: a path becomes another within hours.
const LONG: u64 = 2_048;
/// The first losses are all looked at, later ones one in four: to look at one takes a pass over the
/// ring.
const ALL: u64 = 64;
/// Multiples of the golden ratio fall alike into each half, quarter, ..., whatever the rhythm of what they count.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Of each class of lag: packets, and lost ones.
type Counts = [(u64, u64); LAGS.len()];

/// Counts of packets sent some time after a lost one, and of those of them that were lost too; no
/// memory is taken before the first loss.
#[derive(Clone, Debug, Default)]
pub struct LossCorrelation {
    ring: Option<Box<Ring>>,
    expected: Option<Box<Chances>>,
}

#[derive(Clone, Debug)]
struct Ring {
    counts: Counts,
    /// When packets were sent, and whether they were lost, in the order in which that became known.
    settled: [(Timestamp, bool); RING],
    next: usize,
    len: usize,
    /// When the newest of them was sent.
    newest: Timestamp,
    /// Packets so far.
    packets: u64,
    /// One in two to the power of this is remembered.
    thinned: u32,
    /// Packets that were remembered since that changed.
    alike: usize,
    /// Losses that were remembered.
    losses: u64,
    /// Losses that were looked at and did not follow another one closely, and the last loss that was.
    episodes: u64,
    looked: Timestamp,
    /// The places of losses that are not yet old enough to be looked at.
    young: std::collections::VecDeque<usize>,
}

impl LossCorrelation {
    /// The fate of a packet sent at `sent` is known. Nothing is remembered before the first loss.
    #[inline]
    pub fn on_settled(&mut self, sent: Timestamp, lost: bool) {
        if self.ring.is_none() && !lost {
            return;
        }
        self.remember(sent, lost);
    }

    fn remember(&mut self, sent: Timestamp, lost: bool) {
        let ring = self.ring.get_or_insert_with(|| {
            Box::new(Ring {
                counts: Counts::default(),
                settled: [(Timestamp::ZERO, false); RING],
                next: 0,
                len: 0,
                newest: Timestamp::ZERO,
                packets: 0,
                thinned: 0,
                alike: 0,
                losses: 0,
                episodes: 0,
                looked: Timestamp::ZERO,
                young: std::collections::VecDeque::new(),
            })
        });
        ring.newest = ring.newest.max(sent);
        let is_left_out = ring.packets.wrapping_mul(GOLDEN).leading_zeros() < ring.thinned;
        ring.packets += 1;
        if is_left_out {
            return;
        }
        // A loss about to fall out of what is remembered is looked at with what there is.
        if ring.young.front() == Some(&ring.next) {
            ring.look_at_first();
        }
        if lost {
            ring.losses += 1;
            if ring.losses <= ALL || ring.losses.wrapping_mul(GOLDEN) >> 62 == 0 {
                ring.young.push_back(ring.next);
            }
        }
        ring.settled[ring.next] = (sent, lost);
        ring.next = (ring.next + 1) % RING;
        ring.len = (ring.len + 1).min(RING);
        ring.alike += 1;
        ring.adapt();
    }

    /// All that an acknowledgement reveals was told: first what arrived, then what is lost. Looks at losses that are old
    /// enough. In the midst of an acknowledgement, it would find what arrived after an outage and miss the outage.
    #[inline]
    pub fn on_all_settled(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        while let Some(&place) = ring.young.front()
            && ring.age(place) > OLD
        {
            ring.look_at_first();
        }
    }

    /// What was measured on this path before: schemes begin with it.
    pub fn expect(&mut self, chances: Chances) {
        self.expected = Some(Box::new(chances));
    }

    /// What schemes begin with; [`CALLS`] if nothing was measured before.
    pub fn expected(&self) -> Chances {
        self.expected.as_deref().copied().unwrap_or(CALLS)
    }

    /// Of each class of [`LAGS`]: packets that were sent so long after a lost one, and how many of them
    /// were lost.
    pub fn counts(&self) -> [(u64, u64); LAGS.len()] {
        self.ring.as_ref().map_or_else(Counts::default, |ring| ring.counts)
    }

    /// How many times something was lost that the counts are of, losses close to each other once. At most 2,048.
    pub fn episodes(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.episodes)
    }

    /// The chance that a packet is lost that is sent `lag` after a lost one; `None` where fewer than 20
    /// were seen, or `lag` is above the last class.
    pub fn chance(&self, lag: Duration) -> Option<f64> {
        let class = LAGS.iter().position(|&end| lag <= end)?;
        let (packets, lost) = self.ring.as_ref()?.counts[class];
        (packets >= 20).then(|| lost as f64 / packets as f64)
    }
}

impl Ring {
    fn look_at_first(&mut self) {
        if let Some(place) = self.young.pop_front() {
            let (at, _) = self.settled[place];
            self.episodes += u64::from(self.episodes == 0 || at.since(self.looked) > EPISODE);
            self.looked = at;
            if self.episodes > LONG {
                self.episodes /= 2;
                self.counts = self.counts.map(|(packets, lost)| (packets / 2, lost / 2));
            }
            self.count(at);
        }
    }

    /// From the sending of the packet at this place to that of the newest.
    fn age(&self, place: usize) -> Duration {
        self.newest.since(self.settled[place].0)
    }

    /// Remembers half of the packets from now on where all that are remembered are younger than [`OLD`], and twice as
    /// many where a few reach beyond it.
    fn adapt(&mut self) {
        if self.alike >= RING && self.age(self.next) < OLD {
            self.thinned += 1;
        } else if self.thinned > 0
            && self.alike >= FEW
            && self.age((self.next + RING - FEW) % RING) > OLD
        {
            self.thinned -= 1;
        } else {
            return;
        }
        self.alike = 0;
    }

    fn count(&mut self, at: Timestamp) {
        // Packets of one burst have the same time. The lost one itself is left out once.
        let mut itself = true;
        // Fates become known nearly in the order of sending, so that the class of one packet is mostly
        // that of the one before.
        let mut class = 0;
        let (newer, older) = self.settled[..self.len].split_at(self.next.min(self.len));
        for &(sent, lost) in older.iter().chain(newer) {
            if sent < at || (sent == at && lost && core::mem::take(&mut itself)) {
                continue;
            }
            let lag = sent.since(at);
            while class > 0 && lag <= LAGS[class - 1] {
                class -= 1;
            }
            while class < LAGS.len() && lag > LAGS[class] {
                class += 1;
            }
            if let Some(count) = self.counts.get_mut(class) {
                count.0 += 1;
                count.1 += u64::from(lost);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets every `gap` milliseconds, of which `lost` says which are lost, settled in order.
    fn measured(gap: u64, packets: u64, lost: impl Fn(u64) -> bool) -> LossCorrelation {
        let mut all = LossCorrelation::default();
        for number in 0..packets {
            all.on_settled(Timestamp::from_millis(number * gap), lost(number));
            all.on_all_settled();
        }
        all
    }

    #[test]
    fn runs_of_losses_show_at_short_lags_only() {
        // 4 of each 100 packets, one after the other, 2 ms apart.
        let all = measured(2, 100_000, |n| n % 100 < 4);
        let near = all.chance(Duration::from_millis(2)).expect("seen");
        assert!((near - 0.75).abs() < 0.01, "3 of 4 are followed by another: {near}");
        let far = all.chance(Duration::from_millis(20)).expect("seen");
        assert!(far < 0.01, "{far}");
        let again = all.chance(Duration::from_millis(200)).expect("seen");
        assert!((again - 0.05).abs() < 0.01, "100 to 200 ms later the next run comes: {again}");
    }

    #[test]
    fn at_any_rate_short_lags_are_seen_and_long_ones() {
        // 20 ms of 500 are lost, after one packet that shows nothing but how fast they come.
        for packets_in_ms in [1, 2, 4, 16, 64] {
            let mut all = LossCorrelation::default();
            for number in 0..60_000 * packets_in_ms {
                let sent = Timestamp::from_nanos(number * 1_000_000 / packets_in_ms);
                let place = number / packets_in_ms;
                all.on_settled(sent, number == 0 || place > 1_000 && place % 500 < 20);
                all.on_all_settled();
            }
            let chance = |ms| all.chance(Duration::from_millis(ms)).expect("seen");
            assert!((chance(5) - 0.83).abs() < 0.06, "{packets_in_ms}: {}", chance(5));
            assert!((chance(10) - 0.63).abs() < 0.06, "{packets_in_ms}: {}", chance(10));
            assert!(chance(50) < 0.01 && chance(200) < 0.01, "{packets_in_ms}");
        }
    }

    #[test]
    fn behind_a_fast_stretch_more_packets_are_remembered_again() {
        let (mut all, mut now) = (LossCorrelation::default(), 0);
        let mut send = |micros, packets| {
            for number in 0..packets {
                now += micros;
                all.on_settled(Timestamp::from_nanos(now * 1_000), number % 20 == 0);
                all.on_all_settled();
            }
            all.ring.as_ref().expect("lost").thinned
        };
        assert_eq!(send(2_000, 1_000), 0);
        assert_eq!(send(100, 10_000), 4);
        assert_eq!(send(2_000, 1_000), 0);
    }

    #[test]
    fn packets_of_one_burst_count_and_the_lost_one_itself_does_not() {
        let mut all = LossCorrelation::default();
        for burst in 0..1_000 {
            let at = Timestamp::from_millis(burst * 300);
            for place in 0..4 {
                all.on_settled(at, place == 1);
            }
            all.on_all_settled();
        }
        assert_eq!(all.chance(Duration::ZERO), Some(0.0));
        assert_eq!(all.chance(Duration::from_millis(3)), None, "never seen");
    }

    #[test]
    fn packets_count_by_when_they_were_sent_whenever_their_fate_is_known() {
        let mut all = LossCorrelation::default();
        for (sent, lost) in [(0, true), (150, false), (1, true), (300, false)] {
            all.on_settled(Timestamp::from_millis(sent), lost);
            all.on_all_settled();
        }
        let mut expected = Counts::default();
        (expected[0], expected[7]) = ((1, 1), (2, 0));
        assert_eq!(all.counts(), expected);
    }

    #[test]
    fn an_outage_is_seen_that_is_told_after_what_arrived_behind_it() {
        let mut all = LossCorrelation::default();
        let ms = Timestamp::from_millis;
        all.on_settled(ms(0), true);
        for number in 1..=15 {
            all.on_settled(ms(number * 10), false);
            all.on_all_settled();
        }
        // One acknowledgement: this one arrived, so the five before it are lost.
        all.on_settled(ms(260), false);
        (16..=20).for_each(|number| all.on_settled(ms(number * 10), true));
        all.on_all_settled();
        assert_eq!(all.counts()[7], (10, 5));
    }

    #[test]
    fn what_was_hours_ago_is_forgotten() {
        // An hour of 2 % independent loss at 125 packets a second, then three with outages of 40 ms.
        let is_lost = |n: u64| match n {
            0..450_000 => n.wrapping_mul(GOLDEN) >> 32 & 0xffff < 1_311,
            _ => n % 125 < 5,
        };
        let chance = |all: LossCorrelation| all.chance(Duration::from_millis(10)).expect("seen");
        assert!(chance(measured(8, 450_000, is_lost)) < 0.03);
        let all = measured(8, 1_800_000, is_lost);
        assert!(all.episodes() <= LONG);
        let after = chance(all);
        assert!((after - 0.8).abs() < 0.05, "{after}");
    }

    #[test]
    fn nothing_is_kept_before_the_first_loss_and_little_after_it() {
        let mut all = LossCorrelation::default();
        (0..1_000).for_each(|ms| all.on_settled(Timestamp::from_millis(ms), false));
        assert!(all.ring.is_none());
        (0..10_000).for_each(|_| all.on_settled(Timestamp::from_millis(2_000), true));
        assert!(all.ring.is_some_and(|ring| ring.young.len() <= RING / 4 + 1));
    }
}
