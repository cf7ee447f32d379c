//! A socket or a network device that has no room, and what waits for it.

use core::time::Duration;

use ::quic::{Handle, Transmit};
use units::Timestamp;

use crate::io::socket::Full;

/// The queue of a network device is tried again after this time, and so often: it drains within
/// milliseconds, or something else is wrong.
const DEVICE_RETRY: Duration = Duration::from_millis(1);
pub(super) const DEVICE_RETRIES: u32 = 20;

/// A batch for which there was no room, and who waits behind it.
pub(super) struct Blocked {
    pub(super) transmit: Transmit,
    /// What has not left.
    pub(super) data: Vec<u8>,
    /// Connections with something for the same socket.
    pub(super) waiting: Vec<Handle>,
    /// When to try again; `None` if the socket tells by becoming writable.
    pub(super) retry_at: Option<Timestamp>,
    /// How often the device was full.
    pub(super) retries: u32,
}

impl Blocked {
    /// `full` has no room for the rest of the batch; `sent` bytes of it have left.
    pub(super) fn note(&mut self, now: Timestamp, sent: usize, full: Full) {
        self.data.drain(..sent);
        self.retry_at = None;
        if full == Full::Device {
            self.retries += 1;
            self.retry_at = Some(now + DEVICE_RETRY);
        }
    }
}

#[cfg(test)]
impl Blocked {
    /// A batch of nothing that holds up its socket until then.
    pub(super) fn waiting_until(at: Timestamp) -> Self {
        let remote = ([127, 0, 0, 1], 9).into();
        let addresses = ::quic::Addresses::of(remote);
        let transmit = Transmit { addresses, ecn: units::Ecn::NotEct, len: 1, segment: 1 };
        Self { transmit, data: vec![0], waiting: Vec::new(), retry_at: Some(at), retries: 0 }
    }
}
