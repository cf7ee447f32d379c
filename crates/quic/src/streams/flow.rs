//! The receiving side of flow control (RFC 9000, section 4): how much the peer may send, on a
//! stream or on the connection, with a window that grows when it limits the peer.

use core::time::Duration;

use units::Timestamp;

use crate::wire::VARINT_MAX;

/// One receive window. Offsets and sizes in bytes.
#[derive(Debug, Default)]
pub(super) struct FlowWindow {
    /// Credit of the peer beyond `consumed`, in bytes.
    size: u64,
    /// `size` never grows past this.
    ceiling: u64,
    /// Bytes that the application read, or that will never be read.
    consumed: u64,
    /// The limit last told to the peer.
    advertised: u64,
    /// When the current measurement of the consumption began, and `consumed` at that time.
    epoch: Option<(Timestamp, u64)>,
}

impl FlowWindow {
    /// Creates a window. The transport parameters advertise its first `size` bytes.
    pub(super) fn new(size: u64, ceiling: u64) -> Self {
        Self { size, ceiling: ceiling.max(size), advertised: size, ..Self::default() }
    }

    /// The limit that the peer must obey.
    pub(super) fn limit(&self) -> u64 {
        self.advertised
    }

    /// Current size.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Data arrived: the first of it starts the clock of the auto-tuning.
    pub(super) fn on_data(&mut self, now: Timestamp) {
        self.epoch.get_or_insert((now, self.consumed));
    }

    /// `bytes` were read or dropped; whether the peer should learn a new limit.
    pub(super) fn consume(&mut self, bytes: u64) -> bool {
        self.consumed += bytes;
        self.is_due()
    }

    fn is_due(&self) -> bool {
        self.advertised.saturating_sub(self.consumed) <= self.size / 2
    }

    /// The limit to send now. The window doubles when the peer uses it up in less than 2 `srtt`,
    /// that is when it, rather than the sender or the path, holds the rate down.
    pub(super) fn advertise(&mut self, now: Timestamp, srtt: Duration) -> u64 {
        if self.is_due() {
            if let Some((since, consumed)) = self.epoch {
                let used = u128::from(self.consumed - consumed);
                let elapsed = now.since(since).as_nanos();
                if u128::from(self.size) * elapsed < 2 * srtt.as_nanos() * used {
                    self.size = (self.size * 2).min(self.ceiling);
                }
            }
            self.epoch = Some((now, self.consumed));
        }
        // RFC 9000, section 4.1: a limit never goes back.
        self.advertised = self.advertised.max(self.consumed + self.size).min(VARINT_MAX);
        self.advertised
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRTT: Duration = Duration::from_millis(50);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn an_update_is_due_when_half_of_the_window_was_consumed() {
        let mut window = FlowWindow::new(1000, 1000);
        assert!(!window.consume(499));
        assert!(window.consume(1));
        assert_eq!(window.advertise(at(0), SRTT), 1500);
        assert!(!window.consume(499));
        assert!(window.consume(1));
    }

    #[test]
    fn a_window_used_up_within_two_round_trips_doubles_up_to_its_ceiling() {
        let mut window = FlowWindow::new(1000, 3000);
        window.on_data(at(0));
        window.consume(500);
        assert_eq!(window.advertise(at(49), SRTT), 500 + 2000);
        window.consume(1500);
        assert_eq!(window.advertise(at(60), SRTT), 2000 + 3000);
        window.consume(3000);
        assert_eq!(window.advertise(at(61), SRTT), 5000 + 3000);
    }

    #[test]
    fn a_slow_peer_keeps_its_small_window() {
        let mut window = FlowWindow::new(1000, 3000);
        window.on_data(at(0));
        window.consume(500);
        assert_eq!(window.advertise(at(50), SRTT), 1500);
        window.consume(1000);
        assert_eq!(window.advertise(at(150), SRTT), 2500);
    }

    #[test]
    fn a_repeated_advertisement_neither_grows_the_window_nor_goes_back() {
        let mut window = FlowWindow::new(1000, 8000);
        window.on_data(at(0));
        window.consume(600);
        assert_eq!(window.advertise(at(1), SRTT), 2600);
        window.consume(10);
        assert_eq!(window.advertise(at(1), SRTT), 2610);
        assert_eq!(window.size(), 2000);
        assert_eq!(window.limit(), 2610);
    }
}
