//! The figures of a soak, and verdicts on them.

use super::crowd::Views;
use super::log::LogSize;
use super::neighbours::Count;
use super::records::Records;
use super::server::Look;

/// What a soak has shown.
pub(super) struct Outcome {
    /// The views without neighbours, and the look after the last viewer had gone.
    pub alone: (Views, Look),
    /// What happened with neighbours; `None` if there were none.
    pub beside: Option<Beside>,
    /// Of the last phase.
    pub looks: Vec<Look>,
    /// After everybody had gone.
    pub last: Look,
    /// The records of all sessions.
    pub records: Records,
    /// The server's log after its start.
    pub log: LogSize,
}

/// The phase with neighbours.
pub(super) struct Beside {
    pub views: Views,
    pub neighbours: Vec<Count>,
    /// Honest publishers and viewers beside the neighbours; `reached` counts admissions.
    pub newcomers: Vec<Count>,
}

/// A rule, whether it holds, and the figures.
#[derive(Debug)]
pub(super) struct Verdict {
    pub rule: &'static str,
    pub holds: bool,
    pub figures: String,
}
