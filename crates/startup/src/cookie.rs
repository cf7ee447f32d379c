//! The transport cookie (Wira, section IV-B): path state in 31 bytes, which the client carries to
//! its next connection.
//!
//! [`Cookie::encode`] returns plain bytes for carriers that seal their contents: NEW_TOKEN and TLS
//! tickets. [`Cookie::seal`] is for HTTP cookies. The caller provides the [`Sealer`], so that
//! cookies, tokens and tickets share one set of rotating keys.
//!
//! Only [`Cookie::accept`] turns a cookie into the [`PathState`] that decisions use. It rejects or
//! clamps invalid values and returns a countable [`Refusal`]. Call it only after the client's
//! address is validated (RFC 9000, section 8.1). Otherwise, a replayed Initial would direct a first
//! flight at the victim.

use core::net::IpAddr;
use core::time::Duration;

use recovery::{CALLS, Chances, Expected, LossCorrelation};
use units::Rate;

use crate::compact;
use crate::prefix::Prefix;

/// Length of a cookie before sealing, in bytes.
pub const LEN: usize = 31;
/// Current version; others are rejected.
const VERSION: u8 = 1;

/// Source of a cookie. Determines the confidence in an address match, and is a label in metrics.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Carrier {
    /// A NEW_TOKEN token, which proves the client's exact address.
    Token,
    /// A TLS session ticket.
    Ticket,
    /// An HTTP cookie.
    Http,
    /// The server's table by network ([`History`](crate::History)), possibly from another viewer.
    History,
}

impl Carrier {
    /// All carriers, in order of precedence.
    pub const ALL: [Self; 4] = [Self::Token, Self::Ticket, Self::Http, Self::History];

    /// Name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Ticket => "ticket",
            Self::Http => "http",
            Self::History => "history",
        }
    }

    /// Confidence that client and measurement share a path: 1 for the same address, 0.75 for the
    /// same network and viewer, 0.5 for the same network.
    const fn nearness(self) -> f64 {
        match self {
            Self::Token => 1.0,
            Self::Ticket | Self::Http => 0.75,
            Self::History => 0.5,
        }
    }
}

/// Outcome of a connection's jump: a first flight beyond the initial window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Verdict {
    /// No jump, or still undecided.
    #[default]
    None,
    /// The jump was acknowledged without a sign of congestion.
    Passed,
    /// The jump met congestion.
    Failed,
}

impl Verdict {
    /// Name in records and metrics, if there was a jump.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Passed => Some("passed"),
            Self::Failed => Some("failed"),
        }
    }
}

/// Loss correlation by lag, measured by [`LossCorrelation`]: the probability that a packet is lost,
/// given a loss that long before. `None` with too few samples.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Correlation {
    /// Lag of 2 to 5 ms: packets of one burst.
    pub burst: Option<f64>,
    /// Lag of 10 to 20 ms.
    pub near: Option<f64>,
    /// Lag of 50 to 100 ms: about one round trip.
    pub far: Option<f64>,
}

impl From<&LossCorrelation> for Correlation {
    fn from(measured: &LossCorrelation) -> Self {
        let chance = |ms| measured.chance(Duration::from_millis(ms));
        Self { burst: chance(5), near: chance(20), far: chance(100) }
    }
}

impl Correlation {
    /// Extends the measurements to all classes of [`LAGS`](recovery::LAGS), in the shape of the
    /// correlation in calls. `None` without measurements.
    pub fn chances(&self) -> Option<Chances> {
        // Classes that end at 5, 20 and 100 ms.
        let known = [(2, self.burst), (4, self.near), (6, self.far)];
        let known = known.map(|(class, chance)| chance.map(|chance| (class, chance)));
        known.iter().any(Option::is_some).then(|| {
            core::array::from_fn(|class| {
                let known = known.iter().flatten();
                let nearest = known.min_by_key(|(other, _)| class.abs_diff(*other));
                let scale = nearest.map_or(1.0, |(other, chance)| chance / CALLS[*other]);
                (CALLS[class] * scale).clamp(0.0, 1.0)
            })
        })
    }
}

