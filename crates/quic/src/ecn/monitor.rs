//! ECN of a connection on all its paths.

use super::{EcnReport, EcnState, EcnTally};
use crate::wire::EcnCounts;
use std::net::IpAddr;

/// The peer's counts, the state last reported to the observer, and a fault for the endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnMonitor {
    tally: EcnTally,
    /// State of the present path.
    reported: Option<EcnState>,
    /// Address whose network has a costly fault, until the endpoint takes it.
    failed: Option<IpAddr>,
}

impl EcnMonitor {
    /// A marked packet was sent.
    #[inline]
    pub(crate) fn on_sent(&mut self) {
        self.tally.on_sent();
    }

    /// Takes the counts of an acknowledgement that raises the largest acknowledged number.
    pub(crate) fn take_counts(&mut self, counts: Option<EcnCounts>) -> EcnReport {
        self.tally.take(counts)
    }

    /// Takes the present path's state. Returns the old and new one to report after a change.
    pub(crate) fn change(
        &mut self,
        state: Option<EcnState>,
    ) -> Option<(Option<EcnState>, EcnState)> {
        let (old, new) = (self.reported, state?);
        self.reported = Some(new);
        (old != Some(new)).then_some((old, new))
    }

    /// Records the address of a network with a costly fault.
    pub(crate) fn on_costly_fault(&mut self, address: IpAddr) {
        self.failed = Some(address);
    }

    /// Returns the address of a network with a new costly fault, once.
    pub(crate) fn take_failure(&mut self) -> Option<IpAddr> {
        self.failed.take()
    }
}
