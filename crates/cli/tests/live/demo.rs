//! `mendcast demo`, as its first user sees it.

use serde_json::Value;

use crate::common::mendcast;

fn keys(value: &Value) -> String {
    let mut keys: Vec<String> = value.as_object().expect("an object").keys().cloned().collect();
    keys.sort();
    keys.join(" ")
}

#[test]
fn the_demo_ends_with_its_viewers_reports() {
    let arguments = ["demo", "--seconds", "8", "--json", "--loss", "independent", "--rtt", "60ms"];
    let output = mendcast(&arguments).args(["--player", "low-latency"]).output().expect("run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(keys(&seen), "difference link player seconds viewers");
    assert_eq!((&seen["link"]["loss"], &seen["player"]), (&"5%".into(), &"low-latency".into()));
    let seconds = seen["seconds"].as_f64().expect("a number");
    assert!((8.0..9.0).contains(&seconds), "{seen}");
    let viewers = seen["viewers"].as_array().expect("viewers");
    let cohorts: Vec<_> = viewers.iter().map(|viewer| viewer["cohort"].as_str()).collect();
    assert_eq!(cohorts, [Some("arq"), Some("deadline"), Some("autorec"), Some("art")]);
    for viewer in viewers {
        assert_eq!(
            keys(viewer),
            "bytes client cohort first_frame_ms frames freeze_s freezes late_frames loss_rate \
             played_s protocol recovery_latency_ms redundancy_cost scheme"
        );
        assert_eq!(viewer["protocol"], "h3");
        let number =
            |name: &str| viewer[name].as_f64().unwrap_or_else(|| panic!("{name}: {viewer}"));
        assert!((5.0..=8.5).contains(&number("played_s")), "{viewer}");
        assert!((30.0..5_000.0).contains(&number("first_frame_ms")), "{viewer}");
        assert!((0.02..0.09).contains(&number("loss_rate")), "{viewer}");
        // 25 pictures and 47 frames of sound a second; of those up to the cached two seconds more.
        assert!((300.0..800.0).contains(&number("frames")), "{viewer}");
        assert!(number("late_frames") <= number("frames"), "{viewer}");
        // 1.5 Mbit/s.
        assert!((900_000.0..2_500_000.0).contains(&number("bytes")), "{viewer}");
        // In a few seconds, maybe no first retransmission was lost.
        assert!(viewer["recovery_latency_ms"].as_f64().is_none_or(|ms| ms > 0.0), "{viewer}");
        let cost = number("redundancy_cost");
        match viewer["scheme"].as_str() {
            Some("arq") => assert_eq!(cost, 0.0),
            // 5 % loss; two replicas for each at most, and the guard.
            Some("deadline") => assert!((0.005..0.12).contains(&cost), "{viewer}"),
            // At most ten replicas for each, and the guard's half.
            Some("autorec" | "art-paper") => assert!((0.005..0.55).contains(&cost), "{viewer}"),
            other => panic!("{other:?}"),
        }
    }
    let of = |place: usize| viewers[place]["freezes"].as_i64().expect("a number");
    assert_eq!(seen["difference"]["freezes_saved"].as_i64(), Some(of(0) - of(1)), "{seen}");
}

#[test]
fn without_loss_the_demo_says_that_the_difference_is_small_and_how_to_see_it_in_a_browser() {
    let arguments = ["demo", "--seconds", "4", "--loss", "none", "--rtt", "20ms"];
    let output = mendcast(&arguments).output().expect("run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("The difference is small"), "{text}");
    assert!(text.contains("That is your choice; the demo's own is "), "{text}");
    let command =
        text.lines().find(|line| line.trim_start().starts_with("chromium ")).expect("one");
    let origins = command.split_once("--origin-to-force-quic-on=").expect("origins").1;
    let origins: Vec<&str> = origins.split(' ').next().expect("a list").split(',').collect();
    assert_eq!(origins.len(), 4, "{command}");
    let page = command.split_once("/side-by-side.html?").expect("the page").1;
    for (name, origin) in ["arq", "deadline", "autorec", "art"].into_iter().zip(origins) {
        assert!(page.contains(&format!("&player={name}=https://{origin}")), "{command}");
    }
    assert!(page.contains("stream=live/demo&buffer_ms=500&"), "{command}");
    assert!(command.contains("--ignore-certificate-errors-spki-list="), "{command}");
}

#[test]
fn a_player_or_a_loss_that_makes_no_sense_is_refused_by_its_flag() {
    for (flag, value) in [("--player", "buffer:5ms"), ("--player", "vlc"), ("--loss", "calls")] {
        let output = mendcast(&["demo", flag, value]).output().expect("run");
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{why}");
        assert!(why.contains(flag) && why.contains(value), "{why}");
    }
}
