//! Terms of a gate: origins, bounds, counters and eviction signals.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use tokio::sync::Notify;

use crate::config::Network;
use crate::sync::lock;

/// The address and network of a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// An IPv4 address, or an IPv6 /56, which is a household or small site.
    pub address: Network,
    /// An IPv4 /24 or an IPv6 /48.
    pub network: Network,
}

impl Origin {
    /// Returns the origin of a client at `address`.
    pub fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let (own, all) = if address.is_ipv4() { (32, 24) } else { (56, 48) };
        Self { address: Network::around(address, own), network: Network::around(address, all) }
    }
}

/// Maximum numbers of holders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    pub all: u32,
    pub per_address: u32,
    /// Whether busy holders may be evicted too, if their network holds many times the newcomer's
    /// places.
    pub evicts_busy: bool,
}

/// Reason for a rejection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// All places are taken.
    All,
    /// The address has reached its limit.
    Address,
}

/// Counters of a gate.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct GateCounts {
    /// Places in use.
    pub used: usize,
    /// Newcomers rejected because all places were taken.
    pub full: u64,
    /// Newcomers rejected by the address limit.
    pub address: u64,
    /// Holders evicted for a newcomer.
    pub evicted: u64,
}

/// Signals an eviction to the holder.
#[derive(Debug, Default)]
pub(super) struct Bell {
    notify: Notify,
    is_gone: AtomicBool,
    /// For a holder that is not a task.
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

    /// Waits for the eviction. Only one task may wait.
    pub(super) async fn rung(&self) {
        self.notify.notified().await;
    }

    pub(super) fn is_rung(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Sets the waker of a holder that is not a task.
    pub(super) fn wake(&self, waker: Waker) {
        *lock(&self.waker) = Some(waker);
    }
}
