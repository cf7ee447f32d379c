//! Who may publish and play: the operator's hooks, and signed URLs.

use aws_lc_rs::hmac;
use serde_json::Value;

use crate::common::mendcast;
use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::origin::{Origin, Request, respond};
use crate::support::publishing::Publishing;
use crate::support::viewer::{End, Viewer};
use crate::support::{eventually, http, http3};

const SECRET: &str = "a long random word";

/// The JSON of a hook's request, if it is signed as it should be.
fn told(request: &Request) -> Value {
    let signature = &request.fields["x-mendcast-signature"];
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = hmac::sign(&key, &request.body);
    let digits: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(*signature, format!("sha256={digits}"));
    assert_eq!(request.fields["content-type"], "application/json");
    serde_json::from_slice(&request.body).expect("JSON")
}

#[test]
fn hooks_grant_refuse_and_are_told_of_the_end() {
    let operator = Origin::start(|request, socket| {
        let what: Value = serde_json::from_slice(&request.body).expect("JSON");
        let refused = what["query"].as_str().is_some_and(|query| query.contains("pass=no"));
        respond(socket, if refused { 403 } else { 204 }, "x: y", b"")
    });
    let edge = Edge::start(&format!(
        "[hooks]\non_publish = \"{0}p\"\non_play = \"{0}v\"\non_close = \"{0}c\"\nsecret = \"{SECRET}\"\n",
        operator.url("/")
    ));
    let refused = Publishing::open(edge.rtmp, "live/demo?pass=no").map(drop);
    assert_eq!(refused, Err("the on_publish hook answered 403".into()));
    edge.says("refused: the on_publish hook answered 403");
    let _publisher = Publisher::start(edge.rtmp, "live/demo?pass=yes", None);
    for path in ["/live/demo.flv", "/live/demo/index.m3u8"] {
        let path = format!("{path}?pass=no");
        assert_eq!(http::get(edge.address, &path).status, 403, "{path}");
        assert_eq!(http3::status(edge.address, "GET", &path), Ok(403), "{path}");
    }
    let player = Viewer::rtmp(edge.rtmp, "live/demo?pass=no");
    assert_eq!(player.end(), End::Cut("refused: refused".into()));
    let viewer = Viewer::h3(edge.address, "/live/demo.flv?pass=yes");
    viewer.wait_for_frames(50);
    let bytes: usize = viewer.tags().iter().map(|tag| tag.bytes().len()).sum();
    drop(viewer);
    let record = eventually("the record", || {
        let requests = operator.requests();
        requests.iter().find(|request| request.path == "/c").map(told)
    });
    let text = |name: &str| record[name].as_str();
    assert_eq!((text("event"), text("stream")), (Some("on_close"), Some("live/demo")));
    assert_eq!(text("protocol"), Some("h3"));
    assert!(record["bytes"].as_u64() >= Some(bytes as u64), "{record} {bytes}");
    assert!(record["first_frame_ms"].as_f64() > Some(0.0), "{record}");
    let asked: Vec<Value> = operator.requests().iter().map(told).collect();
    let count = |event: &str| asked.iter().filter(|what| what["event"] == event).count();
    assert_eq!((count("on_publish"), count("on_play"), count("on_close")), (2, 6, 1), "{asked:?}");
    let play = asked.iter().rfind(|what| what["event"] == "on_play").expect("asked");
    assert_eq!((&play["viewer"], &play["remote"]), (&record["viewer"], &"127.0.0.1".into()));
    assert_eq!((&play["protocol"], &play["format"]), (&"h3".into(), &"flv".into()));
    let hooks = edge.state()["hooks"].clone();
    assert!(hooks.to_string().contains("\"failed\":0"), "{hooks}");
}

#[test]
fn the_hook_learns_of_sessions_that_end_with_the_process() {
    let operator = Origin::start(|_, socket| respond(socket, 204, "x: y", b""));
    let hook = operator.url("/c");
    let mut edge =
        Edge::start(&format!("drain.timeout = \"0s\"\n[hooks]\non_close = \"{hook}\"\n"));
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let viewers = [(); 40].map(|()| Viewer::h1(edge.address, "/live/demo.flv"));
    viewers.iter().for_each(|viewer| viewer.wait_for_frames(1));
    edge.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(edge.exit_code(), Some(0));
    assert_eq!(operator.requests().len(), 40);
}

