//! Quantities as text, and error messages.

use super::*;

#[test]
fn quantities_parse_with_their_units() {
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
