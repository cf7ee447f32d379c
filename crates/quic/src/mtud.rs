//! Datagram packetization-layer path MTU discovery (RFC 8899; RFC 9000, section 14.3): a binary
//! search with padded probes, and black-hole detection.

use core::time::Duration;
use units::Timestamp;

/// Smallest UDP payload that QUIC may rely on (RFC 9000, section 14).
pub(crate) const BASE: u16 = 1_200;
/// Lost probes of one size before the size counts as too large (RFC 8899: MAX_PROBES).
const MAX_PROBES: u8 = 3;
/// The search ends when the interval is this small.
const RESOLUTION: u16 = 16;
/// Search again after this long (RFC 8899: PMTU_RAISE_TIMER).
const RAISE: Duration = Duration::from_secs(600);
/// Consecutive signs of a black hole, without an acknowledged large packet between them: a
/// loss-detection pass with large losses, or a probe time-out with large packets in flight.
const BLACK_HOLE: u8 = 4;
/// Delay of the next search after a path's first black hole. Doubles with each, up to [`RAISE`],
/// since a short outage looks the same.
const BLACK_HOLE_PAUSE: Duration = Duration::from_secs(5);

/// State of one path's search.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mtud {
    current: u16,
    /// Smallest size known not to pass, or one more than the largest of interest.
    ceiling: u16,
    maximum: u16,
    probing: Option<u16>,
    failures: u8,
    suspicious: u8,
    resume: Duration,
    next_search: Option<Timestamp>,
}

impl Mtud {
    /// Starts at `initial` and searches up to `maximum` UDP payload bytes.
    pub(crate) fn new(initial: u16, maximum: u16) -> Self {
        let maximum = maximum.max(initial);
        Self {
            current: initial,
            ceiling: maximum + 1,
            maximum,
            resume: BLACK_HOLE_PAUSE,
            ..Self::default()
        }
    }

    /// UDP payload bytes that pass.
    #[inline]
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// The peer receives no larger datagrams (max_udp_payload_size).
    pub(crate) fn limit(&mut self, maximum: u64) {
        let maximum = u16::try_from(maximum).unwrap_or(u16::MAX).max(BASE);
        self.maximum = self.maximum.min(maximum);
        self.ceiling = self.ceiling.min(self.maximum + 1);
        self.current = self.current.min(self.maximum);
    }

    /// Size of the probe to send now, if one is due.
    #[inline]
    pub(crate) fn probe_due(&mut self, now: Timestamp) -> Option<u16> {
        if self.probing.is_some() {
            return None;
        }
        if let Some(at) = self.next_search {
            if now < at {
                return None;
            }
            self.next_search = None;
            self.ceiling = self.maximum + 1;
        }
        if self.ceiling - self.current <= RESOLUTION && self.ceiling != self.maximum + 1
            || self.current == self.maximum
        {
            self.next_search = Some(now + RAISE);
            return None;
        }
        // The largest size first: most paths carry it, and then one probe is enough.
        let first = self.ceiling == self.maximum + 1;
        let size = if first { self.maximum } else { self.current.midpoint(self.ceiling) };
        Some(size)
    }

    /// A probe of `size` left.
    pub(crate) fn on_probe_sent(&mut self, size: u16) {
        self.probing = Some(size);
    }

    /// The probe was acknowledged. Returns the new size.
    pub(crate) fn on_probe_acked(&mut self, size: u16) -> Option<u16> {
        self.probing = None;
        self.failures = 0;
        if size <= self.current || size > self.maximum {
            return None;
        }
        self.current = size;
        Some(size)
    }

    /// The probe was lost.
    pub(crate) fn on_probe_lost(&mut self) {
        let Some(size) = self.probing.take() else { return };
        self.failures += 1;
        if self.failures >= MAX_PROBES {
            self.failures = 0;
            self.ceiling = size;
        }
    }

    /// A packet of `size` was acknowledged.
    #[inline]
    pub(crate) fn on_acked(&mut self, size: u16) {
        if size > BASE {
            self.suspicious = 0;
        }
    }

    /// Handles the loss of packets larger than [`BASE`], or a probe time-out with such packets in
    /// flight. Returns true if the size fell back to [`BASE`].
    pub(crate) fn on_suspicion(&mut self, now: Timestamp) -> bool {
        if self.current == BASE {
            return false;
        }
        self.suspicious += 1;
        if self.suspicious < BLACK_HOLE {
            return false;
        }
        self.suspicious = 0;
        self.current = BASE;
        self.probing = None;
        self.failures = 0;
        self.next_search = Some(now + self.resume);
        self.resume = (2 * self.resume).min(RAISE);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1);

    /// Runs a search on a path that passes `limit` bytes.
    fn search(limit: u16) -> (u16, u32) {
        let mut mtud = Mtud::new(BASE, 1_452);
        let mut probes = 0;
        while let Some(size) = mtud.probe_due(NOW) {
            assert!(probes < 100, "the search ends");
            probes += 1;
            mtud.on_probe_sent(size);
            if size <= limit {
                mtud.on_probe_acked(size);
            } else {
                mtud.on_probe_lost();
            }
        }
        (mtud.current(), probes)
    }

    #[test]
    fn the_search_finds_what_passes() {
        assert_eq!(search(1_500), (1_452, 1));
        for limit in [1_200, 1_280, 1_300, 1_400, 1_451] {
            let (found, _) = search(limit);
            assert!(found <= limit && limit - found <= RESOLUTION, "{found} for {limit}");
        }
    }

    #[test]
    fn a_black_hole_is_noticed_and_random_loss_is_not() {
        let mut mtud = Mtud::new(1_452, 1_452);
        for _ in 0..100 {
            assert!(!mtud.on_suspicion(NOW));
            assert!(!mtud.on_suspicion(NOW));
            mtud.on_acked(1_452);
        }
        let fell = (0..BLACK_HOLE).map(|_| mtud.on_suspicion(NOW)).filter(|&f| f).count();
        assert_eq!((fell, mtud.current()), (1, BASE));
        assert_eq!(mtud.probe_due(NOW), None);
        assert_eq!(mtud.probe_due(NOW + BLACK_HOLE_PAUSE), Some(1_452));
    }

    #[test]
    fn the_peers_limit_bounds_the_search() {
        let mut mtud = Mtud::new(BASE, 1_452);
        mtud.limit(1_300);
        assert_eq!(mtud.probe_due(NOW), Some(1_300));
        mtud.limit(10);
        assert_eq!(mtud.current(), BASE);
    }
}
