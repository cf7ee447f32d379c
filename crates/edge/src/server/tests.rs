//! Reload and state.

use super::*;

fn state(text: &str) -> Result<State, Error> {
    State::new(Config::parse("edge.toml", text)?, None)
}

#[test]
fn what_cannot_be_read_is_named() {
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
fn a_reload_reaches_new_connections_and_running_ones_keep_theirs() {
    let mut config = Config::default();
    config.server.listen = vec![([127, 0, 0, 1], 0).into()];
    let edge = Edge::open(config.clone()).expect("opened");
    let running = edge.shared().state();
    config.files.cache_control = "max-age=1".into();
    edge.shared().reload(config.clone()).expect("reloaded");
    let new = edge.shared().state();
    assert_eq!(running.config.files.cache_control, "no-cache");
    assert_eq!(new.config.files.cache_control, "max-age=1");
    assert!(Arc::ptr_eq(&running.identity, &new.identity), "the development certificate stays");
    config.server.root = Some("/nonexistent".into());
    edge.shared().reload(config).expect_err("no such root");
    assert!(Arc::ptr_eq(&new, &edge.shared().state()), "a failed reload changes nothing");
}

#[test]
fn a_loop_that_hangs_is_an_ailment_and_one_that_turns_is_none() {
    let mut config = Config::default();
    config.server.listen = vec![([127, 0, 0, 1], 0).into()];
    config.server.cores = 2;
    config.admin.listen = Some(([127, 0, 0, 1], 0).into());
    let edge = Edge::open(config).expect("opened");
    let shared = edge.shared();
    assert_eq!(shared.ailments(), [""; 0]);
    std::thread::sleep(supervisor::UNHEALTHY);
    for pulse in shared.pulses().iter().filter(|pulse| pulse.name() != "tcp-1") {
        pulse.begin(pulse.now());
    }
    let ailments = shared.ailments();
    assert_eq!(ailments.len(), 1);
    assert!(ailments[0].starts_with("tcp-1: no turn for 3."), "{ailments:?}");
    shared.pulses()[3].finish();
    shared.drain();
    assert_eq!(shared.ailments(), ["draining"]);
}
