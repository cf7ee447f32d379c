//! Slow viewers of the live stream: one byte per second or nothing at all, over TCP with a full
//! window, HTTP/2 with closed flow control, and HTTP/3 with small windows. Each receives what its
//! windows hold and then skips. The server must not buffer more for it.
//!
//! Each kind connects every two seconds and stays for [`STAYS`] unless the server ends it: some 200
//! at once, as many as healthy viewers.

use std::time::Duration;

use bytes::Buf as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

use super::clients::Http;
use super::crew::{Crew, Neighbour, Strike};
use super::tally::NeighbourTally;
use crate::Failure;
use crate::identity::NAME;

/// Duration of a connection, longer than the server's progress timeout.
const STAYS: Duration = Duration::from_secs(75);
/// Interval between single bytes.
const DRIP: Duration = Duration::from_secs(1);
/// Receive buffer of a TCP connection.
const TCP_BUFFER: u32 = 4_096;
/// Windows of HTTP/2: zero, or a small one opened byte by byte.
const SMALL_WINDOW: u32 = 1_024;
/// Windows of HTTP/3, of a stream and of the connection.
const H3_WINDOWS: (u32, u32) = (16 << 10, 64 << 10);
const PATH: &str = "/live/bench.flv";

fn neighbour(name: &'static str) -> Neighbour {
    Neighbour { name, per_second: 0.5, at_once: 1, network: 1, addresses: 4 }
}

pub(super) fn join(crew: &mut Crew) {
    crew.add(neighbour("slow reader: HTTP/1.1, reads nothing"), |strike| {
        h1(strike, Takes::Nothing)
    });
    crew.add(neighbour("slow reader: HTTP/1.1, a byte a second"), |strike| {
        h1(strike, Takes::Little)
    });
    crew.add(neighbour("slow reader: HTTP/2, no window"), |strike| h2(strike, 0));
    crew.add(neighbour("slow reader: HTTP/2, a byte a second"), |strike| h2(strike, SMALL_WINDOW));
    crew.add(neighbour("slow reader: HTTP/3, reads nothing"), |strike| h3(strike, Takes::Nothing));
    crew.add(neighbour("slow reader: HTTP/3, a chunk a second"), |strike| {
        h3(strike, Takes::Little)
    });
}

/// Reading behaviour.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Little,
}

/// Holds a connection until `ended` resolves to the server's way of ending it, or for [`STAYS`].
async fn hold(tally: &NeighbourTally, ended: impl Future<Output = &'static str>) {
    tally.end(timeout(STAYS, ended).await.unwrap_or("left"), 1);
}

pub(super) async fn h1(strike: Strike, takes: Takes) -> Result<(), Failure> {
    let tally = &strike.tally;
    tally.attempt(1);
    let mut stream = strike.tls(Http::V1, Some(TCP_BUFFER)).await?;
    let request = format!("GET {PATH} HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    if &status[9..] != b"200" {
        tally.end(format!("status {}", String::from_utf8_lossy(&status[9..])), 1);
        return Ok(());
    }
    tally.reach(1);
    // Reads below TLS, which would always read a whole record.
    let (mut stream, _tls) = stream.into_inner();
    let ended = async {
        loop {
            sleep(DRIP).await;
            // Detects a reset without reading.
            let error = stream.take_error().ok().flatten();
            let is_over = takes == Takes::Little && stream.read(&mut [0]).await.unwrap_or(0) == 0;
            if error.is_some() || is_over {
                return "ended by the server";
            }
        }
    };
    hold(tally, ended).await;
    Ok(())
}

async fn h2(strike: Strike, window: u32) -> Result<(), Failure> {
    let tally = &strike.tally;
    tally.attempt(1);
    let stream = strike.tls(Http::V2, None).await?;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window);
    let (requests, connection) = builder.handshake::<_, bytes::Bytes>(stream).await?;
    // The task ends with the requests.
    tokio::spawn(connection);
    let mut requests = requests.ready().await?;
    let request = http::Request::get(format!("https://{NAME}{PATH}")).body(())?;
    let (response, _) = requests.send_request(request, true)?;
    let response = response.await?;
    if response.status() != 200 {
        tally.end(format!("status {}", response.status().as_u16()), 1);
        return Ok(());
    }
    tally.reach(1);
    let mut body = response.into_body();
    let ended = async {
        while let Some(Ok(_)) = body.data().await {
            sleep(DRIP).await;
            let _ = body.flow_control().release_capacity(1);
        }
        "ended by the server"
    };
    hold(tally, ended).await;
    Ok(())
}

async fn h3(strike: Strike, takes: Takes) -> Result<(), Failure> {
    let tally = &strike.tally;
    tally.attempt(1);
    let mut client = strike.h3(Some(H3_WINDOWS)).await?;
    let request = http::Request::get(format!("https://{NAME}{PATH}")).body(())?;
    let mut stream = client.requests.send_request(request).await?;
    stream.finish().await?;
    let status = stream.recv_response().await?.status();
    if status != 200 {
        tally.end(format!("status {}", status.as_u16()), 1);
        return Ok(());
    }
    tally.reach(1);
    let ended = async {
        while takes == Takes::Little
            && let Ok(Some(data)) = stream.recv_data().await
            && data.has_remaining()
        {
            sleep(DRIP).await;
        }
        match client.connection.closed().await {
            quinn::ConnectionError::TimedOut => "idle time-out",
            _ => "ended by the server",
        }
    };
    hold(tally, ended).await;
    drop(stream);
    client.close().await;
    Ok(())
}
