//! HTTP/2 clients with unusual frames.

use media::{Kind, Tag};
use relay::Settings;

use super::*;

/// An HTTP/2 frame (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the client preface and empty SETTINGS.
fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[])].concat()
}

const PING: u8 = 6;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

#[tokio::test]
async fn http_2_connection_without_a_complete_request_times_out() {
    let ping = frame(PING, 0, 0, &[7; 8]);
    // A request with endless fields: HEADERS, then CONTINUATION frames.
    let start_of_head = [preface(), frame(HEADERS, 0, 1, &[0x82])].concat();
    let more_of_head = frame(CONTINUATION, 0, 1, b"\x40\x01a\x01b");
    for (first, next, is_late) in [(preface(), ping, true), (start_of_head, more_of_head, false)] {
        let server = start(|config| config.tcp.header_timeout = Duration::from_millis(500));
        let (mut reader, mut writer) = tokio::io::split(server.tls(b"h2").await);
        let drip = tokio::spawn(async move {
            let mut text = &first;
            while writer.write_all(text).await.is_ok() {
                text = &next;
                sleep(Duration::from_millis(50)).await;
            }
        });
        let mut said = Vec::new();
        // The connection may end with a reset, because data keeps arriving.
        let ended = timeout(LIMIT, reader.read_to_end(&mut said)).await;
        assert!(ended.is_ok(), "still open after {LIMIT:?}");
        // The library itself limits the number of CONTINUATION frames.
        assert!(!is_late || server.limited("tcp_no_request") == 1);
        drip.abort();
    }
}

const RST_STREAM: u8 = 3;
/// END_STREAM and END_HEADERS.
const WHOLE: u8 = 5;

/// A GET of this path of up to 127 bytes (RFC 7541: static fields, and literals).
fn get(stream: u32, path: &str) -> Vec<u8> {
    let fields = [&[0x82, 0x87, 0x41, 1, b'a', 0x44, path.len() as u8], path.as_bytes()].concat();
    frame(HEADERS, WHOLE, stream, &fields)
}

/// Parses the server's frames into types and payloads.
fn frames(mut said: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = said.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        frames.push((head[3], payload));
        said = rest;
    }
    frames
}

#[tokio::test]
async fn library_closes_connection_with_early_resets() {
    let server = start(|_| ());
    let (mut reader, mut writer) = tokio::io::split(server.tls(b"h2").await);
    let reset = |stream| [get(stream, "/small.txt"), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])];
    let all = (0..1_000).flat_map(|n| reset(2 * n + 1)).flatten();
    let flood: Vec<u8> = preface().into_iter().chain(all).collect();
    let sent = tokio::spawn(async move {
        let _ = writer.write_all(&flood).await;
        writer
    });
    let mut said = Vec::new();
    let ended = timeout(LIMIT, reader.read_to_end(&mut said)).await;
    assert!(ended.is_ok(), "still open after {LIMIT:?}");
    // RFC 9113, section 7: GOAWAY with ENHANCE_YOUR_CALM.
    const GOAWAY: u8 = 7;
    let calm = |(kind, payload): &(u8, &[u8])| *kind == GOAWAY && payload[4..8] == [0, 0, 0, 11];
    assert!(frames(&said).iter().any(calm));
    assert_eq!(server.limited("http2_cancels"), 0, "they never were requests here");
    sent.abort();
}

