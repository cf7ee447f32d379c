//! Sending: which datagrams leave and when, in the order that docs/architecture.md gives: path
//! validation, the handshake, MTU probes, then batches of 1-RTT packets: probes, control frames and
//! first copies, due replicas, new data, off-mode replicas. `packet` chooses and writes what one
//! packet carries, `early` makes the datagrams of the handshake and of the end.

mod early;
mod packet;

use super::migration::{NO_PATH, OffPath, OffPathFrame};
use super::{Connection, Context, State};
use crate::connection::timers::PROBES;
use crate::ledger::PacketKind;
use crate::mtud::BASE;
use crate::path::{Addresses, MIN_BUDGET};
use crate::wire::{put_path_challenge, put_path_response, put_ping};
use recovery::SendOpportunity;
use units::{Ecn, Timestamp};

/// Packets that only acknowledge before one of them carries a PING.
const PING_EVERY: u32 = 32;
/// Bytes that an acknowledgement leaves to what is to leave with it: a control frame (the longest of a
/// fixed size is NEW_CONNECTION_ID), or the beginning of stream data.
const BESIDE_ACK: usize = 80;

/// Datagrams to send: all of `segment` bytes, but the last, which may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Where to, and from which of our addresses.
    pub addresses: Addresses,
    /// Codepoint for all of them.
    pub ecn: Ecn,
    /// Bytes written to the buffer.
    pub len: usize,
    /// Bytes of each datagram.
    pub segment: usize,
}

/// What congestion control grants to one batch, in bytes.
#[derive(Clone, Copy)]
struct Allowance {
    window: u64,
    pacing: u64,
}

