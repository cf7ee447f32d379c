//! Schemes of the testbed: bandits and the network of ART's appendix A, and AutoRec's first
//! version. They are baselines of the papers' figures; no server needs them.

pub(super) mod parameters;

use super::entry::{Entry, Takes, counting, plain};
use crate::papers::{art, autorec};
use crate::range::OutOfRange;
use parameters::TestbedParameters;

const BANDIT: &[Takes] = &[Takes::Reading, Takes::Spread, Takes::Arms];
const DQN: &[Takes] = &[Takes::Reading, Takes::Spread, Takes::Weights];

/// The schemes, in the order of their names in `TESTBED_NAMES`.
pub(super) const SCHEMES: &[Entry] = &[
    plain("autorec-mm24", &[Takes::Utility, Takes::Occasions], |p, _, seed| {
        Ok(p.on_occasion(autorec::scheme_mm24(p.testbed.utility.checked()?, seed)))
    }),
    counting(["art-egreedy", "art-egreedy-copies"], BANDIT, |p, r, seed| {
        let TestbedParameters { arms, penalty, .. } = &p.testbed;
        Ok(p.spread_over(art::egreedy(r, arms.clone(), *penalty, seed), seed))
    }),
    counting(["art-ucb", "art-ucb-copies"], BANDIT, |p, r, seed| {
        let TestbedParameters { arms, penalty, .. } = &p.testbed;
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
    use super::super::{Choice, Parameters, SchemeSpec, Weights};
    use super::*;
    use crate::level::fixed::Reading;
    use crate::papers::art::dqn::Network;
    use crate::papers::autorec::Options as UtilityOptions;

    #[test]
    fn schemes_are_built_with_their_parameters_only() {
        let network = Network::untrained(&[8], 1).expect("small");
        let good = Parameters { weights: Some(Weights::from(network)), ..Default::default() };
        let utility = UtilityOptions { a: 0.0, ..UtilityOptions::default() };
        let testbed = TestbedParameters { utility, ..TestbedParameters::default() };
        let cases = [
            ("", good.clone()),
            ("autorec-mm24", Parameters { testbed, ..good.clone() }),
            ("art-dqn", Parameters { weights: None, ..good }),
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
