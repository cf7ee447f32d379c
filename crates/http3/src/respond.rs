//! Responses: their parts in order, framed (RFC 9114, section 4.1), and their end, early or not.

use bytes::Bytes;
use units::StreamId;

use crate::error::{SendError, code};
use crate::frame::{self, write_frame};
use crate::qpack;
use crate::request;
use crate::server::{Request, Server};
use crate::transport::Transport;

impl Server {
    /// Sends the head of the response: `:status` and `headers`, in their order. With `end` the
    /// response is complete, as by [`Server::finish`].
    ///
    /// # Errors
    /// [`SendError::Gone`], [`SendError::OutOfOrder`] after a first call, [`SendError::Malformed`]
    /// for a status outside 200 to 999 or a field that RFC 9114, section 4.2 forbids, and
    /// [`SendError::TooLarge`] above the client's limit; nothing has been sent then.
    pub fn respond(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        status: u16,
        headers: &[(&str, &str)],
        end: bool,
    ) -> Result<(), SendError> {
        let limit = self.peer_max_field_section_size;
        let request = self.live(id).ok_or(SendError::Gone)?;
        if request.head_sent {
            return Err(SendError::OutOfOrder);
        }
        if !(200..=999).contains(&status) {
            return Err(SendError::Malformed);
        }
        if !headers.iter().all(|(n, v)| request::is_field(n.as_bytes(), v.as_bytes())) {
            return Err(SendError::Malformed);
        }
        let status = status.to_string();
        let lines = || [(":status", status.as_str())].into_iter().chain(headers.iter().copied());
        // RFC 9114, section 4.2.2: a message above the peer's limit SHOULD NOT be sent.
        let size: u64 = lines().map(|(n, v)| qpack::field_size(n.as_bytes(), v.as_bytes())).sum();
        if limit.is_some_and(|limit| size > limit) {
            return Err(SendError::TooLarge);
        }
        write_frame(t, id, frame::HEADERS, &[], qpack::encode(lines()))?;
        request.head_sent = true;
        if end { self.finish(t, id) } else { Ok(()) }
    }

    /// Sends content: one DATA frame around `data`, which is not copied. Nothing for no bytes.
    ///
    /// # Errors
    /// [`SendError::Gone`], and [`SendError::OutOfOrder`] before the head.
    pub fn send_data(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        data: Bytes,
    ) -> Result<(), SendError> {
        self.send_data_behind(t, id, &[], data)
    }

    /// Sends content: one DATA frame around `head`, which is copied, and `data`, which is not. For
    /// a few bytes of this client's own before many that clients share. Nothing for no bytes.
    ///
    /// # Errors
    /// As [`Server::send_data`].
    pub fn send_data_behind(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        head: &[u8],
        data: Bytes,
    ) -> Result<(), SendError> {
        let request = self.live(id).ok_or(SendError::Gone)?;
        if !request.head_sent {
            return Err(SendError::OutOfOrder);
        }
        if head.is_empty() && data.is_empty() {
            return Ok(());
        }
        Ok(write_frame(t, id, frame::DATA, head, data)?)
    }

    /// Ends the response, and declines the rest of the request.
    ///
    /// # Errors
    /// [`SendError::Gone`], and [`SendError::OutOfOrder`] before the head.
    pub fn finish(&mut self, t: &mut impl Transport, id: StreamId) -> Result<(), SendError> {
        let request = self.live(id).ok_or(SendError::Gone)?;
        if !request.head_sent {
            return Err(SendError::OutOfOrder);
        }
        t.finish(id);
        if !request.has_ended() {
            // RFC 9114, section 4.1: "The error code H3_NO_ERROR SHOULD be used when requesting
            // that the client stop sending on the request stream."
            t.stop_sending(id, code::H3_NO_ERROR);
        }
        self.retire(t, id, Request::Answered);
        Ok(())
    }

    /// Gives a request up: resets the response and declines the rest of the request, with `code`
    /// ([`code::H3_REQUEST_CANCELLED`], or [`code::H3_REQUEST_REJECTED`] if nothing was done for
    /// it). No event follows; a request that is over is left alone.
    pub fn cancel(&mut self, t: &mut impl Transport, id: StreamId, code: u64) {
        if let Some(request) = self.live(id) {
            request.is_delivered = false;
            self.abort(t, id, code, code);
        }
    }
}
