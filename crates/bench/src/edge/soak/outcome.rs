//! Results of a soak, and verdicts on them.

use super::crowd::Views;
use super::log::LogSize;
use super::neighbours::Count;
use super::records::Records;
use super::server::Look;

/// Results of a soak.
pub(super) struct SoakOutcome {
    /// Views without neighbours, and a sample after the last viewer had left.
    pub alone: (Views, Look),
    /// Results with neighbours; `None` if disabled.
    pub beside: Option<Beside>,
    /// Samples of the last phase.
    pub looks: Vec<Look>,
    /// Sample after all viewers had left.
    pub last: Look,
    /// Records of all sessions.
    pub records: Records,
    /// The server's log after startup.
    pub log: LogSize,
}

/// Phase with neighbours.
pub(super) struct Beside {
    pub views: Views,
    pub neighbours: Vec<Count>,
    /// Honest publishers and viewers; `reached` counts admissions.
    pub newcomers: Vec<Count>,
}

/// A rule, whether it holds, and its figures.
#[derive(Debug)]
pub(super) struct RuleVerdict {
    pub rule: &'static str,
    pub holds: bool,
    pub figures: String,
}
