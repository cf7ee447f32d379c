//! An upstream that sends FLV over HTTP.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Incoming;
use media::{Tag, flv};
use tokio::time::timeout;

use super::trouble::{Notes, Reason, Trouble};
use crate::client::Failure;

pub(super) struct FlvSource {
    response: Response<Incoming>,
    reader: flv::Reader,
    /// Longest wait for a tag.
    limit: Duration,
    notes: Notes,
}

impl FlvSource {
    pub(super) fn new(
        response: Response<Incoming>,
        max_tag: usize,
        limit: Duration,
        notes: Notes,
    ) -> Self {
        Self { response, reader: flv::Reader::new(max_tag), limit, notes }
    }

    /// The next tag; `None` at the end. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Result<Option<Tag>, Trouble> {
        let limit = self.limit;
        timeout(limit, self.read()).await.unwrap_or_else(|_| Err(Trouble::silence(limit)))
    }

    async fn read(&mut self) -> Result<Option<Tag>, Trouble> {
        loop {
            if let Some(tag) = self.reader.next_tag() {
                return Ok(Some(tag));
            }
            let Some(frame) = self.response.body_mut().frame().await else { return Ok(None) };
            if let Ok(data) = frame.map_err(|e| Failure(e.to_string()))?.into_data() {
                let read = self.reader.read(&data);
                self.notes.tolerate(self.reader.deviations());
                read.map_err(|e| Trouble::new(Reason::Content, e))?;
            }
        }
    }
}
