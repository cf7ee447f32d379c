//! `mendcast lab groups`: benefit and cost of path knowledge per user group over a day.

use std::path::PathBuf;

use ::lab::platform::{self, AutoPlexOptions, WAYS};
use clap::Args;

use super::execution::Execution;
use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  mendcast lab groups --seeds 2 --sessions 1000
  mendcast lab groups --groups 4 --policies bbr,paper-goodput,paper-goodput-sending
  mendcast lab groups --shared --days 5 --policies bbr,safe,oracle

Policies are bbr, constant-MBPS, demand-TIMES, paper-retransmission, paper-goodput, safe,
safe-SHARE and oracle. The paper's have the variants -sending (goodput while sending), -vip (caps
VIP users only), -low (caps all others) and -decide (rules of `mendcast autoplex decide`), in any
combination. An interrupted run continues from the results in its directory.";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Groups {
    /// Days of 48 periods, 1 to 1000, seeds from --seed on.
    #[arg(long, visible_alias = "seeds", default_value_t = 5, value_name = "N")]
    days: u32,
    /// Sessions per day and policy, 100 to 1000000.
    #[arg(long, default_value_t = 1_200, value_name = "N")]
    sessions: u32,
    /// Policies of the caps; bbr, without caps, must be among them.
    ///
    /// Default: bbr, the paper's policies and variants, constant-6, demand-3, safe, oracle.
    #[arg(
        long,
        default_value = WAYS,
        hide_default_value = true,
        value_delimiter = ',',
        value_name = "NAME,…"
    )]
    policies: Vec<String>,
    /// Numbers of user groups, each the largest of the population.
    ///
    /// The paper has four.
    #[arg(long, default_value = "4,40", value_delimiter = ',', value_name = "N,…")]
    #[arg(conflicts_with = "shared")]
    groups: Vec<u32>,
    /// Run pairs of sessions behind one bottleneck, with neither, one or both capped.
    #[arg(long)]
    shared: bool,
    /// Viewers and paths: a specification (*.toml).
    ///
    /// Default: forty user groups, experiments/populations/groups.toml.
    #[arg(long, value_name = "FILE")]
    population: Option<PathBuf>,
    #[command(flatten)]
    execution: Execution,
    /// Directory of results: autoplex.md, summary.json, plots, sessions.
    #[arg(long, default_value = "out/groups", value_name = "DIR", help_heading = "Output")]
    out: PathBuf,
}

impl Groups {
    pub(super) fn run(self) -> Result<(), Error> {
        let seed = u32::try_from(self.execution.seed);
        let page = platform::autoplex(&AutoPlexOptions {
            seeds: self.days,
            seed: seed.map_err(|_| "--seed: expected at most 1000000")?,
            sessions: self.sessions,
            ways: &self.policies,
            groups: if self.shared { &[] } else { &self.groups },
            shared: self.shared,
            population: self.population.as_deref(),
            jobs: self.execution.jobs(),
            out: &self.out,
        })?;
        log_line!("{}", page.display());
        Ok(())
    }
}
