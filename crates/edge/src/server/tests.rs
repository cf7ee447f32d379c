//! Reload and health of the server.

use super::*;

fn state(text: &str) -> Result<State, Error> {
    State::new(Config::parse("edge.toml", text)?, None)
}

#[test]
fn errors_name_the_unreadable_file() {
    let cases = [
        ("[server]\nroot = \"/nonexistent\"", "root /nonexistent: "),
        ("[server]\nkey_file = \"/nonexistent\"", "key file /nonexistent: "),
        (
            "[server]\ncertificate = \"/nonexistent\"\nkey = \"/nonexistent\"",
            "certificate /nonexistent: ",
        ),
    ];
    for (text, start) in cases {
        let error = state(text).expect_err("missing").to_string();
        assert!(error.starts_with(start), "{error}");
    }
}

#[test]
fn a_reload_applies_to_new_connections_only() {
    let mut config = Config::default();
    config.server.listen = vec![([127, 0, 0, 1], 0).into()];
    let edge = Edge::open(config.clone()).expect("opened");
    let running = edge.shared().state();
    let identity = running.identity();
    config.files.cache_control = "max-age=1".into();
    edge.shared().reload(config.clone()).expect("reloaded");
    let new = edge.shared().state();
    assert!(Arc::ptr_eq(&identity, &new.identity()), "the development certificate stays");
    assert_eq!(running.config.files.cache_control, "no-cache");
    assert_eq!(new.config.files.cache_control, "max-age=1");
    config.server.root = Some("/nonexistent".into());
    edge.shared().reload(config).expect_err("no such root");
    assert!(Arc::ptr_eq(&new, &edge.shared().state()), "a failed reload changes nothing");
}

#[test]
fn a_stuck_loop_is_reported_as_an_ailment() {
    let mut config = Config::default();
    config.server.listen = vec![([127, 0, 0, 1], 0).into()];
    config.server.cores = 2;
    config.admin.listen = Some(([127, 0, 0, 1], 0).into());
    let edge = Edge::open(config).expect("opened");
    let shared = edge.shared();
    assert_eq!(shared.faults(), [""; 0]);
    std::thread::sleep(supervisor::UNHEALTHY_AFTER);
    for pulse in shared.pulses().iter().filter(|pulse| pulse.name() != "tcp-1") {
        pulse.begin(pulse.now());
    }
    let faults = shared.faults();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].starts_with("tcp-1: stuck for 3."), "{faults:?}");
    shared.pulses()[3].finish();
    shared.drain();
    assert_eq!((shared.faults(), shared.unready_reasons()), (vec![], vec!["draining".to_owned()]));
}

/// Reloads from `before` to `after`. Returns the reported changes.
fn changes(before: &str, after: &str) -> (Shared, config::Changes) {
    let config = |text: &str| Config::parse("edge.toml", text).expect("valid");
    let state = State::new(config(before), None).expect("a state");
    let shared = Shared::new(state, Vec::new(), 1, None);
    let changes = shared.reload(config(after)).expect("reloaded");
    (shared, changes)
}

#[test]
fn a_reload_reports_and_ignores_keys_that_need_a_restart() {
    let after = r#"
        server.listen = "127.0.0.1:5"
        server.cores = 3
        rtmp.listen = "127.0.0.1:1"
        admin.listen = "127.0.0.1:2"
        records.directory = "records"
        live.max_streams = 7
        log.connections = "connections.jsonl"
        quic.send_buffer = "64KiB"
        recovery.scheme = "arq"
        drain.timeout = "1s"
    "#;
    let (shared, changes) = changes("", after);
    let at_start = [
        "[server] listen",
        "[server] cores",
        "[live] max_streams",
        "[rtmp] listen",
        "[quic] send_buffer",
        "[admin] listen",
        "[records] directory",
        "[log] connections",
    ];
    assert_eq!(changes.at_start, at_start);
    assert_eq!(changes.for_new, ["[recovery] scheme"]);
    assert_eq!(changes.at_once, ["[drain] timeout"]);
    let mut in_force = Config::default();
    in_force.recovery.scheme = "arq".parse().expect("a scheme");
    in_force.drain.timeout = Duration::from_secs(1);
    assert_eq!(shared.state().config, in_force);
    let text = "for new connections and streams: [recovery] scheme; at once: [drain] timeout";
    assert_eq!(changes.to_string(), text);
}

#[test]
fn keys_that_need_a_restart_are_reported_at_each_reload_until_reverted() {
    let (shared, first) = changes("", "live.max_streams = 7");
    assert_eq!(first.at_start, ["[live] max_streams"]);
    let again = Config::parse("edge.toml", "live.max_streams = 7").expect("valid");
    assert_eq!(shared.reload(again).expect("reloaded").at_start, ["[live] max_streams"]);
    let back = shared.reload(Config::default()).expect("reloaded");
    assert_eq!(back, config::Changes::default());
    assert_eq!(back.to_string(), "no new values take effect");
}

#[test]
fn changed_rules_are_reported_without_secrets() {
    let rule = |key: &str| format!("[[publish]]\nstream = \"a\"\nkey = \"{key}\"\n");
    let (_, changed) = changes(&rule("old-secret"), &rule("new-secret"));
    assert_eq!(changed.to_string(), "for new connections and streams: [[publish]] key");
    let two = rule("old-secret") + &rule("new-secret");
    let twice = rule("1") + &rule("2");
    assert_eq!(changes(&two, &twice).1.for_new, ["[[publish]] key"]);
    assert_eq!(changes("", &two).1.for_new, ["[[publish]]"]);
    let secrets = "hooks.secret = \"x\"\nadmin.token = \"0123456789abcdef\"";
    let changed = changes(&two, secrets).1;
    assert_eq!(changed.for_new, ["[[publish]]"]);
    assert_eq!(changed.at_once, ["[hooks] secret", "[admin] token"]);
}
