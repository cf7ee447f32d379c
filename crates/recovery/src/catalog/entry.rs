//! Entries of the catalogue, and the parameters that they are built with.

#[cfg(feature = "testbed")]
use super::testbed::parameters::TestbedParameters;
use super::weights::Weights;
use crate::deadline;
use crate::level::fixed::Reading;
use crate::papers::art;
use crate::papers::autorec::{Occasions, ReinjectionController, Tolerances};
use crate::range::OutOfRange;
use crate::schedule::Spread;
use crate::scheme::Scheme;
use crate::spare;

/// Parameters of all schemes; [`Entry::takes`] lists those that a scheme uses. Defaults are the
/// papers' values.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameters {
    /// Replicas per lost round. 0 to [`spare::MAX_COPIES`], default 1.
    pub copies: u32,
    /// Spacing of these replicas.
    pub apart: Spread,
    /// Options of "deadline".
    pub deadline: deadline::Options,
    /// α, β and γ of AutoRec.
    pub tolerances: Tolerances,
    /// Occasions on which AutoRec's replicas leave.
    pub occasions: Occasions,
    /// Level of "autorec-fixed", 0 to 10; R of "fixed", 1 to 10. Default 1.
    pub level: u32,
    /// L_queue of ART. Default 10.
    pub queue: usize,
    /// Spread of the replicas of ART and of fixed redundancy; `None` for the scheme's own.
    pub spread: Option<Spread>,
    /// α of the escape space of "art-paper". Default 1.
    pub escape_alpha: f64,
    /// Trained network of "art-dqn".
    pub weights: Option<Weights>,
    /// Parameters of the schemes of the feature `testbed`.
    #[cfg(feature = "testbed")]
    pub testbed: TestbedParameters,
    /// Whether replicas leave only when nothing else waits ([`Scheme::when_idle()`]), for any
    /// scheme.
    pub when_idle: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            copies: 1,
            apart: spare::DEFAULT_SPREAD,
            deadline: deadline::Options::default(),
            tolerances: Tolerances::default(),
            occasions: Occasions::default(),
            level: 1,
            queue: 10,
            spread: None,
            escape_alpha: 1.0,
            weights: None,
            #[cfg(feature = "testbed")]
            testbed: TestbedParameters::default(),
            when_idle: false,
        }
    }
}

impl Parameters {
    pub(super) fn spread_over(&self, scheme: Scheme, seed: u64) -> Scheme {
        match self.spread {
            Some(spread) => art::with_schedule(scheme, spread, seed),
            None => scheme,
        }
    }

    pub(super) fn on_occasion(&self, scheme: Scheme) -> Scheme {
        Scheme { scheduler: Box::new(ReinjectionController::new(self.occasions)), ..scheme }
    }

    pub(super) fn art(
        &self,
        name: &'static str,
        options: art::Options,
        own: Spread,
        seed: u64,
    ) -> Scheme {
        let options = art::Options { queue: self.queue, ..options };
        art::with_options(name, options, self.spread.unwrap_or(own), seed)
    }
}

/// A parameter or group of parameters in [`Parameters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// [`Parameters::copies`].
    Copies,
    /// [`Parameters::apart`].
    Apart,
    /// [`Parameters::deadline`].
    Deadline,
    /// [`Parameters::tolerances`].
    Tolerances,
    /// [`Parameters::occasions`].
    Occasions,
    /// [`Parameters::level`].
    Level,
    /// Utility of AutoRec's version of MM'24.
    Utility,
    /// Meaning of R: selected by the suffix `-copies` of the name.
    Reading,
    /// [`Parameters::queue`].
    Queue,
    /// [`Parameters::spread`] and [`Parameters::escape_alpha`].
    Spread,
    /// Penalty and shared state of bandits.
    Arms,
    /// [`Parameters::weights`].
    Weights,
}

/// An entry of the catalogue.
#[derive(Debug)]
pub struct Entry {
    /// Name of the scheme; `-copies` is appended for [`Reading::Copies`].
    pub name: &'static str,
    pub(super) copies_name: &'static str,
    /// Parameters that the scheme uses.
    pub takes: &'static [Takes],
    pub(super) build: Build,
}

type Build = fn(&Parameters, Reading, u64) -> Result<Scheme, OutOfRange>;

/// Creates an entry for a scheme without an R.
pub(super) const fn plain(name: &'static str, takes: &'static [Takes], build: Build) -> Entry {
    Entry { name, copies_name: name, takes, build }
}

/// Creates an entry for a scheme with an R that counts replicas, or under its second name copies.
pub(super) const fn counting(
    names: [&'static str; 2],
    takes: &'static [Takes],
    build: Build,
) -> Entry {
    Entry { name: names[0], copies_name: names[1], takes, build }
}