#[test]
fn a_dead_hook_follows_the_configured_policy() {
    // A port without a listener.
    let dead = "http://127.0.0.1:1/";
    let edge = |on_failure: &str| {
        Edge::start(&format!(
            "[hooks]\non_publish = \"{dead}\"\non_play = \"{dead}\"\non_failure = \"{on_failure}\"\n"
        ))
    };
    let strict = edge("refuse");
    let refused = Publishing::open(strict.rtmp, "live/demo").map(drop).expect_err("refused");
    assert!(refused.starts_with("the on_publish hook failed: "), "{refused}");
    strict.says("on_publish: ");
    let lenient = edge("allow");
    let _publisher = Publisher::start(lenient.rtmp, "live/demo", None);
    Viewer::h1(lenient.address, "/live/demo.flv").wait_for_frames(1);
    let hooks = lenient.state()["hooks"].to_string();
    assert!(hooks.contains("Connection refused"), "{hooks}");
}

#[test]
fn a_silent_hook_does_not_delay_others() {
    let silent = Origin::start(|_, _| {
        std::thread::sleep(crate::support::PATIENCE);
        Ok(())
    });
    let hook = silent.url("/");
    let edge = Edge::start(&format!("[hooks]\non_play = \"{hook}\"\ntimeout = \"1s\"\n"));
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let address = edge.address;
    let waiting: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(move || http3::status(address, "GET", "/live/demo.flv")))
        .collect();
    eventually("somebody waits", || (!silent.requests().is_empty()).then_some(()));
    assert_eq!(edge.health(), (200, "ok\n".into()));
    assert_eq!(http3::status(address, "GET", "/live/none.flv"), Ok(404));
    for waiting in waiting {
        assert_eq!(waiting.join().expect("an answer"), Ok(403));
    }
}

#[test]
fn signed_urls_play_flv_hls_and_rtmp_and_others_do_not() {
    let edge = Edge::start("[[play]]\nstream = \"paid/*\"\nkey = \"secret\"\n");
    let sign = |stream: &str, time: &str| {
        let config = edge.config();
        let config = config.to_str().expect("text");
        let arguments = ["keys", "sign", "--config", config, stream, "--for", time];
        mendcast(&arguments).output().expect("run")
    };
    let query = |stream: &str, time: &str| {
        let output = sign(stream, time);
        assert!(output.status.success() && output.stderr.is_empty());
        String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
    };
    let unruled = sign("live/free", "1h");
    assert_eq!((unruled.status.code(), unruled.stdout.len()), (Some(1), 0));
    let text = String::from_utf8(unruled.stderr).expect("text");
    assert!(
        text.contains("no [[play]] rule with a key names live/free") && text.lines().count() == 1,
        "{text}"
    );

    let _paid = Publisher::start(edge.rtmp, "paid/demo", None);
    let _free = Publisher::start(edge.rtmp, "live/free", None);
    let (right, other) = (query("paid/demo", "1h"), query("paid/other", "1h"));
    // A second ago is over.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later");
    let old = edge::signing::sign("secret", "paid/demo", now.as_secs() - 1);
    let wrong = right.replace("sig=", "sig=0");
    for path in ["/paid/demo.flv", "/paid/demo/index.m3u8", "/paid/demo/media.m3u8"] {
        for query in ["", &other, &old, &wrong] {
            let path = format!("{path}?{query}");
            assert_eq!(http::get(edge.address, &path).status, 403, "{path}");
            assert_eq!(http3::status(edge.address, "GET", &path), Ok(403), "{path}");
        }
    }
    Viewer::h1(edge.address, &format!("/paid/demo.flv?{right}")).wait_for_frames(1);
    Viewer::h3(edge.address, &format!("/paid/demo.flv?{right}")).wait_for_frames(1);
    Viewer::rtmp(edge.rtmp, &format!("paid/demo?{right}")).wait_for_frames(1);
    let refused = Viewer::rtmp(edge.rtmp, &format!("paid/demo?{other}"));
    assert_eq!(refused.end(), End::Cut("refused: no valid signature".into()));
    Viewer::h1(edge.address, "/live/free.flv").wait_for_frames(1);

    // Permitted viewers get a pass; without one, nothing is served.
    let file = |name: &str| http::get(edge.address, &format!("/paid/demo/{name}"));
    let master = file(&format!("index.m3u8?{right}")).text();
    let media = uri_of(&master, "/media.m3u8");
    let folder = media.strip_suffix("media.m3u8").expect("a folder");
    let playlist = file(media).text();
    let segment = uri_of(&playlist, ".m4s");
    assert_eq!(file(&format!("{folder}{segment}")).status, 200, "{playlist}");
    for without in [segment, "media.m3u8", "~/media.m3u8", &format!("~AAAA/{segment}")] {
        assert_eq!(file(without).status, 403, "{without}");
    }
    let elsewhere = format!("/live/free/{folder}media.m3u8");
    assert_eq!(http::get(edge.address, &elsewhere).status, 403, "a pass for another stream");
}

