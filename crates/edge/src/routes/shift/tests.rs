//! Viewers of the past: permission, playlists and files, and hostile requests.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tokio::runtime::Handle;

use super::*;
use crate::config::Config;
use crate::http::Responder;
use crate::record::fixture::StoredTake;
use crate::routes;
use crate::viewer::Protocol;

/// A server with an hour of recordings, and the time after their end.
struct Edge {
    state: Arc<State>,
    now: SystemTime,
    take: StoredTake,
    directory: TempDir,
}

impl Edge {
    /// Has the recordings of `live/a`, and `more` configuration.
    fn new(more: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let now = SystemTime::now();
        let now_ms = now.duration_since(SystemTime::UNIX_EPOCH).expect("now").as_millis() as i64;
        let mut take =
            StoredTake::new(&directory.path().join("live/a"), now_ms - 3_600_000, (7, 2));
        take.add(300);
        take.add_gap();
        take.add(299);
        let text = format!(
            "[[record]]\nstream = \"live/*\"\ndirectory = \"{}\"\ntime_shift = \"30min\"\n{more}",
            directory.path().display()
        );
        let config = Config::parse("edge.toml", &text).expect("valid");
        let state = State::new(config, None).expect("a state");
        state.runtime.set(Handle::current()).expect("the first");
        Self { state: Arc::new(state), now, take, directory }
    }

    async fn request(&self, method: &str, target: &str, range: Option<&str>) -> Response {
        let fields = range.iter().map(|range| ("range", range.as_bytes())).collect();
        let remote = ([192, 0, 2, 1], 1).into();
        let head =
            RequestHead { fields, ..RequestHead::new(method, target, remote, Protocol::Http2) };
        match routes::respond(&self.state, &head, self.now) {
            Answer::Now(response) => response,
            Answer::Later(response) => response.await,
        }
    }

    async fn get(&self, target: &str) -> (u16, Vec<u8>) {
        let response = self.request("GET", target, None).await;
        (response.status, body(response.body).await.expect("whole"))
    }

    async fn text(&self, target: &str) -> (u16, String) {
        let (status, body) = self.get(target).await;
        (status, String::from_utf8(body).expect("text"))
    }

    /// Returns the URL of the media playlist for a start.
    async fn media_url(&self, query: &str) -> String {
        let (status, text) = self.text(&format!("/live/a/index.m3u8?{query}")).await;
        assert_eq!(status, 200, "{text}");
        assert!(text.contains("#EXT-X-STREAM-INF:BANDWIDTH="), "{text}");
        let uri = text.lines().find(|line| line.starts_with('~')).expect("a playlist");
        format!("/live/a/{uri}")
    }
}

async fn body(body: Body) -> std::io::Result<Vec<u8>> {
    use bytes::BufMut as _;
    use delivery::Body as _;
    let mut responder = Responder::from(body);
    let mut all = Vec::new();
    while let Some(piece) = std::future::poll_fn(|context| responder.poll_fill(context)).await? {
        all.put(piece);
    }
    Ok(all)
}

/// Returns the URIs of a playlist without gaps.
fn uris(text: &str) -> Vec<&str> {
    let mut is_gap = false;
    let mut uris = vec![];
    for line in text.lines() {
        is_gap |= line == "#EXT-X-GAP";
        if !line.starts_with('#') && !std::mem::take(&mut is_gap) {
            uris.push(line);
        }
    }
    uris
}

#[tokio::test]
async fn viewers_play_the_past() {
    let edge = Edge::new("");
    let url = edge.media_url("start=-600").await;
    let (status, text) = edge.text(&url).await;
    assert_eq!(status, 200, "{text}");
    let found = uris(&text);
    assert!((100..=110).contains(&found.len()), "{}", found.len());
    let folder = url.rsplit_once('/').expect("a path").0;
    assert_eq!(edge.state.sessions.all().len(), 0, "no media yet");
    let (status, content) = edge.get(&format!("{folder}/{}", found[0])).await;
    let name = found[0].split_once('.').expect("a file").1;
    assert_eq!((status, content), (200, name.as_bytes().to_vec()));
    let map = text.split("URI=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a map");
    let (status, content) = edge.get(&format!("{folder}/{map}")).await;
    assert_eq!((status, content), (200, b"initialisation".to_vec()));
    // One viewer, who counts as one of HLS.
    let sessions = edge.state.sessions.all();
    assert_eq!((sessions.len(), sessions[0].opening().format), (1, "hls"));
    assert_eq!(sessions[0].bytes(), 12 + 14);
    let last = format!("{folder}/{}", found[found.len() - 1]);
    let part = edge.request("GET", &last, Some("bytes=2-4")).await;
    assert_eq!((part.status, part.header("content-range")), (206, Some("bytes 2-4/12")));
    assert_eq!(part.header("content-type"), Some("video/iso.segment"));
    assert_eq!(body(part.body).await.expect("whole").len(), 3);
    let head = edge.request("HEAD", &last, None).await;
    assert_eq!((head.status, head.header("content-length")), (200, Some("12")));
    assert!(matches!(head.body, Body::Empty));
    // A dismissed viewer gets no further media, also in the middle of a segment.
    let open = edge.request("GET", &last, None).await;
    edge.state.bans.dismiss(sessions[0].opening().viewer, edge.now);
    sessions[0].stay().end();
    assert!(body(open.body).await.is_err());
    assert_eq!(edge.get(&last).await.0, 403);
    assert_eq!(edge.get(&url).await.0, 403);
    // A new start is a new viewer.
    drop(sessions);
    edge.state.live.time_shifts.close();
    assert_eq!(edge.state.sessions.all().len(), 0);
}

