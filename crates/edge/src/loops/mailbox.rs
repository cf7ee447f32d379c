//! What reaches a loop from other threads.
//!
//! Datagrams for another core: after a client's address changes, the kernel may hand its datagrams
//! to a loop that does not own the connection. Its connection ID names the core, and the datagram
//! travels there through a bounded queue.
//!
//! Connections that can go on: a live stream, or whatever an answer waits for, wakes its
//! connections by their [`Waker`]; the loop serves each once, however often it was woken.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use ::quic::{Addresses, Handle};
use nix::sys::eventfd::{EfdFlags, EventFd};
use units::Ecn;

use crate::Error;
use crate::sync::lock;

/// Datagrams that may wait for one loop.
const CAPACITY: usize = 1_024;
/// Datagrams that a loop takes at once: its own sockets want to be looked at as well.
const TAKEN: usize = 256;

/// A datagram that waits.
#[derive(Debug)]
pub(super) struct Datagram {
    /// With the place of the socket that received it, the same in all loops.
    pub addresses: Addresses,
    pub ecn: Ecn,
    pub payload: Vec<u8>,
}

/// Where a loop gets what other threads have for it, and what wakes it.
#[derive(Debug)]
pub(crate) struct Mailbox(Arc<Post>);

/// The way into a loop's mailbox.
#[derive(Clone, Debug)]
pub(crate) struct Sender(Arc<Post>);

#[derive(Debug)]
struct Post {
    waiting: Mutex<Waiting>,
    wake: EventFd,
}

#[derive(Debug, Default)]
struct Waiting {
    bells: Vec<Arc<Bell>>,
    datagrams: VecDeque<Datagram>,
    /// The loop was woken for what is here, or knows of it.
    is_known: bool,
}

/// Wakes one connection.
#[derive(Debug)]
struct Bell {
    handle: Handle,
    /// Whether it stands in the list already.
    rung: AtomicBool,
    post: Arc<Post>,
}

/// What a loop takes out of its mailbox at once.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// Connections that were woken. A handle may have been given to another connection meanwhile;
    /// serving that one does no harm.
    pub woken: Vec<Handle>,
    pub datagrams: Vec<Datagram>,
    /// Whether datagrams are left. Nothing will wake the loop for them.
    pub more: bool,
}

/// A mailbox and the way into it.
pub(crate) fn mailbox() -> Result<(Sender, Mailbox), Error> {
    let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
    let wake = EventFd::from_value_and_flags(0, flags)
        .map_err(|e| Error::new(format!("cannot make an event descriptor: {e}")))?;
    let post = Arc::new(Post { waiting: Mutex::default(), wake });
    Ok((Sender(post.clone()), Mailbox(post)))
}

impl Post {
    /// Puts something in, and wakes the loop unless that is done.
    fn put<T>(&self, what: impl FnOnce(&mut Waiting) -> T) -> T {
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
        // It fails only when the counter is full, and then the loop is awake.
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
    /// Hands a datagram over; `false` if too many wait and it is dropped.
    pub(super) fn send(&self, datagram: Datagram) -> bool {
        self.0.put(|waiting| {
            let has_room = waiting.datagrams.len() < CAPACITY;
            if has_room {
                waiting.datagrams.push_back(datagram);
            }
            has_room
        })
    }

    /// Makes the loop look at its state.
    pub(crate) fn wake(&self) {
        self.0.ring();
    }
}

impl Mailbox {
    /// What wakes the connection `handle` of this loop.
    pub(super) fn waker(&self, handle: Handle) -> Waker {
        Arc::new(Bell { handle, rung: AtomicBool::new(false), post: self.0.clone() }).into()
    }

    /// All that were woken since the last call, and the next datagrams.
    pub(super) fn take(&self) -> Mail {
        let mut waiting = lock(&self.0.waiting);
        let bells = core::mem::take(&mut waiting.bells);
        let count = waiting.datagrams.len().min(TAKEN);
        let datagrams = waiting.datagrams.drain(..count).collect();
        let more = !waiting.datagrams.is_empty();
        waiting.is_known = more;
        drop(waiting);
        let woken = bells.into_iter().map(|bell| {
            // Before it is served: what comes from now on rings again.
            bell.rung.store(false, Ordering::Release);
            bell.handle
        });
        Mail { woken: woken.collect(), datagrams, more }
    }

    /// Takes note of the wake-up.
    pub(super) fn awake(&self) {
        // Nothing to read is as good.
        let _ = self.0.wake.read();
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the loop was woken since the last look.
    fn rings(mailbox: &Mailbox) -> u64 {
        mailbox.0.wake.read().unwrap_or(0)
    }

    fn datagram(number: u8) -> Datagram {
        let addresses = Addresses::of(([127, 0, 0, 1], 1).into());
        Datagram { addresses, ecn: Ecn::NotEct, payload: vec![number] }
    }

    #[test]
    fn datagrams_wake_the_loop_once_and_come_in_bounded_portions() {
        let (sender, mailbox) = mailbox().expect("made");
        let sent = (0..2_000).filter(|n| sender.send(datagram(*n as u8))).count();
        assert_eq!((sent, rings(&mailbox)), (CAPACITY, 1));
        let mut taken = Vec::new();
        let mut more = true;
        while more {
            let mail = mailbox.take();
            assert!(mail.datagrams.len() <= TAKEN);
            taken.extend(mail.datagrams.into_iter().map(|datagram| datagram.payload[0]));
            more = mail.more;
            // Of what comes while the loop knows of more, it needs no telling.
            assert!(!more || sender.send(datagram(taken.len() as u8)));
            assert_eq!(rings(&mailbox), 0);
        }
        assert!(taken.len() > CAPACITY);
        assert!(taken.iter().take(CAPACITY).enumerate().all(|(n, number)| *number == n as u8));
        assert!(sender.send(datagram(0)));
        assert_eq!(rings(&mailbox), 1, "one that knows of nothing is woken");
    }

    #[test]
    fn a_connection_is_woken_once_until_it_is_served() {
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
