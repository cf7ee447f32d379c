//! Tokens of viewers and publishers, over every protocol.

use std::time::{Duration, SystemTime};

use crate::common::mendcast;
use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::viewer::{End, Viewer};
use crate::support::{http, http3};

const KEYS: &str = "[[play]]\nstream = \"paid/*\"\nkey = \"secret-of-viewers\"\n\
                    [[publish]]\nstream = \"*\"\nkey = \"secret-of-publishers\"\n";

/// A token from the command line.
fn token(edge: &Edge, arguments: &[&str]) -> String {
    let config = edge.config();
    let config = ["--config", config.to_str().expect("text")];
    let output = mendcast(&[&["keys", "jwt"], arguments, &config].concat()).output().expect("run");
    assert!(output.status.success() && output.stderr.is_empty());
    String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
}

#[test]
fn tokens_play_flv_hls_and_rtmp_and_others_do_not() {
    let edge = Edge::start(KEYS);
    let publishers = token(&edge, &["paid/demo", "--publish"]);
    let _paid = Publisher::start(edge.rtmp, &format!("paid/demo?token={publishers}"), None);
    let right = token(&edge, &["paid/demo"]);
    let other = token(&edge, &["paid/other"]);
    let pattern = token(&edge, &["paid/*", "--for", "2h"]);
    let forged = right.replace('.', "x.");
    for token in [&right, &pattern] {
        for format in ["flv", "m3u8"] {
            let path = if format == "flv" { "/paid/demo.flv" } else { "/paid/demo/index.m3u8" };
            let query = format!("{path}?token={token}");
            assert_eq!(http::get(edge.address, &query).status, 200, "{path}");
            assert_eq!(http3::status(edge.address, "GET", &query), Ok(200), "{path}");
            assert_eq!(http::get_with_token(edge.address, path, token).status, 200, "{path}");
        }
        let name = format!("paid/demo?token={token}");
        Viewer::rtmp(edge.rtmp, &name).wait_for_frames(1);
    }
    for (token, field) in [(&other, "sub"), (&forged, "format"), (&publishers, "signature")] {
        let path = format!("/paid/demo.flv?token={token}");
        let answer = http::get(edge.address, &path);
        assert_eq!(answer.status, 401, "{field}");
        let challenge = answer.field("www-authenticate").map(str::to_owned);
        assert_eq!(challenge.as_deref(), Some("Bearer error=\"invalid_token\""));
        let text = answer.text();
        assert!(text.contains(&format!("token: {field}: ")), "{field}: {text}");
        assert_eq!(http3::status(edge.address, "GET", &path), Ok(401), "{field}");
        assert_eq!(
            http::get_with_token(edge.address, "/paid/demo/index.m3u8", token).status,
            401,
            "{field}"
        );
        let refused = Viewer::rtmp(edge.rtmp, &format!("paid/demo?token={token}"));
        let End::Cut(why) = refused.end() else { panic!("played with a wrong {field}") };
        assert!(why.starts_with(&format!("refused: token: {field}: ")), "{why}");
    }
    assert_eq!(http::get(edge.address, "/paid/demo.flv").status, 403, "no token");
    assert!(edge.metric("mendcast_tokens_total{outcome=\"accepted\"}") > 8.5);
    assert!(edge.metric("mendcast_tokens_total{outcome=\"sub\"}") > 3.5);
    for secret in [&right, &publishers, &forged] {
        let signature = secret.rsplit('.').next().expect("a signature");
        assert!(edge.said(signature).is_empty(), "logged");
    }
}

#[test]
fn playback_ends_with_its_token() {
    let edge = Edge::start(&format!("{KEYS}[tokens]\nleeway = \"1s\"\n"));
    let publishers = token(&edge, &["paid/demo", "--publish"]);
    let _paid = Publisher::start(edge.rtmp, &format!("paid/demo?token={publishers}"), None);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("later").as_secs();
    let token = edge::tokens::issue("secret-of-viewers", "paid/demo", "play", now, now + 3);
    let path = format!("/paid/demo.flv?token={}", token.expect("issued"));
    let viewers = [Viewer::h3(edge.address, &path), Viewer::h1(edge.address, &path)];
    viewers.iter().for_each(|viewer| viewer.wait_for_frames(1));
    assert_eq!(viewers.map(|viewer| viewer.end()), [End::Clean, End::Clean]);
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(now + 4);
    assert!(SystemTime::now() >= end, "not before expiry and leeway");
    // Claims have whole seconds.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(http::get(edge.address, &path).status, 401);
}
