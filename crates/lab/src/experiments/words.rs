//! The words that settings take where they are neither numbers nor names of a catalogue.

use quic::detection;
use recovery::art;
use recovery::fixed;
use serde::{Deserialize, Serialize};

/// What the server has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Source {
    /// Frames of the same size.
    Frames,
    /// Data without end.
    Unbounded,
    /// A file.
    Download,
    /// A stream with key frames through the product's relay.
    Live,
}

/// Rules of loss detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Detection {
    /// Those of lsquic, on which AutoRec was built.
    Lsquic,
    /// Those of RFC 9002.
    Rfc9002,
}

impl From<Detection> for detection::Detection {
    fn from(word: Detection) -> Self {
        match word {
            Detection::Lsquic => Self::LSQUIC,
            Detection::Rfc9002 => Self::RFC9002,
        }
    }
}

/// What R counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reading {
    /// Copies beside the retransmission.
    Extra,
    /// All copies of a round.
    Copies,
}

impl From<Reading> for fixed::Reading {
    fn from(word: Reading) -> Self {
        match word {
            Reading::Extra => Self::Extra,
            Reading::Copies => Self::Copies,
        }
    }
}

/// When the replicas of ART and `fixed` leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Spread {
    /// As the scheme itself has it.
    #[serde(rename = "")]
    Own,
    /// With the retransmission.
    AtOnce,
    /// At random within the escape space.
    EscapeSpace,
    /// At random within the smallest round-trip time.
    RoundTrip,
}

impl Spread {
    /// The spread with an escape space of `alpha`; `None` for the scheme's own.
    pub(crate) fn with(self, alpha: f64) -> Option<art::Spread> {
        match self {
            Self::Own => None,
            Self::AtOnce => Some(art::Spread::AtOnce),
            Self::EscapeSpace => Some(art::Spread::EscapeSpace { alpha }),
            Self::RoundTrip => Some(art::Spread::RoundTrip),
        }
    }
}

/// What a lost round costs a scheme that learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Penalty {
    /// The quotient of rounds and R, as in the paper.
    Quotient,
    /// Their product, as in its code.
    Product,
}

impl Penalty {
    pub(crate) fn times(self, factor: f64) -> art::Penalty {
        match self {
            Self::Quotient => art::Penalty::Quotient(factor),
            Self::Product => art::Penalty::Product(factor),
        }
    }
}
