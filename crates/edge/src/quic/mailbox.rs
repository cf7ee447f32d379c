//! Datagrams for another core: after a client's address changes, the kernel may hand its datagrams
//! to a loop that does not own the connection. Its connection ID names the core, and the datagram
//! travels there through a bounded queue.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use ::quic::Addresses;
use nix::sys::eventfd::{EfdFlags, EventFd};
use units::Ecn;

use crate::Error;

/// Datagrams that may wait for one loop.
const CAPACITY: usize = 1_024;

/// A datagram on its way to the right core.
#[derive(Debug)]
pub(super) struct Forwarded {
    pub socket: usize,
    pub addresses: Addresses,
    pub ecn: Ecn,
    pub payload: Vec<u8>,
}

/// Where a loop gets its forwarded datagrams from, and what wakes it.
#[derive(Debug)]
pub(crate) struct Mailbox {
    receiver: Receiver<Forwarded>,
    wake: Arc<EventFd>,
}

/// The way into another loop's mailbox.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    sender: SyncSender<Forwarded>,
    wake: Arc<EventFd>,
}

/// A mailbox and the way into it.
pub(crate) fn mailbox() -> Result<(Sender, Mailbox), Error> {
    let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
    let wake = EventFd::from_value_and_flags(0, flags)
        .map_err(|e| Error::new(format!("cannot make an event descriptor: {e}")))?;
    let wake = Arc::new(wake);
    let (sender, receiver) = sync_channel(CAPACITY);
    Ok((Sender { sender, wake: wake.clone() }, Mailbox { receiver, wake }))
}

impl Sender {
    /// Hands a datagram over; `false` if the queue is full and it is dropped.
    pub(super) fn send(&self, datagram: Forwarded) -> bool {
        let sent = self.sender.try_send(datagram).is_ok();
        self.wake();
        sent
    }

    /// Makes the loop look at its state.
    pub(crate) fn wake(&self) {
        // It fails only when the counter is full, and then the loop is awake.
        let _ = self.wake.write(1);
    }
}

impl Mailbox {
    /// The next datagram.
    pub(super) fn next(&self) -> Option<Forwarded> {
        self.receiver.try_recv().ok()
    }

    /// Takes note of the wake-up.
    pub(super) fn awake(&self) {
        // Nothing to read is as good.
        let _ = self.wake.read();
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
