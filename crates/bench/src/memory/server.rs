//! What every server in memory has to do, and what all of them are given alike.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quic::SchemeFactory;
use recovery::Guard;

/// Of all datagrams; neither side looks for a larger size.
pub(super) const MTU: u16 = 1_200;
/// Bytes of the shared chunk that answers consist of.
const CHUNK: usize = 1 << 16;
/// Bytes that a server's application keeps unsent.
pub(super) const HIGH_WATER: usize = 2 * CHUNK;
/// Room of a batch.
pub(super) const BATCH: usize = 1 << 16;

/// Datagrams of one size, one after the other; the last may be shorter.
pub(super) struct Batch {
    pub data: Vec<u8>,
    /// Bytes of `data` that are in use.
    pub len: usize,
    pub segment: usize,
    pub to: SocketAddr,
}

/// Buffers that go round, so that no side pays for allocating them.
#[derive(Default)]
pub(super) struct Pool(pub(super) VecDeque<Vec<u8>>);

impl Pool {
    /// With as many buffers as a turn takes, touched already: what memory costs at first is no server's
    /// doing. They go round: were the last one back the next one taken, a buffer that only large turns
    /// need would be in no cache, and a server whose turns differ in size would pay for it. (One that
    /// sends each batch before it builds the next, as the edge does, has one buffer.)
    pub(super) fn filled() -> Self {
        Self(vec![vec![0; BATCH]; 64].into())
    }

    pub(super) fn get(&mut self) -> Vec<u8> {
        self.0.pop_front().unwrap_or_else(|| Vec::with_capacity(BATCH))
    }
}

/// A server under test. It answers any request with `answer` bytes, made of one shared chunk.
pub(super) trait Server {
    fn on_datagram(&mut self, now: Duration, from: SocketAddr, data: &mut [u8]);
    /// Timers, application, and datagrams into `out`.
    fn drive(&mut self, now: Duration, pool: &mut Pool, out: &mut Vec<Batch>);
}

/// What may differ between two servers of ours.
#[derive(Clone)]
pub(crate) struct Setup {
    pub congestion: congestion::Algorithm,
    pub scheme: SchemeFactory,
    pub guard: Option<Guard>,
}

impl Default for Setup {
    /// As like `quinn-proto` as can be.
    fn default() -> Self {
        Self {
            congestion: congestion::Algorithm::Cubic,
            scheme: Arc::new(recovery::Arq::scheme),
            guard: None,
        }
    }
}

/// What the servers send.
pub(super) fn chunk() -> Bytes {
    Bytes::from(vec![0x5a; CHUNK])
}
