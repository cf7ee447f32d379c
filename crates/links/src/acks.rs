//! A client that acknowledges rarely, like browsers and offloads.
//!
//! Third-party clients acknowledge every second packet (RFC 9000, section 13.2.2) and cannot be
//! changed. This model delays their acknowledgements and passes on only the newest of several,
//! which repeats the ranges of the others. Gaps are therefore reported up to the maximum delay
//! later than RFC 9000, section 13.2.1 recommends (at once).

use core::str::FromStr;
use core::time::Duration;

use units::{Ecn, Timestamp};

use crate::text::{Fields, ParseError, parse_duration};

/// Maximum size of a datagram that counts as an acknowledgement, in bytes.
const MAX_ACK_SIZE: usize = 100;
/// Packets that a third-party client acknowledges per datagram.
const PER_DATAGRAM: u32 = 2;
/// Most significant bit of a datagram's first byte: a long header (RFC 8999, section 5.1), and thus
/// a handshake.
const LONG_HEADER: u8 = 0x80;
/// Valid settings.
const EACH: core::ops::RangeInclusive<u32> = 2..=1_000;
const WITHIN: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(5);

/// Acknowledgement frequency of a client.
///
/// As text: `each=32,within=250ms`, also with `,after=100`; or `chromium`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RareAcks {
    /// Packets per acknowledgement. 2 to 1,000.
    pub each: u32,
    /// Maximum delay of an acknowledgement. 1 ms to 5 s.
    pub within: Duration,
    /// Whether `within` is limited to a quarter of the round-trip time.
    pub is_quarter_rtt: bool,
    /// Initial packets that are acknowledged as usual. Default 0. Handshakes always pass.
    pub after: u32,
}

impl RareAcks {
    /// Chromium's rule (`QuicReceivedPacketManager`): after 100 packets, acknowledges every tenth
    /// packet, within 25 ms or a quarter of the round-trip time.
    pub const CHROMIUM: Self =
        Self { each: 10, within: Duration::from_millis(25), is_quarter_rtt: true, after: 100 };
}

impl FromStr for RareAcks {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        const EXPECTED: &str = "`each` (2 to 1000 packets) and `within` (1 ms to 5 s) like \
            `each=32,within=250ms`, also with `,after=100`; or `chromium`";
        if text.trim() == "chromium" {
            return Ok(Self::CHROMIUM);
        }
        let mut fields = Fields::new(text, text, EXPECTED)?;
        let each = fields.required("each")?;
        let within = fields.optional_with("within", parse_duration)?;
        let after = fields.optional("after")?.unwrap_or(0);
        fields.finish()?;
        let within = within.filter(|within| WITHIN.contains(within) && EACH.contains(&each));
        within
            .map(|within| Self { each, within, is_quarter_rtt: false, after })
            .ok_or_else(|| ParseError::new(text, EXPECTED))
    }
}

/// Delayed acknowledgements of one client.
#[derive(Debug)]
pub struct HeldAcks {
    wait: Duration,
    /// Datagrams that pass at the start, and datagrams per passed one afterwards.
    first: u32,
    of: u32,
    seen: u32,
    /// Datagrams delayed since the last one passed.
    count: u32,
    newest: Option<(Ecn, Vec<u8>)>,
    until: Timestamp,
}

impl HeldAcks {
    /// Applies `rule` on a path with this round-trip time.
    pub fn new(rule: RareAcks, rtt: Duration) -> Self {
        let wait = match rule.is_quarter_rtt {
            true => rule.within.min(rtt / 4).max(*WITHIN.start()),
            false => rule.within,
        };
        Self {
            wait,
            first: rule.after / PER_DATAGRAM,
            of: (rule.each / PER_DATAGRAM).max(1),
            seen: 0,
            count: 0,
            newest: None,
            until: Timestamp::ZERO,
        }
    }

    /// Takes a datagram from the client. Calls `send` for the datagrams that pass now, in order.
    pub fn take(
        &mut self,
        now: Timestamp,
        ecn: Ecn,
        data: &[u8],
        send: &mut dyn FnMut(Ecn, &[u8]),
    ) {
        self.seen = self.seen.saturating_add(1);
        let is_handshake = data.first().is_some_and(|first| first & LONG_HEADER != 0);
        if data.len() > MAX_ACK_SIZE || is_handshake || self.seen <= self.first {
            self.release(send);
            return send(ecn, data);
        }
        if self.count == 0 {
            self.until = now + self.wait;
        }
        self.count += 1;
        self.newest = Some((ecn, data.to_vec()));
        if self.count >= self.of {
            self.release(send);
        }
    }

    /// Returns the latest time at which the delayed datagram passes.
    pub fn until(&self) -> Option<Timestamp> {
        self.newest.is_some().then_some(self.until)
    }

    /// Calls `send` for the delayed datagram if it is due.
    pub fn release_due(&mut self, now: Timestamp, send: &mut dyn FnMut(Ecn, &[u8])) {
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
#[path = "acks_tests.rs"]
mod tests;
