//! A sender that knows the fates of its packets: what it can do that others cannot. It bounds what any scheme
//! could reach, and exists in the testbed only.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use links::Passage;
use quic::observer::{Event, Purpose};
use quic::wire::{Frame, Frames};

/// What the server knows of the fates of its packets.
///
/// What is idealised: see [`Passage::Insistent`]. The client's packets and drops by a full queue are as for any sender,
/// and congestion control answers to what the server sees. A copy that waits until it passes comes out of
/// order, so that the server may take it for lost and send another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oracle {
    /// Nothing.
    #[default]
    None,
    /// Copies of lost data (retransmissions, replicas, probes) are never lost, but in blackholes: the bound of what a
    /// sender could reach that reacts to losses, if it could choose the moment of the loss too.
    CopiesArrive,
    /// From the detection of a loss on it sends the first copy that arrives.
    AfterDetection,
    /// It does so from the first sending on, for each packet of stream data: what proactive copies could reach.
    FromStart,
}

impl Oracle {
    /// All, by the names that settings have for them.
    pub(crate) const NAMES: [(&str, Self); 4] = [
        ("", Self::None),
        ("copies-arrive", Self::CopiesArrive),
        ("after-detection", Self::AfterDetection),
        ("from-start", Self::FromStart),
    ];

    /// What losses may do to a packet with this purpose and these frames.
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

/// How the packets that were sent may pass, in their order, until they leave the server.
#[derive(Clone)]
pub(crate) struct Foresight {
    oracle: Oracle,
    packets: Arc<Mutex<VecDeque<(usize, Passage)>>>,
}

impl Foresight {
    /// `None` where nothing is known.
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

    /// How the next datagram, of this length, may pass.
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
