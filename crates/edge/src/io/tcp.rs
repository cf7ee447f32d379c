//! Kernel TCP for viewers: congestion control, pacing and path statistics (TCP_INFO), which make
//! viewers on TCP comparable with those on QUIC.

mod counts;
mod intake;
#[cfg_attr(not(target_os = "linux"), path = "tcp/elsewhere.rs")]
mod kernel;

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use records::Record;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use units::Rate;

use crate::config::Config;
use crate::sync::lock;
use counts::TcpCounts;
use intake::Intake;

/// Minimum interval of statistics updates while data is written.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum wait for the peer's close after ours.
const LINGER: Duration = Duration::from_secs(1);

/// Minimum bytes of a measured rate: more than the initial window of RFC 6928.
const MIN_MEASURED: u64 = 16_000;

/// Sets the options that accepted connections inherit. Logs those that the kernel rejects.
pub(super) fn configure(listener: &impl AsFd, config: &Config) {
    let tcp = &config.tcp;
    if !tcp.congestion.is_empty()
        && let Err(e) = kernel::set_congestion(listener, &tcp.congestion)
    {
        let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        let known = std::fs::read_to_string(path).unwrap_or_default();
        tracing::warn!(
            "[tcp] congestion: the kernel rejects {:?} for viewers on TCP ({e}); available: {}",
            tcp.congestion,
            known.trim()
        );
    }
    if tcp.pacing
        && let Err(e) = kernel::pace(listener)
    {
        tracing::warn!("[tcp] pacing: rejected by the kernel ({e})");
    }
}

/// Latest kernel statistics of a connection, shared with its sessions.
#[derive(Debug, Default)]
pub struct TcpPath {
    congestion: String,
    counts: Mutex<TcpCounts>,
}

impl TcpPath {
    fn sample(&self, stream: &impl AsFd) {
        let Some(now) = kernel::counts(stream) else { return };
        let mut counts = lock(&self.counts);
        *counts = TcpCounts { delivery_rate: now.delivery_rate.max(counts.delivery_rate), ..now };
    }

    /// Returns the latest delivery rate, if measured by more than a handshake.
    pub fn latest_rate(&self) -> Option<Rate> {
        let TcpCounts { sent_bytes, latest_rate, .. } = *lock(&self.counts);
        (latest_rate > 0 && sent_bytes >= MIN_MEASURED).then(|| Rate::from_bps(latest_rate))
    }
}

/// Path statistics since the start of a session.
#[derive(Clone, Debug)]
pub struct SincePath {
    path: Arc<TcpPath>,
    before: Box<TcpCounts>,
}

impl SincePath {
    /// Starts now.
    pub fn new(path: &Arc<TcpPath>) -> Self {
        Self { path: path.clone(), before: Box::new(*lock(&path.counts)) }
    }

    /// Returns the latest delivery rate of the path, if measured.
    pub fn latest_rate(&self) -> Option<Rate> {
        self.path.latest_rate()
    }

    /// Fills the columns that TCP can answer, if the connection has a round-trip time.
    pub fn write_to(&self, record: &mut Record) {
        let (now, before) = (*lock(&self.path.counts), &*self.before);
        if now.rtt.is_zero() {
            return;
        }
        let since = |of: fn(&TcpCounts) -> u64| of(&now).saturating_sub(of(before));
        let count = |count: u64| Some(count as i64);
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let retransmitted = since(|c| c.retransmitted);
        let spurious = since(|c| c.spurious).min(retransmitted);
        let lost = retransmitted - spurious;
        let first = since(|c| c.sent).saturating_sub(retransmitted);
        let settled = since(|c| c.delivered).max(lost);
        let path = &mut record.path;
        path.congestion_controller =
            Some(self.path.congestion.clone()).filter(|name| !name.is_empty());
        path.rtt_min_ms = Some(now.rtt_min.as_secs_f64() * 1e3);
        path.rtt_ms = Some(now.rtt.as_secs_f64() * 1e3);
        path.max_bandwidth_mbps =
            (now.delivery_rate > 0).then_some(now.delivery_rate as f64 * 1e-6);
        path.loss_rate = ratio(lost, settled);
        path.packets_settled = count(settled);
        path.packets_lost = count(lost);
        path.packets_spurious = count(spurious);
        let recovery = &mut record.recovery;
        recovery.first_transmissions = count(first);
        recovery.first_bytes =
            count(since(|c| c.sent_bytes).saturating_sub(since(|c| c.retransmitted_bytes)));
        recovery.retransmissions = count(retransmitted);
        recovery.retransmission_ratio = ratio(retransmitted, first);
    }
}