/// The first URI of a playlist that ends so.
fn uri_of<'a>(playlist: &'a str, end: &str) -> &'a str {
    playlist.lines().find(|line| line.ends_with(end)).unwrap_or_else(|| panic!("{playlist}"))
}

#[test]
fn playback_ends_with_its_signature() {
    let edge = Edge::start("[[play]]\nstream = \"paid/*\"\nkey = \"secret\"\n");
    let _paid = Publisher::start(edge.rtmp, "paid/demo", None);
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(4);
    let soon = soon.duration_since(std::time::UNIX_EPOCH).expect("later").as_secs();
    let query = edge::signing::sign("secret", "paid/demo", soon);
    let master = http::get(edge.address, &format!("/paid/demo/index.m3u8?{query}")).text();
    let media = format!("/paid/demo/{}", uri_of(&master, "/media.m3u8"));
    assert_eq!(http::get(edge.address, &media).status, 200);
    let flv = Viewer::h3(edge.address, &format!("/paid/demo.flv?{query}"));
    let rtmp = Viewer::rtmp(edge.rtmp, &format!("paid/demo?{query}"));
    for viewer in [&flv, &rtmp] {
        viewer.wait_for_frames(1);
    }
    assert_eq!((flv.end(), rtmp.end()), (End::Clean, End::Clean));
    eventually("the pass ends", || (http::get(edge.address, &media).status == 403).then_some(()));
}

#[test]
fn the_hook_is_asked_for_each_viewer_of_an_address() {
    let operator = Origin::start(|request, socket| {
        let what: Value = serde_json::from_slice(&request.body).expect("JSON");
        let granted = what["query"].as_str().is_some_and(|query| query.contains("paid=yes"));
        respond(socket, if granted { 204 } else { 403 }, "x: y", b"")
    });
    let edge = Edge::start(&format!("[hooks]\non_play = \"{}\"\n", operator.url("/v")));
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let get = |file: &str| http::get(edge.address, &format!("/live/demo/{file}"));
    let master = get("index.m3u8?paid=yes").text();
    let media = uri_of(&master, "/media.m3u8");
    let folder = media.strip_suffix("media.m3u8").expect("a folder");
    let playlist = get(media).text();
    let segment = uri_of(&playlist, ".m4s");
    assert_eq!(get(&format!("{folder}{segment}")).status, 200);
    let known = get("index.m3u8?paid=yes");
    let page = known.field("mendcast-viewer").expect("the viewer's pass");
    for file in ["index.m3u8", "media.m3u8", segment, &format!("index.m3u8?viewer={page}")] {
        assert_eq!(get(file).status, 403, "{file}");
    }
    assert_eq!(get("index.m3u8?paid=yes").status, 200);
}

