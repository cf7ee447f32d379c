//! A batch blocked by a full socket or device queue.

use core::time::Duration;

use ::quic::{Handle, Transmit};
use units::Timestamp;

use crate::io::socket::FullQueue;

/// Retry interval and number of retries for a full device queue, which drains within milliseconds
/// unless something else is wrong.
const DEVICE_RETRY: Duration = Duration::from_millis(1);
pub(super) const DEVICE_RETRIES: u32 = 20;

/// A blocked batch and the connections that wait for it.
pub(super) struct Blocked {
    pub(super) transmit: Transmit,
    /// The unsent rest.
    pub(super) data: Vec<u8>,
    /// Connections that want to send on the same socket.
    pub(super) waiting: Vec<Handle>,
    /// Time of the next retry; `None` if the socket becomes writable instead.
    pub(super) retry_at: Option<Timestamp>,
    /// Number of times the device queue was full.
    pub(super) retries: u32,
}

impl Blocked {
    /// Updates the batch after `sent` bytes, when `full` blocked the rest.
    pub(super) fn note(&mut self, now: Timestamp, sent: usize, full: FullQueue) {
        self.data.drain(..sent);
        self.retry_at = None;
        if full == FullQueue::Device {
            self.retries += 1;
            self.retry_at = Some(now + DEVICE_RETRY);
        }
    }
}

#[cfg(test)]
impl Blocked {
    /// Returns a dummy batch that blocks its socket until `at`.
    pub(super) fn waiting_until(at: Timestamp) -> Self {
        let remote = ([127, 0, 0, 1], 9).into();
        let addresses = ::quic::Addresses::of(remote);
        let transmit = Transmit { addresses, ecn: units::Ecn::NotEct, len: 1, segment: 1 };
        Self { transmit, data: vec![0], waiting: Vec::new(), retry_at: Some(at), retries: 0 }
    }
}
