//! The HLS source against a local origin, in real time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use media::hls::Segmenter;
use media::hls::segmenter::{Container, SegmenterConfig as Cut};
use media::{Kind, Role};

use super::super::origin::{Answer, Origin, ok, redirect, status};
use super::super::source::PullSource;
use super::super::via::Via;
use super::*;
use crate::client::Client;
use crate::config::{self, Config};
use crate::live::Live;

/// An AVCDecoderConfigurationRecord of 318 x 178 pixels.
const AVCC: &[u8] = &[
    0x01, 0x64, 0x00, 0x0c, 0xff, 0xe1, 0x00, 0x1a, 0x67, 0x64, 0x00, 0x0c, 0xac, 0xd9, 0x41, 0x41,
    0x9e, 0xa2, 0x30, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00, 0x00, 0x03, 0x00, 0x32, 0x0f, 0x14,
    0x29, 0x96, 0x01, 0x00, 0x06, 0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0, 0xfd, 0xf8, 0xf8, 0x00,
];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns MPEG-TS segments of `length` ms with audio and 25 pictures per second.
fn segments(length: u32, count: u32) -> Vec<Bytes> {
    let cut = Cut {
        container: Container::Ts,
        segment: ms(length.into()),
        window: count as usize + 1,
        bytes: 1 << 30,
        ..Cut::default()
    };
    let mut segmenter = Segmenter::new(cut);
    let mut push = |kind, time: u32, payload: &[u8]| {
        let tag = Tag::new(kind, time, payload).expect("short");
        segmenter.push(&tag, 1_800_000_000_000 + u64::from(time));
    };
    push(Kind::Video, 0, &[&[0x17, 0, 0, 0, 0], AVCC].concat());
    push(Kind::Audio, 0, &[0xaf, 0, 0x11, 0x90]);
    for time in 0..length * count {
        if time % 40 == 0 {
            let head: (u8, u8) = if time % length == 0 { (0x17, 0x65) } else { (0x27, 0x41) };
            push(Kind::Video, time, &[head.0, 1, 0, 0, 0, 0, 0, 0, 3, head.1, 1, 2]);
        }
        if time * 48 % 1_024 < 48 {
            push(Kind::Audio, time, &[&[0xaf, 1][..], &[0x21; 20]].concat());
        }
    }
    segmenter.end();
    let playlist = segmenter.playlist(false).expect("segments");
    let playlist = core::str::from_utf8(&playlist).expect("text");
    let names = playlist.lines().filter_map(|line| line.strip_suffix(".ts")?.parse().ok());
    let segments: Vec<_> = names
        .map(|name| Bytes::from(segmenter.segment(name).expect("it is kept").concat()))
        .collect();
    assert_eq!(segments.len(), count as usize);
    segments
}

/// Returns a playlist of these segments.
fn playlist(target: u64, range: std::ops::Range<usize>, end: &str) -> Answer {
    let mut text =
        format!("#EXTM3U\n#EXT-X-TARGETDURATION:{target}\n#EXT-X-MEDIA-SEQUENCE:{}\n", range.start);
    for msn in range {
        text += &format!("#EXTINF:{target},\n{msn}.ts\n");
    }
    ok(text + end)
}

/// Parses the number in `/12.ts`.
fn number(target: &str) -> Option<usize> {
    let (_, name) = target.rsplit_once('/')?;
    name.strip_suffix(".ts")?.parse().ok()
}

struct Pulled {
    source: PullSource,
    live: Arc<Live>,
}

async fn open_with(url: Url, keys: &str) -> Result<Pulled, PullError> {
    let rule = format!("[[pull]]\nstream = \"live/*\"\nupstream = \"http://origin/\"\n{keys}");
    let config = Config::parse("edge.toml", &rule).expect("valid");
    let live = Arc::new(Live::new(&config));
    let budget = crate::live::Budget { rule: "live/*", max_pending: 1 };
    live.pulls.begin("live/demo", budget, || ()).expect("there is room");
    let reporter = Reporter::new(live.clone(), "live/demo");
    let rule: &config::Pull = &config.pull[0];
    let via = Via::default();
    let source =
        PullSource::open(Client::system(), url, rule, &config.live, reporter, &via).await?;
    Ok(Pulled { source, live })
}