#[test]
fn a_report_counts_only_for_the_viewer_of_its_pass() {
    let edge = Edge::start("");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let viewer = Viewer::h1(edge.address, "/live/demo.flv?viewer=me");
    viewer.wait_for_frames(1);
    let report = |viewer: &str| {
        let body = serde_json::json!({
            "viewer": viewer, "stream": "live/demo", "played_s": 1.0, "freezes": 1, "freeze_s": 0.5,
        });
        http::post(edge.address, "/beacon", body.to_string().as_bytes()).status
    };
    let unmatched = || edge.metric("mendcast_beacons_unmatched_total");
    // Neither a name chosen by the client nor an unused pass identifies a viewer.
    let stranger = http::get(edge.address, "/viewer").text();
    for name in ["me", "", "0000000000000000", &stranger] {
        assert_eq!(report(name), 204);
    }
    assert_eq!(unmatched(), 4.0);
    let known = Viewer::h1(edge.address, &format!("/live/demo.flv?viewer={stranger}"));
    known.wait_for_frames(1);
    assert_eq!((report(&stranger), unmatched()), (204, 4.0));
    let freezes = edge.state()["sessions"]
        .as_array()
        .map(|all| all.iter().filter(|session| session["freezes"] == 1).count());
    assert_eq!(freezes, Some(1), "{}", edge.state());
}

