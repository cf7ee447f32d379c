//! Schedule of renewals.

use super::*;

#[test]
fn a_third_of_the_lifetime_is_left_at_renewal() {
    let day = 86_400;
    let validity = 1_000 * day..=1_090 * day;
    for (left, jitter, expected) in [
        (31.0, 0.0, false),
        (29.9, 0.0, true),
        // Up to three days earlier.
        (33.1, 0.999, false),
        (32.5, 0.999, true),
        (31.6, 0.5, false),
        (31.4, 0.5, true),
        (0.0, 0.0, true),
        (-10.0, 0.0, true),
        // The clock has stepped back before the start.
        (100.0, 0.999, false),
        (1_090.0, 0.0, false),
    ] {
        let now = (1_090.0 - left) * day as f64;
        assert_eq!(is_due(&validity, now as u64, jitter), expected, "{left} days, {jitter}");
    }
    // Absurd certificates do not panic.
    assert!(is_due(&RangeInclusive::new(5, 1), 3, 0.5));
    assert!(!is_due(&(0..=u64::MAX), 3, 0.5));
    assert!((0..100).all(|_| (0.0..1.0).contains(&jitter())));
}

#[test]
fn failures_delay_attempts_and_steps_of_the_clock_do_not() {
    let (mut retry, start) = (Retry::default(), Instant::now());
    assert!(retry.is_due(start));
    let waits: Vec<_> = (0..20).map(|_| retry.fail(start, 0.5).as_secs()).collect();
    assert_eq!(waits[..6], [60, 240, 960, 3840, 15_360, 21_600]);
    assert_eq!(waits[19], 21_600);
    assert!(!retry.is_due(start + Duration::from_secs(21_599)));
    assert!(retry.is_due(start + Duration::from_secs(21_601)));
    for (share, expected) in [(0.0, 45), (1.0, 75)] {
        assert_eq!(Retry::default().fail(start, share).as_secs(), expected);
    }
}

#[test]
fn a_failure_is_one_line() {
    for why in [
        Failure::Validation("a.test".into(), "connection refused".into()),
        Failure::Local("no space".into()),
        Failure::Timeout,
        Failure::Ca(instant_acme::Error::KeyRejected),
    ] {
        assert_eq!(why.to_string().lines().count(), 1, "{why}");
    }
}
