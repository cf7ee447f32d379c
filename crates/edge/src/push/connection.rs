//! One connection to a target: handshake, `publish`, and the stream's tags.

use core::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use media::rtmp::{self, ClientEvent, Intent};
use relay::Viewer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout};

use super::counts::{PushEvent, TargetCounts};
use crate::client::{Client, Connection};
use crate::entropy::noise;
use crate::names::printable;

/// Read buffer size, and maximum bytes of a write, in bytes.
const BUFFER: usize = 64 << 10;
/// Maximum size of a target's messages, which are commands.
const MAX_MESSAGE: usize = 64 << 10;
/// Timeout of the last messages to a target.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Reason why a connection ended, and its text for the log.
#[derive(Debug)]
pub(super) struct Failure {
    pub event: PushEvent,
    pub text: String,
}

impl Failure {
    pub(super) fn new(event: PushEvent, text: impl fmt::Display) -> Self {
        Self { event, text: text.to_string() }
    }

    fn gone() -> Self {
        Self::new(PushEvent::Closed, "closed by the target")
    }

    fn closed(error: &io::Error) -> Self {
        Self::new(PushEvent::Closed, error)
    }
}

/// A connection that is being used for a push.
pub(super) struct Pushing<'a> {
    client: rtmp::Client,
    counts: &'a TargetCounts,
    limit: Duration,
    /// Bytes that the target has not taken yet.
    output: BytesMut,
    /// Time at which the target is late: it has to answer, or to take data.
    deadline: Instant,
    is_accepted: bool,
    skips: u64,
}

/// Connects to the target. `passed` are the servers that the stream passed.
///
/// # Errors
/// The connection, or TLS, failed or took longer than `limit`.
pub(super) async fn connect(
    client: &Client,
    url: &rtmp::Url,
    limit: Duration,
) -> Result<Connection, Failure> {
    let connected = timeout(limit, client.connect(url.tls, &url.host, url.port)).await;
    match connected {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(Failure::new(PushEvent::Unreachable, error)),
        Err(_) => Err(Failure::new(PushEvent::Late, format!("no connection within {limit:?}"))),
    }
}

impl<'a> Pushing<'a> {
    pub(super) fn new(
        url: rtmp::Url,
        passed: String,
        counts: &'a TargetCounts,
        limit: Duration,
    ) -> Self {
        let config = rtmp::Config { max_message: MAX_MESSAGE, ..rtmp::Config::default() };
        let client = rtmp::Client::new(url, Intent::Publish, config, &noise());
        Self {
            client: client.with_passed_servers(passed),
            counts,
            limit,
            output: BytesMut::with_capacity(BUFFER),
            deadline: Instant::now() + limit,
            is_accepted: false,
            skips: 0,
        }
    }

    /// Sends the stream until it ends. Returns `Ok` at its end.
    ///
    /// # Errors
    /// The target rejected the stream, failed, or was late.
    pub(super) async fn run(
        &mut self,
        stream: Connection,
        viewer: &mut Viewer,
    ) -> Result<(), Failure> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut input = BytesMut::with_capacity(BUFFER);
        loop {
            while self.output.len() < BUFFER
                && let Some(bytes) = self.client.poll_output()
            {
                self.output.extend_from_slice(&bytes);
            }
            let has_output = !self.output.is_empty();
            let takes_tags = self.is_accepted && !has_output;
            // A target must answer the request, and then take data; pauses of the publisher are
            // not its fault.
            let is_due = !self.is_accepted || has_output;
            tokio::select! {
                read = reader.read_buf(&mut input) => {
                    match read {
                        Ok(0) => return Err(Failure::gone()),
                        Ok(_) => {}
                        Err(error) => return Err(Failure::closed(&error)),
                    }
                    let handled = self.client.handle(&input);
                    input.clear();
                    self.take_events()?;
                    handled.map_err(|error| Failure::new(PushEvent::Invalid, error))?;
                }
                written = writer.write(&self.output), if has_output => {
                    match written {
                        Ok(0) => return Err(Failure::gone()),
                        Ok(written) => self.output.advance(written),
                        Err(error) => return Err(Failure::closed(&error)),
                    }
                    self.on_written();
                    // TLS may hold back the last bytes.
                    if self.output.is_empty() {
                        let flushed = timeout(self.limit, writer.flush()).await;
                        let flushed = flushed.map_err(|_| self.late())?;
                        flushed.map_err(|error| Failure::closed(&error))?;
                    }
                }
                tag = poll_fn(|context| viewer.poll_next(context)), if takes_tags => {
                    let Some(tag) = tag else {
                        self.client.close();
                        self.finish(writer).await;
                        return Ok(());
                    };
                    let time = viewer.own_time(&tag);
                    self.client.send_tag_at(&tag, time);
                    self.count_tag(tag.bytes().len(), viewer);
                    self.deadline = Instant::now() + self.limit;
                }
                () = sleep_until(self.deadline), if is_due => return Err(self.late()),
            }
        }
    }

    /// A target that takes data is not late. Before it accepted, it has to answer as well.
    fn on_written(&mut self) {
        if self.is_accepted {
            self.deadline = Instant::now() + self.limit;
        }
    }

    fn late(&self) -> Failure {
        let what = if self.is_accepted { "no data taken" } else { "no answer" };
        Failure::new(PushEvent::Late, format!("{what} within {:?}", self.limit))
    }

    fn take_events(&mut self) -> Result<(), Failure> {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Publishing => {
                    self.is_accepted = true;
                    self.counts.count(PushEvent::Connected);
                    self.counts.connected.fetch_add(1, Ordering::Relaxed);
                }
                ClientEvent::Refused(why) => {
                    return Err(Failure::new(PushEvent::Refused, printable(&why)));
                }
                ClientEvent::Ended => {
                    return Err(Failure::new(PushEvent::Closed, "ended by the target"));
                }
                ClientEvent::Playing | ClientEvent::Tag(_) => {}
            }
        }
        Ok(())
    }

    fn count_tag(&mut self, bytes: usize, viewer: &Viewer) {
        self.counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let skips = viewer.progress().skips;
        self.counts.skips.fetch_add(skips.saturating_sub(self.skips), Ordering::Relaxed);
        self.skips = skips;
    }

    /// Sends the end of the stream. Failures do not matter any more.
    async fn finish(&mut self, mut writer: impl tokio::io::AsyncWrite + Unpin) {
        let _ = timeout(CLOSE_TIMEOUT, async {
            while let Some(bytes) = self.client.poll_output() {
                writer.write_all(&bytes).await?;
            }
            writer.shutdown().await
        })
        .await;
    }

    /// Returns whether the target accepted the stream.
    pub(super) fn is_accepted(&self) -> bool {
        self.is_accepted
    }
}

impl Drop for Pushing<'_> {
    fn drop(&mut self) {
        if self.is_accepted {
            self.counts.connected.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
