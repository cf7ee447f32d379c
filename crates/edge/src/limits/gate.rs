//! A bounded number of places, shared fairly between networks.
//!
//! A newcomer gets a [`Permit`], which releases the place on drop. An idle holder says so
//! ([`Permit::idle`]). When all places are taken, a newcomer from a network with few places evicts
//! a holder from the network that holds or opens most, so a flood evicts itself. Networks are IPv4
//! /24 and IPv6 /48. Each address (/56 of IPv6) has its own limit, and the same rules apply between
//! the addresses of a network.
//!
//! Between networks with equal numbers of places, the longest idle holder is evicted. If nobody is
//! idle, the newcomer is rejected. Memory is proportional to the permits in use.

mod arrivals;
mod seats;
mod terms;

use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Instant;

use crate::sync::lock;
use seats::Seats;
use terms::Bell;
pub(crate) use terms::{Bounds, Full, GateCounts, Origin};

/// Admission control over one kind of place.
#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<Seats>);

impl Gate {
    /// Admits a newcomer. Without `origin` no limit per address applies.
    ///
    /// # Errors
    /// All places are taken and no holder can be evicted.
    pub fn enter(self: &Arc<Self>, origin: Option<Origin>, bounds: Bounds) -> Result<Permit, Full> {
        let bell = Arc::new(Bell::default());
        let id = lock(&self.0).enter(Instant::now(), origin, bounds, &bell)?;
        Ok(Permit { gate: self.clone(), id, bell })
    }

    /// Evicts the longest idle holder, to free resources.
    pub fn make_room(&self) {
        lock(&self.0).evict_idle(Instant::now());
    }

    /// Returns the counters.
    pub fn counts(&self) -> GateCounts {
        lock(&self.0).counts()
    }
}

/// A place, released on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Arc<Gate>,
    id: u64,
    bell: Arc<Bell>,
}

impl Permit {
    /// Assigns the holder to an origin that was unknown on entry.
    ///
    /// # Errors
    /// The address has reached its limit and none of its holders can be evicted.
    pub fn is_from(&self, origin: Option<Origin>, bounds: Bounds) -> Result<(), Full> {
        lock(&self.gate.0).move_to(Instant::now(), self.id, origin, bounds)
    }

    /// Marks the holder idle. `has_served` tells whether it has had work before.
    pub fn idle(&self, has_served: bool) {
        lock(&self.gate.0).set_idle(self.id, Some((has_served, Instant::now())));
    }

    /// Marks the holder busy.
    pub fn busy(&self) {
        lock(&self.gate.0).set_idle(self.id, None);
    }

    /// Restarts the idle time of an idle holder. A busy holder stays busy.
    pub fn touch(&self) {
        lock(&self.gate.0).touch(self.id, Instant::now());
    }

    /// Waits until the holder is evicted. Only one task may wait.
    pub async fn evicted(&self) {
        self.bell.rung().await;
    }

    /// Wakes `waker` on eviction, or at once if evicted already. The gate is locked meanwhile, so
    /// the waker must neither enter nor leave a gate.
    pub fn wake_on_eviction(&self, waker: Waker) {
        self.bell.wake(waker);
        if self.is_evicted() {
            self.bell.ring();
        }
    }

    /// Whether the holder was evicted.
    pub fn is_evicted(&self) -> bool {
        self.bell.is_rung()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.gate.0).leave(self.id);
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
