//! Broken publishers: garbage instead of RTMP, no key or a wrong one, a stream already published,
//! media truncated within a tag, noise as media, and immediate disconnects.
//!
//! Two to five per second of each, 17 in all. Two kinds are admitted. Each publishes its own
//! sixteen streams in turn, which linger after a disconnect.

use std::time::Duration;

use media::Tag;
use media::flv::Kind;
use media::rtmp::{ClientEvent, Intent};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

use super::super::super::media::TagSource;
use super::super::super::publisher::KEY;
use super::super::server::OTHER_KEY;
use super::clients::{Rtmp, until_ended};
use super::crew::{Crew, Neighbour, Strike};
use crate::Failure;

/// Maximum wait for the server to end a connection.
const WAIT: Duration = Duration::from_secs(20);
/// Streams of admitted publishers.
const STREAMS: u64 = 16;
/// Tags of noise per publisher.
const NOISE: u32 = 50;
/// Bytes dropped from the last tag.
const CUT: usize = 1_000;

fn neighbour(name: &'static str, per_second: f64) -> Neighbour {
    Neighbour { name, per_second, at_once: 1, network: 6, addresses: 4 }
}

pub(super) fn join(crew: &mut Crew) {
    crew.add(neighbour("broken publisher: garbage", 3.0), garbage);
    crew.add(neighbour("broken publisher: another's key", 3.0), |strike| asks(strike, OTHER_KEY));
    crew.add(neighbour("broken publisher: a stream that is published", 2.0), |strike| {
        asks(strike, KEY)
    });
    crew.add(neighbour("broken publisher: cut off within a tag", 2.0), cut);
    crew.add(neighbour("broken publisher: noise for media", 2.0), noise);
    crew.add(neighbour("broken publisher: connects and drops", 5.0), drops);
}

/// A handshake followed by bytes that are not chunks.
async fn garbage(strike: Strike) -> Result<(), Failure> {
    strike.tally.attempt(1);
    let mut stream = strike.tcp(strike.target.rtmp, None).await?;
    let bytes: Vec<u8> = (0..8_192u64)
        .map(|n| ((n ^ strike.number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect();
    stream.write_all(&[3]).await?;
    stream.write_all(&bytes).await?;
    match timeout(WAIT, until_ended(&mut stream)).await {
        Ok(how) => strike.tally.answer(how),
        Err(_) => strike.tally.breach("never ended by the server"),
    }
    Ok(())
}

/// Tries to publish the soak's stream with this key, and is rejected.
async fn asks(strike: Strike, key: &'static str) -> Result<(), Failure> {
    strike.tally.attempt(1);
    let name = format!("live/bench?key={key}");
    match strike.rtmp(&name, Intent::Publish).await?.1 {
        Some(ClientEvent::Refused(why)) => strike.tally.answer(format!("refused: {why}")),
        Some(_) => strike.tally.breach("let in"),
        None => strike.tally.answer("closed by the server"),
    }
    Ok(())
}

/// Returns an admitted publisher; `None` if the previous publisher still has the stream.
pub(super) async fn let_in(strike: &Strike, kind: &str) -> Result<Option<Rtmp>, Failure> {
    let name = format!("others/{kind}-{}?key={OTHER_KEY}", strike.number % STREAMS);
    let (rtmp, event) = strike.rtmp(&name, Intent::Publish).await?;
    match event {
        Some(ClientEvent::Publishing) => Ok(Some(rtmp)),
        Some(ClientEvent::Refused(why)) => {
            strike.tally.answer(format!("refused: {why}"));
            Ok(None)
        }
        _ => Err("neither admitted nor rejected".into()),
    }
}

async fn cut(strike: Strike) -> Result<(), Failure> {
    strike.tally.attempt(1);
    let Some(mut rtmp) = let_in(&strike, "cut").await? else { return Ok(()) };
    for header in TagSource::headers() {
        rtmp.client.send_tag(&header);
    }
    rtmp.client.send_tag(&TagSource::new().next().0);
    let mut bytes = Vec::new();
    while let Some(output) = rtmp.client.poll_output() {
        bytes.extend_from_slice(&output);
    }
    rtmp.stream.write_all(&bytes[..bytes.len() - CUT]).await?;
    strike.tally.answer("admitted, cut off");
    Ok(())
}

async fn noise(strike: Strike) -> Result<(), Failure> {
    strike.tally.attempt(1);
    let Some(mut rtmp) = let_in(&strike, "noise").await? else { return Ok(()) };
    for number in 0..NOISE {
        let kind = [Kind::Video, Kind::Audio, Kind::Script][number as usize % 3];
        let byte = |n: u32| (n.wrapping_mul(number.wrapping_mul(2_654_435_761) | 1) >> 13) as u8;
        let payload: Vec<u8> = (0..1 + number * 40).map(byte).collect();
        // Erratic timestamps.
        let time = number.wrapping_mul(0x9e37_79b9);
        rtmp.client.send_tag(&Tag::new(kind, time, &payload).ok_or("a tag that is too large")?);
        if let Err(e) = rtmp.flush().await {
            strike.tally.answer(format!("ended by the server: {e}"));
            return Ok(());
        }
        sleep(Duration::from_millis(20)).await;
    }
    strike.tally.answer("let in, left");
    Ok(())
}

/// Connects, sends the first byte, and resets the connection.
async fn drops(strike: Strike) -> Result<(), Failure> {
    strike.tally.attempt(1);
    let mut stream = strike.tcp(strike.target.rtmp, None).await?;
    stream.write_all(&[3; 1 + 1_536]).await?;
    // The server's half of the handshake shows that the attempt reached it.
    let mut hello = [0; 1];
    stream.read_exact(&mut hello).await?;
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    drop(stream);
    strike.tally.answer("dropped");
    Ok(())
}
