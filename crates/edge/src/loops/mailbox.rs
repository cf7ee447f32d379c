//! Input of a loop from other threads.
//!
//! Datagrams for another core: after a client's address changes, the kernel may deliver its
//! datagrams to a loop that does not own the connection. The connection ID names the core, and the
//! datagram is forwarded through a bounded queue.
//!
//! Connections that can continue: a live stream or a pending response wakes its connections through
//! their [`Waker`]. The loop serves each once, no matter how often it was woken.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use crate::Error;
use crate::sync::lock;
use ::quic::{Datagram, Handle};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Maximum datagrams queued for a loop.
const CAPACITY: usize = 1_024;
/// Maximum datagrams taken at once, so that the loop's own sockets get their turn.
const MAX_TAKEN: usize = 256;

/// The receiving end of a loop's mailbox, with the wake-up event.
#[derive(Debug)]
pub(crate) struct Mailbox(Arc<Post>);

/// The sending end of a loop's mailbox.
#[derive(Clone, Debug)]
pub(crate) struct Sender(Arc<Post>);

#[derive(Debug)]
struct Post {
    waiting: Mutex<WaitingMail>,
    wake: EventFd,
}

#[derive(Debug, Default)]
struct WaitingMail {
    bells: Vec<Arc<Bell>>,
    /// Their socket index is the same in all loops.
    datagrams: VecDeque<Datagram<Vec<u8>>>,
    /// Whether the loop was woken for, or knows of, the current content.
    is_known: bool,
}

/// Wakes one connection.
#[derive(Debug)]
struct Bell {
    handle: Handle,
    /// Whether the connection is queued already.
    rung: AtomicBool,
    post: Arc<Post>,
}

/// A portion of the mailbox's content.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// Woken connections. A handle may have been reused meanwhile; serving the new connection is
    /// harmless.
    pub woken: Vec<Handle>,
    pub datagrams: Vec<Datagram<Vec<u8>>>,
    /// Whether datagrams are left. The loop is not woken for those.
    pub more: bool,
}

/// Creates a mailbox and its sender.
pub(crate) fn mailbox() -> Result<(Sender, Mailbox), Error> {
    let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
    let wake = EventFd::from_value_and_flags(0, flags)
        .map_err(|e| Error::new(format!("cannot create an event descriptor: {e}")))?;
    let post = Arc::new(Post { waiting: Mutex::default(), wake });
    Ok((Sender(post.clone()), Mailbox(post)))
}

impl Post {
    /// Adds content, and wakes the loop unless it was woken already.
    fn put<T>(&self, what: impl FnOnce(&mut WaitingMail) -> T) -> T {
        let mut waiting = lock(&self.waiting);
        let put = what(&mut waiting);
        let is_known = core::mem::replace(&mut waiting.is_known, true);
        drop(waiting);
        if !is_known {
            self.ring();
        }
        put
    }

    fn ring(&self) {
        // Fails only if the counter is full, and then the loop is awake.
        let _ = self.wake.write(1);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            let post = self.post.clone();
            post.put(|waiting| waiting.bells.push(self));
        }
    }
}

impl Sender {
    /// Forwards a datagram. Returns false if the queue is full and the datagram was dropped.
    pub(super) fn send(&self, datagram: Datagram<Vec<u8>>) -> bool {
        self.0.put(|waiting| {
            let has_room = waiting.datagrams.len() < CAPACITY;
            if has_room {
                waiting.datagrams.push_back(datagram);
            }
            has_room
        })
    }

    /// Makes the loop check its state.
    pub(crate) fn wake(&self) {
        self.0.ring();
    }
}

impl Mailbox {
    /// Returns the waker of a connection of this loop.
    pub(super) fn waker(&self, handle: Handle) -> Waker {
        Arc::new(Bell { handle, rung: AtomicBool::new(false), post: self.0.clone() }).into()
    }

    /// Takes all woken connections and the next datagrams.
    pub(super) fn take(&self) -> Mail {
        let mut waiting = lock(&self.0.waiting);
        let bells = core::mem::take(&mut waiting.bells);
        let count = waiting.datagrams.len().min(MAX_TAKEN);
        let datagrams = waiting.datagrams.drain(..count).collect();
        let more = !waiting.datagrams.is_empty();
        waiting.is_known = more;
        drop(waiting);
        let woken = bells.into_iter().map(|bell| {
            // Reset before serving: later wake-ups queue the connection again.
            bell.rung.store(false, Ordering::Release);
            bell.handle
        });
        Mail { woken: woken.collect(), datagrams, more }
    }

    /// Consumes the wake-up event.
    pub(super) fn awake(&self) {
        // An empty event is fine.
        let _ = self.0.wake.read();
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::quic::Addresses;
    use units::Ecn;

    /// Returns the number of wake-ups since the last call.
    fn rings(mailbox: &Mailbox) -> u64 {
        mailbox.0.wake.read().unwrap_or(0)
    }

    fn datagram(number: u8) -> Datagram<Vec<u8>> {
        let addresses = Addresses::of(([127, 0, 0, 1], 1).into());
        Datagram { addresses, ecn: Ecn::NotEct, payload: vec![number] }
    }

    #[test]
    fn datagrams_wake_the_loop_once_and_are_taken_in_portions() {
        let (sender, mailbox) = mailbox().expect("made");
        let sent = (0..2_000).filter(|n| sender.send(datagram(*n as u8))).count();
        assert_eq!((sent, rings(&mailbox)), (CAPACITY, 1));
        let mut taken = Vec::new();
        let mut more = true;
        while more {
            let mail = mailbox.take();
            assert!(mail.datagrams.len() <= MAX_TAKEN);
            taken.extend(mail.datagrams.into_iter().map(|datagram| datagram.payload[0]));
            more = mail.more;
            // No wake-up is needed while the loop knows of more.
            assert!(!more || sender.send(datagram(taken.len() as u8)));
            assert_eq!(rings(&mailbox), 0);
        }
        assert!(taken.len() > CAPACITY);
        assert!(taken.iter().take(CAPACITY).enumerate().all(|(n, number)| *number == n as u8));
        assert!(sender.send(datagram(0)));
        assert_eq!(rings(&mailbox), 1, "an empty mailbox wakes the loop again");
    }

    #[test]
    fn connection_is_woken_once_until_served() {
        let (_sender, mailbox) = mailbox().expect("made");
        let (first, second) = (mailbox.waker(Handle(1)), mailbox.waker(Handle(2)));
        for _ in 0..3 {
            first.wake_by_ref();
            second.wake_by_ref();
            first.wake_by_ref();
            assert_eq!(rings(&mailbox), 1);
            assert_eq!(mailbox.take().woken, [Handle(1), Handle(2)]);
            assert_eq!(mailbox.take().woken, []);
        }
    }
}
