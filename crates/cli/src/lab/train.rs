//! `mendcast lab train`: the network of the scheme art-dqn.

use std::path::PathBuf;

use ::lab::training::{self, TrainingOptions};
use clap::Args;

use crate::error::Error;

const EXAMPLES: &str = "\
Example:
  mendcast lab train --seed 5 --weights art-dqn.mdqn --out out/training";
const REWARD: &str = "Reward";
const STEPS: &str = "Steps";
const OUTPUT: &str = "Output";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Train {
    /// Random seed.
    #[arg(long, default_value_t = TrainingOptions::default().seed, value_name = "N")]
    seed: u64,
    /// γ: cost of a lost round, relative to the gain of an arrived one.
    #[arg(long, default_value_t = TrainingOptions::default().gamma, help_heading = REWARD)]
    gamma: f64,
    /// Let the penalty grow with rounds and copies, as in ART's code.
    ///
    /// Otherwise it shrinks, as in ART's paper.
    #[arg(long, help_heading = REWARD)]
    product: bool,
    /// Count the retransmission in R.
    #[arg(long, help_heading = REWARD)]
    copies: bool,
    /// Recorded downloads with random decisions.
    #[arg(
        long,
        default_value_t = TrainingOptions::default().record,
        value_name = "N",
        help_heading = STEPS
    )]
    record: u64,
    /// Learning steps on the records.
    #[arg(
        long,
        default_value_t = TrainingOptions::default().steps,
        value_name = "N",
        help_heading = STEPS
    )]
    steps: u64,
    /// Learning downloads with decisions of the network.
    #[arg(
        long,
        default_value_t = TrainingOptions::default().online,
        value_name = "N",
        help_heading = STEPS
    )]
    online: u64,
    /// Downloads of the comparison with ART.
    #[arg(
        long,
        default_value_t = TrainingOptions::default().compare,
        value_name = "N",
        help_heading = STEPS
    )]
    compare: u64,
    /// File of the weights.
    #[arg(long, default_value = "art-dqn.mdqn", value_name = "FILE", help_heading = OUTPUT)]
    weights: PathBuf,
    /// Directory of the learning curve and the comparison.
    #[arg(long, default_value = "out/training", value_name = "DIR", help_heading = OUTPUT)]
    out: PathBuf,
}

impl Train {
    pub(super) fn run(self) -> Result<(), Error> {
        let Self { weights, out, seed, gamma, product, copies, record, steps, online, compare } =
            self;
        let options =
            TrainingOptions { seed, gamma, product, copies, record, steps, online, compare };
        Ok(training::run(&options, &weights, &out, &mut |text| print_line!("{text}"))?)
    }
}
