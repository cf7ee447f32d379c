//! Interface of in-memory servers, and their common inputs.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quic::SchemeFactory;
use recovery::Guard;

/// Size of all datagrams. Neither side probes for a larger one.
pub(super) const MTU: u16 = 1_200;
/// Size of the shared chunk that answers consist of.
const CHUNK: usize = 1 << 16;
/// Unsent bytes that a server's application keeps.
pub(super) const HIGH_WATER: usize = 2 * CHUNK;
/// Capacity of a batch.
pub(super) const BATCH: usize = 1 << 16;

/// Consecutive datagrams of one size; the last one may be shorter.
pub(super) struct Batch {
    pub data: Vec<u8>,
    /// Bytes of `data` in use.
    pub len: usize,
    pub segment: usize,
    pub to: SocketAddr,
}

/// Reused buffers, so that allocation is not charged to either side.
#[derive(Default)]
pub(super) struct Pool(pub(super) VecDeque<Vec<u8>>);

impl Pool {
    /// Creates a pool with enough buffers for a turn. They are already touched, so page faults are
    /// not charged to a server. Buffers rotate: with a stack, a buffer used by large turns only
    /// would be in no cache, which penalises servers with varying turns. (A server that sends each
    /// batch before it builds the next, like the edge, needs one buffer.)
    pub(super) fn filled() -> Self {
        Self(vec![vec![0; BATCH]; 64].into())
    }

    pub(super) fn get(&mut self) -> Vec<u8> {
        self.0.pop_front().unwrap_or_else(|| Vec::with_capacity(BATCH))
    }
}

/// A server under test. It answers any request with `answer` bytes, made of one shared chunk.
pub(super) trait MemoryServer {
    fn on_datagram(&mut self, now: Duration, from: SocketAddr, data: &mut [u8]);
    /// Runs timers and the application, and writes datagrams to `out`.
    fn drive(&mut self, now: Duration, pool: &mut Pool, out: &mut Vec<Batch>);
}

/// Options of our server.
#[derive(Clone)]
pub(crate) struct Setup {
    pub congestion: congestion::Algorithm,
    pub scheme: SchemeFactory,
    pub guard: Option<Guard>,
}

impl Default for Setup {
    /// As close to `quinn-proto` as possible.
    fn default() -> Self {
        Self {
            congestion: congestion::Algorithm::Cubic,
            scheme: Arc::new(recovery::Arq::scheme),
            guard: None,
        }
    }
}

/// Returns the content that servers send.
pub(super) fn chunk() -> Bytes {
    Bytes::from(vec![0x5a; CHUNK])
}
