//! Responses: framing (RFC 9114, section 4.1), order of parts, completion and cancellation.

use bytes::Bytes;
use units::StreamId;

use crate::error::{SendError, code};
use crate::frame::{self, write_frame};
use crate::qpack;
use crate::request;
use crate::server::{RequestState, Server};
use crate::transport::Transport;

impl Server {
    /// Sends the head of the response: `:status`, then `headers` in this order. With `end`, the
    /// response is complete, as after [`Server::finish`].
    ///
    /// # Errors
    /// [`SendError::Gone`], [`SendError::OutOfOrder`] after an earlier call,
    /// [`SendError::Malformed`] for a status outside 200 to 999 or a field that RFC 9114, section
    /// 4.2 forbids, and [`SendError::TooLarge`] above the client's limit. Nothing is sent after an
    /// error.
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

    /// Sends content: one DATA frame with `data`, which is not copied. Does nothing for empty
    /// `data`.
    ///
    /// # Errors
    /// [`SendError::Gone`], and [`SendError::OutOfOrder`] before the head.
    pub fn send_data(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        data: Bytes,
    ) -> Result<(), SendError> {
        self.send_data_with_head(t, id, &[], data)
    }

    /// Sends content: one DATA frame with `head`, which is copied, and `data`, which is not. For a
    /// few bytes specific to this client before a large buffer shared by clients. Does nothing if
    /// both are empty.
    ///
    /// # Errors
    /// As for [`Server::send_data`].
    pub fn send_data_with_head(
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

    /// Completes the response, and declines the rest of the request.
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
        self.retire(t, id, RequestState::Answered);
        Ok(())
    }

    /// Cancels a request: resets the response and declines the rest of the request, with `code`
    /// ([`code::H3_REQUEST_CANCELLED`], or [`code::H3_REQUEST_REJECTED`] if it was not processed).
    /// No event follows. Ignored if the request has ended.
    pub fn cancel(&mut self, t: &mut impl Transport, id: StreamId, code: u64) {
        if let Some(request) = self.live(id) {
            request.is_delivered = false;
            self.abort(t, id, code, code);
        }
    }
}
