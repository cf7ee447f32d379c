//! `mendcast demo`, as its first user sees it.

use serde_json::Value;

use crate::common::mendcast;

#[test]
fn the_demo_ends_with_what_its_viewers_saw() {
    let output = mendcast(&["demo", "--seconds", "8", "--json"]).output().expect("run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let keys = |value: &Value| {
        let mut keys: Vec<String> = value.as_object().expect("an object").keys().cloned().collect();
        keys.sort();
        keys.join(" ")
    };
    assert_eq!(keys(&seen), "link seconds viewers");
    let seconds = seen["seconds"].as_f64().expect("a number");
    assert!((8.0..9.0).contains(&seconds), "{seen}");
    let viewers = seen["viewers"].as_array().expect("viewers");
    let cohorts: Vec<_> = viewers.iter().map(|viewer| viewer["cohort"].as_str()).collect();
    assert_eq!(cohorts, [Some("arq"), Some("spare"), Some("autorec"), Some("art")]);
    for viewer in viewers {
        assert_eq!(
            keys(viewer),
            "bytes client cohort first_frame_ms freeze_s freezes loss_rate played_s protocol \
             recovery_latency_ms redundancy_cost scheme"
        );
        assert_eq!(viewer["protocol"], "h3");
        let number =
            |name: &str| viewer[name].as_f64().unwrap_or_else(|| panic!("{name}: {viewer}"));
        assert!((5.0..=8.5).contains(&number("played_s")), "{viewer}");
        assert!((30.0..5_000.0).contains(&number("first_frame_ms")), "{viewer}");
        assert!((0.02..0.09).contains(&number("loss_rate")), "{viewer}");
        // 1.5 Mbit/s.
        assert!((900_000.0..2_500_000.0).contains(&number("bytes")), "{viewer}");
        // In a few seconds there may be no data whose first retransmission was lost.
        assert!(viewer["recovery_latency_ms"].as_f64().is_none_or(|ms| ms > 0.0), "{viewer}");
        let cost = number("redundancy_cost");
        match viewer["scheme"].as_str() {
            Some("arq") => assert_eq!(cost, 0.0),
            // 5 % loss; one replica for each, hardly any for what is lost twice.
            Some("spare") => assert!((0.005..0.12).contains(&cost), "{viewer}"),
            // At most ten replicas for each, and the guard's half.
            Some("autorec" | "art-paper") => assert!((0.005..0.55).contains(&cost), "{viewer}"),
            other => panic!("{other:?}"),
        }
    }
}
