//! Workloads whose instructions are counted: `bench/instructions` runs them under callgrind.
//! Unlike times, counts hardly depend on the machine or on its other work, so a change of a few per
//! cent is visible in one run. Only calls of the in-memory
//! server count, not its client.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::Failure;
use crate::identity::Identity;
use crate::memory::{Contestant, MemoryPath, download, returning_visits};
use crate::repair;

/// Bytes of a download.
const BYTES: u64 = 4 << 20;

/// A workload.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Workload {
    /// A download with CUBIC and plain retransmission, without loss
    Download,
    /// A download with BBR and the default scheme, 5 % loss, 60 ms
    Loss,
    /// The same with plain retransmission
    LossArq,
    /// 50 visits of a returning viewer, with cookies
    Visits,
}

/// Options of the subcommand.
#[derive(Debug, Args)]
pub(crate) struct Counted {
    workload: Workload,
}

impl Counted {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let identity = Identity::new();
        let lossy = MemoryPath { delay: Duration::from_millis(60), loss: 0.05 };
        let (contestant, path) = match self.workload {
            Workload::Visits => return returning_visits(&identity).map(drop),
            Workload::Download => (Contestant::ours(), MemoryPath::default()),
            Workload::Loss => (repair::contestant_of("deadline")?, lossy),
            Workload::LossArq => (repair::contestant_of("arq")?, lossy),
        };
        let cost = download(&contestant, &identity, BYTES, path)?;
        println!("{:?}: {} datagrams", self.workload, cost.packets);
        Ok(())
    }
}
