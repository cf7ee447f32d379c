//! The transport cookie (Wira, section IV-B): what a connection has learned about its path, in 31
//! bytes that the client carries to its next connection.
//!
//! [`Cookie::encode`] gives plain bytes for carriers that seal what they carry: NEW_TOKEN and TLS
//! tickets. [`Cookie::seal`] is for those that do not: an HTTP cookie. Sealing is the caller's
//! ([`Sealer`]), so that cookies, tokens and tickets share one set of rotating keys.
//!
//! [`Cookie::accept`] is the only way from a cookie to a [`Past`], which is what decisions are made
//! from: it refuses or clamps what a decision must not see, each with a [`Refusal`] that can be counted.
//! Call it only once the client's address is validated (RFC 9000, section 8.1): before that, whoever
//! repeats a stranger's Initial would make us send a first flight to the stranger.

use core::net::IpAddr;
use core::time::Duration;

use recovery::{CALLS, Chances, Expected, LossCorrelation};
use units::Rate;

use crate::compact;
use crate::prefix::Prefix;

/// Bytes of a cookie before it is sealed.
pub const LEN: usize = 31;
/// The newest version; a cookie of another one is refused.
const VERSION: u8 = 1;

/// What an address match is worth decides with the age how far a cookie is trusted, and in metrics
/// the carrier says which way cookies come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Carrier {
    /// A NEW_TOKEN token: it proves the client's exact address.
    Token,
    /// A TLS session ticket.
    Ticket,
    /// An HTTP cookie.
    Http,
    /// The table by network ([`History`](crate::History)): another viewer may have measured.
    History,
}

impl Carrier {
    /// All of them; where several bring a cookie, the first one counts.
    pub const ALL: [Self; 4] = [Self::Token, Self::Ticket, Self::Http, Self::History];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Ticket => "ticket",
            Self::Http => "http",
            Self::History => "history",
        }
    }

    /// How near the addresses of measurement and client are known to be, from 0 to 1: 1 for the
    /// same address, 0.75 for the same network and viewer, 0.5 for the same network.
    const fn nearness(self) -> f64 {
        match self {
            Self::Token => 1.0,
            Self::Ticket | Self::Http => 0.75,
            Self::History => 0.5,
        }
    }
}

/// What became of the jump with which a connection began: of a first flight beyond the initial window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Verdict {
    /// It made none, or is not done with it.
    #[default]
    None,
    /// All of it arrived without a sign of congestion.
    Passed,
    /// It met congestion.
    Failed,
}

impl Verdict {
    /// Its name in records and metrics, if there was a jump.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Passed => Some("passed"),
            Self::Failed => Some("failed"),
        }
    }
}

/// How the losses of packets go together, as [`LossCorrelation`] measures it: the chance that a
/// packet is lost that was sent at most so long after a lost one; `None` where too few were seen.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Correlation {
    /// 2 to 5 ms later: packets of one burst.
    pub burst: Option<f64>,
    /// 10 to 20 ms later.
    pub near: Option<f64>,
    /// 50 to 100 ms later: about a round trip.
    pub far: Option<f64>,
}

impl From<&LossCorrelation> for Correlation {
    fn from(measured: &LossCorrelation) -> Self {
        let chance = |ms| measured.chance(Duration::from_millis(ms));
        Self { burst: chance(5), near: chance(20), far: chance(100) }
    }
}

impl Correlation {
    /// The same for each class of [`LAGS`](recovery::LAGS): between and beyond what was measured as it is of calls. `None` if
    /// nothing was.
    pub fn chances(&self) -> Option<Chances> {
        // The classes that end at 5, 20 and 100 ms.
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

/// What a server knows about a path when it issues a cookie. Numbers are stored with a precision
/// of 0.05 % (time and rates) or 2 % (shares).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cookie {
    /// When it was issued, in Unix seconds up to 2^32 - 1.
    pub issued: u64,
    /// The client's network.
    pub prefix: Prefix,
    /// The smallest round trip of the connection, in microseconds.
    pub min_rtt: Duration,
    /// The largest delivery rate of any sample: Wira's MaxBW.
    pub max_rate: Rate,
    /// The upper quartile of those samples: what the path gives without luck.
    pub usual_rate: Rate,
    /// How many of those samples there were; stored up to 255.
    pub samples: u64,
    /// Packets lost per packet sent.
    pub loss: f64,
    /// Retransmissions lost per retransmission sent; `None` if there were none.
    pub retransmission_loss: Option<f64>,
    /// How losses go together.
    pub correlation: Correlation,
    /// What became of the connection's jump.
    pub verdict: Verdict,
    /// The viewer: the unit that cohorts are divided by.
    pub unit: u64,
}

/// Why a cookie is not used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refusal {
    /// It does not open: forged, damaged, or sealed with a key that is gone.
    Sealed,
    /// It is not as long as a cookie.
    Length,
    /// It is of another version.
    Version,
    /// It was issued in the future, by more than clocks of servers differ.
    Future,
    /// It is older than its lifetime (Δ of Wira, section IV-C).
    Expired,
    /// The client is in another network.
    Readdressed,
    /// Its round-trip time or rates are none, or contradict each other.
    Absurd,
    /// The connection that issued it had no sample that was not application-limited: its rate would
    /// be the encoder's, not the path's.
    Unmeasured,
    /// Its jump has failed: the path does not give what the cookie says (RFC 9959, section 3.4:
    /// saved parameters are removed).
    Failed,
    /// It bought a jump already ([`Spent`](crate::Spent)).
    Spent,
}

