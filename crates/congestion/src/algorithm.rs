//! Congestion control algorithms by name.

use core::fmt;
use core::str::FromStr;

use crate::bbr::Bbr;
use crate::controller::Controller;
use crate::copa::Copa;
use crate::cubic::Cubic;
#[cfg(feature = "testbed")]
use crate::cubic_lsquic::CubicLsquic;

/// A congestion control algorithm: `cubic`, `cubic-live`, `bbr`, `bbr-draft` or `copa`; in builds
/// with the feature `testbed` also `cubic-lsquic`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// RFC 9438 with RFC 9406.
    Cubic,
    /// CUBIC with a window floor of our own for live streams: no reduction below the delivered rate
    /// while round trips show no queue.
    CubicLive,
    /// BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), with rules of our own for
    /// outages and application-limited senders.
    Bbr,
    /// BBR version 1 without those rules, for comparison.
    BbrDraft,
    /// Copa (NSDI 2018).
    Copa,
    /// CUBIC as in LSQUIC, the transport of AutoRec's paper. For its figures only.
    #[cfg(feature = "testbed")]
    CubicLsquic,
}

/// Name of LSQUIC's CUBIC, which needs the feature `testbed`.
const CUBIC_LSQUIC: &str = "cubic-lsquic";

impl Algorithm {
    /// Algorithms of every build.
    pub const ALL: [Self; 5] =
        [Self::Cubic, Self::CubicLive, Self::Bbr, Self::BbrDraft, Self::Copa];

    /// Algorithms that only builds with the feature `testbed` have.
    #[cfg(feature = "testbed")]
    const TESTBED: &[Self] = &[Self::CubicLsquic];
    #[cfg(not(feature = "testbed"))]
    const TESTBED: &[Self] = &[];

    /// Builds a controller for datagrams of `mtu` bytes. `seed` determines random choices (BBR: the
    /// first phase of its gain cycle).
    ///
    /// ```
    /// use mendcast_congestion::Algorithm;
    ///
    /// let algorithm: Algorithm = "cubic".parse().unwrap();
    /// let controller = algorithm.build(1_200, 1);
    /// // Ten datagrams (RFC 9002, section 7.2).
    /// assert_eq!(controller.window(), 12_000);
    /// // The multiplicative decrease of RFC 9438.
    /// assert_eq!(controller.beta(), 0.7);
    /// ```
    pub fn build(self, mtu: u16, seed: u64) -> Box<dyn Controller> {
        match self {
            Self::Cubic => Box::new(Cubic::new(mtu)),
            Self::CubicLive => Box::new(Cubic::for_live(mtu)),
            Self::Bbr => Box::new(Bbr::new(mtu, seed)),
            Self::BbrDraft => Box::new(Bbr::draft(mtu, seed)),
            Self::Copa => Box::new(Copa::new(mtu)),
            #[cfg(feature = "testbed")]
            Self::CubicLsquic => Box::new(CubicLsquic::new(mtu)),
        }
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::CubicLive => "cubic-live",
            Self::Bbr => "bbr",
            Self::BbrDraft => "bbr-draft",
            Self::Copa => "copa",
            #[cfg(feature = "testbed")]
            Self::CubicLsquic => CUBIC_LSQUIC,
        }
    }

    /// Returns the reason why live viewers freeze on common links, and an alternative; `None` if
    /// they do not (`docs/develop/congestion.md`). `mendcast edge --check` prints it.
    pub const fn warning(self) -> Option<&'static str> {
        match self {
            Self::Cubic => Some("viewers freeze under random loss; use cubic-live or bbr"),
            Self::Copa => {
                Some("viewers freeze on Wi-Fi and other links that deliver in bunches; use bbr")
            }
            Self::CubicLive | Self::Bbr | Self::BbrDraft => None,
            #[cfg(feature = "testbed")]
            Self::CubicLsquic => Some("it is for the figures of a paper; use cubic-live or bbr"),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    /// Message of one line.
    type Err = String;

    /// Parses a name in lower case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.iter().chain(Self::TESTBED);
        all.find(|algorithm| algorithm.name() == text).copied().ok_or_else(|| {
            if text == CUBIC_LSQUIC {
                return format!("`{text}` is only in builds with the testbed");
            }
            let names = Self::ALL.map(Self::name).join(" ");
            format!("unknown congestion control algorithm `{text}`; expected one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cubic_has_a_decrease_of_its_own() {
        for algorithm in Algorithm::ALL {
            let is_cubic = matches!(algorithm, Algorithm::Cubic | Algorithm::CubicLive);
            let expected = if is_cubic { 0.7 } else { 0.5 };
            assert_eq!(algorithm.build(1_200, 1).beta(), expected, "{algorithm}");
        }
    }

    #[test]
    fn names_are_parsed_and_others_rejected() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            assert_eq!(algorithm.build(1_200, 1).name(), algorithm.name());
        }
        assert_eq!("cubic-lsquic".parse(), Ok(Algorithm::CubicLsquic));
        assert_eq!(Algorithm::CubicLsquic.build(1_200, 1).name(), "cubic-lsquic");
        let error = "reno".parse::<Algorithm>().expect_err("no such algorithm");
        assert!(error.contains("expected one of cubic cubic-live bbr "), "{error}");
    }

    #[test]
    fn an_idle_connection_stays_small() {
        assert!(size_of::<Cubic>() < 500, "{}", size_of::<Cubic>());
        assert!(size_of::<Bbr>() <= 768, "{}", size_of::<Bbr>());
        assert!(size_of::<Copa>() < 600, "{}", size_of::<Copa>());
    }
}