#[tokio::test]
async fn starts_are_checked_and_clamped() {
    let edge = Edge::new("");
    for start in [
        "3600",
        "0",
        "-0",
        "-0.0",
        "NaN",
        "-NaN",
        "-inf",
        "-1e9",
        "--1",
        "-",
        "",
        "-1.2.3",
        "-+5",
        "-99999999999999999999",
        "-%33",
        "-1h",
        "-.5",
        "%2d5",
    ] {
        let (status, text) = edge.text(&format!("/live/a/index.m3u8?start={start}")).await;
        assert_eq!(status, 400, "{start}: {text}");
        assert!(text.contains("such as start=-3600"), "{text}");
    }
    // Beyond the window: its oldest segment, in a minute of the window's start.
    let (_, text) = edge.text(&edge.media_url("start=-86400").await).await;
    let in_window = uris(&text).len();
    assert!((299..=312).contains(&in_window), "{in_window}");
    let forged = edge.media_url("start=-1").await;
    let (playlist, _) = forged.rsplit_once('/').expect("a path");
    let (_, old) = edge.text(&format!("{playlist}/shift-0.m3u8")).await;
    assert_eq!(uris(&old).len(), in_window);
    let (status, _) = edge.text(&format!("{playlist}/shift-18446744073709551615.m3u8")).await;
    assert_eq!(status, 200);
    assert_eq!(edge.get(&format!("{playlist}/shift--5.m3u8")).await.0, 404);
    // A segment before the window.
    let name = edge.take.path.file_name().and_then(|name| name.to_str()).expect("a name");
    assert_eq!(edge.get(&format!("{playlist}/{name}.00000000.m4s")).await.0, 404);
    assert_eq!(edge.get(&format!("{playlist}/{name}.00000300.m4s")).await.0, 404, "a gap");
    assert_eq!(edge.get(&format!("{playlist}/{name}.00000599.m4s")).await.0, 200);
}

#[tokio::test]
async fn the_past_has_the_permissions_of_the_stream() {
    let key = "a long random word that nobody knows";
    let edge = Edge::new(&format!("[[play]]\nstream = \"live/*\"\nkey = \"{key}\""));
    let start = "/live/a/index.m3u8?start=-600";
    assert_eq!(edge.get(start).await.0, 403);
    let until = edge.now.duration_since(SystemTime::UNIX_EPOCH).expect("now").as_secs() + 60;
    let other = crate::signing::sign(key, "live/b", until);
    assert_eq!(edge.get(&format!("{start}&{other}")).await.0, 403);
    let signed = crate::signing::sign(key, "live/a", until);
    let url = edge.media_url(&format!("start=-600&{signed}")).await;
    let (status, text) = edge.text(&url).await;
    assert_eq!(status, 200);
    let (folder, file) = (url.rsplit_once('/').expect("a path").0, uris(&text)[0].to_owned());
    assert_eq!(edge.get(&format!("{folder}/{file}")).await.0, 200);
    // Nothing without the pass, or with that of another stream, or after its end.
    let pass = edge.state.passes.stream(
        crate::passes::ViewerId::random(),
        "live/b",
        crate::passes::Grant::FREE,
        edge.now,
        None,
    );
    for wrong in ["/live/a".to_owned(), "/live/a/~x".to_owned(), format!("/live/a/~{pass}")] {
        for file in [&file, "shift-0.m3u8"] {
            assert_eq!(edge.get(&format!("{wrong}/{file}")).await.0, 403, "{wrong}/{file}");
        }
    }
    let edge = Edge { now: edge.now + Duration::from_secs(120), ..edge };
    assert_eq!(edge.get(&format!("{folder}/{file}")).await.0, 403, "expired");
    assert_eq!(edge.get(&url).await.0, 403, "expired");
}

