//! Dispatches a packet's fate to the owners of its content and to loss recovery.

use super::Connection;
use super::control::ControlFrames;
use super::off_path::KnownAddresses;
use super::spaces::SpaceId;
use crate::crypto_stream::CryptoSend;
use crate::ledger::{Carried, Ledger, SentFrame, SentPacket};
use crate::path::Path;
use crate::received::ReceivedNumbers;
use crate::streams::{StreamRange, Streams};
use core::time::Duration;
use recovery::{Loss, Packet, Recovery, UnitKey};
use units::Timestamp;

/// Maximum number of rounds of a lost unit. More rounds, over a longer time than below, end the
/// connection: the peer acknowledged later data in each of them, and at 70 % loss one unit in ten
/// million gets here. An outage makes no rounds.
const MAX_ROUNDS: u32 = 45;
const MAX_UNIT_AGE: Duration = Duration::from_secs(30);

/// All paths of the connection.
pub(super) struct Paths<'a> {
    pub(super) present: &'a mut Path,
    pub(super) known: &'a mut KnownAddresses,
}

impl Paths<'_> {
    /// Returns the path with this mark, if kept.
    #[inline]
    pub(super) fn of(&mut self, mark: u8) -> Option<&mut Path> {
        if mark == self.present.generation {
            return Some(self.present);
        }
        self.known.path_mut(mark)
    }

    /// Takes a superseded copy out of its path's flight.
    pub(super) fn take_out(&mut self, copy: &SentPacket) {
        if let Some(path) = self.of(copy.path) {
            path.in_flight -= u64::from(copy.size);
        }
    }
}

/// Components that own the content of packets.
pub(super) struct Owners<'a> {
    pub(super) streams: &'a mut Streams,
    pub(super) recovery: &'a mut Recovery<Streams>,
    crypto: &'a mut CryptoSend,
    received: &'a mut ReceivedNumbers,
    control: &'a mut ControlFrames,
    /// Acknowledged range not yet reported to its stream. Consecutive packets mostly carry
    /// consecutive data, so reports are merged.
    run: Option<StreamRange>,
}

impl Owners<'_> {
    pub(super) fn range_acked(&mut self, range: StreamRange) {
        if !self.run.as_mut().is_some_and(|run| run.join(&range)) {
            self.end_run();
            self.run = Some(range);
        }
    }

    pub(super) fn end_run(&mut self) {
        if let Some(run) = self.run.take() {
            self.streams.on_acked(&run);
        }
    }

    pub(super) fn acked(&mut self, frame: &SentFrame) {
        match *frame {
            SentFrame::Stream(range) => self.range_acked(range),
            SentFrame::Control(frame) => self.streams.on_control_acked(frame),
            SentFrame::Crypto { offset, len } => self.crypto.on_acked(offset, len),
            SentFrame::Ack { largest } => self.received.on_ack_acked(largest),
            SentFrame::NewConnectionId(_)
            | SentFrame::RetireConnectionId(_)
            | SentFrame::NewToken { .. }
            | SentFrame::HandshakeDone => self.control.on_acked(frame),
        }
    }

    pub(super) fn lost(&mut self, frame: &SentFrame) {
        match *frame {
            SentFrame::Control(frame) => self.streams.on_control_lost(frame),
            SentFrame::Crypto { offset, len } => self.crypto.on_lost(offset, len),
            SentFrame::NewConnectionId(_)
            | SentFrame::RetireConnectionId(_)
            | SentFrame::NewToken { .. }
            | SentFrame::HandshakeDone => self.control.on_lost(frame),
            // Stream data becomes a unit. Acknowledgements are never retransmitted verbatim.
            SentFrame::Stream(_) | SentFrame::Ack { .. } => {}
        }
    }

    /// Handles the loss of an ack-eliciting packet.
    pub(super) fn packet_lost(
        &mut self,
        now: Timestamp,
        number: u64,
        record: &SentPacket,
        frames: &[SentFrame],
    ) -> Loss {
        self.recovery.lost(now, &packet(number, record), pieces(record, frames), self.streams)
    }

    /// Handles an overdue packet. Returns the unit of its data.
    pub(super) fn packet_overdue(
        &mut self,
        now: Timestamp,
        number: u64,
        record: &SentPacket,
        frames: &[SentFrame],
    ) -> Option<UnitKey> {
        self.recovery.overdue(now, &packet(number, record), pieces(record, frames), self.streams)
    }

    /// Returns true if the peer acknowledges everything but this unit, whose round was lost again.
    pub(super) fn is_hopeless(&self, now: Timestamp, key: UnitKey) -> bool {
        self.recovery
            .unit(key)
            .is_some_and(|unit| unit.round > MAX_ROUNDS && now.since(unit.detected) > MAX_UNIT_AGE)
    }
}

/// Returns the stream data of a packet.
fn pieces(record: &SentPacket, frames: &[SentFrame]) -> impl Iterator<Item = StreamRange> {
    let own = match record.content.get() {
        Carried::Stream(range) => Some(range),
        Carried::List(_) | Carried::Nothing => None,
    };
    let listed = frames.iter().filter_map(|frame| match frame {
        SentFrame::Stream(range) => Some(*range),
        _ => None,
    });
    own.into_iter().chain(listed)
}

/// Converts a record to the packet type of loss recovery.
pub(super) fn packet(number: u64, record: &SentPacket) -> Packet {
    Packet {
        number,
        sent: record.time_sent,
        bytes: record.size,
        copy: record.kind.copy(),
        unit: record.unit,
    }
}

impl Connection {
    /// Lets packet `number`, a new copy of a unit, take the place of the copy before it.
    pub(super) fn supersede(&mut self, now: Timestamp, key: UnitKey, number: u64) {
        let Some((ledger, mut paths, owners)) = self.split(SpaceId::Data) else { return };
        if let Some(copy) = ledger.supersede(key, number) {
            paths.take_out(&copy);
            owners.recovery.superseded(now, key);
        }
    }

    /// Splits the borrow: the ledger of a space, the paths, and the owners of content.
    pub(super) fn split(&mut self, id: SpaceId) -> Option<(&mut Ledger, Paths<'_>, Owners<'_>)> {
        let space = match id {
            SpaceId::Data => &mut self.data,
            _ => &mut self.handshake.as_mut()?.early_mut(id)?.space,
        };
        let owners = Owners {
            streams: &mut self.streams,
            recovery: &mut self.recovery,
            crypto: &mut space.crypto_send,
            received: &mut space.received,
            control: &mut self.control,
            run: None,
        };
        let paths = Paths { present: &mut self.path, known: &mut self.known };
        Some((&mut space.ledger, paths, owners))
    }
}
