//! How losses are detected: one detector, with the rules of RFC 9002 or with those of LSQUIC, whose
//! older detection (tail loss probes and retransmission time-outs) the AutoRec and ART papers ran.

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
}

impl Detection {
    /// RFC 9002 as it recommends.
    pub const RFC9002: Self =
        Self { packets: 3, time: TimeRule::SinceSent { eighths: 9 }, probe: ProbeRule::Pto };

    /// As LSQUIC detects losses.
    pub const LSQUIC: Self =
        Self { packets: 3, time: TimeRule::BetweenSendings, probe: ProbeRule::TlpThenRto };
}

impl Default for Detection {
    fn default() -> Self {
        Self::RFC9002
    }
}