/// Path state at the time of issue. Precision is 0.05 % for times and rates, and 2 % for fractions.
///
/// ```
/// use core::time::Duration;
/// use mendcast_startup::cookie::CookieRules;
/// use mendcast_startup::{Carrier, Cookie, Prefix, Refusal};
/// use units::Rate;
///
/// let client = "192.0.2.7".parse().unwrap();
/// let cookie = Cookie {
///     min_rtt: Duration::from_millis(40),
///     max_rate: Rate::from_mbps(20),
///     usual_rate: Rate::from_mbps(8),
///     samples: 100,
///     ..Cookie::unmeasured(1_700_000_000, Prefix::of(client), 7)
/// };
/// // The client returns the bytes in its next connection, a minute later.
/// let returned = Cookie::decode(&cookie.encode()).unwrap();
/// let rules = CookieRules::default();
/// let state = returned.accept(Carrier::Token, client, 1_700_000_060, &rules).unwrap();
/// assert_eq!(state.max_bdp(), 100_000);
/// // From another network, it is rejected.
/// let elsewhere = "198.51.100.7".parse().unwrap();
/// let refused = returned.accept(Carrier::Token, elsewhere, 1_700_000_060, &rules);
/// assert_eq!(refused, Err(Refusal::Readdressed));
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cookie {
    /// Time of issue, in Unix seconds up to 2^32 - 1.
    pub issued: u64,
    /// The client's network.
    pub prefix: Prefix,
    /// Minimum round trip of the connection, with a resolution of 1 µs.
    pub min_rtt: Duration,
    /// Highest delivery rate: Wira's MaxBW.
    pub max_rate: Rate,
    /// Upper quartile of the delivery rates per round.
    pub usual_rate: Rate,
    /// Number of rounds with a delivery rate; stored up to 255.
    pub samples: u64,
    /// Lost packets per sent packet.
    pub loss: f64,
    /// Lost retransmissions per retransmission; `None` without any.
    pub retransmission_loss: Option<f64>,
    /// Loss correlation.
    pub correlation: Correlation,
    /// Outcome of the connection's jump.
    pub verdict: Verdict,
    /// The viewer, which is the unit of assignment to cohorts.
    pub unit: u64,
}

/// Reason to reject a cookie.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refusal {
    /// It cannot be opened: forged, damaged, or sealed with an expired key.
    Sealed,
    /// Wrong length.
    Length,
    /// Unknown version.
    Version,
    /// Issued in the future, beyond the tolerated clock skew.
    Future,
    /// Older than its lifetime (Δ in Wira, section IV-C).
    Expired,
    /// Issued to another network.
    Readdressed,
    /// Invalid or contradictory round trip or rates.
    Absurd,
    /// All samples were application-limited, so the rate is the encoder's rather than the path's.
    Unmeasured,
    /// The connection's jump failed, so its saved parameters are discarded (RFC 9959, section 3.4).
    Failed,
    /// Already used for a jump ([`JumpLedger`](crate::JumpLedger)).
    Spent,
}

impl Refusal {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 10] = [
        Self::Sealed,
        Self::Length,
        Self::Version,
        Self::Future,
        Self::Expired,
        Self::Readdressed,
        Self::Absurd,
        Self::Unmeasured,
        Self::Failed,
        Self::Spent,
    ];

    /// Name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sealed => "sealed",
            Self::Length => "length",
            Self::Version => "version",
            Self::Future => "future",
            Self::Expired => "expired",
            Self::Readdressed => "readdressed",
            Self::Absurd => "absurd",
            Self::Unmeasured => "unmeasured",
            Self::Failed => "failed",
            Self::Spent => "spent",
        }
    }
}

/// Seals and opens with the site's rotating keys. Implemented by `quic::crypto::KeyRing`.
pub trait Sealer {
    /// Seals `plain` at `now` (Unix seconds), bound to `context`.
    fn seal(&mut self, now: u64, plain: &[u8], context: &[u8]) -> Vec<u8>;

    /// Opens the result of [`Sealer::seal`] for the same `context`. `None` for anything else.
    fn open(&self, sealed: &[u8], context: &[u8]) -> Option<Vec<u8>>;
}

/// Context of cookies, which separates them from other values sealed with the same keys.
const CONTEXT: &[u8] = b"mendcast transport cookie";

