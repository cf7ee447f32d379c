//! Recovery schemes of a run, with their parameters.

use std::sync::{Arc, Mutex, PoisonError};

use recovery::art::dqn::Network;
use recovery::art::dqn::train::{self, Learner, Phase};
use recovery::art::{self, SharedArms, Spread};
use recovery::autorec::{Occasions, Options as UtilityOptions};
use recovery::catalog::{Choice, Parameters, SchemeSpec, Takes, TestbedParameters};
use recovery::deadline::{self, CorrelationSource};
use recovery::fixed::Reading;
use recovery::{LossSignal, Scheme, WindowExcess};

use super::Setup;
use super::words::{Correlation, Excess, Gammas, PenaltyForm, Readings, Spreads};
use crate::error::{Context as _, Error};
use crate::simulation::SchemeMaker;

/// A network of the project, made by `mendcast lab train`.
macro_rules! network {
    ($name:literal) => {
        include_bytes!(concat!("../../../../experiments/weights/", $name, ".mdqn"))
    };
}

/// Knowledge of schemes that learn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learnt {
    arms: SharedArms,
    /// A network in training.
    learner: Option<Arc<Mutex<Learner>>>,
}

impl Learnt {
    /// Freezes the network: it now decides greedily and stops training. Bandits always do both.
    pub(crate) fn judge(&self) {
        if let Some(learner) = &self.learner {
            learner.lock().unwrap_or_else(PoisonError::into_inner).set_phase(Phase::Judge);
        }
    }
}

/// Removes ART's limits that its paper does not state, as asked.
fn with_limits(mut scheme: Scheme, excess: Excess, heavy_loss: bool) -> Scheme {
    if excess == Excess::Unbounded && scheme.excess == WindowExcess::Bounded {
        scheme.excess = WindowExcess::Unbounded;
    }
    if !heavy_loss && scheme.signal == LossSignal::WhollyLostUnlessHeavy {
        scheme.signal = LossSignal::WhollyLost;
    }
    scheme
}

impl Gammas {
    fn network(self) -> &'static [u8] {
        match self {
            Self::G0_90 => network!("art-dqn-0.9"),
            Self::G0_95 => network!("art-dqn-0.95"),
            Self::G1_00 => network!("art-dqn-1"),
            Self::G1_05 => network!("art-dqn"),
            Self::G1_10 => network!("art-dqn-1.1"),
        }
    }
}

impl Setup {
    /// The network of `[recovery] dqn`, or the project's.
    fn network(&self) -> Result<Network, Error> {
        const KEY: &str = "recovery.dqn";
        match &self.server.recovery.dqn {
            None => Network::from_bytes(self.lab.lab.gamma.network()).key(KEY),
            Some(path) => {
                let bytes = std::fs::read(path).at(path).key(KEY)?;
                Network::from_bytes(&bytes).at(path).key(KEY)
            }
        }
    }

    /// Initial knowledge of schemes at the start of a run.
    ///
    /// # Errors
    /// One line that names the key with the invalid value.
    pub(crate) fn learnt(&self, seed: u64) -> Result<Learnt, Error> {
        let mut learnt = Learnt::default();
        if self.server.recovery.scheme.entry.name == "art-dqn" && self.lab.lab.warm_up > 0 {
            let penalty = self.penalty(art::GAMMA);
            let options = train::Options { penalty, ..train::Options::default() };
            let learner = Learner::of(self.network()?, options, seed);
            learnt.learner = Some(Arc::new(Mutex::new(learner)));
        }
        Ok(learnt)
    }

    /// Returns the scheme, or its variant `-copies` if `reading` selects it.
    fn choice(&self, scheme: Choice) -> Choice {
        match self.lab.lab.reading {
            Readings::Own => scheme,
            Readings::Copies => Choice { reading: Reading::Copies, ..scheme },
        }
    }

    /// Spread of copies; `None` for the scheme's own.
    fn spread(&self) -> Option<Spread> {
        match self.lab.lab.spread {
            Spreads::Own => None,
            Spreads::AtOnce => Some(Spread::AtOnce),
            Spreads::EscapeSpace => Some(Spread::EscapeSpace { alpha: self.lab.lab.escape_alpha }),
            Spreads::RoundTrip => Some(Spread::RoundTrip),
        }
    }

    fn penalty(&self, factor: f64) -> art::Penalty {
        match self.lab.lab.penalty {
            PenaltyForm::Quotient => art::Penalty::Quotient(factor),
            PenaltyForm::Product => art::Penalty::Product(factor),
        }
    }

    fn parameters(&self, choice: Choice, learnt: &Learnt) -> Result<Parameters, Error> {
        let knobs = &self.lab.lab;
        let parameters = self.server.recovery.parameters();
        Ok(Parameters {
            apart: Spread::Apart { least: knobs.apart, rtts: knobs.apart_rtts },
            deadline: deadline::Options {
                overdue: knobs.overdue,
                correlation: match knobs.correlation {
                    Correlation::Measured => CorrelationSource::Measured,
                    Correlation::Expected => CorrelationSource::Prior,
                    Correlation::Nothing => CorrelationSource::Independent,
                },
                ..parameters.deadline
            },
            occasions: Occasions { off_mode: knobs.off_mode, opportunistic: knobs.opportunistic },
            level: knobs.level,
            testbed: TestbedParameters {
                utility: UtilityOptions {
                    a: knobs.sigmoid,
                    theta: knobs.theta,
                    r_nor: knobs.r_nor,
                    max: knobs.max_level,
                    gate: knobs.gate,
                    gate_band: knobs.gate_band,
                    off_above: Some(knobs.off_above),
                    interval_rtts: knobs.interval_rtts,
                },
                penalty: self.penalty(art::ETA),
                arms: learnt.arms.clone(),
            },
            queue: knobs.queue_length as usize,
            spread: self.spread(),
            escape_alpha: knobs.escape_alpha,
            weights: match choice.entry.takes.contains(&Takes::Weights) {
                true => Some(self.network()?.into()),
                false => None,
            },
            when_idle: knobs.when_idle,
            ..parameters
        })
    }

    /// Builds a scheme with these parameters and this knowledge.
    pub(super) fn maker(&self, scheme: Choice, learnt: &Learnt) -> Result<SchemeMaker, Error> {
        let choice = self.choice(scheme);
        let spec = SchemeSpec::new(choice, self.parameters(choice, learnt)?)?;
        let (learner, spread) = (learnt.learner.clone(), self.spread());
        let (excess, heavy_loss) = (self.lab.lab.excess, self.lab.lab.heavy_loss);
        Ok(Arc::new(move |seed| {
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let scheme = match &learner {
                Some(learner) if choice.entry.name == "art-dqn" => {
                    let scheme = train::scheme(learner.clone(), choice.reading, seed);
                    match spread {
                        Some(spread) => art::with_schedule(scheme, spread, seed),
                        None => scheme,
                    }
                }
                _ => spec.build(seed),
            };
            with_limits(scheme, excess, heavy_loss)
        }))
    }

    /// Returns the scheme's name in records.
    pub(crate) fn scheme_name(&self) -> &'static str {
        self.choice(self.server.recovery.scheme).name()
    }
}
