//! Loss correlation: how likely a packet is lost as a function of the time since an earlier loss.
//! It decides whether copies should leave at once or spaced. (The reference model of correlated
//! loss replaces R^j by the probability that copies 0 to j are lost given that the packet was.)

use core::time::Duration;
use units::Timestamp;

/// Upper ends of the lag classes.
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
/// [`LAGS`] in nanoseconds: each evaluated loss compares hundreds of lags.
const LAG_NANOS: [u64; LAGS.len()] = {
    let mut nanos = [0; LAGS.len()];
    let mut class = 0;
    while class < LAGS.len() {
        nanos[class] = LAGS[class].as_nanos() as u64;
        class += 1;
    }
    nanos
};
/// Loss probability, 0 to 1, at the upper end of each class of [`LAGS`].
pub type Chances = [f64; LAGS.len()];
/// Loss probabilities in calls at 5 % loss, the default prior. Known are 43 % at 20 ms and 24 % at
/// 100 ms. Below 20 ms the values are between 0.43 and 1; intermediate ones are used, since copies
/// spaced a little too widely cost little.
pub const CALLS: Chances = [0.8, 0.77, 0.7, 0.6, 0.43, 0.33, 0.24, 0.17];
/// Age at which a loss is evaluated: 50 ms more than the last lag, since packets just before an
/// acknowledged one may still be declared lost.
const EVALUATION_AGE_NANOS: u64 = 250_000_000;
/// Minimum distance of independent episodes. Losses of one outage count as one episode, however
/// many packets it hit.
const EPISODE_GAP: Duration = Duration::from_millis(50);
/// Packets in the ring. If more are sent within [`EVALUATION_AGE_NANOS`], the ring samples one in
/// 2, 4, …, regardless of their fate.
const RING_SIZE: usize = 256;
/// Packets within that age below which sampling doubles.
const MIN_SAMPLE: usize = RING_SIZE / 4;
/// Episodes after which counts are halved, because paths change within hours.
const MAX_EPISODES: u64 = 2_048;
/// Losses that are all evaluated. Later ones are sampled one in four, since each takes a pass over
/// the ring.
const ALWAYS_EVALUATED: u64 = 64;
/// Multiples of the golden ratio are equidistributed, so sampling by them is independent of
/// rhythms.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// Packets and losses by lag class.
type Counts = [(u64, u64); LAGS.len()];

/// Counts of packets sent some time after a loss, and of losses among them. Allocates on the first
/// loss.
#[derive(Clone, Debug, Default)]
pub struct LossCorrelation {
    ring: Option<Box<Ring>>,
    expected: Option<Box<Chances>>,
}

/// Fate of a packet: its send time in nanoseconds, times two, plus one if it was lost. Half the
/// size of a pair, and the ring is the largest part of a viewer's loss statistics.
#[derive(Clone, Copy, Default, Debug)]
struct Settled(u64);

impl Settled {
    fn new(sent: Timestamp, lost: bool) -> Self {
        Self(sent.as_nanos() << 1 | u64::from(lost))
    }

    fn sent_nanos(self) -> u64 {
        self.0 >> 1
    }

    fn is_lost(self) -> bool {
        self.0 & 1 == 1
    }
}

#[derive(Clone, Debug)]
struct Ring {
    counts: Counts,
    /// In the order of settlement.
    settled: [Settled; RING_SIZE],
    next: usize,
    len: usize,
    /// Send time of the newest packet.
    newest: Timestamp,
    /// Packets offered to the ring.
    packets: u64,
    /// The ring samples one in two to the power of this.
    sampling_shift: u32,
    /// Packets in the ring since sampling changed.
    since_change: usize,
    /// Losses added to the ring.
    losses: u64,
    /// Episodes among evaluated losses, and send time of the last evaluated loss.
    episodes: u64,
    last_evaluated: Timestamp,
    /// Ring indices of losses that are too recent for evaluation.
    pending: std::collections::VecDeque<usize>,
}

