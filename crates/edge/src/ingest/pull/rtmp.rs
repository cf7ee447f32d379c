//! An upstream that is played over RTMP, with TLS or without.

use std::time::Duration;

use bytes::BytesMut;
use media::{Tag, rtmp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::trouble::{Reason, Trouble};
use crate::client::{Client, Connection, Failure, no_answer};
use crate::entropy::noise;

pub(super) struct RtmpSource {
    stream: Connection,
    client: rtmp::Client,
    input: BytesMut,
    /// Why nothing more can be sent.
    written: Result<(), Failure>,
    /// Longest wait for a tag.
    limit: Duration,
}

impl RtmpSource {
    /// Connects. Tags are at most `max_tag` bytes long.
    pub(super) async fn open(
        client: &Client,
        url: &str,
        max_tag: usize,
        limit: Duration,
    ) -> Result<Self, Trouble> {
        let target = rtmp::Url::parse(url).map_err(|e| Trouble::new(Reason::Content, e))?;
        let connect = client.connect(target.tls, &target.host, target.port);
        let stream = timeout(limit, connect).await.map_err(|_| no_answer(limit))??;
        let config = rtmp::Config { max_message: max_tag, ..rtmp::Config::default() };
        let client = rtmp::Client::new(target, rtmp::Intent::Play, config, &noise());
        Ok(Self { stream, client, input: BytesMut::new(), written: Ok(()), limit })
    }

    /// The next tag; `None` at the end. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Result<Option<Tag>, Trouble> {
        let limit = self.limit;
        timeout(limit, self.read()).await.unwrap_or_else(|_| Err(Trouble::silence(limit)))
    }

    async fn read(&mut self) -> Result<Option<Tag>, Trouble> {
        let failed = |e: std::io::Error| Failure(e.to_string());
        loop {
            while let Some(event) = self.client.poll_event() {
                match event {
                    rtmp::ClientEvent::Tag(tag) => return Ok(Some(tag)),
                    rtmp::ClientEvent::Refused(why) => {
                        return Err(Trouble::new(Reason::Status, format!("refused: {why}")));
                    }
                    rtmp::ClientEvent::Ended => return Ok(None),
                    rtmp::ClientEvent::Playing | rtmp::ClientEvent::Publishing => {}
                }
            }
            let mut sent = false;
            while let Some(bytes) = self.client.poll_output() {
                sent = true;
                if let Err(e) = self.stream.write_all(&bytes).await {
                    // A server that refuses may have left; what it said is still there to be read.
                    self.written = Err(failed(e));
                }
            }
            if sent && let Err(e) = self.stream.flush().await {
                self.written = Err(failed(e));
            }
            self.input.reserve(65_536);
            if self.stream.read_buf(&mut self.input).await.map_err(failed)? == 0 {
                return self.written.clone().map(|()| None).map_err(Trouble::from);
            }
            let handled = self.client.handle(&self.input);
            self.input.clear();
            handled.map_err(|e| Trouble::new(Reason::Content, e))?;
        }
    }
}