impl Refusal {
    /// All of them, in their order: a place for each in an array of counters.
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

    /// Its name in metrics.
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

/// Seals and opens with a site's rotating keys; `quic::crypto::KeyRing` does both.
pub trait Sealer {
    /// Seals these bytes at `now` (Unix seconds), bound to `context`.
    fn seal(&mut self, now: u64, plain: &[u8], context: &[u8]) -> Vec<u8>;

    /// Opens what [`Sealer::seal`] has made for this `context`; `None` for anything else.
    fn open(&self, sealed: &[u8], context: &[u8]) -> Option<Vec<u8>>;
}

/// What [`Sealer`]s bind cookies to, so that nothing else that the same keys have sealed is one.
const CONTEXT: &[u8] = b"mendcast transport cookie";

/// How cookies are judged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rules {
    /// How long a cookie is good: Δ of Wira and the Lifetime of RFC 9959. Default 60 min, as the paper.
    pub lifetime: Duration,
    /// How far in the future a cookie may have been issued, since servers' clocks differ. Default 5 s.
    pub skew: Duration,
    /// Rates above this are taken for this. Default 10 Gbit/s.
    pub max_rate: Rate,
    /// Round trips below this are absurd. Default 50 µs.
    pub min_rtt: Duration,
    /// Round trips above this are absurd. Default 10 s.
    pub max_rtt: Duration,
}

impl Default for Rules {
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

/// A cookie that was accepted: the Hx_QoS of Wira, and the saved parameters of RFC 9959.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Past {
    /// The path as it was. Rates are within the rules' limit, times within theirs.
    pub cookie: Cookie,
    /// What it is good for, above 0 and at most 1: less with age, and with the distance between the
    /// addresses of measurement and client.
    pub confidence: f64,
}

impl Past {
    /// MaxBW × MinRTT in bytes (equation 3 of Wira).
    pub fn max_bdp(&self) -> u64 {
        self.cookie.max_rate.bytes_in(self.cookie.min_rtt)
    }

    /// The `saved_cwnd` of RFC 9959: bytes that the path carried in one round trip without luck. A
    /// maximum would be an overshoot as often as not (section 4.1 there).
    pub fn saved_window(&self) -> u64 {
        self.cookie.usual_rate.bytes_in(self.cookie.min_rtt)
    }
}

impl Cookie {
    /// What is known of a path that nothing was measured of: issued at `issued` (Unix seconds) to the viewer of `unit`.
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

    /// The cookie as bytes, for a carrier that seals them.
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

    /// Reads what [`Cookie::encode`] has made.
    ///
    /// # Errors
    /// [`Refusal::Length`], [`Refusal::Version`], or [`Refusal::Absurd`] for bits that mean nothing.
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

    /// The cookie sealed, for a carrier that does not seal.
    pub fn seal(&self, sealer: &mut impl Sealer) -> Vec<u8> {
        sealer.seal(self.issued, &self.encode(), CONTEXT)
    }

    /// Opens what [`Cookie::seal`] has made.
    ///
    /// # Errors
    /// [`Refusal::Sealed`], and those of [`Cookie::decode`].
    pub fn open(sealed: &[u8], sealer: &impl Sealer) -> Result<Self, Refusal> {
        Self::decode(&sealer.open(sealed, CONTEXT).ok_or(Refusal::Sealed)?)
    }

    /// Its age in seconds, if it is of `client` and of a time that counts.
    fn age(&self, client: IpAddr, now: u64, rules: &Rules) -> Result<u64, Refusal> {
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

    /// What recovery may expect of the path of `client` at `now` (Unix seconds): also after a jump that failed,
    /// and without a measure of the rate. `None` if the cookie is another client's or too old.
    pub fn expected(&self, client: IpAddr, now: u64, rules: &Rules) -> Option<Expected> {
        self.age(client, now, rules).ok()?;
        let rtt = self.min_rtt.clamp(rules.min_rtt, rules.max_rtt);
        Some(Expected { loss_rate: self.loss, rtt, chances: self.correlation.chances() })
    }

    /// What may be made of this cookie, which came by `carrier` from `client`, whose address is
    /// validated, at `now` (Unix seconds).
    ///
    /// # Errors
    /// Why nothing may. The connection then starts as one without a cookie.
    pub fn accept(
        mut self,
        carrier: Carrier,
        client: IpAddr,
        now: u64,
        rules: &Rules,
    ) -> Result<Past, Refusal> {
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
        // Half is left at the end of its life: bandwidths of the same path differ as much after
        // minutes as after an hour (Wira, figure 4).
        let part = age as f64 / rules.lifetime.as_secs_f64().max(1.0);
        Ok(Past { cookie: self, confidence: carrier.nearness() * (1.0 - 0.5 * part) })
    }
}

/// Rates are stored in units of this many bits per second.
const RATE_UNIT: u64 = 100;

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
