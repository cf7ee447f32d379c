//! Observations within a gap: the time between two moments at which more data arrived in order.

use super::finding::Cause;

/// Growth of the round-trip time that counts as a queue, in ms.
pub(super) const QUEUE_MS: f64 = 100.0;
/// Silence that counts as an outage, in ms and in smoothed round-trip times.
const SILENCE_MS: f64 = 200.0;
const SILENCE_RTTS: f64 = 2.0;
/// Minimum lost packets in a row that make a silence an outage.
const OUTAGE_RUN: u64 = 10;
/// Time before a gap within which a change of the path may have caused it, in ms.
pub(super) const PATH_CHANGE_MS: f64 = 1_000.0;
/// Minimum share of a gap for one observation to explain it.
const MOST: f64 = 0.6;

/// Observations within a gap; times in ms.
#[derive(Clone, Debug, Default)]
pub(super) struct Gap {
    /// Time with all sent data delivered: the server had nothing to send, or did not send.
    pub idle: f64,
    /// Time during which the server's timers did not fire although they were due.
    pub frozen_server: f64,
    /// Time with a full congestion window.
    pub full_window: f64,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets sent, and received.
    pub sent: u64,
    pub received: u64,
    /// Longest time without a received packet while packets were sent.
    pub silence: f64,
    /// Longest run of consecutive packet numbers declared lost.
    pub run: u64,
    current_run: u64,
    last_lost: Option<u64>,
    /// Largest round-trip time.
    pub rtt: f64,
    /// Highest round of lost data.
    pub rounds: f64,
    /// Whether the viewer's address changed within it or shortly before.
    pub path_changed: bool,
}

impl Gap {
    pub(super) fn new(path_changed: bool) -> Self {
        Self { path_changed, ..Self::default() }
    }

    pub(super) fn on_lost(&mut self, number: u64) {
        self.lost += 1;
        let follows = self.last_lost.is_some_and(|last| last.checked_add(1) == Some(number));
        self.current_run = if follows { self.current_run + 1 } else { 1 };
        self.run = self.run.max(self.current_run);
        self.last_lost = Some(number);
    }

    /// Returns the cause of a gap of this length; `None` if nothing explains it.
    pub(super) fn cause(&self, length: f64, min_rtt: f64, smoothed: f64) -> Option<Cause> {
        if self.frozen_server >= MOST * length {
            return Some(Cause::Server);
        }
        if self.idle >= MOST * length {
            return Some(Cause::Publisher);
        }
        if self.path_changed {
            return Some(Cause::PathChange);
        }
        let is_silent = self.silence >= SILENCE_MS.max(SILENCE_RTTS * smoothed)
            && self.silence >= MOST * length;
        if is_silent && (self.run >= OUTAGE_RUN || self.lost == 0 || self.received == 0) {
            return Some(Cause::Outage);
        }
        if self.lost > 0 {
            return Some(if self.run >= OUTAGE_RUN && is_silent {
                Cause::Outage
            } else {
                Cause::Loss
            });
        }
        if self.rtt - min_rtt >= QUEUE_MS {
            return Some(Cause::Queue);
        }
        is_silent.then_some(Cause::Outage)
    }
}