/// Status and CORS fields of an answer over HTTP/1.1, which is the same over HTTP/3.
fn cors(edge: &Edge, method: &str, path: &str) -> (u16, Vec<(&'static str, String)>) {
    const FIELDS: [&str; 6] = [
        "access-control-allow-origin",
        "access-control-allow-methods",
        "access-control-allow-headers",
        "access-control-max-age",
        "vary",
        "allow",
    ];
    let of = |field: &dyn Fn(&str) -> Option<String>| {
        FIELDS.into_iter().filter_map(|name| Some((name, field(name)?))).collect::<Vec<_>>()
    };
    let h1 = http::request(edge.address, method, path);
    let h1 = (h1.status, of(&|name| h1.field(name).map(str::to_owned)));
    let h3 = http3::runtime().block_on(async {
        let request = http3::Request::send(edge.address, method, path, http3::Windows::Usual);
        let request = request.await.expect("an answer");
        let seen = (request.status, of(&|name| request.field(name).map(str::to_owned)));
        request.close().await;
        seen
    });
    assert_eq!(h1, h3, "{method} {path}");
    h1
}

#[test]
fn a_page_of_the_named_origin_may_play_and_report_and_caches_are_told() {
    let edge = Edge::start("live.cors = \"https://a.test\"\n");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let origin = ("access-control-allow-origin", "https://a.test".to_owned());
    let vary = ("vary", "origin".to_owned());
    for path in ["/live/demo.flv", "/live/demo/index.m3u8", "/viewer"] {
        // Playlists are compressed for clients that take it.
        let coded = if path.ends_with(".m3u8") { "accept-encoding, origin" } else { "origin" };
        let fields = vec![origin.clone(), ("vary", coded.to_owned())];
        assert_eq!(cors(&edge, "GET", path), (200, fields), "{path}");
    }
    let fields = vec![
        origin,
        ("access-control-allow-methods", "POST".to_owned()),
        ("access-control-allow-headers", "content-type".to_owned()),
        ("access-control-max-age", "86400".to_owned()),
        vary,
    ];
    assert_eq!(cors(&edge, "OPTIONS", "/beacon"), (204, fields));
}

#[test]
fn a_page_may_ask_for_media_with_fields_of_its_own_and_read_why_there_is_none() {
    let edge = Edge::start("");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let any = ("access-control-allow-origin", "*".to_owned());
    for path in
        ["/live/demo/index.m3u8", "/live/demo.flv", "/live/none/index.m3u8", "/live/none.flv"]
    {
        let fields = vec![
            any.clone(),
            ("access-control-allow-methods", "GET, HEAD".to_owned()),
            ("access-control-allow-headers", "range".to_owned()),
            ("access-control-max-age", "86400".to_owned()),
        ];
        assert_eq!(cors(&edge, "OPTIONS", path), (204, fields), "{path}");
    }
    for path in [
        "/live/none/index.m3u8",
        "/live/none.flv",
        "/live/none/~x/media.m3u8",
        "/live/none/init-0000000000000003.mp4",
    ] {
        let (status, fields) = cors(&edge, "GET", path);
        assert!(status >= 400 && fields.contains(&any), "{path}: {status} {fields:?}");
    }
    for path in ["/live/demo.flv", "/live/demo/index.m3u8"] {
        let (status, fields) = cors(&edge, "POST", path);
        assert!(status == 405 && fields.contains(&any), "{path}: {fields:?}");
    }
    assert_eq!(cors(&edge, "GET", "/nothing").1, vec![], "no media");
    let closed = Edge::start("live.cors = \"\"\n");
    let (status, fields) = cors(&closed, "OPTIONS", "/live/demo/index.m3u8");
    assert!(
        status >= 400 && fields.iter().all(|(name, _)| *name == "allow"),
        "{status} {fields:?}"
    );
}

#[test]
fn without_cors_a_preflight_is_refused_and_for_all_origins_nothing_varies() {
    let closed = Edge::start("live.cors = \"\"\n");
    let refused = (405, vec![("allow", "POST".to_owned())]);
    assert_eq!(cors(&closed, "OPTIONS", "/beacon"), refused);
    assert_eq!(cors(&closed, "GET", "/viewer"), (200, vec![]));
    let open = Edge::start("");
    let any = ("access-control-allow-origin", "*".to_owned());
    assert_eq!(cors(&open, "GET", "/viewer"), (200, vec![any.clone()]));
    let (status, fields) = cors(&open, "OPTIONS", "/beacon");
    assert_eq!((status, &fields[0], fields.len()), (204, &any, 4));
    let allow = ("allow", "OPTIONS, POST".to_owned());
    assert_eq!(cors(&open, "PUT", "/beacon"), (405, vec![any, allow]));
}

#[test]
fn rejected_viewers_cause_no_pull() {
    let upstream = Origin::of_clip();
    let hook = Origin::start(|_, socket| respond(socket, 403, "x: y", b""));
    let edge = Edge::start(&format!(
        "[hooks]\non_play = \"{}\"\n[[pull]]\nstream = \"live/*\"\nupstream = [\"{}\"]\n",
        hook.url("/"),
        upstream.url("/{tail}.flv")
    ));
    for file in ["demo.flv", "demo/index.m3u8", "demo/media.m3u8"] {
        assert_eq!(http::get(edge.address, &format!("/live/{file}")).status, 403, "{file}");
    }
    let player = Viewer::rtmp(edge.rtmp, "live/demo");
    assert_eq!(player.end(), End::Cut("refused: refused".into()));
    for file in ["0-0000000000000000.m4s", "init-0000000000000001.mp4"] {
        assert_eq!(http::get(edge.address, &format!("/live/demo/{file}")).status, 403, "{file}");
    }
    assert_eq!(hook.requests().len(), 3);
    assert!(upstream.requests().is_empty());
    assert_eq!(edge.metric("mendcast_streams"), 0.0);
}

#[test]
fn the_first_page_lists_the_streams_that_everybody_may_play() {
    let edge = Edge::start("[[play]]\nstream = \"paid/*\"\nkey = \"secret\"\n");
    let home = || {
        let answer = http::get(edge.address, "/");
        assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(answer.field("cache-control"), Some("no-store"));
        answer.text()
    };
    // The page of a binary without the web player.
    if http::get(edge.address, "/player.html").status == 503 {
        eprintln!("skipped: this binary was built without its pages (make web)");
        return;
    }
    assert!(home().contains("No stream is live"));
    let _paid = Publisher::start(edge.rtmp, "paid/demo", None);
    let _free = Publisher::start(edge.rtmp, "live/free", None);
    let page = eventually("the list", || Some(home()).filter(|page| page.contains("live/free")));
    assert!(page.contains("href=\"/player.html?stream=live/free\""), "{page}");
    assert!(!page.contains("paid/demo"), "{page}");
    let player = http::get(edge.address, "/player.html?stream=live/free");
    assert_eq!(player.field("cache-control"), Some("no-store"));
    let player = player.text();
    let (_, pass) = player.split_once("name=\"mendcast-viewer\" content=\"").expect("a pass");
    let (pass, _) = pass.split_once('"').expect("its end");
    assert!((60..=80).contains(&pass.len()), "{pass}");
    let known = Viewer::h1(edge.address, &format!("/live/free.flv?viewer={pass}"));
    known.wait_for_frames(1);
    assert_eq!(http::request(edge.address, "HEAD", "/").status, 200);
}
