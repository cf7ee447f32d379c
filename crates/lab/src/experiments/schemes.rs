//! Recovery schemes selected by settings, with their parameters.

use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use recovery::art::dqn::Network;
use recovery::art::dqn::train::{self, Learner, Phase};
use recovery::art::{self, Penalty, SharedArms, Spread};
use recovery::autorec::{Occasions, Options as UtilityOptions, Tolerances};
use recovery::catalog::{Choice, Parameters, SchemeSpec, Takes, UnknownScheme};
use recovery::deadline::{self, CorrelationSource};
use recovery::fixed::Reading;

use super::settings::{Settings, word};
use crate::simulation::SchemeMaker;

/// The project's trained network, made by `mendcast lab train`.
const WEIGHTS: &[u8] = include_bytes!("../../../../experiments/weights/art-dqn.mdqn");

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

impl Settings {
    fn network(&self) -> Result<Network, String> {
        let bad = |why: String| format!("`dqn`: {}: {why}", self.dqn);
        let bytes = match &*self.dqn {
            "" => WEIGHTS.to_vec(),
            path => std::fs::read(path).map_err(|e| bad(e.to_string()))?,
        };
        Network::from_bytes(&bytes).map_err(|e| bad(e.to_string()))
    }

    /// Initial knowledge of schemes at the start of a run.
    ///
    /// # Errors
    /// One line that names the key with the invalid value.
    pub(crate) fn learnt(&self, seed: u64) -> Result<Learnt, String> {
        let mut learnt = Learnt::default();
        if self.scheme == "art-dqn" && self.warm_up > 0 {
            let penalty = self.penalty(art::GAMMA)?;
            let options = train::Options { penalty, ..train::Options::default() };
            let learner = Learner::of(self.network()?, options, seed);
            learnt.learner = Some(Arc::new(Mutex::new(learner)));
        }
        Ok(learnt)
    }

    /// Selects the scheme `name`. The reading of R comes from the name or from `reading`.
    fn choice(&self, name: &str) -> Result<Choice, String> {
        let choice: Choice = name.parse().map_err(|e: UnknownScheme| e.to_string())?;
        let readings = [("extra", choice.reading), ("copies", Reading::Copies)];
        Ok(Choice { reading: word("reading", &self.reading, &readings)?, ..choice })
    }

    /// Spread of replicas; `None` for the scheme's own.
    fn spread(&self) -> Result<Option<Spread>, String> {
        let escape = Spread::EscapeSpace { alpha: self.escape_alpha };
        let known = [
            ("", None),
            ("at-once", Some(Spread::AtOnce)),
            ("escape-space", Some(escape)),
            ("round-trip", Some(Spread::RoundTrip)),
        ];
        word("spread", &self.spread, &known)
    }

    fn together(&self) -> Result<CorrelationSource, String> {
        let known = [
            ("measured", CorrelationSource::Measured),
            ("expected", CorrelationSource::Prior),
            ("nothing", CorrelationSource::Independent),
        ];
        word("together", &self.together, &known)
    }

    fn penalty(&self, factor: f64) -> Result<Penalty, String> {
        let (quotient, product) = (Penalty::Quotient(factor), Penalty::Product(factor));
        word("penalty", &self.penalty, &[("quotient", quotient), ("product", product)])
    }

    fn parameters(&self, choice: Choice, learnt: &Learnt) -> Result<Parameters, String> {
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        Ok(Parameters {
            copies: self.copies,
            apart: Spread::Apart { least: ms(self.apart_ms), rtts: self.apart_rtts },
            deadline: deadline::Options {
                price: ms(self.price_ms),
                patience: ms(self.patience_ms),
                overdue: self.overdue,
                correlation: self.together()?,
                patient_above: self.patient_above_percent / 100.0,
            },
            tolerances: Tolerances {
                latency: ms(self.alpha_ms),
                cost: self.beta_percent / 100.0,
                goodput: self.gamma_percent / 100.0,
            },
            occasions: Occasions { off_mode: self.off_mode, opportunistic: self.opportunistic },
            level: self.level,
            utility: UtilityOptions {
                a: self.sigmoid,
                theta: ms(self.theta_ms),
                r_nor: self.r_nor_percent / 100.0,
                max: self.max_level,
                gate: self.gate,
                off_above: None,
                interval_rtts: self.interval_rtts,
            },
            queue: self.queue_length as usize,
            spread: self.spread()?,
            escape_alpha: self.escape_alpha,
            penalty: self.penalty(art::ETA)?,
            arms: learnt.arms.clone(),
            network: match choice.entry.takes.contains(&Takes::Network) {
                true => Some(Arc::new(self.network()?)),
                false => None,
            },
            when_idle: self.when_idle,
        })
    }

    /// Builds the scheme `name` with these parameters and this knowledge.
    pub(super) fn maker(&self, name: &str, learnt: &Learnt) -> Result<SchemeMaker, String> {
        let choice = self.choice(name)?;
        let spec =
            SchemeSpec::new(choice, self.parameters(choice, learnt)?).map_err(|e| e.to_string())?;
        let (learner, spread) = (learnt.learner.clone(), self.spread()?);
        Ok(Arc::new(move |seed| {
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            match &learner {
                Some(learner) if choice.entry.name == "art-dqn" => {
                    let scheme = train::scheme(learner.clone(), choice.reading, seed);
                    match spread {
                        Some(spread) => art::with_schedule(scheme, spread, seed),
                        None => scheme,
                    }
                }
                _ => spec.build(seed),
            }
        }))
    }
}
