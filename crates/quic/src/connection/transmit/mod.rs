//! Sending: path validation, the handshake, MTU probes, then batches of 1-RTT packets: probes,
//! control frames and retransmissions, due replicas, new data, off-mode replicas (order:
//! docs/develop/architecture.md). `next_turn` chooses the purpose of a packet, `packet` writes it,
//! `early` writes handshake and closing datagrams.

mod early;
mod packet;

use super::ecn::codepoint;
use super::off_path::{NO_PATH, OffPath, OffPathFrame};
use super::{Connection, Context};
use crate::config::CopyAccounting;
use crate::connection::timers::PROBES;
use crate::detection::MIN_TAIL_DELAY;
use crate::ledger::PacketKind;
use crate::mtud::BASE;
use crate::path::{Addresses, MIN_BUDGET};
use crate::wire::{put_path_challenge, put_path_response, put_ping};
use recovery::{UnitKey, WindowExcess};
use units::{Ecn, Timestamp};

/// ACK-only packets between two PINGs.
const PING_EVERY: u32 = 32;
/// Room reserved after an acknowledgement, in bytes, for a control frame (the longest of fixed size
/// is NEW_CONNECTION_ID) or the beginning of stream data.
const BESIDE_ACK: usize = 80;

/// Datagrams to send. All have `segment` bytes; the last may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Destination, and source among our addresses.
    pub addresses: Addresses,
    /// ECN codepoint of all datagrams.
    pub ecn: Ecn,
    /// Bytes written to the buffer.
    pub len: usize,
    /// Size of each datagram, in bytes.
    pub segment: usize,
}

/// Purpose of a 1-RTT packet, most important first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// Unacknowledged data, after a probe time-out.
    Probe,
    /// Control frames, followed by new data.
    Control,
    /// Retransmission: the first copy in a lost unit's round.
    Retransmission,
    /// A further copy. `beyond_window` if it is sent despite a full congestion window.
    Replica { key: UnitKey, beyond_window: bool },
    /// New data.
    Data,
    /// An acknowledgement, with a PING if needed and allowed by the window (`may_elicit`).
    Ack { may_elicit: bool },
}

/// Permission of congestion control for ack-eliciting packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leave {
    /// Any packet.
    Freely,
    /// Replicas only: the window is slightly exceeded, or they take their predecessors' place.
    BeyondWindow,
    /// None until the pacer's release time.
    Paced,
    /// None until an acknowledgement.
    No,
}

/// Bytes that congestion control grants to one batch.
#[derive(Clone, Copy)]
struct BatchAllowance {
    window: u64,
    pacing: u64,
}

