//! What reaches a loop from other threads.
//!
//! Datagrams for another core: after a client's address changes, the kernel may hand its datagrams
//! to a loop that does not own the connection. Its connection ID names the core, and the datagram
//! travels there through a bounded queue.
//!
//! Connections that can go on: a live stream, or whatever an answer waits for, wakes its
//! connections by their [`Waker`]; the loop serves each once, however often it was woken.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use ::quic::{Addresses, Handle};
use nix::sys::eventfd::{EfdFlags, EventFd};
use units::Ecn;

use crate::Error;
use crate::sync::lock;

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
    woken: Arc<Woken>,
    wake: Arc<EventFd>,
}

/// Connections of a loop that can go on.
#[derive(Debug)]
struct Woken {
    bells: Mutex<Vec<Arc<Bell>>>,
    wake: Arc<EventFd>,
}

/// Wakes one connection.
#[derive(Debug)]
struct Bell {
    handle: Handle,
    /// Whether it stands in the list already.
    rung: AtomicBool,
    woken: Arc<Woken>,
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
    let woken = Arc::new(Woken { bells: Mutex::default(), wake: wake.clone() });
    Ok((Sender { sender, wake: wake.clone() }, Mailbox { receiver, woken, wake }))
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if self.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        let woken = self.woken.clone();
        let mut bells = lock(&woken.bells);
        let first = bells.is_empty();
        bells.push(self);
        drop(bells);
        if first {
            // As in `Sender::wake`.
            let _ = woken.wake.write(1);
        }
    }
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

    /// What wakes the connection `handle` of this loop.
    pub(super) fn waker(&self, handle: Handle) -> Waker {
        let (rung, woken) = (AtomicBool::new(false), self.woken.clone());
        Arc::new(Bell { handle, rung, woken }).into()
    }

    /// The connections that were woken since the last call. A handle may have been given to another
    /// connection meanwhile; serving that one does no harm.
    pub(super) fn take_woken(&self, mut each: impl FnMut(Handle)) {
        let bells = {
            let mut bells = lock(&self.woken.bells);
            core::mem::take(&mut *bells)
        };
        for bell in bells {
            // Before it is served: what comes from now on rings again.
            bell.rung.store(false, Ordering::Release);
            each(bell.handle);
        }
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