#[tokio::test]
async fn http_2_client_that_cancels_all_requests_is_closed() {
    // The hook never answers, so each request waits until it is cancelled.
    let hook = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let url = format!("http://{}/", hook.local_addr().expect("bound"));
    let server = start(|config| {
        let text = format!(
            "[limits]\ntrusted = \"127.0.0.0/8\"\n[hooks]\non_play = \"{url}\"\n\
             [[pull]]\nstream = \"live/*\"\n\
             upstream = [\"rtmp://127.0.0.1:1/live/a\"]"
        );
        let parsed = Config::parse("edge.toml", &text).expect("valid");
        (config.hooks, config.pull) = (parsed.hooks, parsed.pull);
        // Each request causes the lookup of an unknown name.
        config.limits = parsed.limits;
    });
    let (mut reader, mut writer) = tokio::io::split(server.tls(b"h2").await);
    let drain = tokio::spawn(async move {
        let mut said = Vec::new();
        let _ = reader.read_to_end(&mut said).await;
    });
    writer.write_all(&preface()).await.expect("sent");
    let (mut given_up, mut asked) = (0, VecDeque::new());
    let flood = async {
        for number in 0..2_000u32 {
            let stream = 2 * number + 1;
            let reset = frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
            if writer.write_all(&get(stream, "/live/a.flv")).await.is_err() {
                return;
            }
            let _ = writer.flush().await;
            // Cancel only running requests; the library limits other resets.
            let Ok(question) = timeout(LIMIT, hook.accept()).await else { return };
            let (mut question, _) = question.expect("accepted");
            let read = timeout(LIMIT, question.read(&mut [0; 4_096])).await.expect("in time");
            assert!(read.expect("readable") > 0, "it is asked");
            asked.push_back(question);
            asked.drain(..asked.len().saturating_sub(20));
            if writer.write_all(&reset).await.is_err() {
                return;
            }
            let _ = writer.flush().await;
            given_up += 1;
        }
    };
    assert!(timeout(4 * LIMIT, flood).await.is_ok(), "still open after {given_up} requests");
    assert!((256..400).contains(&given_up), "{given_up}");
    assert_eq!(server.limited("http2_cancels"), 1);
    drain.abort();
}

#[tokio::test]
async fn http_2_client_is_pinged() {
    let server = start(|config| config.tcp.keep_alive = Duration::from_millis(100));
    let mut stream = server.tls(b"h2").await;
    stream.write_all(&preface()).await.expect("sent");
    let mut frames = async || loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.expect("a frame");
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.expect("all of it");
        if head[3] == PING && head[4] == 0 {
            return;
        }
    };
    timeout(LIMIT, frames()).await.expect("a ping");
}

#[tokio::test]
async fn available_tags_of_a_live_stream_share_a_frame() {
    const DATA: u8 = 0;
    const TAGS: u64 = 3;
    const ROUNDS: u64 = 20;
    let server = start(|_| ());
    let streams = &server.shared.state().live.streams;
    let publisher = streams.publish("live/a", Settings::default()).expect("room");
    let push = |time: u64, payload: &[u8]| {
        publisher.push(Tag::new(Kind::Audio, time as u32, payload).expect("short"));
    };
    push(0, &[0xaf, 0, 0x12, 0x10]);
    push(0, &[&[0xaf, 1][..], &[7; 300]].concat());
    let mut stream = server.tls(b"h2").await;
    stream.write_all(&[preface(), get(1, "/live/a.flv")].concat()).await.expect("sent");
    // Reads DATA frames until the body ends with this tag.
    let mut body = Vec::new();
    let mut frames_until = async |tag: &[u8]| {
        let mut count = 0;
        while !body.ends_with(tag) {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.expect("a frame");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; length];
            stream.read_exact(&mut payload).await.expect("all of it");
            if head[3] == DATA {
                count += 1;
                body.extend(payload);
            }
        }
        count
    };
    let frames = async {
        // The payload of a tag, and the size field after it.
        frames_until(&[&[7; 300][..], &313u32.to_be_bytes()].concat()).await;
        let mut count = 0;
        for round in 1..=ROUNDS {
            for tag in 0..TAGS {
                push(
                    round * 100 + tag,
                    &[&[0xaf, 1][..], &[tag as u8; 298], &[round as u8; 2]].concat(),
                );
            }
            let last =
                [&[TAGS as u8 - 1; 298][..], &[round as u8; 2], &313u32.to_be_bytes()].concat();
            count += frames_until(&last).await;
        }
        count
    };
    let frames = timeout(LIMIT, frames).await.expect("all tags");
    // A tag may leave alone if the viewer is served while the next one is pushed.
    assert!((ROUNDS..ROUNDS * (TAGS - 1)).contains(&frames), "{frames} frames");
}
