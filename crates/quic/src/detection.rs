//! How losses are detected: one detector, with the rules of RFC 9002 or with those of LSQUIC, whose
//! older detection (tail loss probes and retransmission time-outs) the AutoRec and ART papers ran.

use core::time::Duration;

/// When the time since its sending makes a packet lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeRule {
    /// RFC 9002, section 6.1.2: when it was sent this many eighths of max(smoothed, latest RTT) ago
    /// and a later one was acknowledged.
    SinceSent {
        /// RFC 9002 recommends 9.
        eighths: u32,
    },
    /// LSQUIC: when the largest packet acknowledged was sent more than one smoothed RTT after it; and
    /// when nothing later is in flight, a quarter of a smoothed RTT after that is known (early
    /// retransmit).
    BetweenSendings,
}

/// When a sender that hears nothing sends again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeRule {
    /// RFC 9002, section 6.2: smoothed RTT + max(4 variances, 1 ms) + the peer's delay, doubling.
    Pto,
    /// LSQUIC: two tail loss probes after max(10 ms, 2 smoothed RTTs) each, then time-outs of
    /// max(200 ms, smoothed RTT + 4 variances), doubling. LSQUIC declares all lost at such a
    /// time-out; here it sends probes, like any.
    TlpThenRto,
}

/// The rules of loss detection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Detection {
    /// A packet is lost when one was acknowledged that was sent this many later (RFC 9002, section
    /// 6.1.1: 3).
    pub packets: u32,
    /// Or by time.
    pub time: TimeRule,
    /// When nothing is heard.
    pub probe: ProbeRule,
    /// The longest that probes of 1-RTT data are apart where the doubling would part them further, for
    /// [`STEADY`]; from there on they double again. It takes nothing from the time-out itself: where that is longer,
    /// probes are as far apart as that. `None` doubles without a limit, as RFC 9002, section 6.2.1 demands.
    ///
    /// An outage lasts up to as long again for a viewer as for the network when the next probe is that far away, and
    /// where outages come often one probe after the other falls into one. The demand is there so that senders without
    /// an answer do not keep a network full that is congested: two packets in this time are a small part of what a
    /// live stream sends anyway.
    pub longest_probe: Option<Duration>,
    /// Whether a PING follows the last packet of what there was to send, on a path that has lost something within
    /// [`LOSSY`]: an eighth of a round trip behind it, or 4 ms if that is more.
    ///
    /// Nothing else would reveal the loss of that packet before the application writes again, or a probe time-out; of
    /// a live stream that is the next frame. The acknowledgement of the PING comes when the time rule makes the packet
    /// lost. It costs a packet of some 30 bytes per frame and the client's acknowledgement.
    pub tail: bool,
}

/// How long a path counts as lossy behind a loss.
pub const LOSSY: Duration = Duration::from_secs(10);
/// The least time to the PING of [`Detection::tail`].
pub(crate) const SHORTEST_TAIL: Duration = Duration::from_millis(4);

/// How long probes come at most [`Detection::longest_probe`] apart.
pub const STEADY: Duration = Duration::from_secs(10);
/// Largest exponent of the probe time-out's back-off.
pub(crate) const MAX_BACKOFF: u32 = 10;

impl Detection {
    /// RFC 9002 as it recommends.
    pub const RFC9002: Self = Self {
        packets: 3,
        time: TimeRule::SinceSent { eighths: 9 },
        probe: ProbeRule::Pto,
        longest_probe: None,
        tail: false,
    };

    /// For live streams: as RFC 9002, but for probes that stop doubling at 200 ms, when `mendcast lab run probes`
    /// has the least frozen time (half of that gains nothing more), and for the PING behind a frame.
    pub const LIVE: Self =
        Self { longest_probe: Some(Duration::from_millis(200)), tail: true, ..Self::RFC9002 };

    /// As LSQUIC detects losses.
    pub const LSQUIC: Self = Self {
        packets: 3,
        time: TimeRule::BetweenSendings,
        probe: ProbeRule::TlpThenRto,
        longest_probe: None,
        tail: false,
    };
}

impl Detection {
    /// The longest wait for probe number `count` of 1-RTT data whose time-out is `timeout`; `None` is without a limit.
    pub(crate) fn longest_wait(&self, timeout: Duration, count: u32) -> Option<Duration> {
        let longest = self.longest_probe?.max(timeout).max(Duration::from_millis(1));
        let steady = u32::try_from(STEADY.as_millis() / longest.as_millis()).unwrap_or(u32::MAX);
        Some(longest * (1 << count.saturating_sub(steady).min(MAX_BACKOFF)))
    }
}

impl Default for Detection {
    fn default() -> Self {
        Self::RFC9002
    }
}
