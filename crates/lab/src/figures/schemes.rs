//! The schemes as settings name them, and the keys that mean something to each.

use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use recovery::art::dqn::Network;
use recovery::art::dqn::train::{self, Learner, Phase};
use recovery::art::{self, Penalty, SharedArms, Spread};
use recovery::autorec::{
    self, FixedLife, Occasions, Options as UtilityOptions, ReinjectionController, Tolerances,
};
use recovery::fixed::{self, Reading};
use recovery::{Arq, Scheme, spare};

use super::settings::Settings;
use crate::recovered::SchemeMaker;

/// The trained network of the project, made by `mendcast lab train`.
const WEIGHTS: &[u8] = include_bytes!("../../../../experiments/weights/art-dqn.mdqn");

/// What schemes that learn know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learnt {
    arms: SharedArms,
    /// Of a network that goes on learning.
    learner: Option<Arc<Mutex<Learner>>>,
}

impl Learnt {
    /// From here on the network decides as well as it can, and learns no more. Bandits do both at once.
    pub(crate) fn judge(&self) {
        if let Some(learner) = &self.learner {
            learner.lock().unwrap_or_else(PoisonError::into_inner).set_phase(Phase::Judge);
        }
    }
}

/// The schemes, and the keys that mean something to each.
pub(super) const SCHEMES: &[(&str, &[&str])] = &[
    ("arq", &[]),
    ("spare", &["copies", "apart_ms", "apart_rtts"]),
    ("autorec", &["alpha_ms", "beta_percent", "gamma_percent", "off_mode", "opportunistic"]),
    ("autorec-fixed", &["level", "off_mode", "opportunistic"]),
    (
        "autorec-mm24",
        &[
            "sigmoid",
            "theta_ms",
            "r_nor_percent",
            "max_level",
            "gate",
            "interval_rtts",
            "off_mode",
            "opportunistic",
        ],
    ),
    ("fixed", &["level", "reading", "spread", "escape_alpha"]),
    ("or3", &["reading", "spread", "escape_alpha"]),
    ("or3-code", &["reading", "spread", "escape_alpha"]),
    ("2n+1", &["reading", "spread", "escape_alpha"]),
    ("art-paper", &["reading", "queue_length", "spread", "escape_alpha"]),
    ("art-code", &["reading", "queue_length", "spread", "escape_alpha"]),
    ("art-egreedy", &["reading", "spread", "escape_alpha", "warm_up", "penalty"]),
    ("art-ucb", &["reading", "spread", "escape_alpha", "warm_up", "penalty"]),
    ("art-dqn", &["reading", "spread", "escape_alpha", "warm_up", "penalty", "dqn"]),
];

impl Settings {
    fn reading(&self) -> Result<Reading, String> {
        match &*self.reading {
            "extra" => Ok(Reading::Extra),
            "copies" => Ok(Reading::Copies),
            other => Err(format!("`reading` is `{other}`; it may be extra or copies")),
        }
    }

    fn escape_space(&self) -> Spread {
        Spread::EscapeSpace { alpha: self.escape_alpha }
    }

    fn spread(&self) -> Result<Option<Spread>, String> {
        Ok(Some(match &*self.spread {
            "" => return Ok(None),
            "at-once" => Spread::AtOnce,
            "escape-space" => self.escape_space(),
            "round-trip" => Spread::RoundTrip,
            other => {
                return Err(format!(
                    "`spread` is `{other}`; it may be at-once, escape-space or round-trip"
                ));
            }
        }))
    }

    /// What a lost round costs if its factor is this.
    fn penalty(&self, factor: f64) -> Result<Penalty, String> {
        match &*self.penalty {
            "quotient" => Ok(Penalty::Quotient(factor)),
            "product" => Ok(Penalty::Product(factor)),
            other => Err(format!("`penalty` is `{other}`; it may be quotient or product")),
        }
    }

