//! A sender that knows the fates of its packets. It bounds what any scheme can achieve and exists
//! only in the testbed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use links::Passage;
use quic::observer::{Event, Purpose};
use quic::wire::{Frame, Frames};

config::words! {
    /// Knowledge of packet fates.
    ///
    /// For the idealisation see [`Passage::Insistent`]. The client's packets and drops by a full
    /// queue are not affected, and congestion control reacts to the server's observations. A copy
    /// that waits until it passes arrives out of order, so the server can declare it lost and send
    /// another one.
    #[derive(Default)]
    Oracle {
        /// No knowledge.
        #[default]
        None = "none",
        /// Copies of lost data (retransmissions, replicas, probes) are lost only in blackholes.
        /// Bound for senders that react to losses, if they could also choose the moment of the
        /// loss.
        CopiesArrive = "copies-arrive",
        /// On detecting a loss, sends the first copy that will arrive.
        AfterDetection = "after-detection",
        /// The same from the first transmission on, for each packet of stream data. Bound for
        /// proactive copies.
        FromStart = "from-start",
    }
}

impl Oracle {
    /// Returns the effect of losses on a packet with this purpose and these frames.
    fn passage(self, purpose: Purpose, payload: &[u8]) -> Passage {
        let is_copy =
            matches!(purpose, Purpose::Retransmission | Purpose::Replica | Purpose::Probe);
        let has_data =
            || Frames::new(payload).flatten().any(|frame| matches!(frame, Frame::Stream { .. }));
        match self {
            Self::CopiesArrive if is_copy => Passage::Spared,
            Self::AfterDetection if is_copy => Passage::Insistent,
            Self::FromStart if is_copy || has_data() => Passage::Insistent,
            _ => Passage::Ordinary,
        }
    }
}

/// Passages of the sent packets, in order, until they leave the server.
#[derive(Clone)]
pub(crate) struct Foresight {
    oracle: Oracle,
    packets: Arc<Mutex<VecDeque<(usize, Passage)>>>,
}

impl Foresight {
    /// `None` without knowledge.
    pub(crate) fn new(oracle: Oracle) -> Option<Self> {
        (oracle != Oracle::None).then(|| Self { oracle, packets: Arc::default() })
    }

    pub(crate) fn on_event(&self, event: &Event<'_>) {
        if let Event::PacketSent { size, purpose, payload, .. } = event {
            let passage = self.oracle.passage(*purpose, payload);
            let mut packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
            packets.push_back((*size, passage));
        }
    }

    /// Returns the passage of the next datagram, which has this length.
    pub(crate) fn next(&self, length: usize) -> Passage {
        let mut packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut left, mut passage) = (length, Passage::Ordinary);
        // Packets of the handshake share a datagram.
        while left > 0 {
            let Some((size, next)) = packets.pop_front() else { break };
            left = left.saturating_sub(size);
            if next != Passage::Ordinary {
                passage = next;
            }
        }
        passage
    }
}
