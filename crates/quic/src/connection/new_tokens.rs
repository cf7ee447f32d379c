//! NEW_TOKEN frames of a connection (RFC 9000, sections 8.1.3 and 19.7), each kept until
//! acknowledged.

/// Maximum number of unacknowledged tokens. A new token replaces the oldest.
const MAX_TOKENS: usize = 4;

/// A reusable slot. The generation distinguishes its token from earlier ones, whose frames may
/// still be acknowledged or lost.
#[derive(Debug)]
struct Slot {
    generation: u32,
    /// `None` once the peer has acknowledged the frame.
    token: Option<Vec<u8>>,
}

/// A pending frame.
pub(super) struct Due<'a> {
    pub(super) slot: u8,
    pub(super) generation: u32,
    pub(super) token: &'a [u8],
}

/// The tokens of one connection.
#[derive(Debug, Default)]
pub(super) struct NewTokens {
    slots: Vec<Slot>,
    /// Slots with a frame to send or to retransmit, one bit each: every packet asks, and the slots
    /// are in memory of their own.
    due: u8,
    /// Number of issued tokens: the next generation.
    issued: u32,
}

impl NewTokens {
    /// Queues a token for the next control frames.
    pub(super) fn issue(&mut self, token: Vec<u8>) {
        let new = Slot { generation: self.issued, token: Some(token) };
        self.issued += 1;
        let free = self.slots.iter().position(|slot| slot.token.is_none());
        let index = free.unwrap_or_else(|| match self.slots.len() {
            used @ 0..MAX_TOKENS => used,
            _ => oldest(&self.slots),
        });
        match self.slots.get_mut(index) {
            Some(slot) => *slot = new,
            None => self.slots.push(new),
        }
        self.due |= 1 << index;
    }

    /// Returns true if a frame is pending.
    pub(super) fn is_due(&self) -> bool {
        self.due != 0
    }

    /// Returns a pending frame whose token `fits`.
    pub(super) fn next_due(&self, fits: impl Fn(&[u8]) -> bool) -> Option<Due<'_>> {
        let due = |index: &u8| self.due & 1 << index != 0;
        (0..).zip(&self.slots).filter(|(index, _)| due(index)).find_map(|(index, slot)| {
            let token = slot.token.as_deref().filter(|token| fits(token))?;
            Some(Due { slot: index, generation: slot.generation, token })
        })
    }

    /// Records that the slot's frame was sent.
    pub(super) fn on_sent(&mut self, slot: u8) {
        self.due &= !(1 << slot);
    }

    /// Records that the peer has the token.
    pub(super) fn on_acked(&mut self, slot: u8, generation: u32) {
        if let Some(acked) = self.get_mut(slot, generation) {
            acked.token = None;
            self.due &= !(1 << slot);
        }
    }

    /// Records that a packet with the frame was lost.
    pub(super) fn on_lost(&mut self, slot: u8, generation: u32) {
        if self.get_mut(slot, generation).is_some_and(|lost| lost.token.is_some()) {
            self.due |= 1 << slot;
        }
    }

    fn get_mut(&mut self, slot: u8, generation: u32) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(slot)).filter(|slot| slot.generation == generation)
    }
}

/// Returns the index of the oldest token.
fn oldest(slots: &[Slot]) -> usize {
    let oldest = (0..).zip(slots).min_by_key(|(_, slot)| slot.generation);
    oldest.map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends the next frame of at most `room` bytes. Returns its slot, generation and token.
    fn send(tokens: &mut NewTokens, room: usize) -> Option<(u8, u32, Vec<u8>)> {
        let Due { slot, generation, token } = tokens.next_due(|token| token.len() <= room)?;
        let sent = (slot, generation, token.to_vec());
        tokens.on_sent(slot);
        Some(sent)
    }

    #[test]
    fn a_lost_frame_is_sent_again_until_it_is_acknowledged() {
        let mut tokens = NewTokens::default();
        tokens.issue(vec![1; 50]);
        assert!(tokens.is_due() && send(&mut tokens, 49).is_none());
        let (slot, generation, token) = send(&mut tokens, 50).unwrap();
        assert!(token == [1; 50] && !tokens.is_due());
        tokens.on_lost(slot, generation);
        assert_eq!(send(&mut tokens, 50), Some((slot, generation, token)));
        tokens.on_acked(slot, generation);
        tokens.on_lost(slot, generation);
        assert!(!tokens.is_due());
    }

    #[test]
    fn a_token_that_does_not_fit_holds_up_no_other() {
        let mut tokens = NewTokens::default();
        tokens.issue(vec![1; 50]);
        tokens.issue(vec![2; 10]);
        assert_eq!(send(&mut tokens, 20).unwrap().2, [2; 10]);
        assert!(tokens.is_due() && send(&mut tokens, 20).is_none());
    }

    #[test]
    fn the_oldest_token_gives_way_and_its_acknowledgement_concerns_no_other() {
        let mut tokens = NewTokens::default();
        (0..MAX_TOKENS as u8).for_each(|n| tokens.issue(vec![n]));
        let old: Vec<_> = core::iter::from_fn(|| send(&mut tokens, 1)).collect();
        for n in [10, 11] {
            tokens.issue(vec![n]);
            let (slot, generation, token) = send(&mut tokens, 1).unwrap();
            let (before, earlier, _) = old[usize::from(n - 10)];
            assert_eq!((before, token), (slot, vec![n]));
            tokens.on_acked(before, earlier);
            tokens.on_lost(before, earlier);
            assert!(!tokens.is_due(), "the frame of the new token was not lost");
            tokens.on_lost(slot, generation);
            assert_eq!(send(&mut tokens, 1), Some((slot, generation, vec![n])));
        }
    }
}
