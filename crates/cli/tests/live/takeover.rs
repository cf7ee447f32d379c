//! A second publisher of a stream, while the first one's connection is still open.

use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::origin::{Origin, respond};
use crate::support::publishing::{CONFIGURATION, INTER, KEY, Publishing, picture};
use crate::support::until;
use crate::support::viewer::Viewer;

const KEYS: &str = "[[publish]]\nstream = \"live/*\"\nkey = \"one\"\n\
                    [[publish]]\nstream = \"live/demo\"\nkey = \"two\"\n";
const BUSY: &str = "the stream already has a publisher";
const TAKEN: &str = "another publisher has taken the stream over";

/// Sends a group of pictures of this size from its own time 0 on.
fn send(publisher: &mut Publishing, size: usize) {
    assert!(publisher.send(&picture(CONFIGURATION, 0, 50)));
    assert!(publisher.send(&picture(KEY, 0, size)));
    for number in 1..10 {
        assert!(publisher.send(&picture(INTER, number * 40, size)));
    }
}

fn wait_for_pictures(viewer: &Viewer, size: usize) {
    until(&format!("pictures of {size} bytes"), || {
        assert_eq!(viewer.has_ended(), None);
        viewer.frames().iter().filter(|tag| tag.payload().len() == size).count() >= 9
    });
}

#[test]
fn an_encoder_on_a_new_network_resumes_at_once() {
    // Longer than the test's patience: nothing here waits for it.
    let more = "rtmp.timeout = \"10m\"\nlive.take_over = \"same-key\"\n";
    let edge = Edge::start(&format!("{more}{KEYS}"));
    let mut first = Publishing::open(edge.rtmp, "live/demo?key=one").expect("granted");
    send(&mut first, 1_000);
    let viewers = [
        Viewer::h1(edge.address, "/live/demo.flv"),
        Viewer::h3(edge.address, "/live/demo.flv"),
        Viewer::rtmp(edge.rtmp, "live/demo"),
    ];
    viewers.iter().for_each(|viewer| wait_for_pictures(viewer, 1_000));
    let other = Publishing::open(edge.rtmp, "live/demo?key=two").map(drop);
    assert_eq!(other, Err(BUSY.into()), "it may publish, but not take over");
    let mut second = Publishing::open(edge.rtmp, "live/demo?key=one").expect("taken over");
    send(&mut second, 2_000);
    viewers.iter().for_each(|viewer| wait_for_pictures(viewer, 2_000));
    assert_eq!(first.closed().as_deref(), Some(TAKEN));
    assert_eq!((edge.events("taken_over"), edge.events("published")), (1.0, 2.0));
    // The first one's end is not the stream's.
    send(&mut second, 3_000);
    for viewer in &viewers {
        wait_for_pictures(viewer, 3_000);
        let frames = viewer.frames();
        assert!(frames.windows(2).all(|two| two[0].timestamp() <= two[1].timestamp()));
        let old = |tag: &&media::Tag| tag.payload().len() == 1_000;
        assert!(frames.iter().skip_while(old).all(|tag| tag.payload().len() > 1_000));
    }
    let mut third = Publishing::open(edge.rtmp, "live/demo?key=one").expect("taken over again");
    send(&mut third, 4_000);
    viewers.iter().for_each(|viewer| wait_for_pictures(viewer, 4_000));
}

#[test]
fn an_encoder_that_still_sends_is_told_that_its_stream_was_taken_over() {
    let edge = Edge::start(&format!("live.take_over = \"same-key\"\n{KEYS}"));
    let busy = Publisher::start(edge.rtmp, "live/demo?key=two", None);
    let viewer = Viewer::h3(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(10);
    let mut second = Publishing::open(edge.rtmp, "live/demo?key=two").expect("taken over");
    edge.says("live/demo: taken over from publisher 127.0.0.1:");
    send(&mut second, 77);
    wait_for_pictures(&viewer, 77);
    // It ends in good form, if it can.
    drop(busy);
    send(&mut second, 78);
    wait_for_pictures(&viewer, 78);
}

#[test]
fn the_hook_decides_who_takes_over_unless_it_fails() {
    let operator = Origin::start(|request, socket| {
        let body = String::from_utf8_lossy(&request.body);
        respond(socket, if body.contains("user=no") { 403 } else { 204 }, "x: y", b"")
    });
    let edge = Edge::start(&format!(
        "live.take_over = \"same-key\"\nhooks.on_publish = \"{}\"\n",
        operator.url("/")
    ));
    let first = Publishing::open(edge.rtmp, "live/demo?user=a").expect("granted");
    let refused = Publishing::open(edge.rtmp, "live/demo?user=no").map(drop);
    assert_eq!(refused, Err("the on_publish hook answered 403".into()));
    let _second = Publishing::open(edge.rtmp, "live/demo?user=a").expect("taken over");
    assert_eq!(first.closed().as_deref(), Some(TAKEN));

    // A port without a listener.
    let keys = "live.take_over = \"same-key\"\n[hooks]\non_publish = \"http://127.0.0.1:1/\"\n\
                on_failure = \"allow\"\n";
    let edge = Edge::start(keys);
    let _first = Publishing::open(edge.rtmp, "live/demo").expect("granted");
    assert_eq!(Publishing::open(edge.rtmp, "live/demo").map(drop), Err(BUSY.into()));
}

#[test]
fn takeovers_need_a_key_and_permission() {
    for (keys, stream) in [
        ("live.take_over = \"same-key\"\n".to_owned(), "live/demo?key=one"),
        (KEYS.to_owned(), "live/demo?key=one"),
    ] {
        let edge = Edge::start(&keys);
        let mut first = Publishing::open(edge.rtmp, stream).expect("granted");
        assert_eq!(Publishing::open(edge.rtmp, stream).map(drop), Err(BUSY.into()), "{keys}");
        send(&mut first, 100);
        wait_for_pictures(&Viewer::h1(edge.address, "/live/demo.flv"), 100);
    }
}
