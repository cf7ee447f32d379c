//! Floods of names: requests for unpublished streams, as FLV and as HLS, over HTTP/1.1, HTTP/3 and
//! RTMP; and for streams pulled from an unresponsive upstream.
//!
//! 100 requests per second over each HTTP version on two connections per second; 10 RTMP players
//! and 10 requests for pulled names per second, each on its own connection.

use std::time::Duration;

use bytes::Bytes;
use media::rtmp::{ClientEvent, Intent};
use tokio::time::sleep;

use super::super::server::PULLED;
use super::crew::{Crew, Neighbour, Strike};
use crate::Failure;

/// Interval between requests on a connection.
const APART: Duration = Duration::from_millis(10);

fn flood(name: &'static str, per_second: f64, at_once: u32) -> Neighbour {
    Neighbour { name, per_second, at_once, network: 3, addresses: 4 }
}

pub(super) fn join(crew: &mut Crew) {
    crew.add(flood("flood of names: HTTP/1.1", 100.0, 50), h1);
    crew.add(flood("flood of names: HTTP/3", 100.0, 50), h3);
    crew.add(flood("flood of names: RTMP", 10.0, 1), rtmp);
    crew.add(flood("flood of names: pulled", 10.0, 1), pulled);
}

/// Checks the status: an unpublished stream must not be found.
fn answered(strike: &Strike, status: u16) {
    match status {
        200..300 => strike.tally.breach(format!("status {status}")),
        _ => strike.tally.answer(format!("status {status}")),
    }
}

/// Returns a name that was not requested before.
fn path(strike: &Strike, request: u32) -> String {
    let name = format!("live/nobody-{}-{request}", strike.number);
    if request.is_multiple_of(2) { format!("/{name}.flv") } else { format!("/{name}/index.m3u8") }
}

async fn h1(strike: Strike) -> Result<(), Failure> {
    let mut client = strike.h1().await?;
    for request in 0..strike.attempts {
        strike.tally.attempt(1);
        let (status, _) = client.ask("GET", &path(&strike, request), Bytes::new()).await?;
        answered(&strike, status);
        sleep(APART).await;
    }
    Ok(())
}

async fn h3(strike: Strike) -> Result<(), Failure> {
    let mut client = strike.h3(None).await?;
    for request in 0..strike.attempts {
        strike.tally.attempt(1);
        let status = client.ask("GET", &path(&strike, request), Bytes::new()).await?;
        answered(&strike, status);
        sleep(APART).await;
    }
    client.close().await;
    Ok(())
}

async fn rtmp(strike: Strike) -> Result<(), Failure> {
    strike.tally.attempt(1);
    let name = format!("live/nobody-{}", strike.number);
    match strike.rtmp(&name, Intent::Play).await?.1 {
        Some(ClientEvent::Refused(why)) => strike.tally.answer(format!("refused: {why}")),
        Some(_) => strike.tally.breach("let in"),
        None => strike.tally.answer("closed by the server"),
    }
    Ok(())
}

async fn pulled(strike: Strike) -> Result<(), Failure> {
    strike.tally.attempt(1);
    let mut client = strike.h1().await?;
    let path = format!("/{PULLED}nobody-{}.flv", strike.number);
    let (status, _) = client.ask("GET", &path, Bytes::new()).await?;
    answered(&strike, status);
    Ok(())
}
