//! Parameters of the testbed's schemes.

use crate::papers::art::{ETA, Penalty, SharedArms};
use crate::papers::autorec::Options as UtilityOptions;

/// Parameters of these schemes. Defaults are the papers' values.
#[derive(Clone, PartialEq, Debug)]
pub struct TestbedParameters {
    /// Utility of AutoRec's version of MM'24.
    pub utility: UtilityOptions,
    /// Penalty of a lost round for bandits.
    pub penalty: Penalty,
    /// State of bandits, shared by connections with the same arms.
    pub arms: SharedArms,
}

impl Default for TestbedParameters {
    fn default() -> Self {
        Self {
            utility: UtilityOptions::default(),
            penalty: Penalty::Quotient(ETA),
            arms: SharedArms::default(),
        }
    }
}
