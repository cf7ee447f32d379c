//! Control frames of the connection itself, without those of its streams and of path validation.

use super::new_tokens::{Due, NewTokens};
use crate::crypto::CidCipher;
use crate::ids::{LocalIds, RemoteIds};
use crate::ledger::SentFrame;
use crate::wire::{
    Writer, max_len, new_token_len, put_handshake_done, put_new_connection_id, put_new_token,
    put_ping, put_retire_connection_id,
};

/// Sources of the connection's control frames. Each frame is pending until sent, and again once
/// lost.
pub(super) struct ControlFrames {
    handshake_done_due: bool,
    ping_due: bool,
    pub(super) local_ids: LocalIds,
    pub(super) remote_ids: RemoteIds,
    pub(super) new_tokens: NewTokens,
}

impl ControlFrames {
    /// No pending frame.
    pub(super) fn new(local_ids: LocalIds, remote_ids: RemoteIds) -> Self {
        Self {
            handshake_done_due: false,
            ping_due: false,
            local_ids,
            remote_ids,
            new_tokens: NewTokens::default(),
        }
    }

    /// Queues HANDSHAKE_DONE.
    pub(super) fn confirm_handshake(&mut self) {
        self.handshake_done_due = true;
    }

    /// Queues a PING.
    pub(super) fn ask_ping(&mut self) {
        self.ping_due = true;
    }

    pub(super) fn is_ping_due(&self) -> bool {
        self.ping_due
    }

    pub(super) fn is_handshake_done_due(&self) -> bool {
        self.handshake_done_due
    }

    /// Returns true if a frame is pending.
    pub(super) fn is_due(&self) -> bool {
        self.handshake_done_due
            || self.ping_due
            || self.local_ids.is_due()
            || self.remote_ids.is_due()
            || self.new_tokens.is_due()
    }

    /// Takes the acknowledgement of a frame.
    pub(super) fn on_acked(&mut self, frame: &SentFrame) {
        match *frame {
            SentFrame::RetireConnectionId(_) => self.remote_ids.on_acked(),
            SentFrame::NewToken { slot, generation } => self.new_tokens.on_acked(slot, generation),
            _ => {}
        }
    }

    /// Queues a lost frame again, unless something newer replaces it.
    pub(super) fn on_lost(&mut self, frame: &SentFrame) {
        match *frame {
            SentFrame::NewConnectionId(sequence) => self.local_ids.on_lost(sequence),
            SentFrame::RetireConnectionId(sequence) => self.remote_ids.on_lost(sequence),
            SentFrame::HandshakeDone => self.handshake_done_due = true,
            SentFrame::NewToken { slot, generation } => self.new_tokens.on_lost(slot, generation),
            _ => {}
        }
    }

    /// Writes a pending HANDSHAKE_DONE. Returns true if it did.
    pub(super) fn write_handshake_done(
        &mut self,
        w: &mut Writer<'_>,
        frames: &mut Vec<SentFrame>,
    ) -> bool {
        let writes = self.handshake_done_due && w.remaining() >= max_len::HANDSHAKE_DONE;
        if writes {
            put_handshake_done(w);
            self.handshake_done_due = false;
            frames.push(SentFrame::HandshakeDone);
        }
        writes
    }

    /// Writes a pending PING. Returns true if it did.
    pub(super) fn write_ping(&mut self, w: &mut Writer<'_>) -> bool {
        let writes = self.ping_due && w.remaining() > 0;
        if writes {
            put_ping(w);
            self.ping_due = false;
        }
        writes
    }

    /// Writes pending frames of connection IDs and tokens, and appends them to `frames`.
    pub(super) fn write_ids_and_tokens(
        &mut self,
        w: &mut Writer<'_>,
        cids: &CidCipher,
        frames: &mut Vec<SentFrame>,
    ) {
        while w.remaining() >= max_len::NEW_CONNECTION_ID
            && let Some(sequence) = self.local_ids.next_due()
        {
            let id = self.local_ids.get(sequence, cids);
            let reset_token = cids.reset_token(id.as_slice());
            put_new_connection_id(w, sequence, 0, &id, &reset_token);
            self.local_ids.sent();
            frames.push(SentFrame::NewConnectionId(sequence));
        }
        while w.remaining() >= max_len::RETIRE_CONNECTION_ID
            && let Some(sequence) = self.remote_ids.next_due()
        {
            put_retire_connection_id(w, sequence);
            self.remote_ids.sent();
            frames.push(SentFrame::RetireConnectionId(sequence));
        }
        while let Some(due) =
            self.new_tokens.next_due(|token| new_token_len(token.len()) <= w.remaining())
        {
            let Due { slot, generation, token } = due;
            put_new_token(w, token);
            self.new_tokens.on_sent(slot);
            frames.push(SentFrame::NewToken { slot, generation });
        }
    }
}