impl LossCorrelation {
    /// Notes the fate of a packet sent at `sent`. Packets before the first loss are ignored.
    #[inline]
    pub fn on_settled(&mut self, sent: Timestamp, lost: bool) {
        match &mut self.ring {
            Some(ring) => ring.offer(sent, lost),
            None if lost => self.ring.insert(Box::default()).offer(sent, lost),
            None => {}
        }
    }

    /// Evaluates losses that are old enough. To be called after each complete acknowledgement.
    /// Within one, packets that arrived after an outage are settled before the outage's losses.
    #[inline]
    pub fn on_all_settled(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        while let Some(&place) = ring.pending.front()
            && ring.age_nanos(place) > EVALUATION_AGE_NANOS
        {
            ring.evaluate_first();
        }
    }

    /// Sets the prior to measurements of an earlier connection.
    pub fn expect(&mut self, chances: Chances) {
        self.expected = Some(Box::new(chances));
    }

    /// Returns the prior; [`CALLS`] by default.
    pub fn expected(&self) -> Chances {
        self.expected.as_deref().copied().unwrap_or(CALLS)
    }

    /// Returns packets and losses by lag class.
    pub fn counts(&self) -> [(u64, u64); LAGS.len()] {
        self.ring.as_ref().map_or_else(Counts::default, |ring| ring.counts)
    }

    /// Returns the number of loss episodes in the counts. At most 2,048.
    pub fn episodes(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.episodes)
    }

    /// Returns the loss probability of a packet sent `lag` after a lost one; `None` for fewer than
    /// 20 packets or a lag beyond the last class.
    pub fn chance(&self, lag: Duration) -> Option<f64> {
        let class = LAGS.iter().position(|&end| lag <= end)?;
        let (packets, lost) = self.ring.as_ref()?.counts[class];
        (packets >= 20).then(|| lost as f64 / packets as f64)
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            settled: [Settled::default(); RING_SIZE],
            next: 0,
            len: 0,
            newest: Timestamp::ZERO,
            packets: 0,
            sampling_shift: 0,
            since_change: 0,
            losses: 0,
            episodes: 0,
            last_evaluated: Timestamp::ZERO,
            pending: std::collections::VecDeque::new(),
        }
    }
}

impl Ring {
    /// Remembers the fate of a packet if it is sampled. Fast senders skip most.
    #[inline]
    fn offer(&mut self, sent: Timestamp, lost: bool) {
        self.newest = self.newest.max(sent);
        let number = self.packets.wrapping_mul(GOLDEN_RATIO);
        self.packets += 1;
        if number.leading_zeros() >= self.sampling_shift {
            self.remember(sent, lost);
        }
    }

    fn remember(&mut self, sent: Timestamp, lost: bool) {
        // Evaluate a loss before it is overwritten, with the packets there are.
        if self.pending.front() == Some(&self.next) {
            self.evaluate_first();
        }
        if lost {
            self.losses += 1;
            if self.losses <= ALWAYS_EVALUATED || self.losses.wrapping_mul(GOLDEN_RATIO) >> 62 == 0
            {
                self.pending.push_back(self.next);
            }
        }
        self.settled[self.next] = Settled::new(sent, lost);
        self.next = (self.next + 1) % RING_SIZE;
        self.len = (self.len + 1).min(RING_SIZE);
        self.since_change += 1;
        if self.since_change >= MIN_SAMPLE {
            self.adapt();
        }
    }

    // Apart, because few packets need it, and their caller runs for each.
    #[inline(never)]
    fn evaluate_first(&mut self) {
        if let Some(place) = self.pending.pop_front() {
            let at = Timestamp::from_nanos(self.settled[place].sent_nanos());
            self.episodes +=
                u64::from(self.episodes == 0 || at.since(self.last_evaluated) > EPISODE_GAP);
            self.last_evaluated = at;
            if self.episodes > MAX_EPISODES {
                self.episodes /= 2;
                self.counts = self.counts.map(|(packets, lost)| (packets / 2, lost / 2));
            }
            self.count(at);
        }
    }