async fn open(url: Url) -> Pulled {
    open_with(url, "timeout = \"2s\"").await.expect("it answers")
}

impl Pulled {
    /// Returns all tags, and how the stream ended.
    async fn all(&mut self) -> (Vec<Tag>, Result<(), PullError>) {
        let mut tags = Vec::new();
        loop {
            match self.source.next().await {
                Ok(Some(tag)) => tags.push(tag),
                Ok(None) => return (tags, Ok(())),
                Err(error) => return (tags, Err(error)),
            }
        }
    }

    fn count(&self, event: &str) -> u64 {
        let all = self.live.events.all();
        all.iter().find(|(name, _)| *name == event).map_or(0, |(_, count)| *count)
    }

    fn error(&self) -> Option<String> {
        self.live.pulls.status("live/demo").expect("it runs").error
    }
}

fn pictures(tags: &[Tag]) -> usize {
    tags.iter().filter(|tag| matches!(tag.role(), Role::KeyFrame | Role::InterFrame)).count()
}

/// Pulls a live stream with 2 s segments for `time` from an origin with a response time of 300 ms.
/// Returns, from 5 s on, the ratio of media time to real time, the longest gap between tags, and
/// the maximum timer lateness of the machine.
async fn tempo(time: Duration) -> (f64, Duration, Duration) {
    const SEGMENT: u32 = 2_000;
    // Five exist at the start.
    let all = segments(SEGMENT, time.as_secs() as u32 / 2 + 10);
    let start = Instant::now();
    let origin = Origin::start(ms(300), move |target| match number(target) {
        Some(number) => ok(all[number].clone()),
        None => {
            let complete = 5 + start.elapsed().as_millis() as usize / SEGMENT as usize;
            playlist(2, complete.saturating_sub(6)..complete, "")
        }
    })
    .await;
    let late = tokio::spawn(async move {
        let mut late = Duration::ZERO;
        while start.elapsed() < time {
            let due = Instant::now() + ms(10);
            sleep_until(due).await;
            late = late.max(due.elapsed());
        }
        late
    });
    let mut pulled = open(origin.url("/live.m3u8")).await;
    let (mut first, mut last, mut gap) = (None, (start, 0), Duration::ZERO);
    while start.elapsed() < time {
        let tag = pulled.source.next().await.expect("it goes on").expect("it is live");
        let now = Instant::now();
        if start.elapsed() >= Duration::from_secs(5) {
            gap = gap.max(if first.is_some() { now - last.0 } else { gap });
            first.get_or_insert((now, tag.timestamp()));
        }
        last = (now, tag.timestamp());
    }
    let (at, time) = first.expect("tags");
    let rate = f64::from(last.1 - time) / ((last.0 - at).as_secs_f64() * 1e3);
    assert!(origin.connections() <= 2, "connections are kept: {}", origin.connections());
    assert_eq!(pulled.count("pull_segment_left_out"), 0);
    (rate, gap, late.await.expect("it ends"))
}

#[tokio::test]
async fn a_live_stream_plays_in_real_time_from_an_origin_with_300_ms_response_time() {
    let (rate, gap, late) = tempo(Duration::from_secs(25)).await;
    assert!((rate - 1.0).abs() <= 0.005, "{rate}");
    assert!(gap <= ms(250) + late, "{gap:?}, the machine was late by {late:?}");
}

#[tokio::test]
#[ignore = "ten minutes"]
async fn a_live_stream_plays_in_real_time_for_ten_minutes() {
    let (rate, gap, late) = tempo(Duration::from_secs(600)).await;
    println!(
        "{rate:.6} of real time, at most {gap:?} without a tag; the machine was late by {late:?}"
    );
    assert!((rate - 1.0).abs() <= 0.001, "{rate}");
}

