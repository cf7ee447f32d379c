//! A client that acknowledges seldom, as browsers do.
//!
//! The rules of Chromium (its `QuicReceivedPacketManager`): after the first 100 packets it acknowledges each tenth, and
//! no later than 25 ms or a quarter of the round-trip time after the first that is not acknowledged. Third-party clients
//! here acknowledge each second packet (RFC 9000, section 13.2.2), and their code does not change: what stands here holds
//! their acknowledgements back and lets one of five pass, the newest, which says what those before it said. A gap, of
//! which Chromium tells at once, is so told up to 25 ms later than by it.

use core::time::Duration;

use units::{Ecn, Timestamp};

/// Larger datagrams of a client hold more than an acknowledgement.
const LARGEST: usize = 100;
/// Acknowledgements before it becomes sparse, and of which one passes afterwards: two packets each.
const FIRST: u32 = 50;
const OF: u32 = 5;
/// The longest wait.
const WAIT: Duration = Duration::from_millis(25);

/// The acknowledgements that a client holds back.
pub(super) struct SparseAcks {
    wait: Duration,
    seen: u32,
    /// How many are held back, the newest, and until when.
    count: u32,
    newest: Option<(Ecn, Vec<u8>)>,
    until: Timestamp,
}

impl SparseAcks {
    /// On a path of that round-trip time.
    pub(super) fn new(rtt: Duration) -> Self {
        let wait = WAIT.min(rtt / 4).max(Duration::from_millis(1));
        Self { wait, seen: 0, count: 0, newest: None, until: Timestamp::ZERO }
    }

    /// Takes what the client sends; `send` gets what leaves now.
    pub(super) fn take(
        &mut self,
        now: Timestamp,
        ecn: Ecn,
        data: &[u8],
        send: &mut dyn FnMut(Ecn, &[u8]),
    ) {
        self.seen = self.seen.saturating_add(1);
        if data.len() > LARGEST || self.seen <= FIRST {
            self.release(send);
            return send(ecn, data);
        }
        if self.count == 0 {
            self.until = now + self.wait;
        }
        self.count += 1;
        self.newest = Some((ecn, data.to_vec()));
        if self.count >= OF {
            self.release(send);
        }
    }

    /// When the one that is held back leaves at the latest.
    pub(super) fn until(&self) -> Option<Timestamp> {
        self.newest.is_some().then_some(self.until)
    }

    /// Sends the one that has been held back long enough.
    pub(super) fn release_due(&mut self, now: Timestamp, send: &mut dyn FnMut(Ecn, &[u8])) {
        if self.until().is_some_and(|until| until <= now) {
            self.release(send);
        }
    }

    fn release(&mut self, send: &mut dyn FnMut(Ecn, &[u8])) {
        self.count = 0;
        if let Some((ecn, data)) = self.newest.take() {
            send(ecn, &data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    /// Those that leave of one a millisecond, by their numbers: `until` is asked as a clock does.
    fn leaving(acks: &mut SparseAcks, numbers: core::ops::Range<u8>) -> Vec<u8> {
        let mut left = Vec::new();
        for number in numbers {
            acks.take(at(number.into()), Ecn::NotEct, &[number; 40], &mut |_, data| {
                left.push(data[0]);
            });
        }
        left
    }

    #[test]
    fn the_first_pass_and_then_the_newest_of_five() {
        let mut acks = SparseAcks::new(Duration::from_millis(200));
        let first: Vec<u8> = (0..FIRST as u8).collect();
        assert_eq!(leaving(&mut acks, 0..FIRST as u8), first);
        assert_eq!(leaving(&mut acks, 100..112), [104, 109]);
        // Two are held back since 110 ms.
        assert_eq!(acks.until(), Some(at(135)));
        let mut left = Vec::new();
        acks.release_due(at(134), &mut |_, data| left.push(data[0]));
        assert!(left.is_empty());
        acks.release_due(at(135), &mut |_, data| left.push(data[0]));
        assert_eq!((left, acks.until()), (vec![111], None));
    }

    #[test]
    fn what_is_more_than_an_acknowledgement_leaves_at_once_behind_those_before_it() {
        let mut acks = SparseAcks::new(Duration::from_millis(40));
        leaving(&mut acks, 0..FIRST as u8);
        leaving(&mut acks, 60..62);
        assert_eq!(acks.until(), Some(at(70)), "a quarter of a round trip");
        let mut left = Vec::new();
        acks.take(at(63), Ecn::NotEct, &[63; 300], &mut |_, data| left.push(data[0]));
        assert_eq!(left, [61, 63]);
    }
}
