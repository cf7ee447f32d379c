//! Whom places count for, how many there are, and how a holder loses one.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use tokio::sync::Notify;

use crate::config::Network;
use crate::sync::lock;

/// Whom a place counts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// An IPv4 address, or a /56 of IPv6, which is a household or a small site.
    pub address: Network,
    /// A /24 of IPv4, or a /48 of IPv6.
    pub network: Network,
}

impl Origin {
    /// The origin of a client at `address`.
    pub fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let (own, all) = if address.is_ipv4() { (32, 24) } else { (56, 48) };
        Self { address: Network::around(address, own), network: Network::around(address, all) }
    }
}

/// How many may be in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    pub all: u32,
    pub per_address: u32,
    /// Whether also holders that have something to do make room, if their network holds many times what the newcomer's
    /// does.
    pub evicts_busy: bool,
}

/// Why somebody was not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// All places are taken.
    All,
    /// The address has all the places that one may have.
    Address,
}

/// What a gate has done so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    /// Places in use now.
    pub used: usize,
    /// Newcomers refused because all places were taken.
    pub full: u64,
    /// Newcomers refused because their address had its share.
    pub address: u64,
    /// Holders that lost their place to a newcomer.
    pub evicted: u64,
}

/// How a holder learns that its place is somebody else's.
#[derive(Debug, Default)]
pub(super) struct Bell {
    notify: Notify,
    is_gone: AtomicBool,
    /// Of a holder that is no task.
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    pub(super) fn ring(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        self.notify.notify_one();
        if let Some(waker) = lock(&self.waker).take() {
            waker.wake();
        }
    }

    /// Returns once it has rung. To be awaited by one task.
    pub(super) async fn rung(&self) {
        self.notify.notified().await;
    }

    pub(super) fn is_rung(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Wakes a holder that is no task.
    pub(super) fn wake(&self, waker: Waker) {
        *lock(&self.waker) = Some(waker);
    }
}
