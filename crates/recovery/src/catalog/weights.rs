//! Weights of the network of "art-dqn", which only builds with the feature `testbed` can use.

#[cfg(feature = "testbed")]
use crate::papers::art::dqn::{BadNetwork, Network};
use core::fmt;
#[cfg(feature = "testbed")]
use std::sync::Arc;

/// Weights of the network of "art-dqn", shared by all connections.
#[derive(Clone, PartialEq, Debug)]
pub struct Weights(#[cfg(feature = "testbed")] pub(super) Arc<Network>);

/// Unusable weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadWeights {
    /// Error in the file.
    #[cfg(feature = "testbed")]
    Network(BadNetwork),
    /// The build lacks the feature `testbed`.
    NoTestbed,
}

impl fmt::Display for BadWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "testbed")]
            Self::Network(error) => error.fmt(f),
            Self::NoTestbed => f.write_str("only builds with the testbed use network weights"),
        }
    }
}

impl core::error::Error for BadWeights {}

impl Weights {
    /// Parses the contents of a file of `mendcast lab train`.
    ///
    /// # Errors
    /// If the contents are not exactly a network of finite numbers within the limits, and in builds
    /// without the feature `testbed`.
    #[cfg(feature = "testbed")]
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadWeights> {
        Network::from_bytes(bytes).map(Self::from).map_err(BadWeights::Network)
    }

    /// Fails in this build, which lacks the feature `testbed`.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "testbed"))]
    pub fn from_bytes(_: &[u8]) -> Result<Self, BadWeights> {
        Err(BadWeights::NoTestbed)
    }
}

#[cfg(feature = "testbed")]
impl From<Network> for Weights {
    fn from(network: Network) -> Self {
        Self(Arc::new(network))
    }
}
