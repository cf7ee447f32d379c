//! Schemes that change the sender alone, built as on servers.

use core::time::Duration;

use recovery::autorec::Tolerances;
use recovery::catalog::{Choice, Parameters, SchemeSpec};
use recovery::{Content, Guard, Recovery, deadline};
use units::Timestamp;

use crate::error::BadValue;

/// Parameters of schemes of the crate `recovery`, as in `[recovery]` of a server.
#[derive(Clone, PartialEq, Debug)]
pub struct SchemeKeys {
    /// α of AutoRec.
    pub latency: Duration,
    /// β of AutoRec.
    pub cost: f64,
    /// γ of AutoRec.
    pub goodput: f64,
    /// Price of a copy (`deadline`).
    pub price: Duration,
    /// Time for which data without a deadline is useful (`deadline`).
    pub patience: Duration,
    /// Loss rate above which players are assumed to be more patient (`deadline`).
    pub patient_above: f64,
    /// Replicas per first transmission that the guard allows; `None` for no guard.
    pub max_redundancy: Option<f64>,
}

impl Default for SchemeKeys {
    /// AutoRec's set-up for calls: α = 0, β = γ = 20 %.
    fn default() -> Self {
        let deadline::Options { price, patience, patient_above, .. } = Default::default();
        Self {
            latency: Duration::ZERO,
            cost: 0.2,
            goodput: 0.2,
            price,
            patience,
            patient_above,
            max_redundancy: None,
        }
    }
}

/// A scheme of the crate `recovery` with its parameters and guard.
#[derive(Clone, Debug)]
pub struct Engine {
    spec: SchemeSpec,
    max_redundancy: Option<f64>,
}

impl Engine {
    /// Creates the scheme by its name in a server's configuration, such as `arq`.
    ///
    /// # Errors
    /// The name is unknown, or a parameter is out of range.
    pub fn new(name: &str, keys: &SchemeKeys) -> Result<Self, BadValue> {
        let choice = name
            .parse::<Choice>()
            .map_err(|why| BadValue::new("scheme", name, format_args!("a known scheme ({why})")))?;
        let parameters = Parameters {
            tolerances: Tolerances {
                latency: keys.latency,
                cost: keys.cost,
                goodput: keys.goodput,
            },
            deadline: deadline::Options {
                price: keys.price,
                patience: keys.patience,
                patient_above: keys.patient_above,
                ..deadline::Options::default()
            },
            ..Parameters::default()
        };
        let spec = SchemeSpec::new(choice, parameters)
            .map_err(|why| BadValue::new(why.key, format_args!("of {name}"), why.allowed))?;
        let share = keys.max_redundancy;
        if let Some(share) = share {
            BadValue::unless((0.0..=100.0).contains(&share), "max_redundancy", share, "0 to 100")?;
        }
        Ok(Self { spec, max_redundancy: share })
    }

    pub(crate) fn recovery<C: Content>(&self, seed: u64, now: Timestamp) -> Recovery<C> {
        let guard = self.max_redundancy.map(|share| Guard::new(share, None));
        Recovery::new(self.spec.build(seed), guard, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_schemes_and_bad_parameters_are_named() {
        let bad = Engine::new("fec", &SchemeKeys::default()).expect_err("unknown").to_string();
        assert!(bad.starts_with("scheme = fec: expected a known scheme"), "{bad}");
        let keys = SchemeKeys { goodput: 2.0, ..SchemeKeys::default() };
        let bad = Engine::new("autorec", &keys).expect_err("out of range").to_string();
        assert!(bad.contains("goodput = of autorec"), "{bad}");
    }
}