impl Connection {
    /// Writes the next datagrams, at most `max_segments`, into `buf`; `None` when nothing may or
    /// needs to be sent now. To be called until then, after every event and time-out.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        max_segments: usize,
        ctx: &mut Context<'_>,
    ) -> Option<Transmit> {
        match self.state {
            State::Open => {}
            State::Closing { due, .. } => {
                let transmit = due.then(|| self.transmit_close(now, buf, ctx)).flatten();
                if let (Some(_), State::Closing { due, .. }) = (transmit, &mut self.state) {
                    *due = false;
                }
                return transmit;
            }
            State::Draining { .. } | State::Drained => return None,
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

    /// One or more datagrams of 1-RTT packets.
    fn transmit_data(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        max_segments: usize,
        mut budget: u64,
        ctx: &mut Context<'_>,
    ) -> Option<Transmit> {
        let mtu = usize::from(self.path.mtud.current());
        let mut allowance = Allowance {
            window: self.path.controller.window(),
            pacing: self.path.pacing_budget(now),
        };
        let mut len = 0;
        for count in 0..max_segments {
            if budget < MIN_BUDGET {
                break;
            }
            let mut room = mtu.min(usize::try_from(budget).unwrap_or(mtu));
            if self.data.probes > 0 && !self.is_first_probe() {
                room = room.min(usize::from(BASE));
            }
            let Some(slice) = buf.get_mut(len..len + room) else { break };
            let Some((size, alone)) = self.data_packet(now, slice, allowance, count == 0, ctx)
            else {
                break;
            };
            len += size;
            budget -= size as u64;
            allowance.pacing = allowance.pacing.saturating_sub(size as u64);
            if size < mtu || alone {
                break;
            }
        }
        if len == 0 {
            return None;
        }
        Some(self.sent(Transmit {
            addresses: self.path.addresses,
            ecn: self.path.ecn.codepoint(),
            len,
            segment: mtu.min(len),
        }))
    }

    /// Counts what leaves on the present path.
    fn sent(&mut self, transmit: Transmit) -> Transmit {
        self.path.sent += transmit.len as u64;
        self.stats.bytes_sent += transmit.len as u64;
        self.stats.datagrams_sent += transmit.len.div_ceil(transmit.segment.max(1)) as u64;
        transmit
    }

    /// One 1-RTT packet; `first` of its batch. Returns its size, and whether nothing may follow in
    /// the batch.
    fn data_packet(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        allowance: Allowance,
        first: bool,
        ctx: &mut Context<'_>,
    ) -> Option<(usize, bool)> {
        let probing = self.data.probes > 0;
        if probing && !first {
            return None;
        }
        let mtu = u64::from(self.path.mtud.current());
        let in_flight = self.path.in_flight;
        let crowded = u64::from(self.data.ledger.eliciting_in_flight) >= self.max_packets();
        let window = probing || in_flight == 0 || !crowded && in_flight + mtu <= allowance.window;
        let paced = !probing && allowance.pacing < mtu;
        let ack_due = self.data.received.deadline().is_some_and(|at| at <= now);
        let may_elicit = window && !paced;
        let urgent = self.has_control();
        let waiting = self.recovery.next_waiting().is_some();
        let fresh = self.streams.has_sendable();
        let wants = probing || urgent || waiting || fresh;
        let off_mode = !waiting && !fresh;
        self.recovery.set_off_mode(now, off_mode, off_mode && self.streams.is_flow_blocked());
        self.replicas_asked = now;
        if !may_elicit && (wants || !self.recovery.is_empty()) {
            self.path.limited |= wants;
            if paced {
                let rate = self.path.pacing_rate();
                let at = self.path.pacer.time_until(mtu, now, rate);
                self.paced_until = Some(at.unwrap_or(now));
            }
        }
        if may_elicit && !wants {
            self.path.limited &= self.handshake.is_some();
            self.path.sampler.set_app_limited(in_flight);
        }
        let beyond =
            !(window || paced || crowded) && self.may_pass_window(in_flight, allowance.window, mtu);
        // First copies and control frames go first.
        let replica = if !(probing || may_elicit && (waiting || urgent)) && (may_elicit || beyond) {
            self.recovery.poll_replica(now, &SendOpportunity { off_mode })
        } else {
            None
        };
        if !(may_elicit && wants || replica.is_some() || ack_due) {
            return None;
        }
        if replica.is_some() && !first {
            return None;
        }

        self.skip_number(ctx);
        let mut draft = self.begin_short(buf)?;
        // What a packet carried must fit into its copy: there, acknowledgements take what is left.
        let is_copy = probing || replica.is_some() || may_elicit && waiting && !urgent;
        if self.data.received.wants_ack() && !is_copy {
            let reserved = if may_elicit && wants { BESIDE_ACK } else { 0 };
            self.write_ack(now, &mut draft, reserved);
        }
        if may_elicit {
            self.fill(now, &mut draft, probing, replica, ctx);
        } else if let Some(key) = replica {
            self.write_replica(now, &mut draft, key);
        }
        if is_copy && self.data.received.wants_ack() && (draft.eliciting || ack_due) {
            self.write_ack(now, &mut draft, 0);
        }
        if draft.w.position() == draft.payload_at {
            return None;
        }
        // RFC 9000, section 13.2.4: a PING now and then among packets that only acknowledge, so
        // that the peer's answer lets both sides forget.
        if may_elicit && !draft.eliciting && self.data.ledger.plain_run >= PING_EVERY {
            draft.write_ping();
        }
        if draft.eliciting {
            self.data.probes = self.data.probes.saturating_sub(1);
        }
        let alone = draft.alone;
        let built = draft.build();
        Some((self.end_short(now, buf, built, self.path.generation), alone))
    }

    /// The first probe is as large as what it repeats. All others are of a size that every path
    /// carries: the time-out may be the doing of packets that have become too large.
    fn is_first_probe(&self) -> bool {
        self.pto_count == 1 && self.data.probes == PROBES
    }

    /// Packets in flight at most: a peer that grants credit byte by byte makes them small, and each has
    /// its entry in the books.
    fn max_packets(&self) -> u64 {
        self.config.max_in_flight / u64::from(BASE)
    }

    /// ART's opportunism (section 6.4): a replica may pass the window by 2 packets or a quarter of it,
    /// but not where the network may be in trouble or the peer somebody else.
    fn may_pass_window(&self, in_flight: u64, window: u64, mtu: u64) -> bool {
        self.recovery.passes_window()
            && self.pto_count == 0
            && self.handshake.is_none()
            && self.path.validated
            && in_flight + mtu <= window + (2 * mtu).max(window / 4)
    }

    /// Frames that are no stream data wait.
    fn has_control(&self) -> bool {
        self.handshake_done_due
            || self.ping_due
            || self.data.crypto_send.is_due()
            || self.local_ids.is_due()
            || self.remote_ids.is_due()
            || self.new_tokens.iter().any(|(due, _)| *due)
            || self.streams.has_control()
    }

    /// A datagram with PATH_CHALLENGE or PATH_RESPONSE, before anything else: until the address is
    /// validated, the little that it may get must not go to data.
    fn transmit_path_validation(&mut self, now: Timestamp, buf: &mut [u8]) -> Option<Transmit> {
        self.keys.as_ref()?;
        if let Some(challenge) = self.path.challenge.filter(|challenge| challenge.due) {
            let [small, full] = challenge.data;
            let limit = self.path.amplification_limit();
            let data = if limit < u64::from(BASE) { small } else { full };
            let frame = OffPathFrame::Challenge(data);
            let owed = OffPath { addresses: self.path.addresses, frame, limit };
            // Booked on no path: its fate says nothing about the present one.
            if let Some(transmit) = self.validation_datagram(now, buf, owed, NO_PATH) {
                if let Some(challenge) = &mut self.path.challenge {
                    challenge.on_sent(now);
                }
                return Some(self.sent(transmit));
            }
        }
        while let Some(mut owed) = self.off_path.pop_front() {
            if owed.addresses.remote != self.path.addresses.remote {
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

    /// RFC 9000, section 8.2.1: expanded to 1,200 bytes unless the limit does not permit that; nothing
    /// if not even the frame fits.
    fn validation_datagram(
        &mut self,
        now: Timestamp,
        buf: &mut [u8],
        owed: OffPath,
        generation: u8,
    ) -> Option<Transmit> {
        let size = usize::from(BASE).min(usize::try_from(owed.limit).unwrap_or(usize::MAX));
        let buf = buf.get_mut(..size)?;
        let mut draft = self.begin_short(buf)?;
        match owed.frame {
            OffPathFrame::Challenge(data) => put_path_challenge(&mut draft.w, data),
            OffPathFrame::Response(data) => put_path_response(&mut draft.w, data),
        }
        draft.pad();
        draft.eliciting = true;
        let on_path = generation == self.path.generation;
        let ecn = if on_path { self.path.ecn.codepoint() } else { Ecn::NotEct };
        let built = draft.build();
        self.end_short(now, buf, built, generation);
        Some(Transmit { addresses: owed.addresses, ecn, len: size, segment: size })
    }

    /// A padded PING that tests a larger datagram size (RFC 8899).
    fn transmit_mtu_probe(&mut self, now: Timestamp, buf: &mut [u8]) -> Option<Transmit> {
        if self.handshake.is_some() || !self.path.validated || self.data.probes > 0 {
            return None;
        }
        let size = self.path.mtud.probe_due(now)?;
        if self.path.window_room() < u64::from(size) {
            return None;
        }
        let len = usize::from(size);
        let buf = buf.get_mut(..len)?;
        let mut draft = self.begin_short(buf)?;
        put_ping(&mut draft.w);
        draft.pad();
        draft.eliciting = true;
        draft.kind = PacketKind::MtuProbe;
        self.path.mtud.on_probe_sent(size);
        let built = draft.build();
        self.end_short(now, buf, built, self.path.generation);
        let ecn = self.path.ecn.codepoint();
        Some(self.sent(Transmit { addresses: self.path.addresses, ecn, len, segment: len }))
    }
}
