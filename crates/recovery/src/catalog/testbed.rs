//! Schemes of the testbed: bandits and the network of ART's appendix A, and AutoRec's first version.
//! They are baselines of the papers' figures; no server needs them.

use super::{Entry, Takes, counting, plain};
use crate::papers::art::{self, ETA, Penalty, SharedArms};
use crate::papers::autorec::{self, Options as UtilityOptions};
use crate::range::OutOfRange;

/// Parameters of these schemes. Defaults are the papers' values.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameters {
    /// Utility of AutoRec's version of MM'24.
    pub utility: UtilityOptions,
    /// Penalty of a lost round for bandits.
    pub penalty: Penalty,
    /// State of bandits, shared by connections with the same arms.
    pub arms: SharedArms,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            utility: UtilityOptions::default(),
            penalty: Penalty::Quotient(ETA),
            arms: SharedArms::default(),
        }
    }
}

const BANDIT: &[Takes] = &[Takes::Reading, Takes::Spread, Takes::Arms];
const DQN: &[Takes] = &[Takes::Reading, Takes::Spread, Takes::Weights];

/// The schemes, in the order of their names in `TESTBED_NAMES`.
pub(super) const SCHEMES: &[Entry] = &[
    plain("autorec-mm24", &[Takes::Utility, Takes::Occasions], |p, _, seed| {
        Ok(p.on_occasion(autorec::scheme_mm24(p.testbed.utility.checked()?, seed)))
    }),
    counting(["art-egreedy", "art-egreedy-copies"], BANDIT, |p, r, seed| {
        let Parameters { arms, penalty, .. } = &p.testbed;
        Ok(p.spread_over(art::egreedy(r, arms.clone(), *penalty, seed), seed))
    }),
    counting(["art-ucb", "art-ucb-copies"], BANDIT, |p, r, seed| {
        let Parameters { arms, penalty, .. } = &p.testbed;
        Ok(p.spread_over(art::ucb(r, arms.clone(), *penalty, seed), seed))
    }),
    counting(["art-dqn", "art-dqn-copies"], DQN, |p, r, seed| {
        let missing = OutOfRange { key: "network", allowed: "a trained network" };
        let network = p.weights.clone().ok_or(missing)?.0;
        Ok(p.spread_over(art::dqn(network, r, seed), seed))
    }),
];

#[cfg(test)]
mod tests {
    use super::super::{Choice, Parameters as AllParameters, SchemeSpec, Weights};
    use super::*;
    use crate::level::fixed::Reading;
    use crate::papers::art::dqn::Network;

    #[test]
    fn schemes_are_built_with_their_parameters_only() {
        let network = Network::untrained(&[8], 1).expect("small");
        let good = AllParameters { weights: Some(Weights::from(network)), ..Default::default() };
        let utility = UtilityOptions { a: 0.0, ..UtilityOptions::default() };
        let testbed = Parameters { utility, ..Parameters::default() };
        let cases = [
            ("", good.clone()),
            ("autorec-mm24", AllParameters { testbed, ..good.clone() }),
            ("art-dqn", AllParameters { weights: None, ..good }),
        ];
        for (refusing, parameters) in cases {
            for entry in SCHEMES {
                let choice = Choice { entry, reading: Reading::Extra };
                match SchemeSpec::new(choice, parameters.clone()) {
                    Ok(spec) => assert_eq!(spec.build(7).name, entry.name),
                    Err(error) => assert_eq!(entry.name, refusing, "{error}"),
                }
                let refused = SchemeSpec::new(choice, parameters.clone()).is_err();
                assert_eq!(refused, entry.name == refusing);
            }
        }
    }
}
