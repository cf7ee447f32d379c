//! Losses (RFC 9002, sections 6.1 and 7): effects of loss detection on the path, lost units and the
//! congestion controller.

use super::ecn::fate;
use super::spaces::SpaceId;
use super::{Connection, violation};
use crate::detection::{LossTrigger, TimeRule};
use crate::ledger::{PacketKind, Thresholds, TimeThreshold};
use crate::mtud::BASE;
use crate::observer;
use crate::path::Path;
use crate::wire::types;
use congestion::{CongestionEvent, CongestionKind};
use core::time::Duration;
use recovery::Loss;
use units::{PacketNumber, Timestamp};

/// Duration of persistent congestion, in probe time-outs (RFC 9002, section 7.6.1).
const PERSISTENT_THRESHOLD: u32 = 3;

/// A lost packet, for observers.
struct LostPacket {
    number: u64,
    sent: Timestamp,
    trigger: LossTrigger,
}

/// Findings of a loss-detection pass on the present path.
#[derive(Default)]
struct LossPass {
    bytes: u64,
    packets: u64,
    /// Lost packets that signal congestion.
    signals: u32,
    /// Number and send time of the newest lost packet that signals congestion.
    newest: Option<(u64, Timestamp)>,
    persistent: Option<Duration>,
    any: bool,
    /// Each lost packet, if there is an observer.
    lost: Vec<LostPacket>,
    /// A lost packet was larger than the size that every path must carry.
    any_large: bool,
    /// A unit was lost in more rounds than any honest peer's path explains.
    hopeless: bool,
}

impl Connection {
    fn thresholds(&self) -> Thresholds {
        let rtt = &self.path.rtt;
        let rules = self.path.reordering.adapt(self.config.detection);
        Thresholds {
            packets: rules.packets,
            time: match rules.time {
                TimeRule::SinceSent { .. } => self.time_threshold(),
                TimeRule::BetweenSendings => TimeThreshold::Between(rtt.smoothed()),
            },
            first_rtt_sample: rtt.first_sample(),
        }
    }

    /// Returns the time thresholds. The slowest path with packets in flight sets them, since its
    /// acknowledgements come last. If the largest acknowledged packet took another path, reordering
    /// is no sign of loss, and a packet gets a probe time-out.
    fn time_threshold(&self) -> TimeThreshold {
        let detection = self.config.detection;
        let delay = |path: &Path| match path.reordering.adapt(detection).time {
            TimeRule::SinceSent { eighths } => path.rtt.conservative() * eighths / 8,
            TimeRule::BetweenSendings => path.rtt.smoothed(),
        };
        let left = self.known.iter().filter_map(|known| known.path());
        let in_use = left.filter(|path| path.in_flight > 0);
        let times = in_use.map(|path| (delay(path), path.rtt.pto_base()));
        let first = (delay(&self.path), self.path.rtt.pto_base());
        let (delay, other_path) = times.fold(first, |a, b| (a.0.max(b.0), a.1.max(b.1)));
        TimeThreshold::Since { delay, other_path }
    }

    /// Declares packets lost and notifies their owners. Returns the bytes that left flight.
    pub(super) fn detect_lost(&mut self, now: Timestamp, id: SpaceId) -> u64 {
        let thresholds = self.thresholds();
        let pass = self.book_losses(now, id, &thresholds);
        if !pass.any {
            return 0;
        }
        self.probe_timer.on_loss(now);
        let ty = id.packet_type();
        for &LostPacket { number, sent, trigger } in &pass.lost {
            self.observe(now, &observer::Event::PacketLost { ty, number, sent, trigger });
        }
        self.stats.packets_lost += pass.packets;
        if pass.hopeless {
            self.fail(now, violation(types::ACK, "never acknowledges a part of a stream"));
            return pass.bytes;
        }
        if pass.any_large && self.path.mtud.on_suspicion(now) {
            self.path.controller.on_mtu(BASE);
        }
        if pass.bytes > 0 {
            let in_flight = self.path.in_flight;
            self.path.controller.on_packets_lost(now, pass.bytes, in_flight);
        }
        if let Some((number, sent)) = pass.newest {
            let pto = self.path.rtt.pto_base() + self.peer.max_ack_delay;
            let persistent = pass.persistent.is_some_and(|d| d >= pto * PERSISTENT_THRESHOLD);
            self.path.reordering.on_congestion(now, sent, pass.signals);
            self.signal(now, CongestionKind::Loss, pass.bytes, number, sent);
            if persistent {
                self.path.reordering.forget_episode();
                self.signal(now, CongestionKind::Persistent, pass.bytes, number, sent);
            }
        }
        pass.bytes
    }

    fn book_losses(&mut self, now: Timestamp, id: SpaceId, thresholds: &Thresholds) -> LossPass {
        let mut pass = LossPass::default();
        let observed = self.observer.is_some();
        let Some((ledger, mut paths, mut owners)) = self.split(id) else { return pass };
        let present = paths.present.generation;
        let data = id == SpaceId::Data;
        pass.persistent = ledger.detect_lost(now, thresholds, |number, record, frames, trigger| {
            pass.any = true;
            let (size, trigger_name) = (record.size, trigger.name());
            tracing::trace!(space = ?id, number, size, trigger = trigger_name, "packet lost");
            if observed {
                pass.lost.push(LostPacket { number, sent: record.time_sent, trigger });
            }
            // Losses of other paths only reduce those paths' bytes in flight.
            let on_path = record.path == present;
            if let Some(path) = paths.of(record.path) {
                if record.ack_eliciting {
                    path.in_flight -= u64::from(record.size);
                }
                if let Some(fate) = fate(id, number, record, true) {
                    path.ecn.on_fate(fate);
                }
                if record.kind == PacketKind::MtuProbe {
                    path.mtud.on_probe_lost();
                }
            }
            if record.kind == PacketKind::MtuProbe {
                // RFC 9000, section 14.4: the loss of a probe is no sign of congestion.
                return None;
            }
            if record.ack_eliciting {
                pass.packets += 1;
                if on_path {
                    pass.bytes += u64::from(record.size);
                    pass.any_large |= record.size > BASE;
                }
            }
            frames.iter().for_each(|frame| owners.lost(frame));
            let loss = if data && record.ack_eliciting {
                owners.packet_lost(now, number, record, frames)
            } else {
                Loss { signals: true, ..Loss::default() }
            };
            pass.hopeless |= loss.round_lost.is_some_and(|key| owners.is_hopeless(now, key));
            if record.ack_eliciting && on_path && loss.signals {
                pass.newest = Some((number, record.time_sent));
                pass.signals += 1;
            }
            loss.opened
        });
        pass
    }

    pub(super) fn signal(
        &mut self,
        now: Timestamp,
        kind: CongestionKind,
        lost_bytes: u64,
        largest_lost: u64,
        largest_lost_sent_time: Timestamp,
    ) {
        self.stats.congestion_events += 1;
        let (in_flight, window) = (self.path.in_flight, self.path.controller.window());
        tracing::debug!(?kind, lost_bytes, in_flight, window, "congestion event");
        self.path.controller.on_congestion_event(&CongestionEvent {
            now,
            lost_bytes,
            largest_lost_sent_time,
            largest_lost: PacketNumber(largest_lost),
            in_flight,
            rtt: self.path.rtt.latest(),
            kind,
        });
    }
}
