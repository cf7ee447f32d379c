//! Life cycle of a connection (RFC 9000, section 10.2).

use super::event::CloseReason;
use units::Timestamp;

/// State of the life cycle.
#[derive(Debug)]
enum LifecycleState {
    Open,
    /// We closed the connection. Packets of the peer are answered, at a decreasing rate.
    Closing {
        until: Timestamp,
        due: bool,
        /// Datagrams received since, and the count at which the next answer is due.
        received: u32,
        answer_at: u32,
    },
    /// The peer closed the connection, or its last answer was sent. Nothing is sent.
    Draining {
        until: Timestamp,
    },
    /// No state is left.
    Drained,
}

/// State of the life cycle, and the reason for its end.
#[derive(Debug)]
pub(super) struct Lifecycle {
    state: LifecycleState,
    reason: Option<Box<CloseReason>>,
}

impl Lifecycle {
    /// An open connection.
    pub(super) fn open() -> Self {
        Self { state: LifecycleState::Open, reason: None }
    }

    /// Returns true while the application may use the connection.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, LifecycleState::Open)
    }

    /// Returns true once the connection can be dropped.
    pub(super) fn is_drained(&self) -> bool {
        matches!(self.state, LifecycleState::Drained)
    }

    /// Returns the reason for the end, if the connection has ended.
    pub(super) fn reason(&self) -> Option<&CloseReason> {
        self.reason.as_deref()
    }

    /// Records the reason for the end. Returns false if there is an earlier one.
    pub(super) fn conclude(&mut self, reason: &CloseReason) -> bool {
        let is_first = self.reason.is_none();
        self.reason.get_or_insert_with(|| Box::new(reason.clone()));
        is_first
    }

    /// Enters the closing state from the open one; its first CONNECTION_CLOSE is due.
    pub(super) fn enter_closing(&mut self, until: Timestamp) -> bool {
        let enters = self.is_open();
        if enters {
            self.state = LifecycleState::Closing { until, due: true, received: 0, answer_at: 1 };
        }
        enters
    }

    /// Enters the draining state from the open or closing one. Returns false in another.
    pub(super) fn enter_draining(&mut self, until: Timestamp) -> bool {
        use LifecycleState::{Closing, Open};
        let enters = matches!(self.state, Open | Closing { .. });
        if enters {
            self.state = LifecycleState::Draining { until };
        }
        enters
    }

    /// Enters the drained state. Returns false if it was entered before.
    pub(super) fn enter_drained(&mut self) -> bool {
        let enters = !self.is_drained();
        self.state = LifecycleState::Drained;
        enters
    }

    /// Returns the end of the closing or draining state.
    pub(super) fn ends_at(&self) -> Option<Timestamp> {
        match self.state {
            LifecycleState::Closing { until, .. } | LifecycleState::Draining { until } => {
                Some(until)
            }
            LifecycleState::Open | LifecycleState::Drained => None,
        }
    }

    /// Ends the closing or draining state if it is over.
    pub(super) fn on_timeout(&mut self, now: Timestamp) {
        if self.ends_at().is_some_and(|until| now >= until) {
            self.state = LifecycleState::Drained;
        }
    }

    /// Counts a datagram of the peer. RFC 9000, section 10.2.1: the rate of answers SHOULD be
    /// limited. Here, every power of two is answered.
    pub(super) fn on_datagram(&mut self) {
        if let LifecycleState::Closing { due, received, answer_at, .. } = &mut self.state {
            *received += 1;
            if *received >= *answer_at {
                *answer_at *= 2;
                *due = true;
            }
        }
    }

    /// Returns true if a CONNECTION_CLOSE is due.
    pub(super) fn is_answer_due(&self) -> bool {
        matches!(self.state, LifecycleState::Closing { due: true, .. })
    }

    /// A CONNECTION_CLOSE was sent.
    pub(super) fn on_answered(&mut self) {
        if let LifecycleState::Closing { due, .. } = &mut self.state {
            *due = false;
        }
    }

    /// Returns the end of the closing state, in which a CONNECTION_CLOSE of the peer ends our
    /// answers.
    pub(super) fn closing_until(&self) -> Option<Timestamp> {
        match self.state {
            LifecycleState::Closing { until, .. } => Some(until),
            _ => None,
        }
    }
}
