//! Floods of the server's log without a key: each connection or request triggers a line, with text
//! that moves a terminal's cursor or forges further lines.
//!
//! Per second: 200 connections that are not RTMP, 100 rejected publishers, 50 requests for hostile
//! paths, and 2 publishers with a stream name of one megabyte.

use std::time::Duration;

use bytes::Bytes;
use media::rtmp::{ClientEvent, Intent, Url};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};

use super::clients::until_ended;
use super::crew::{Crew, Neighbour, Strike};
use crate::Failure;

/// Maximum wait for the server to end a connection.
const WAIT: Duration = Duration::from_secs(20);
/// Interval between requests on a connection.
const APART: Duration = Duration::from_millis(10);
/// Clears a terminal, renames its window, rings, and forges a line.
const HOSTILE: &str =
    "\x1b[2J\x1b]0;owned\x07\r\n2026-11-27T00:00:00Z ERROR forged\x1b[31m\u{9b}8m";
/// The same, as a path.
const HOSTILE_PATH: &str = "%1b%5b2J%0d%0aERROR%20forged%07%c2%9b8m";
/// Length of the longest name, in bytes.
const MEGABYTE: usize = 1 << 20;

fn neighbour(name: &'static str, per_second: f64, at_once: u32) -> Neighbour {
    Neighbour { name, per_second, at_once, network: 10, addresses: 4 }
}

pub(super) fn join(crew: &mut Crew) {
    crew.add(neighbour("log flood: not RTMP", 200.0, 10), |strike| strike.at_once(no_rtmp));
    crew.add(neighbour("log flood: publishers with hostile names", 100.0, 5), |strike| {
        strike.at_once(|strike| publishes(strike, HOSTILE.to_owned()))
    });
    crew.add(neighbour("log flood: a name of a megabyte", 2.0, 1), |strike| {
        publishes(strike, HOSTILE.repeat(MEGABYTE / HOSTILE.len()))
    });
    crew.add(neighbour("log flood: hostile paths", 50.0, 25), paths);
}

async fn no_rtmp(strike: Strike) -> Result<(), Failure> {
    strike.tally.attempt(1);
    // If no place is free, the server resets the connection at once.
    let Ok(mut stream) = strike.tcp(strike.target.rtmp, None).await else {
        strike.tally.answer("reset by the server");
        return Ok(());
    };
    let _ = stream.write_all(format!("GET /{HOSTILE} HTTP/1.1\r\n\r\n").as_bytes()).await;
    match timeout(WAIT, until_ended(&mut stream)).await {
        Ok(how) => strike.tally.answer(how),
        Err(_) => strike.tally.breach("never ended by the server"),
    }
    Ok(())
}

async fn publishes(strike: Strike, name: String) -> Result<(), Failure> {
    strike.tally.attempt(1);
    let url = Url {
        tls: false,
        host: strike.target.rtmp.ip().to_string(),
        port: strike.target.rtmp.port(),
        app: "live".to_owned(),
        stream: name,
    };
    match timeout(WAIT, strike.rtmp_of(url, Intent::Publish)).await {
        Ok(Ok((_, Some(ClientEvent::Refused(_))))) => strike.tally.answer("refused"),
        Ok(Ok((_, None)) | Err(_)) => strike.tally.answer("ended by the server"),
        Ok(Ok(_)) => strike.tally.breach("let in"),
        Err(_) => strike.tally.breach("neither rejected nor ended"),
    }
    Ok(())
}

async fn paths(strike: Strike) -> Result<(), Failure> {
    let mut client = strike.h1().await?;
    for request in 0..strike.attempts {
        strike.tally.attempt(1);
        let path = format!("/live/{HOSTILE_PATH}-{}-{request}.flv", strike.number);
        match client.ask("GET", &path, Bytes::new()).await?.0 {
            status @ 200..300 => strike.tally.breach(format!("status {status}")),
            status => strike.tally.answer(format!("status {status}")),
        }
        sleep(APART).await;
    }
    Ok(())
}
