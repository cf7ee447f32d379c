//! An upstream that sends FLV over HTTP.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Incoming;
use media::{Tag, flv};
use tokio::time::timeout;

use super::report::{PullError, Reason, Reporter};
use crate::client::Failure;

pub(super) struct FlvSource {
    response: Response<Incoming>,
    reader: flv::Reader,
    /// Maximum wait for a tag.
    limit: Duration,
    reporter: Reporter,
}

impl FlvSource {
    pub(super) fn new(
        response: Response<Incoming>,
        max_tag: usize,
        limit: Duration,
        reporter: Reporter,
    ) -> Self {
        Self { response, reader: flv::Reader::new(max_tag), limit, reporter }
    }

    /// Returns the next tag; `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Tag>, PullError> {
        let limit = self.limit;
        timeout(limit, self.read()).await.unwrap_or_else(|_| Err(PullError::silence(limit)))
    }

    async fn read(&mut self) -> Result<Option<Tag>, PullError> {
        loop {
            if let Some(tag) = self.reader.next_tag() {
                return Ok(Some(tag));
            }
            let Some(frame) = self.response.body_mut().frame().await else { return Ok(None) };
            if let Ok(data) = frame.map_err(|e| Failure(e.to_string()))?.into_data() {
                let read = self.reader.read(&data);
                self.reporter.tolerate(self.reader.deviations());
                read.map_err(|e| PullError::new(Reason::Content, e))?;
            }
        }
    }
}