    fn network(&self) -> Result<Network, String> {
        let bad = |why: String| format!("`dqn`: {}: {why}", self.dqn);
        let bytes = match &*self.dqn {
            "" => WEIGHTS.to_vec(),
            path => std::fs::read(path).map_err(|e| bad(e.to_string()))?,
        };
        Network::from_bytes(&bytes).map_err(|e| bad(e.to_string()))
    }

    /// What schemes know at the beginning of a run.
    ///
    /// # Errors
    /// One line that names the key whose value makes no sense.
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

    /// The scheme called `name` with these parameters and this knowledge.
    pub(super) fn maker(&self, name: &str, learnt: &Learnt) -> Result<SchemeMaker, String> {
        if !SCHEMES.iter().any(|(known, _)| *known == name) {
            let known: Vec<&str> = SCHEMES.iter().map(|(known, _)| *known).collect();
            return Err(format!("`scheme` is `{name}`; it may be {}", known.join(", ")));
        }
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        let (reading, spread) = (self.reading()?, self.spread()?);
        let escape_space = self.escape_space();
        let occasions = Occasions { off_mode: self.off_mode, opportunistic: self.opportunistic };
        let tolerances = Tolerances {
            latency: ms(self.alpha_ms),
            cost: self.beta_percent / 100.0,
            goodput: self.gamma_percent / 100.0,
        };
        let tolerances = tolerances.checked().map_err(|e| e.to_string())?;
        let level = self.level;
        let life = FixedLife::new(level).map_err(|e| e.to_string())?;
        let options = UtilityOptions {
            a: self.sigmoid,
            theta: ms(self.theta_ms),
            r_nor: self.r_nor_percent / 100.0,
            max: self.max_level,
            gate: self.gate,
            off_above: None,
            interval_rtts: self.interval_rtts,
        };
        let options = options.checked().map_err(|e| e.to_string())?;
        if name == "fixed" && fixed::fixed(level, reading).is_none() {
            return Err(format!("`level` is {level}; R of `fixed` may be 1 to 10"));
        }
        let queue = self.queue_length as usize;
        let (copies, when_idle) = (self.copies, self.when_idle);
        let apart = Spread::Apart { least: ms(self.apart_ms), rtts: self.apart_rtts };
        let network = Arc::new(self.network()?);
        let (penalty, learnt) = (self.penalty(art::ETA)?, learnt.clone());
        let name = name.to_owned();
        Ok(SchemeMaker::new(move |seed| {
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let reinjecting = |scheme: Scheme| Scheme {
                scheduler: Box::new(ReinjectionController::new(occasions)),
                ..scheme
            };
            let spreading = |scheme: Scheme| match spread {
                Some(spread) => art::with_schedule(scheme, spread, seed),
                None => scheme,
            };
            let art = |options: art::Options, own: Spread| {
                let options = art::Options { queue, ..options };
                art::with_options("art", options, spread.unwrap_or(own), seed)
            };
            let scheme = match &*name {
                "spare" => spare::spaced(copies, apart),
                "autorec" => reinjecting(autorec::scheme(tolerances)),
                "autorec-fixed" => reinjecting(autorec::fixed(life)),
                "autorec-mm24" => reinjecting(autorec::scheme_mm24(options, seed)),
                "fixed" => spreading(fixed::fixed(level, reading).unwrap_or_else(Arq::scheme)),
                "or3" => spreading(fixed::or3(reading)),
                "or3-code" => spreading(fixed::or3_code(reading)),
                "2n+1" => spreading(fixed::odd(reading)),
                "art-paper" => art(art::Options::paper(reading), escape_space),
                "art-code" => art(art::Options::code(reading), Spread::RoundTrip),
                "art-egreedy" => {
                    spreading(art::egreedy(reading, learnt.arms.clone(), penalty, seed))
                }
                "art-ucb" => spreading(art::ucb(reading, learnt.arms.clone(), penalty, seed)),
                "art-dqn" => spreading(match &learnt.learner {
                    Some(learner) => train::scheme(learner.clone(), reading, seed),
                    None => art::dqn(network.clone(), reading, seed),
                }),
                _ => Arq::scheme(),
            };
            if when_idle { scheme.when_idle() } else { scheme }
        }))
    }
}