#[tokio::test]
async fn missing_and_broken_segments_are_skipped_and_reported() {
    let all = segments(400, 6);
    let origin = Origin::start(ms(0), move |target| match number(target) {
        Some(1) => status(404),
        Some(3) => ok("no media"),
        Some(number) => ok(all[number].clone()),
        None => playlist(1, 0..6, "#EXT-X-ENDLIST\n"),
    })
    .await;
    let mut pulled = open(origin.url("/live.m3u8?token=secret")).await;
    let (tags, end) = pulled.all().await;
    assert_eq!((pictures(&tags), end), (40, Ok(())));
    // Timestamps keep the gap of the missing segments.
    let [first, .., last] = &tags[..] else { panic!("{} tags", tags.len()) };
    assert_eq!((last.timestamp() - first.timestamp()) / 100, 23);
    assert_eq!(pulled.count("pull_segment_left_out"), 2);
    assert_eq!(pulled.count("pull_trouble_status"), 1);
    assert_eq!(pulled.count("pull_trouble_content"), 1);
    let error = pulled.error().expect("it is shown");
    assert!(error.starts_with("skipped: segment http://") && error.contains("/3.ts: "), "{error}");
}

#[tokio::test]
async fn a_failing_playlist_is_requested_again() {
    let all = segments(1_000, 10);
    let asked = AtomicUsize::new(0);
    let origin = Origin::start(ms(0), move |target| match number(target) {
        Some(number) => ok(all[number].clone()),
        None => match asked.fetch_add(1, Ordering::Relaxed) {
            0 => playlist(1, 0..3, ""),
            1..=5 => status(503),
            6 => ok("<html>"),
            _ => playlist(1, 0..6, "#EXT-X-ENDLIST\n"),
        },
    })
    .await;
    let mut pulled = open_with(origin.url("/live.m3u8"), "timeout = \"10s\"").await.expect("open");
    let (tags, end) = pulled.all().await;
    assert_eq!((pictures(&tags), end), (150, Ok(())));
    assert_eq!(pulled.count("pull_segment_left_out"), 0);
    assert!(pulled.count("pull_trouble_status") >= 1 && pulled.count("pull_trouble_content") == 1);
}

#[tokio::test]
async fn the_pull_ends_after_three_target_durations_without_new_segments() {
    let all = segments(1_000, 1);
    let origin = Origin::start(ms(0), move |target| match number(target) {
        Some(number) => ok(all[number].clone()),
        None => playlist(1, 0..1, ""),
    })
    .await;
    let start = Instant::now();
    let mut pulled =
        open_with(origin.url("/live.m3u8"), "timeout = \"500ms\"").await.expect("open");
    let (tags, end) = pulled.all().await;
    assert_eq!((pictures(&tags), end), (25, Err(PullError::silence(Duration::from_secs(3)))));
    let took = start.elapsed();
    assert!((ms(3_900)..ms(6_000)).contains(&took), "{took:?}");
    // Reloaded every half target duration.
    assert!((7..=12).contains(&origin.requests().len()), "{}", origin.requests().len());
}

#[tokio::test]
async fn segments_resolve_against_the_redirected_playlist() {
    let all = segments(400, 3);
    let edge = Origin::start(ms(0), move |target| match number(target) {
        Some(number) if target.starts_with("/token/") => ok(all[number].clone()),
        Some(_) => status(404),
        None => playlist(1, 0..3, "#EXT-X-ENDLIST\n"),
    })
    .await;
    let to = edge.url("/token/media.m3u8").to_string();
    let origin = Origin::start(
        ms(0),
        move |target| {
            if target == "/go" { redirect(&to) } else { redirect("go") }
        },
    )
    .await;
    let mut url = origin.url("/live.m3u8");
    url.set_username("user").expect("set");
    let mut pulled = open_with(url, "headers = \"x-key: word\"").await.expect("open");
    let (tags, end) = pulled.all().await;
    assert_eq!((pictures(&tags), end), (30, Ok(())));
    // Credentials are sent to the upstream only.
    for (_, headers) in origin.requests() {
        assert!(headers.contains_key("authorization") && headers.contains_key("x-key"));
    }
    for (_, headers) in edge.requests() {
        assert!(!headers.contains_key("authorization") && !headers.contains_key("x-key"));
    }
}

