//! A client that acknowledges rarely, as browsers and offloads do.
//!
//! Third-party clients acknowledge each second packet (RFC 9000, section 13.2.2), and their code
//! does not change. This model holds their acknowledgements back and lets the newest of several
//! pass, which repeats the ranges of those before it. Such a client reports a gap later than RFC
//! 9000 recommends (section 13.2.1: at once), by up to the longest wait.

use core::str::FromStr;
use core::time::Duration;

use units::{Ecn, Timestamp};

use crate::text::{Fields, ParseError, parse_duration};

/// Largest datagram that counts as an acknowledgement, in bytes.
const LARGEST: usize = 100;
/// Packets that a third-party client acknowledges with one datagram.
const PER_DATAGRAM: u32 = 2;
/// Most significant bit of a datagram's first byte: a long header (RFC 8999, section 5.1), that is,
/// a handshake.
const LONG_HEADER: u8 = 0x80;
/// Limits of a setting.
const EACH: core::ops::RangeInclusive<u32> = 2..=1_000;
const WITHIN: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(5);

/// How rarely a client acknowledges.
///
/// As text: `each=32,within=250ms`, also with `,after=100`; or `chromium`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RareAcks {
    /// Packets that one acknowledgement stands for. 2 to 1,000.
    pub each: u32,
    /// Longest wait of an acknowledgement. 1 ms to 5 s.
    pub within: Duration,
    /// Whether a quarter of the round-trip time limits `within`.
    pub is_quarter_rtt: bool,
    /// First packets, which are acknowledged as usual. Default 0; handshakes pass anyway.
    pub after: u32,
}

impl RareAcks {
    /// The rule of Chromium (`QuicReceivedPacketManager`): after 100 packets, each tenth packet,
    /// and no later than 25 ms or a quarter of the round-trip time.
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

/// The acknowledgements that one client holds back.
#[derive(Debug)]
pub struct HeldAcks {
    wait: Duration,
    /// Datagrams that pass at the start, and of which one passes afterwards.
    first: u32,
    of: u32,
    seen: u32,
    /// Datagrams held back since the last one that left.
    count: u32,
    newest: Option<(Ecn, Vec<u8>)>,
    until: Timestamp,
}

impl HeldAcks {
    /// Holds back by `rule` on a path of this round-trip time.
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

    /// Takes a datagram of the client. `send` gets the datagrams that leave now, in order.
    pub fn take(
        &mut self,
        now: Timestamp,
        ecn: Ecn,
        data: &[u8],
        send: &mut dyn FnMut(Ecn, &[u8]),
    ) {
        self.seen = self.seen.saturating_add(1);
        let is_handshake = data.first().is_some_and(|first| first & LONG_HEADER != 0);
        if data.len() > LARGEST || is_handshake || self.seen <= self.first {
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

    /// Returns when the datagram that is held back leaves at the latest.
    pub fn until(&self) -> Option<Timestamp> {
        self.newest.is_some().then_some(self.until)
    }

    /// Gives `send` the datagram that has been held back long enough.
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
