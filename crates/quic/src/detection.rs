//! Loss detection with the rules of RFC 9002, or with those of LSQUIC. The AutoRec and ART papers
//! ran its older detection (tail loss probes and retransmission time-outs).

use core::time::Duration;

/// Time threshold of loss detection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeRule {
    /// RFC 9002, section 6.1.2: sent this many eighths of max(smoothed, latest RTT) ago, and a
    /// later packet was acknowledged.
    SinceSent {
        /// RFC 9002 recommends 9.
        eighths: u32,
    },
    /// LSQUIC: sent more than one smoothed RTT before the largest acknowledged packet. If nothing
    /// later is in flight, lost at once (early retransmit).
    BetweenSendings,
}

/// Rule that declared a packet lost. A probe time-out never does (RFC 9002, section 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossTrigger {
    /// Enough later packets, one of them acknowledged ([`Detection::packets`]).
    PacketThreshold,
    /// The time threshold ([`Detection::time`]).
    TimeThreshold,
    /// LSQUIC's early retransmit: nothing later in flight ([`TimeRule::BetweenSendings`]).
    EarlyRetransmit,
}

impl LossTrigger {
    /// Returns the trigger's name in qlog. The draft has no name for early retransmit.
    pub fn name(self) -> &'static str {
        match self {
            Self::PacketThreshold => "reordering_threshold",
            Self::TimeThreshold => "time_threshold",
            Self::EarlyRetransmit => "early_retransmit",
        }
    }
}

/// Time-out of a sender without acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeRule {
    /// RFC 9002, section 6.2: smoothed RTT + max(4 variances, 1 ms) + the peer's delay, doubling.
    Pto,
    /// LSQUIC: two tail loss probes after max(10 ms, 2 smoothed RTTs) each, then time-outs of
    /// max(200 ms, smoothed RTT + 4 variances), doubling. LSQUIC declares all packets lost at such
    /// a time-out; here it sends probes.
    TlpThenRto,
}

/// The rules of loss detection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Detection {
    /// Packet threshold: number of later packets, one of them acknowledged, after which a packet is
    /// lost (RFC 9002, section 6.1.1: 3).
    pub packets: u32,
    /// Time threshold.
    pub time: TimeRule,
    /// Probe time-out.
    pub probe: ProbeRule,
    /// Maximum interval between probes of 1-RTT data during back-off, for [`STEADY_PROBE_PERIOD`];
    /// afterwards it doubles again. A longer probe time-out still applies. `None` doubles without a
    /// limit, as RFC 9002, section 6.2.1, requires.
    ///
    /// An outage can last twice as long for a viewer as for the network if the next probe is far
    /// away, and with frequent outages consecutive probes fall into them. The RFC's rule keeps
    /// senders without acknowledgements from filling a congested network. Two packets per interval
    /// are a small part of a live stream's rate.
    pub longest_probe: Option<Duration>,
    /// Sends a PING after the last pending packet, if the path lost a packet within
    /// [`LOSSY_PERIOD`]. The delay is an eighth of a round trip, at least 4 ms.
    ///
    /// Otherwise only later data (the next frame of a live stream) or a probe time-out reveals the
    /// loss of that packet. The PING's acknowledgement arrives when the time threshold declares the
    /// packet lost. It costs a packet of some 30 bytes per frame, and the client's acknowledgement.
    pub tail: bool,
}

/// Time after a loss during which a path counts as lossy.
pub const LOSSY_PERIOD: Duration = Duration::from_secs(10);
/// Minimum delay of the PING of [`Detection::tail`].
pub(crate) const MIN_TAIL_DELAY: Duration = Duration::from_millis(4);

/// Time during which [`Detection::longest_probe`] limits the probe interval.
pub const STEADY_PROBE_PERIOD: Duration = Duration::from_secs(10);
/// Largest exponent of the probe time-out's back-off.
pub(crate) const MAX_BACKOFF: u32 = 10;

impl Detection {
    /// Recommendations of RFC 9002.
    pub const RFC9002: Self = Self {
        packets: 3,
        time: TimeRule::SinceSent { eighths: 9 },
        probe: ProbeRule::Pto,
        longest_probe: None,
        tail: false,
    };

    /// For live streams: RFC 9002 with tail PINGs and a probe interval of at most 200 ms, the
    /// optimum of `mendcast lab run probes` (halving it gains nothing more).
    pub const LIVE: Self =
        Self { longest_probe: Some(Duration::from_millis(200)), tail: true, ..Self::RFC9002 };

    /// LSQUIC's rules (`lsquic_send_ctl.c`): a packet is lost if its number plus 3 is less than the
    /// largest acknowledged one. After a spurious loss by that rule, this distance is the one that
    /// would have sufficed, for the rest of the connection; here at most 64.
    pub const LSQUIC: Self = Self {
        packets: 4,
        time: TimeRule::BetweenSendings,
        probe: ProbeRule::TlpThenRto,
        longest_probe: None,
        tail: false,
    };
}

impl Detection {
    /// Maximum wait for probe number `count` of 1-RTT data with time-out `timeout`. `None` is
    /// unlimited.
    pub(crate) fn longest_wait(&self, timeout: Duration, count: u32) -> Option<Duration> {
        let longest = self.longest_probe?.max(timeout).max(Duration::from_millis(1));
        let steady = u32::try_from(STEADY_PROBE_PERIOD.as_millis() / longest.as_millis())
            .unwrap_or(u32::MAX);
        Some(longest * (1 << count.saturating_sub(steady).min(MAX_BACKOFF)))
    }
}

impl Default for Detection {
    fn default() -> Self {
        Self::RFC9002
    }
}
