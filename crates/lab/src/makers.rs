//! What a scenario says of a sender's algorithms: how its congestion controller and its recovery scheme
//! are made. Any [`Controller`] and any [`Scheme`] will do, also ones from outside this project.

use core::fmt;
use std::sync::Arc;

use congestion::{Algorithm, Controller};
use quic::ControllerFactory;
use recovery::{Arq, Scheme};

/// Makes a congestion controller for a new connection.
#[derive(Clone)]
pub struct ControllerMaker(ControllerFactory);

impl ControllerMaker {
    /// The controllers that `make` makes, from the size of datagrams in bytes and a seed.
    pub fn new(make: impl Fn(u16, u64) -> Box<dyn Controller> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn factory(&self) -> ControllerFactory {
        self.0.clone()
    }
}

impl From<Algorithm> for ControllerMaker {
    fn from(algorithm: Algorithm) -> Self {
        Self(quic::controller(algorithm))
    }
}

impl fmt::Debug for ControllerMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str((self.0)(1_200, 0).name())
    }
}

/// Makes a recovery scheme for a new connection, from the run's seed.
#[derive(Clone)]
pub struct SchemeMaker(Arc<dyn Fn(u64) -> Scheme + Send + Sync>);

impl SchemeMaker {
    /// The schemes that `make` makes.
    pub fn new(make: impl Fn(u64) -> Scheme + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn make(&self, seed: u64) -> Scheme {
        (self.0)(seed)
    }
}

impl Default for SchemeMaker {
    fn default() -> Self {
        Self::new(|_| Arq::scheme())
    }
}

impl fmt::Debug for SchemeMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.make(0).name)
    }
}