/// Rules for accepting cookies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CookieRules {
    /// Lifetime: Δ in Wira, Lifetime in RFC 9959. Default 60 min, as in the paper.
    pub lifetime: Duration,
    /// Tolerated clock skew between servers. Default 5 s.
    pub skew: Duration,
    /// Upper clamp of rates. Default 10 Gbit/s.
    pub max_rate: Rate,
    /// Minimum valid round trip. Default 50 µs.
    pub min_rtt: Duration,
    /// Maximum valid round trip. Default 10 s.
    pub max_rtt: Duration,
}

impl Default for CookieRules {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(3_600),
            skew: Duration::from_secs(5),
            max_rate: Rate::from_mbps(10_000),
            min_rtt: Duration::from_micros(50),
            max_rtt: Duration::from_secs(10),
        }
    }
}

/// Path state from an accepted cookie: Hx_QoS in Wira, the saved parameters in RFC 9959.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathState {
    /// The cookie, with rates and times within the limits of [`CookieRules`].
    pub cookie: Cookie,
    /// Confidence, above 0 and at most 1. Falls with age, and with the distance between the
    /// addresses of measurement and client.
    pub confidence: f64,
}

impl PathState {
    /// Returns MaxBW × MinRTT in bytes (equation 3 of Wira).
    pub fn max_bdp(&self) -> u64 {
        self.cookie.max_rate.bytes_in(self.cookie.min_rtt)
    }

    /// Returns the `saved_cwnd` of RFC 9959: bytes per round trip at the usual rate. With the
    /// maximum rate, the jump would often overshoot (section 4.1 of the RFC).
    pub fn saved_window(&self) -> u64 {
        self.cookie.usual_rate.bytes_in(self.cookie.min_rtt)
    }
}

impl Cookie {
    /// Creates the state of an unmeasured path, issued at `issued` (Unix seconds) to viewer `unit`.
    pub fn unmeasured(issued: u64, prefix: Prefix, unit: u64) -> Self {
        Self {
            issued,
            prefix,
            min_rtt: Duration::ZERO,
            max_rate: Rate::ZERO,
            usual_rate: Rate::ZERO,
            samples: 0,
            loss: 0.0,
            retransmission_loss: None,
            correlation: Correlation::default(),
            verdict: Verdict::None,
            unit,
        }
    }