#[tokio::test]
async fn unsupported_playlists_are_rejected_with_an_error_message() {
    let master = |stream: &str| format!("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1{stream}\nv.m3u8\n");
    let media = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n";
    let cases = [
        (Reason::Codec, master(",CODECS=\"vp09.00.10.08\""), "codecs"),
        (Reason::Encrypted, format!("{media}#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n"), "encrypted"),
        (Reason::Content, "<html>".to_owned(), "no HLS playlist"),
        (Reason::Content, format!("{media}#EXTINF:1,\nfile:///etc/passwd\n"), "refers from"),
    ];
    for (reason, text, words) in cases {
        let origin = Origin::start(ms(0), move |_| ok(text.clone())).await;
        let (_, end) = open(origin.url("/live.m3u8")).await.all().await;
        let error = end.expect_err(words);
        assert_eq!(error.reason, reason, "{error:?}");
        assert!(error.text.contains(words), "{error:?}");
    }
}

#[tokio::test]
async fn a_variant_is_chosen_as_configured() {
    let all = segments(400, 1);
    let origin = Origin::start(ms(0), move |target| match (number(target), target) {
        (Some(number), _) => ok(all[number].clone()),
        (None, "/master.m3u8") => ok("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=900000\nhigh/m.m3u8\n\
                                      #EXT-X-STREAM-INF:BANDWIDTH=500000\nmiddle/m.m3u8\n\
                                      #EXT-X-STREAM-INF:BANDWIDTH=100000\nlow/m.m3u8\n"),
        _ => playlist(1, 0..1, "#EXT-X-ENDLIST\n"),
    })
    .await;
    for (variant, path) in [("\"highest\"", "/high/"), ("\"lowest\"", "/low/"), ("0.6", "/middle/")]
    {
        let keys = format!("variant = {variant}");
        let mut pulled = open_with(origin.url("/master.m3u8"), &keys).await.expect("open");
        assert_eq!(pulled.all().await.1, Ok(()));
        let requests = origin.requests();
        let (last, _) = requests.last().expect("a segment");
        assert!(last.starts_with(path), "{variant}: {last}");
    }
}

#[tokio::test]
async fn audio_of_a_separate_playlist_is_merged_or_missing() {
    let all = segments(400, 5);
    for has_audio in [true, false] {
        let all = all.clone();
        let origin = Origin::start(ms(0), move |target| match (number(target), target) {
            _ if target.starts_with("/audio/") && !has_audio => status(404),
            (Some(number), _) => ok(all[number].clone()),
            (None, "/master.m3u8") => ok("#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",\
                                          NAME=\"en\",URI=\"audio/m.m3u8\"\n\
                                          #EXT-X-STREAM-INF:BANDWIDTH=9,AUDIO=\"a\"\nvideo/m.m3u8\n"),
            _ => playlist(1, 0..5, "#EXT-X-ENDLIST\n"),
        })
        .await;
        let mut pulled = open(origin.url("/master.m3u8")).await;
        let (tags, end) = pulled.all().await;
        assert_eq!((end, pictures(&tags)), (Ok(()), 50));
        let audio = tags.iter().filter(|tag| tag.role() == Role::AudioFrame).count();
        let fetched =
            origin.requests().iter().filter(|(path, _)| path.starts_with("/audio/")).count();
        if has_audio {
            assert!((90..=95).contains(&audio), "{audio}");
            assert!(tags.is_sorted_by_key(Tag::timestamp));
            assert_eq!(fetched, 6, "the playlist and its segments");
        } else {
            assert_eq!(audio, 0);
            assert!(pulled.count("pull_trouble_status") > 0, "{:?}", pulled.error());
        }
    }
}
