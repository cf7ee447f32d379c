//! The congestion control algorithms by name, and how each is built.

use core::fmt;
use core::str::FromStr;

use crate::bbr::Bbr;
use crate::controller::Controller;
use crate::copa::Copa;
use crate::cubic::Cubic;

/// The algorithms by name: `cubic`, `cubic-live`, `bbr`, `bbr-draft`, `copa`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// RFC 9438 with RFC 9406.
    Cubic,
    /// The same with a window floor of our own for live streams: no cut below the delivered rate where round trips show no
    /// queue.
    CubicLive,
    /// BBR version 1, draft-cardwell-iccrg-bbr-congestion-control-00, with rules of our own for outages, and for senders
    /// that the application limits.
    Bbr,
    /// The same without those rules: for comparison.
    BbrDraft,
    /// Copa, NSDI 2018.
    Copa,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Cubic, Self::CubicLive, Self::Bbr, Self::BbrDraft, Self::Copa];

    /// A controller for a path with datagrams of `mtu` bytes. `seed` decides what the algorithm
    /// leaves to chance (BBR: the first phase of its gain cycle).
    pub fn build(self, mtu: u16, seed: u64) -> Box<dyn Controller> {
        match self {
            Self::Cubic => Box::new(Cubic::new(mtu)),
            Self::CubicLive => Box::new(Cubic::for_live(mtu)),
            Self::Bbr => Box::new(Bbr::new(mtu, seed)),
            Self::BbrDraft => Box::new(Bbr::by_the_draft(mtu, seed)),
            Self::Copa => Box::new(Copa::new(mtu)),
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::CubicLive => "cubic-live",
            Self::Bbr => "bbr",
            Self::BbrDraft => "bbr-draft",
            Self::Copa => "copa",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    /// One line: the text names no algorithm.
    type Err = String;

    /// Reads a name in lower case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        named.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(" ");
            format!("`{text}` is no congestion control algorithm; expected one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            assert_eq!(algorithm.build(1_200, 1).name(), algorithm.name());
        }
        let error = "reno".parse::<Algorithm>().expect_err("no such algorithm");
        assert!(error.to_string().ends_with("cubic cubic-live bbr bbr-draft copa"), "{error}");
    }

    #[test]
    fn an_idle_connection_stays_small() {
        assert!(size_of::<Cubic>() < 500, "{}", size_of::<Cubic>());
        assert!(size_of::<Bbr>() <= 768, "{}", size_of::<Bbr>());
        assert!(size_of::<Copa>() < 600, "{}", size_of::<Copa>());
    }
}