    /// Encodes the cookie for a carrier that seals it.
    pub fn encode(&self) -> [u8; LEN] {
        let verdict = match self.verdict {
            Verdict::None => 0,
            Verdict::Passed => 1,
            Verdict::Failed => 2,
        };
        let Correlation { burst, near, far } = self.correlation;
        let mut bytes = [0; LEN];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&[VERSION << 4 | verdict << 1 | u8::from(self.prefix.is_v6())]);
        put(&u32::try_from(self.issued).unwrap_or(u32::MAX).to_be_bytes());
        put(&self.prefix.bytes());
        put(&compact::from_number(micros(self.min_rtt)).to_be_bytes());
        put(&compact::from_number(self.max_rate.as_bps() / RATE_UNIT).to_be_bytes());
        put(&compact::from_number(self.usual_rate.as_bps() / RATE_UNIT).to_be_bytes());
        put(&[u8::try_from(self.samples).unwrap_or(u8::MAX)]);
        put(&[compact::from_share(Some(self.loss))]);
        put(&[self.retransmission_loss, burst, near, far].map(compact::from_share));
        put(&self.unit.to_be_bytes());
        bytes
    }

    /// Decodes the result of [`Cookie::encode`].
    ///
    /// # Errors
    /// [`Refusal::Length`], [`Refusal::Version`], or [`Refusal::Absurd`] for invalid bits.
    pub fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        let bytes: &[u8; LEN] = match bytes.first() {
            Some(first) if first >> 4 != VERSION => return Err(Refusal::Version),
            _ => bytes.try_into().map_err(|_| Refusal::Length)?,
        };
        let verdict = match bytes[0] >> 1 & 0x7 {
            0 => Verdict::None,
            1 => Verdict::Passed,
            2 => Verdict::Failed,
            _ => return Err(Refusal::Absurd),
        };
        let number = |at: usize| compact::number(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        let rate = |at: usize| Rate::from_bps(number(at).saturating_mul(RATE_UNIT));
        let share = |at: usize| compact::share(bytes[at]);
        let mut prefix = [0; 6];
        prefix.copy_from_slice(&bytes[5..11]);
        let mut unit = [0; 8];
        unit.copy_from_slice(&bytes[23..]);
        Ok(Self {
            issued: u32::from_be_bytes([1, 2, 3, 4].map(|at| bytes[at])).into(),
            prefix: Prefix::from_bytes(bytes[0] & 1 != 0, prefix),
            min_rtt: Duration::from_micros(number(11)),
            max_rate: rate(13),
            usual_rate: rate(15),
            samples: bytes[17].into(),
            loss: share(18).unwrap_or(0.0),
            retransmission_loss: share(19),
            correlation: Correlation { burst: share(20), near: share(21), far: share(22) },
            verdict,
            unit: u64::from_be_bytes(unit),
        })
    }

    /// Seals the cookie for a carrier that does not.
    pub fn seal(&self, sealer: &mut impl Sealer) -> Vec<u8> {
        sealer.seal(self.issued, &self.encode(), CONTEXT)
    }

    /// Opens the result of [`Cookie::seal`].
    ///
    /// # Errors
    /// [`Refusal::Sealed`], and the errors of [`Cookie::decode`].
    pub fn open(sealed: &[u8], sealer: &impl Sealer) -> Result<Self, Refusal> {
        Self::decode(&sealer.open(sealed, CONTEXT).ok_or(Refusal::Sealed)?)
    }

    /// Returns the age in seconds if the cookie is valid in time and network.
    fn age(&self, client: IpAddr, now: u64, rules: &CookieRules) -> Result<u64, Refusal> {
        if self.issued > now.saturating_add(rules.skew.as_secs()) {
            return Err(Refusal::Future);
        }
        let age = now.saturating_sub(self.issued);
        if Duration::from_secs(age) > rules.lifetime {
            return Err(Refusal::Expired);
        }
        if self.prefix != Prefix::of(client) {
            return Err(Refusal::Readdressed);
        }
        Ok(age)
    }

    /// Returns the expected losses on the path of `client` at `now` (Unix seconds). Failed jumps
    /// and missing rates do not matter. `None` if the cookie is expired or of another network.
    pub fn expected(&self, client: IpAddr, now: u64, rules: &CookieRules) -> Option<Expected> {
        self.age(client, now, rules).ok()?;
        let rtt = self.min_rtt.clamp(rules.min_rtt, rules.max_rtt);
        Some(Expected { loss_rate: self.loss, rtt, chances: self.correlation.chances() })
    }

    /// Accepts this cookie as path state. It came by `carrier` from the validated address
    /// `client` at `now` (Unix seconds).
    ///
    /// # Errors
    /// The reason for rejection. The connection then starts as without a cookie.
    pub fn accept(
        mut self,
        carrier: Carrier,
        client: IpAddr,
        now: u64,
        rules: &CookieRules,
    ) -> Result<PathState, Refusal> {
        let age = self.age(client, now, rules)?;
        if self.verdict == Verdict::Failed {
            return Err(Refusal::Failed);
        }
        if self.samples == 0 {
            return Err(Refusal::Unmeasured);
        }
        self.max_rate = self.max_rate.min(rules.max_rate);
        self.usual_rate = self.usual_rate.min(rules.max_rate);
        let contradicts = self.usual_rate > self.max_rate || self.usual_rate == Rate::ZERO;
        if contradicts || !(rules.min_rtt..=rules.max_rtt).contains(&self.min_rtt) {
            return Err(Refusal::Absurd);
        }
        // Confidence halves over the lifetime: a path's bandwidth differs as much after minutes as
        // after an hour (Wira, figure 4).
        let part = age as f64 / rules.lifetime.as_secs_f64().max(1.0);
        Ok(PathState { cookie: self, confidence: carrier.nearness() * (1.0 - 0.5 * part) })
    }
}

/// Unit of stored rates, in bit/s.
const RATE_UNIT: u64 = 100;

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
