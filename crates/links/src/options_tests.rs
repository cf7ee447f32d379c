//! Settings as text: the same on the command line and in files, and errors that help.

use super::*;

#[test]
fn quantities_are_read_with_their_units() {
    assert_eq!(parse_duration("60ms"), Ok(Duration::from_millis(60)));
    assert_eq!(parse_duration(" 1.5 s"), Ok(Duration::from_millis(1_500)));
    assert_eq!(parse_duration("2min"), Ok(Duration::from_secs(120)));
    assert_eq!(parse_duration("250us"), parse_duration("250µs"));
    assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
    assert_eq!(parse_bytes("500kB"), Ok(500_000));
    assert_eq!(parse_bytes("64KiB"), Ok(65_536));
    assert_eq!(parse_bytes("1500B"), Ok(1_500));
    assert_eq!(parse_rate("unlimited"), Ok(Rate::MAX));
    for bad in ["60", "ms", "-1ms", "nans", "1e30s", "60 parsecs"] {
        let error = parse_duration(bad).unwrap_err().to_string();
        assert!(error.contains("60ms") && error.contains(bad), "{error}");
    }
    assert!(parse_bytes("5").is_err());
    assert!(parse_bytes("1e300B").is_err());
    assert!(parse_rate("5").unwrap_err().to_string().contains("12mbps"));
}

#[test]
fn a_file_may_state_everything_that_the_command_line_may() {
    let options: PathOptions = toml::from_str(
        r#"
        rate = "12mbps"
        rtt = "60ms"
        jitter = "gauss:2ms,reorder"
        queue = "codel:limit=500kB"
        loss = "5%"
        loss_up = "none"
        loss_place = "before-queue"
        reorder = "2%,30ms"
        duplicate = "1%"
        corrupt = "0.1%"
        mtu = 1400
        blackhole = ["5s,2s", "20s,500ms"]
        "#,
    )
    .unwrap();
    let path = options.path();
    assert_eq!(path.down.delay, Some(Duration::from_millis(30)));
    assert_eq!(path.down.loss, Some("5%".parse().unwrap()));
    assert_eq!(path.up.loss, Some(Loss::None));
    assert_eq!(path.up.rate, Some(Rate::from_mbps(12)));
    assert_eq!(path.up.blackhole.len(), 2);
    assert_eq!(path.down.loss_place, LossPlace::BeforeQueue);
    let config: PathConfig =
        toml::from_str("[down]\nrate = \"5mbps\"\n[up]\ndelay = \"3ms\"\n").unwrap();
    assert_eq!(config.down.rate, Some(Rate::from_mbps(5)));
    assert_eq!(config.up.delay, Some(Duration::from_millis(3)));
}

#[test]
fn a_bad_file_names_the_line_and_what_was_expected() {
    let error = |text: &str| toml::from_str::<PathOptions>(text).unwrap_err().to_string();
    let unknown = error("rate = \"1mbps\"\nlatency = \"5ms\"\n");
    assert!(unknown.contains("line 2") && unknown.contains("unknown field `latency`"), "{unknown}");
    let bad = error("rtt = \"60\"\n");
    assert!(bad.contains("line 1") && bad.contains("expected a time like `60ms`"), "{bad}");
    let bad = error("trace = \"/nowhere\"\n");
    assert!(bad.contains("trace /nowhere"), "{bad}");
}

#[test]
fn a_trace_shapes_the_way_down_and_shares_its_rtt() {
    let trace: Trace = "0 1 20ms 0.5\n".parse().unwrap();
    let options = PathOptions { trace: Some(trace), ..PathOptions::default() };
    let path = options.path();
    assert_eq!((path.down.rate, &path.down.loss), (None, &None));
    assert_eq!((path.up.rate, &path.up.loss), (Some(Rate::MAX), &Some(Loss::None)));
    assert!(path.up.trace.is_some() && path.up.delay.is_none());
}
