//! Publishers that are admitted and then flood the server with RTMP messages without media:
//! acknowledgements, ping responses, and audio and video of zero bytes.
//!
//! One connection per second of each kind, with 1,000 messages per second, until the server ends it
//! or for 7 s: at most 20 connections at once. The server allows a burst of 500 messages and 100
//! per second.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::time::sleep;

use super::clients::flood_until_ended;
use super::crew::{Crew, Neighbour, Strike};
use super::publishers::let_in;
use crate::Failure;

/// Maximum duration of a flood.
const STAYS: Duration = Duration::from_secs(7);
/// Messages per batch, and the interval between batches.
const BATCH: usize = 50;
const APART: Duration = Duration::from_millis(50);

/// Messages of a flood that the server must not accept; it allows 1,200. A flood with fewer, on a
/// busy machine, proves nothing.
const TOO_MANY: usize = 2_000;

/// Message types.
const ACKNOWLEDGEMENT: u8 = 3;
const USER_CONTROL: u8 = 4;
const AUDIO: u8 = 8;
const VIDEO: u8 = 9;
/// Ping response: type and timestamp.
const PONG: [u8; 6] = [0, 7, 0, 0, 0, 0];

fn neighbour(name: &'static str) -> Neighbour {
    Neighbour { name, per_second: 1.0, at_once: 1, network: 12, addresses: 4 }
}

pub(super) fn join(crew: &mut Crew) {
    crew.add(neighbour("empty RTMP messages: acknowledgements"), |strike| {
        flood(strike, "acknowledges", message(ACKNOWLEDGEMENT, &[0; 4]))
    });
    crew.add(neighbour("empty RTMP messages: ping responses"), |strike| {
        flood(strike, "pongs", message(USER_CONTROL, &PONG))
    });
    crew.add(neighbour("empty RTMP messages: media"), |strike| {
        flood(strike, "nothing", [message(AUDIO, &[]), message(VIDEO, &[])].concat())
    });
}

/// Builds a message with a chunk header of type 0. Media go to message stream 1.
fn message(kind: u8, payload: &[u8]) -> Vec<u8> {
    let (chunk_stream, stream) = if kind >= AUDIO { (6, 1) } else { (2, 0) };
    let mut bytes = vec![chunk_stream, 0, 0, 0, 0, 0, payload.len() as u8, kind, stream, 0, 0, 0];
    bytes.extend_from_slice(payload);
    bytes
}

async fn flood(strike: Strike, kind: &str, messages: Vec<u8>) -> Result<(), Failure> {
    strike.tally.attempt(1);
    let Some(mut rtmp) = let_in(&strike, kind).await? else { return Ok(()) };
    rtmp.flush().await?;
    let batch = messages.repeat(BATCH);
    let (mut reader, mut writer) = rtmp.stream.split();
    let mut sent = 0;
    let floods = async {
        while writer.write_all(&batch).await.is_ok() {
            sent += BATCH;
            sleep(APART).await;
        }
    };
    match flood_until_ended(floods, &mut reader, STAYS).await {
        Ok(how) => strike.tally.answer(how),
        Err(_) if sent >= TOO_MANY => strike.tally.breach("never ended by the server"),
        Err(_) => strike.tally.end("left", 1),
    }
    Ok(())
}
