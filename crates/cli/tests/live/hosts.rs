//! Virtual hosts: streams, files and pages by the requested host name.

use std::fs;

use serde_json::json;

use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::publishing::Publishing;
use crate::support::viewer::Viewer;
use crate::support::{http, http3};

const HOSTS: &str = "[[host]]\nnames = [\"a.test\", \"*.a.test\"]\nprefix = \"tenant\"\n";

/// The HLS media playlist of the only rendition, by its URL relative to the master playlist.
fn media(edge: &Edge, master: &str) -> http::Answer {
    let text = http::get(edge.address, master).text();
    let relative = text.lines().find(|line| !line.starts_with('#') && !line.is_empty());
    let folder = master.rsplit_once('/').expect("a path").0;
    http::get(edge.address, &format!("{folder}/{}", relative.expect("a rendition")))
}

#[test]
fn streams_of_a_host_are_below_its_prefix() {
    let edge = Edge::start(HOSTS);
    let _demo = Publisher::start(edge.rtmp, "tenant/live/demo", None);
    let _others = Publisher::start(edge.rtmp, "live/others", None);
    for (url, status) in [
        ("https://a.test/live/demo.flv", 200),
        ("https://A.TEST:8443/live/demo.flv", 200),
        ("https://b.a.test/live/demo/index.m3u8", 200),
        ("/tenant/live/demo.flv", 200),
        ("https://other.test/tenant/live/demo.flv", 200),
        ("https://a.test/tenant/live/demo.flv", 404),
        ("https://a.test/live/others.flv", 404),
        ("https://b.c.a.test/live/demo.flv", 404),
        ("/live/demo.flv", 404),
    ] {
        assert_eq!(http::get(edge.address, url).status, status, "{url}");
        assert_eq!(http3::status(edge.address, "GET", url), Ok(status), "{url}");
    }
    let playlist = media(&edge, "https://a.test/live/demo/index.m3u8");
    assert_eq!(playlist.status, 200);
    assert!(playlist.text().contains("#EXTINF"));
    let home = http::get(edge.address, "https://a.test/").text();
    assert!(home.contains("?stream=live/demo\"") && !home.contains("others"), "{home}");
    let home = http::get(edge.address, "/").text();
    assert!(home.contains("?stream=tenant/live/demo\"") && home.contains("live/others"), "{home}");
    assert_eq!(http::get(edge.address, "https://a.test/player.html?stream=live/demo").status, 200);
    Viewer::rtmp(edge.rtmp, "tenant/live/demo").wait_for_frames(1);
}

#[test]
fn rules_apply_to_the_full_names_of_publishers_and_viewers() {
    let rules = "[[publish]]\nstream = \"tenant/*\"\nkey = \"right\"\n\
                 [[play]]\nstream = \"tenant/*\"\nkey = \"k\"\n";
    let edge = Edge::start(&format!("{HOSTS}{rules}"));
    // The encoder's URL is in the field of the stream's name.
    let publish =
        |query: &str| Publishing::open(edge.rtmp, &format!("live/rtmp://a.test/live/demo{query}"));
    assert!(publish("?key=wrong").is_err());
    let _connection = publish("?key=right").expect("published");
    let streams = edge.state()["streams"].clone();
    assert_eq!(streams[0]["name"], json!("tenant/live/demo"), "{streams}");
    assert_eq!(http::get(edge.address, "https://a.test/live/demo.flv").status, 403);
}

#[test]
fn hosts_have_folders_of_files_and_change_at_a_reload() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let folder = directory.path().join("www/tenant/sub");
    fs::create_dir_all(&folder).expect("created");
    fs::write(folder.join("index.html"), "below").expect("written");
    fs::write(folder.join("../index.html"), "tenant's home").expect("written");
    let root = "server.root = \"www\"\n";
    let edge = Edge::start_in(directory, &format!("{root}{HOSTS}"), None);
    let text = |url: &str| http::get(edge.address, url).text();
    assert_eq!(text("https://a.test/"), "tenant's home");
    assert_eq!(text("https://a.test/sub/"), "below");
    let redirect = http::get(edge.address, "https://a.test/sub");
    assert_eq!((redirect.status, redirect.field("location")), (301, Some("sub/")));
    assert_eq!(http::get(edge.address, "https://other.test/sub/").status, 404);
    assert_eq!(http::get(edge.address, "https://a.test/../../edge.toml").status, 400);
    edge.reload(&format!("{root}{}", HOSTS.replace("*.a.test", "b.test")));
    assert_eq!(text("https://b.test/sub/"), "below");
    assert_eq!(http::get(edge.address, "https://c.a.test/sub/").status, 404);
}