    /// Returns the time from the packet at this index to the newest one.
    fn age_nanos(&self, place: usize) -> u64 {
        self.newest.as_nanos().saturating_sub(self.settled[place].sent_nanos())
    }

    /// Halves sampling if the whole ring is younger than [`EVALUATION_AGE_NANOS`], and doubles it
    /// if a few packets reach beyond.
    fn adapt(&mut self) {
        if self.since_change >= RING_SIZE && self.age_nanos(self.next) < EVALUATION_AGE_NANOS {
            self.sampling_shift += 1;
        } else if self.sampling_shift > 0
            && self.age_nanos((self.next + RING_SIZE - MIN_SAMPLE) % RING_SIZE)
                > EVALUATION_AGE_NANOS
        {
            self.sampling_shift -= 1;
        } else {
            return;
        }
        self.since_change = 0;
    }

    /// Adds the packets in the ring that follow a loss at `at`, which is in the ring itself.
    fn count(&mut self, at: Timestamp) {
        let lag = |packet: &Settled| packet.sent_nanos().wrapping_sub(at.as_nanos());
        // Packets settle roughly in order, so classes come in runs.
        let mut rest = &self.settled[..self.len];
        while let Some(packet) = rest.first() {
            // Lags of earlier packets wrap, and are beyond all classes.
            let class = LAG_NANOS.partition_point(|&end| end < lag(packet));
            let first = if class == 0 { 0 } else { LAG_NANOS[class - 1] + 1 };
            let width = LAG_NANOS.get(class).map_or(u64::MAX - first, |end| end - first);
            let end = rest.iter().position(|packet| lag(packet).wrapping_sub(first) > width);
            let (run, others) = rest.split_at(end.unwrap_or(rest.len()));
            if let Some((packets, lost)) = self.counts.get_mut(class) {
                *packets += run.len() as u64;
                *lost += run.iter().map(|packet| u64::from(packet.is_lost())).sum::<u64>();
            }
            rest = others;
        }
        // The loss itself.
        self.counts[0].0 -= 1;
        self.counts[0].1 -= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::bool::weighted;
    use proptest::collection::vec;

    use super::*;

    /// Settles a packet every `gap` milliseconds, in order; `lost` selects the losses.
    fn measured(gap: u64, packets: u64, lost: impl Fn(u64) -> bool) -> LossCorrelation {
        let mut all = LossCorrelation::default();
        for number in 0..packets {
            all.on_settled(Timestamp::from_millis(number * gap), lost(number));
            all.on_all_settled();
        }
        all
    }

    #[test]
    fn runs_of_losses_appear_at_short_lags_only() {
        // Runs of 4 lost packets in every 100, 2 ms apart.
        let all = measured(2, 100_000, |n| n % 100 < 4);
        let near = all.chance(Duration::from_millis(2)).expect("seen");
        assert!((near - 0.75).abs() < 0.01, "3 of 4 losses are followed by another: {near}");
        let far = all.chance(Duration::from_millis(20)).expect("seen");
        assert!(far < 0.01, "{far}");
        let again = all.chance(Duration::from_millis(200)).expect("seen");
        assert!((again - 0.05).abs() < 0.01, "the next run comes after 200 ms: {again}");
    }

    #[test]
    fn short_and_long_lags_are_measured_at_any_packet_rate() {
        // Outages of 20 ms every 500 ms, after a first loss that starts the measurement.
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
    fn sampling_recovers_after_a_fast_period() {
        let (mut all, mut now) = (LossCorrelation::default(), 0);
        let mut send = |micros, packets| {
            for number in 0..packets {
                now += micros;
                all.on_settled(Timestamp::from_nanos(now * 1_000), number % 20 == 0);
                all.on_all_settled();
            }
            all.ring.as_ref().expect("lost").sampling_shift
        };
        assert_eq!(send(2_000, 1_000), 0);
        assert_eq!(send(100, 10_000), 4);
        assert_eq!(send(2_000, 1_000), 0);
    }

    #[test]
    fn packets_of_the_same_burst_count_without_the_lost_one() {
        let mut all = LossCorrelation::default();
        for burst in 0..1_000 {
            let at = Timestamp::from_millis(burst * 300);
            for place in 0..4 {
                all.on_settled(at, place == 1);
            }
            all.on_all_settled();
        }
        assert_eq!(all.chance(Duration::ZERO), Some(0.0));
        assert_eq!(all.chance(Duration::from_millis(3)), None, "no such packet");
    }

    #[test]
    fn send_times_count_not_settlement_times() {
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
    fn an_outage_settled_after_later_arrivals_is_detected() {
        let mut all = LossCorrelation::default();
        let ms = Timestamp::from_millis;
        all.on_settled(ms(0), true);
        for number in 1..=15 {
            all.on_settled(ms(number * 10), false);
            all.on_all_settled();
        }
        // One acknowledgement: this packet arrived, so the five before it are lost.
        all.on_settled(ms(260), false);
        (16..=20).for_each(|number| all.on_settled(ms(number * 10), true));
        all.on_all_settled();
        assert_eq!(all.counts()[7], (10, 5));
    }

    #[test]
    fn old_counts_fade_within_hours() {
        // An hour of 2 % independent loss at 125 packets/s, then three with outages of 40 ms.
        let is_lost = |n: u64| match n {
            0..450_000 => n.wrapping_mul(GOLDEN_RATIO) >> 32 & 0xffff < 1_311,
            _ => n % 125 < 5,
        };
        let chance = |all: LossCorrelation| all.chance(Duration::from_millis(10)).expect("seen");
        assert!(chance(measured(8, 450_000, is_lost)) < 0.03);
        let all = measured(8, 1_800_000, is_lost);
        assert!(all.episodes() <= MAX_EPISODES);
        let after = chance(all);
        assert!((after - 0.8).abs() < 0.05, "{after}");
    }

    #[test]
    fn nothing_is_kept_before_the_first_loss_and_little_after_it() {
        let mut all = LossCorrelation::default();
        (0..1_000).for_each(|ms| all.on_settled(Timestamp::from_millis(ms), false));
        assert!(all.ring.is_none());
        (0..10_000).for_each(|_| all.on_settled(Timestamp::from_millis(2_000), true));
        assert!(all.ring.is_some_and(|ring| ring.pending.len() <= RING_SIZE / 4 + 1));
    }

    proptest::proptest! {
        #[test]
        fn every_settled_packet_is_counted_in_the_class_of_its_lag(
            packets in vec((0u64..400_000, weighted(0.2)), 1..600),
            pick: proptest::sample::Index,
        ) {
            // In microseconds, in any order.
            let mut all = LossCorrelation::default();
            all.on_settled(Timestamp::ZERO, true);
            for &(sent, lost) in &packets {
                all.on_settled(Timestamp::from_micros(sent), lost);
            }
            let mut ring = *all.ring.expect("a loss");
            let settled = ring.settled[..ring.len].iter();
            let settled: Vec<_> = settled
                .map(|packet| (Timestamp::from_nanos(packet.sent_nanos()), packet.is_lost()))
                .collect();
            let losses: Vec<_> = settled.iter().filter(|(_, lost)| *lost).collect();
            proptest::prop_assume!(!losses.is_empty());
            let at = losses[pick.index(losses.len())].0;
            let mut expected = Counts::default();
            for &(sent, lost) in settled.iter().filter(|(sent, _)| *sent >= at) {
                if let Some(class) = LAGS.iter().position(|&end| sent.since(at) <= end) {
                    expected[class].0 += 1;
                    expected[class].1 += u64::from(lost);
                }
            }
            expected[0] = (expected[0].0 - 1, expected[0].1 - 1);
            ring.counts = Counts::default();
            ring.count(at);
            proptest::prop_assert_eq!(ring.counts, expected);
        }
    }
}