/// A TCP connection with path statistics, updated during writes and at its end, and a receive
/// limit.
#[derive(Debug)]
pub(crate) struct MeasuredStream {
    stream: TcpStream,
    path: Arc<TcpPath>,
    sampled_at: Option<Instant>,
    intake: Intake,
    /// Deadline for the peer's close, once ours is sent.
    linger: Option<Pin<Box<Sleep>>>,
}

impl MeasuredStream {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let congestion = kernel::congestion(&stream);
        let path = Arc::new(TcpPath { congestion, counts: Mutex::default() });
        Self { stream, path, sampled_at: None, intake: Intake::new(), linger: None }
    }

    /// Returns the path statistics.
    pub(crate) fn path(&self) -> &Arc<TcpPath> {
        &self.path
    }

    fn sample(&mut self) {
        let now = Instant::now();
        if self.sampled_at.is_none_or(|sampled_at| now - sampled_at >= SAMPLE_INTERVAL) {
            self.path.sample(&self.stream);
            self.sampled_at = Some(now);
        }
    }
}

impl Drop for MeasuredStream {
    fn drop(&mut self) {
        self.path.sample(&self.stream);
    }
}

impl AsyncRead for MeasuredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, intake, .. } = &mut *self;
        let most = ready!(intake.poll(context)).min(into.remaining());
        let mut part = ReadBuf::new(into.initialize_unfilled_to(most));
        ready!(Pin::new(stream).poll_read(context, &mut part))?;
        let bytes = part.filled().len();
        into.advance(bytes);
        intake.read(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MeasuredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.sample();
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.intake.written(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.sample();
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, parts))?;
        self.intake.written(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Sends FIN and waits up to [`LINGER`] for the peer's.
    ///
    /// Closing a socket with unread or newly arriving data resets the connection and loses unsent
    /// data. HTTP/2 clients always send something at the end.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, linger, .. } = &mut *self;
        let until = match linger {
            Some(until) => until,
            None => {
                ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
                linger.insert(Box::pin(sleep(LINGER)))
            }
        };
        let mut unread = [0; 1_024];
        while until.as_mut().poll(context).is_pending() {
            let mut into = ReadBuf::new(&mut unread);
            match ready!(Pin::new(&mut *stream).poll_read(context, &mut into)) {
                Ok(()) if !into.filled().is_empty() => {}
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn final_data_arrives_while_the_peer_keeps_sending() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a client");
            let mut stream = MeasuredStream::new(stream);
            stream.write_all(&[7; 1_000_000]).await.expect("room");
            stream.shutdown().await
        });
        let mut client = TcpStream::connect(address).await.expect("connected");
        let (mut got, mut part) = (0, vec![0; 50_000]);
        loop {
            // Like the flow-control frames of an HTTP/2 client.
            client.write_all(b"more").await.expect("open");
            sleep(Duration::from_millis(2)).await;
            match client.read(&mut part).await.expect("no reset") {
                0 => break,
                n => got += n,
            }
        }
        assert_eq!(got, 1_000_000);
        drop(client);
        server.await.expect("no panic").expect("closed");
    }

    #[tokio::test]
    async fn shutdown_does_not_wait_for_a_peer_that_never_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut client = TcpStream::connect(address).await.expect("connected");
        let (stream, _) = listener.accept().await.expect("a client");
        let talk = tokio::spawn(async move {
            while client.write_all(&[0; 100]).await.is_ok() {
                sleep(Duration::from_millis(1)).await;
            }
        });
        let begun = Instant::now();
        let mut stream = MeasuredStream::new(stream);
        stream.shutdown().await.expect("closed");
        drop(stream);
        assert!((LINGER..10 * LINGER).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        talk.await.expect("no panic");
    }
}