#[tokio::test]
async fn hostile_targets_read_nothing_else() {
    let edge = Edge::new("");
    let secret = edge.directory.path().join("secret.m4s");
    fs::write(&secret, "secret").expect("written");
    let take =
        edge.take.path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let url = edge.media_url("start=-600").await;
    let folder = url.rsplit_once('/').expect("a path").0;
    for file in [
        "../../secret.m4s".to_owned(),
        "%2e%2e/%2e%2e/secret.m4s".to_owned(),
        format!("{take}.../secret.m4s"),
        format!("{take}.%2e%2e%2fsecret.m4s"),
        format!("{take}/00000599.m4s"),
        format!("{take}.index.m3u8"),
        format!("{take}.00000599.m4s.part"),
        format!("{take}.+0000599.m4s"),
        format!("{take}-1.00000599.m4s"),
        format!("{take}.init-0000000000000001.mp4/"),
    ] {
        let (status, text) = edge.get(&format!("{folder}/{file}")).await;
        assert!(matches!(status, 400 | 403 | 404), "{file}: {status}");
        assert!(!text.windows(6).any(|part| part == b"secret"), "{file}");
    }
    for name in ["live/../live/a", "live/%61", "live/.a", "live//a", "live/a/", "live/x", "live/~a"]
    {
        let (status, _) = edge.get(&format!("/{name}/index.m3u8?start=-60")).await;
        assert!(matches!(status, 400 | 403 | 404), "{name}: {status}");
    }
    // A link in the place of a segment.
    let linked = edge.take.path.join("00000598.m4s");
    fs::remove_file(&linked).expect("removed");
    std::os::unix::fs::symlink(&secret, &linked).expect("linked");
    assert_eq!(edge.get(&format!("{folder}/{take}.00000598.m4s")).await.0, 404);
    // A pipe, whose opening would block.
    let pipe = edge.take.path.join("00000597.m4s");
    fs::remove_file(&pipe).expect("removed");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("run").success());
    assert_eq!(edge.get(&format!("{folder}/{take}.00000597.m4s")).await.0, 404);
    // Names without recordings use no room.
    for n in 0..2_000 {
        assert_eq!(edge.get(&format!("/live/n{n}/index.m3u8?start=-60")).await.0, 404);
    }
    assert_eq!(edge.get(&url).await.0, 200);
}

#[tokio::test]
async fn only_streams_with_a_rule_have_a_past() {
    let more = "[[ladder]]\nname = \"live/show\"\nrenditions = [\"live/a\", \"live/b\"]\n\
                [[record]]\nstream = \"other/*\"\ndirectory = \"/nowhere\"";
    let edge = Edge::new(more);
    let (status, text) = edge.text("/live/show/index.m3u8?start=-60").await;
    assert_eq!(status, 404);
    assert!(text.contains("time shift is of its renditions"), "{text}");
    let publish = |name| edge.state.live.streams.publish(name, relay::Settings::default());
    let _held = publish("other/x").expect("room");
    let (status, text) = edge.text("/other/x/index.m3u8?start=-60").await;
    assert_eq!((status, text.contains("other/x has no time shift")), (404, true), "{text}");
    assert_eq!(edge.get("/unknown/x/index.m3u8?start=-60").await.0, 404);
    assert_eq!(edge.request("POST", "/live/a/index.m3u8?start=-60", None).await.status, 405);
}

#[tokio::test]
async fn recordings_removed_during_playback_are_missed_and_nothing_fails() {
    let edge = Edge::new("");
    let url = edge.media_url("start=-600").await;
    let (_, text) = edge.text(&url).await;
    assert!(text.ends_with("m4s\n"), "abandoned a moment ago, so not yet over: {text}");
    let folder = url.rsplit_once('/').expect("a path").0;
    let file = format!("{folder}/{}", uris(&text)[0]);
    let open = edge.request("GET", &file, None).await;
    fs::remove_dir_all(&edge.take.path).expect("removed");
    assert_eq!(body(open.body).await.expect("still open").len(), 12);
    assert_eq!(edge.get(&file).await.0, 404);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let (status, text) = edge.text(&url).await;
    assert_eq!((status, text.contains("nothing is recorded")), (404, true), "{text}");
}

#[tokio::test]
async fn shared_media_has_the_same_urls_for_all_viewers() {
    let edge = Edge::new("[hls]\nshared = true");
    let (one, other) = (edge.media_url("start=-600").await, edge.media_url("start=-600").await);
    assert_ne!(one, other);
    let (text, again) = (edge.text(&one).await.1, edge.text(&other).await.1);
    assert_eq!(text, again);
    let file = uris(&text)[0].strip_prefix("../").expect("relative to the stream");
    assert_eq!(edge.get(&format!("/live/a/{file}")).await.0, 200);
    assert_eq!(edge.get("/live/a/shift-0.m3u8").await.0, 403);
    assert_eq!(edge.state.sessions.all().len(), 2, "by their playlists");
    assert!(Path::new(&edge.take.path).exists());
}