impl Connection {
    /// Writes the next datagrams, at most `max_segments`, into `buf`. Returns `None` if nothing can
    /// or need be sent. Call it after every event and time-out, until it returns `None`.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        max_segments: usize,
        ctx: &mut Context<'_>,
    ) -> Option<Transmit> {
        let _span = self.span();
        if !self.is_open() {
            if !self.life.is_answer_due() {
                return None;
            }
            let transmit = self.transmit_close(now, buf, ctx)?;
            self.life.on_answered();
            return Some(transmit);
        }
        self.paced_until = None;
        if let Some(transmit) = self.transmit_path_validation(now, buf) {
            return Some(transmit);
        }
        let budget = self.path.budget();
        if budget == 0 {
            return None;
        }
        if self.handshake.is_some()
            && let Some(transmit) = self.transmit_handshake(now, buf, budget, ctx)
        {
            return Some(transmit);
        }
        self.keys.as_ref()?;
        if let Err(error) = self.maintain_keys(now) {
            self.fail(now, error);
            return self.poll_transmit(now, buf, max_segments, ctx);
        }
        if let Some(transmit) = self.transmit_mtu_probe(now, buf) {
            return Some(transmit);
        }
        self.transmit_data(now, buf, max_segments, budget, ctx)
    }

    /// Writes one or more datagrams of 1-RTT packets.
    fn transmit_data(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        max_segments: usize,
        mut budget: u64,
        ctx: &mut Context<'_>,
    ) -> Option<Transmit> {
        let mtu = usize::from(self.path.mtud.current());
        let mut allowance = BatchAllowance {
            window: self.path.controller.window(),
            pacing: self.path.pacing_budget(now),
        };
        let (mut len, mut marked) = (0, false);
        for count in 0..max_segments {
            if budget < MIN_BUDGET {
                break;
            }
            let mut room = mtu.min(usize::try_from(budget).unwrap_or(mtu));
            if self.data.probes > 0 && !self.is_first_probe() {
                room = room.min(usize::from(BASE));
            }
            let Some(slice) = buf.get_mut(len..len + room) else { break };
            let Some(turn) = self.next_turn(now, allowance, count == 0) else { break };
            // All datagrams of a batch share one codepoint.
            if count == 0 {
                marked = self.marks_batch(now, turn);
            }
            let packet = self.data_packet(now, slice, (turn, marked), ctx);
            let Some((size, alone)) = packet else { break };
            len += size;
            budget -= size as u64;
            allowance.pacing = allowance.pacing.saturating_sub(size as u64);
            if size < mtu || alone || self.path.ecn.is_one_by_one() {
                break;
            }
        }
        if len == 0 {
            return None;
        }
        Some(self.sent(Transmit {
            addresses: self.path.standing.addresses,
            ecn: codepoint(marked),
            len,
            segment: mtu.min(len),
        }))
    }

    /// Counts a transmission on the present path.
    fn sent(&mut self, transmit: Transmit) -> Transmit {
        self.path.standing.sent += transmit.len as u64;
        self.stats.bytes_sent += transmit.len as u64;
        self.stats.datagrams_sent += transmit.len.div_ceil(transmit.segment.max(1)) as u64;
        transmit
    }

    /// Returns the purpose of the next 1-RTT packet, if one may be sent; `first` of its batch. The
    /// order is in docs/develop/architecture.md ("One transmit opportunity").
    fn next_turn(
        &mut self,
        now: Timestamp,
        allowance: BatchAllowance,
        first: bool,
    ) -> Option<Turn> {
        let probing = self.data.probes > 0;
        if probing && !first {
            return None;
        }
        let (fresh, blocked) = (self.streams.has_sendable(), self.streams.is_flow_blocked());
        let at = self.recovery.opportunity(now, fresh, blocked);
        self.replicas_asked = now;
        if probing {
            return Some(Turn::Probe);
        }
        let waiting = self.recovery.next_waiting().is_some();
        let urgent = self.has_control();
        let leave = self.may_leave(allowance);
        if leave == Leave::Freely {
            if urgent {
                return Some(Turn::Control);
            } else if waiting {
                return Some(Turn::Retransmission);
            }
        }
        if leave != Leave::Freely && (urgent || waiting || fresh || !self.recovery.is_empty()) {
            self.hold(now, leave, urgent || waiting || fresh);
        }
        if leave == Leave::Freely && !fresh {
            self.path.limited &= self.handshake.is_some();
            self.path.sampler.set_app_limited(self.path.in_flight);
        }
        let beyond_window = leave == Leave::BeyondWindow;
        if (leave == Leave::Freely || beyond_window)
            && let Some(key) = self.recovery.next_replica(now, &at)
        {
            // Two copies of a unit are never sent in one batch.
            return first.then_some(Turn::Replica { key, beyond_window });
        }
        if leave == Leave::Freely && fresh {
            return Some(Turn::Data);
        }
        let ack_due = self.data.received.deadline().is_some_and(|at| at <= now);
        ack_due.then_some(Turn::Ack { may_elicit: leave == Leave::Freely })
    }

    /// Returns what congestion control permits now.
    fn may_leave(&self, allowance: BatchAllowance) -> Leave {
        let (mtu, in_flight) = (u64::from(self.path.mtud.current()), self.path.in_flight);
        let crowded = u64::from(self.data.ledger.eliciting_in_flight) >= self.max_packets();
        let has_room = !crowded && in_flight + mtu <= allowance.window;
        if allowance.pacing < mtu {
            Leave::Paced
        } else if in_flight == 0 || has_room {
            Leave::Freely
        } else if !crowded && self.may_pass_window(in_flight, allowance.window, mtu) {
            Leave::BeyondWindow
        } else {
            Leave::No
        }
    }

    /// Records that congestion control blocks sending; `wants` something other than replicas.
    fn hold(&mut self, now: Timestamp, leave: Leave, wants: bool) {
        self.path.limited |= wants;
        if leave == Leave::Paced {
            let (mtu, rate) = (u64::from(self.path.mtud.current()), self.path.pacing_rate());
            self.paced_until = Some(self.path.pacer.time_until(mtu, now, rate).unwrap_or(now));
        }
    }

    /// Returns whether to mark a batch that starts with this turn. Probes are unmarked, because a
    /// path may drop marked packets.
    fn marks_batch(&mut self, now: Timestamp, turn: Turn) -> bool {
        let is_copy = matches!(turn, Turn::Retransmission | Turn::Replica { .. });
        turn != Turn::Probe && self.marks_next(now, !is_copy)
    }

    /// Writes one 1-RTT packet for a turn, optionally ECN-marked. Returns its size, and whether the
    /// batch must end after it.
    fn data_packet(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        (turn, marked): (Turn, bool),
        ctx: &mut Context<'_>,
    ) -> Option<(usize, bool)> {
        self.skip_number(ctx);
        let mut draft = self.begin_short(buf)?.draft(ctx.frames);
        draft.built.ect = marked;
        // A copy must have room for the original's content, so its acknowledgement takes only the
        // rest.
        let is_copy = matches!(turn, Turn::Probe | Turn::Retransmission | Turn::Replica { .. });
        if self.data.received.wants_ack() && !is_copy {
            let reserved = if matches!(turn, Turn::Ack { .. }) { 0 } else { BESIDE_ACK };
            self.write_ack(now, &mut draft, reserved);
        }
        self.fill(now, &mut draft, turn, ctx.keys.cids());
        let ack_due = self.data.received.deadline().is_some_and(|at| at <= now);
        if is_copy && self.data.received.wants_ack() && (draft.built.eliciting || ack_due) {
            self.write_ack(now, &mut draft, 0);
        }
        if draft.is_empty() {
            return None;
        }
        // RFC 9000, section 13.2.4: an occasional PING among ACK-only packets, so that the peer's
        // acknowledgement lets both sides drop state.
        let may_elicit = !matches!(
            turn,
            Turn::Ack { may_elicit: false } | Turn::Replica { beyond_window: true, .. }
        );
        if may_elicit && !draft.built.eliciting && self.data.ledger.plain_run >= PING_EVERY {
            draft.write_ping();
        }
        if draft.built.eliciting {
            self.data.probes = self.data.probes.saturating_sub(1);
            self.arm_tail(now, turn);
        }
        let alone = draft.alone;
        draft.finish();
        let built = &draft.built;
        let size = self.end_packet(now, buf, built, ctx.frames, self.path.generation);
        Some((size, alone))
    }

    /// Arms the tail PING, which is sent if nothing follows this packet.
    fn arm_tail(&mut self, now: Timestamp, turn: Turn) {
        let is_awaited = self.config.detection.tail
            && !matches!(turn, Turn::Control | Turn::Ack { .. })
            && self.handshake.is_none()
            && !self.probe_timer.is_backed_off()
            && self.probe_timer.is_lossy(now);
        let wait = (self.path.rtt.smoothed() / 8).max(MIN_TAIL_DELAY);
        self.probe_timer.set_tail(is_awaited.then(|| now + wait));
    }

    /// The first probe is as large as its original. Later ones have a size that every path carries,
    /// since oversized packets may have caused the time-out.
    fn is_first_probe(&self) -> bool {
        self.probe_timer.count() == 1 && self.data.probes == PROBES
    }

    /// Maximum number of packets in flight. A peer that grants credit byte by byte makes packets
    /// small, and each one has a ledger entry.
    fn max_packets(&self) -> u64 {
        self.config.max_in_flight / u64::from(BASE)
    }

    /// Returns whether a replica may leave although the window has no room.
    ///
    /// ART's opportunism (section 6.4), unless the network may be congested or the peer's address
    /// is unproven. If only the newest copies are in flight, a copy takes its predecessor's place.
    fn may_pass_window(&self, in_flight: u64, window: u64, mtu: u64) -> bool {
        let replaces = self.config.accounting == CopyAccounting::Newest && in_flight <= window;
        if replaces && !self.recovery.is_empty() {
            return true;
        }
        let limit = match self.recovery.excess() {
            WindowExcess::Never => return false,
            WindowExcess::Bounded => window + (2 * mtu).max(window / 4),
            WindowExcess::Unbounded => self.config.max_in_flight,
        };
        !self.probe_timer.is_backed_off()
            && self.handshake.is_none()
            && self.path.standing.validated
            && in_flight + mtu <= limit
    }

    /// Returns true if frames other than STREAM are pending.
    fn has_control(&self) -> bool {
        self.control.is_due() || self.data.crypto_send.is_due() || self.streams.has_control()
    }

    /// Writes a datagram with PATH_CHALLENGE or PATH_RESPONSE, before anything else. Data must not
    /// use up the budget of an unvalidated address.
    fn transmit_path_validation(&mut self, now: Timestamp, buf: &mut [u8]) -> Option<Transmit> {
        self.keys.as_ref()?;
        if let Some(challenge) =
            self.path.standing.challenge.as_ref().filter(|challenge| challenge.due)
        {
            let [small, full] = challenge.data;
            let limit = self.path.amplification_limit();
            let data = if limit < u64::from(BASE) { small } else { full };
            let frame = OffPathFrame::Challenge(data);
            let owed = OffPath { addresses: self.path.standing.addresses, frame, limit };
            // Belongs to no path: its fate says nothing about the present one.
            if let Some(transmit) = self.validation_datagram(now, buf, owed, NO_PATH) {
                if let Some(challenge) = &mut self.path.standing.challenge {
                    challenge.on_sent(now);
                }
                return Some(self.sent(transmit));
            }
        }
        while let Some(mut owed) = self.off_path.pop_front() {
            if owed.addresses.remote != self.path.standing.addresses.remote {
                if let Some(transmit) = self.validation_datagram(now, buf, owed, NO_PATH) {
                    return Some(transmit);
                }
                continue;
            }
            // RFC 9000, section 8.2.2: not delayed "unless constrained by congestion control".
            if self.path.window_room() < owed.limit.min(u64::from(BASE)) {
                self.off_path.push_front(owed);
                return None;
            }
            owed.limit = owed.limit.min(self.path.amplification_limit());
            let generation = self.path.generation;
            if let Some(transmit) = self.validation_datagram(now, buf, owed, generation) {
                return Some(self.sent(transmit));
            }
        }
        None
    }

    /// Writes a path validation datagram. RFC 9000, section 8.2.1: expanded to 1,200 bytes unless
    /// the limit forbids it. Writes nothing if the frame does not fit.
    fn validation_datagram(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        owed: OffPath,
        generation: u8,
    ) -> Option<Transmit> {
        let size = usize::from(BASE).min(usize::try_from(owed.limit).unwrap_or(usize::MAX));
        let buf = buf.get_mut(..size)?;
        let mut frames = Vec::new();
        let mut draft = self.begin_short(buf)?.draft(&mut frames);
        match owed.frame {
            OffPathFrame::Challenge(data) => put_path_challenge(&mut draft.w, data),
            OffPathFrame::Response(data) => put_path_response(&mut draft.w, data),
        }
        draft.pad();
        draft.built.eliciting = true;
        draft.built.ect = generation == self.path.generation && self.marks(now);
        let ecn = codepoint(draft.built.ect);
        draft.finish();
        let built = &draft.built;
        self.end_packet(now, buf, built, &mut frames, generation);
        Some(Transmit { addresses: owed.addresses, ecn, len: size, segment: size })
    }

    /// Writes a padded PING that tests a larger datagram size (RFC 8899).
    fn transmit_mtu_probe(&mut self, now: Timestamp, buf: &mut [u8]) -> Option<Transmit> {
        if self.handshake.is_some() || !self.path.standing.validated || self.data.probes > 0 {
            return None;
        }
        let size = self.path.mtud.probe_due(now)?;
        if self.path.window_room() < u64::from(size) {
            return None;
        }
        let (len, marked) = (usize::from(size), self.marks(now));
        let buf = buf.get_mut(..len)?;
        let mut frames = Vec::new();
        let mut draft = self.begin_short(buf)?.draft(&mut frames);
        put_ping(&mut draft.w);
        draft.pad();
        draft.built.eliciting = true;
        draft.built.kind = PacketKind::MtuProbe;
        draft.built.ect = marked;
        self.path.mtud.on_probe_sent(size);
        draft.finish();
        let built = &draft.built;
        self.end_packet(now, buf, built, &mut frames, self.path.generation);
        let (addresses, ecn) = (self.path.standing.addresses, codepoint(marked));
        Some(self.sent(Transmit { addresses, ecn, len, segment: len }))
    }
}
