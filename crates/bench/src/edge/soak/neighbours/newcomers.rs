//! Honest newcomers: publishers over RTMP and viewers over HTTP/1.1, whose places the neighbours
//! try to occupy. They come from their own network, and the server must admit them.
//!
//! One of each per second; each leaves as soon as it is admitted.

use std::future::Future;
use std::time::Duration;

use media::rtmp::{ClientEvent, Intent};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::super::server::OTHER_KEY;
use super::clients::Http;
use super::crew::{Crew, Neighbour, Strike};
use crate::Failure;
use crate::identity::NAME;

/// Maximum wait: encoders and players give up after some seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Streams published in turn. Each one lingers for 10 s.
const STREAMS: u64 = 32;

fn newcomer(name: &'static str) -> Neighbour {
    Neighbour { name, per_second: 1.0, at_once: 1, network: 14, addresses: 4 }
}

pub(super) fn join(crew: &mut Crew) {
    crew.add(newcomer("new publishers are admitted"), |strike| comes(strike, publishes));
    crew.add(newcomer("new viewers over TCP are admitted"), |strike| comes(strike, views));
}

/// Counts an attempt once its outcome is known, so none is pending when newcomers stop.
async fn comes<O>(strike: Strike, attempt: impl Fn(Strike) -> O) -> Result<(), Failure>
where
    O: Future<Output = Result<(), Failure>>,
{
    let result = timeout(PATIENCE, attempt(strike.clone())).await;
    strike.tally.attempt(1);
    match result {
        Ok(Ok(())) => strike.tally.answer("let in"),
        Ok(Err(e)) => strike.tally.end(e.to_string(), 1),
        Err(_) => strike.tally.end("not admitted in time", 1),
    }
    Ok(())
}

async fn publishes(strike: Strike) -> Result<(), Failure> {
    let name = format!("others/new-{}?key={OTHER_KEY}", strike.number % STREAMS);
    let (mut rtmp, event) = strike.rtmp(&name, Intent::Publish).await?;
    match event {
        Some(ClientEvent::Publishing) => {
            rtmp.client.close();
            rtmp.flush().await
        }
        Some(ClientEvent::Refused(why)) => Err(format!("refused: {why}").into()),
        _ => Err("closed by the server".into()),
    }
}

async fn views(strike: Strike) -> Result<(), Failure> {
    let mut stream = strike.tls(Http::V1, None).await?;
    let request = format!("GET /live/bench.flv HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    match &status[9..] {
        b"200" => Ok(()),
        status => Err(format!("status {}", String::from_utf8_lossy(status)).into()),
    }
}
