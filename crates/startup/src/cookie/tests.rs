use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use quic::crypto::{KeyRing, Purpose};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

use super::*;
use crate::fixture::cookie;

/// Key ring like the server's.
struct Keys(Arc<KeyRing>, ChaCha20Rng);

impl Keys {
    fn new(created: u64, master: u8) -> Self {
        let ring = KeyRing::new(&[0; 32], &[(created, [master; 32])]);
        Self(Arc::new(ring), ChaCha20Rng::seed_from_u64(7))
    }
}

impl Sealer for Keys {
    fn seal(&mut self, now: u64, plain: &[u8], context: &[u8]) -> Vec<u8> {
        self.0.seal(Purpose::Application, now, plain, context, &mut self.1)
    }

    fn open(&self, sealed: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        Some(self.0.open(Purpose::Application, sealed, context)?.plaintext)
    }
}

const NOW: u64 = 1_800_000_600;

fn client() -> IpAddr {
    "192.0.2.200".parse().expect("an address")
}

fn accept(cookie: Cookie) -> Result<PathState, Refusal> {
    cookie.accept(Carrier::Token, client(), NOW, &CookieRules::default())
}

#[test]
fn encoding_and_sealing_preserve_a_cookie() {
    let mut keys = Keys::new(0, 1);
    let sealed = cookie().seal(&mut keys);
    assert_eq!(sealed.len(), LEN + 29, "key, nonce and tag");
    let opened = Cookie::open(&sealed, &keys).expect("own key");
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.02;
    assert!(near(opened.loss, 0.03), "{}", opened.loss);
    let Correlation { burst, near: near_by, far } = opened.correlation;
    let [lost, burst, near_by] = [opened.retransmission_loss, burst, near_by].map(Option::unwrap);
    assert!(near(lost, 0.25) && near(burst, 0.4) && near(near_by, 0.2));
    assert_eq!(far, None);
    let near = |a: u64, b: u64| b - a <= b / 2_048;
    assert!(near(opened.max_rate.as_bps(), 8_000_000), "{}", opened.max_rate);
    assert!(near(opened.usual_rate.as_bps(), 6_000_000), "{}", opened.usual_rate);
    assert!(near(micros(opened.min_rtt), 50_000), "{:?}", opened.min_rtt);
    let exact = |c: &Cookie| (c.issued, c.prefix, c.samples, c.verdict, c.unit);
    assert_eq!(exact(&opened), exact(&cookie()));
    let v6 = Cookie {
        prefix: Prefix::of("2001:db8:7::1".parse().expect("an address")),
        verdict: Verdict::Failed,
        samples: 1_000,
        ..cookie()
    };
    let opened = Cookie::decode(&v6.encode()).expect("well-formed");
    assert_eq!(exact(&opened), exact(&Cookie { samples: 255, ..v6 }));
}

#[test]
fn forged_damaged_truncated_and_foreign_cookies_do_not_open() {
    let mut keys = Keys::new(0, 1);
    let sealed = cookie().seal(&mut keys);
    for bit in 0..sealed.len() * 8 {
        let mut flipped = sealed.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Cookie::open(&flipped, &keys), Err(Refusal::Sealed), "bit {bit}");
    }
    for len in 0..sealed.len() {
        assert_eq!(Cookie::open(&sealed[..len], &keys), Err(Refusal::Sealed), "{len} bytes");
    }
    assert_eq!(Cookie::open(&sealed, &Keys::new(0, 2)), Err(Refusal::Sealed));
    // Other values sealed with the same keys are not cookies.
    let pass = keys.seal(NOW, &cookie().encode(), b"live/demo");
    assert_eq!(Cookie::open(&pass, &keys), Err(Refusal::Sealed));
}

#[test]
fn other_lengths_and_versions_are_rejected() {
    let bytes = cookie().encode();
    assert_eq!(Cookie::decode(&[]), Err(Refusal::Length));
    assert_eq!(Cookie::decode(&bytes[..LEN - 1]), Err(Refusal::Length));
    assert_eq!(Cookie::decode(&[&bytes[..], &[0]].concat()), Err(Refusal::Length));
    let mut newer = bytes;
    newer[0] += 0x10;
    assert_eq!(Cookie::decode(&newer), Err(Refusal::Version));
    let mut strange = bytes;
    strange[0] |= 0x6;
    assert_eq!(Cookie::decode(&strange), Err(Refusal::Absurd));
}

#[test]
fn a_cookie_is_valid_during_its_lifetime() {
    let at = |now| cookie().accept(Carrier::Token, client(), now, &CookieRules::default());
    let issued = cookie().issued;
    assert_eq!(at(issued - 6).map(drop), Err(Refusal::Future));
    assert!(at(issued - 5).is_ok(), "clock skew");
    assert_eq!(at(0).map(drop), Err(Refusal::Future));
    assert!(at(issued + 3_600).is_ok(), "age equals the lifetime");
    assert_eq!(at(issued + 3_601).map(drop), Err(Refusal::Expired));
    assert_eq!(at(u64::MAX).map(drop), Err(Refusal::Expired));
}

#[test]
fn a_cookie_is_valid_only_in_its_network() {
    let from = |client: &str| {
        let client = client.parse().expect("an address");
        cookie().accept(Carrier::Ticket, client, NOW, &CookieRules::default()).map(drop)
    };
    assert_eq!(from("192.0.2.1"), Ok(()));
    assert_eq!(from("::ffff:192.0.2.1"), Ok(()));
    assert_eq!(from("192.0.3.1"), Err(Refusal::Readdressed));
    assert_eq!(from("2001:db8::1"), Err(Refusal::Readdressed));
}

#[test]
fn invalid_values_are_rejected_or_clamped() {
    let huge = Rate::from_bps(1 << 62);
    let past = accept(Cookie { max_rate: huge, usual_rate: huge, ..cookie() }).expect("clamped");
    assert_eq!(past.cookie.max_rate, Rate::from_mbps(10_000));
    assert_eq!(past.cookie.usual_rate, Rate::from_mbps(10_000));
    // The encoding saturates below this value.
    let stored = Cookie::decode(&Cookie { max_rate: huge, ..cookie() }.encode()).expect("a cookie");
    assert!(stored.max_rate < Rate::from_bps(1 << 49), "{}", stored.max_rate);
    let absurd = [
        Cookie { min_rtt: Duration::ZERO, ..cookie() },
        Cookie { min_rtt: Duration::from_micros(49), ..cookie() },
        Cookie { min_rtt: Duration::from_secs(11), ..cookie() },
        Cookie { min_rtt: Duration::MAX, ..cookie() },
        Cookie { usual_rate: Rate::ZERO, ..cookie() },
        Cookie { usual_rate: Rate::from_mbps(9), ..cookie() },
        Cookie { max_rate: Rate::ZERO, usual_rate: Rate::ZERO, ..cookie() },
    ];
    for cookie in absurd {
        assert_eq!(accept(cookie).map(drop), Err(Refusal::Absurd), "{cookie:?}");
        let stored = Cookie::decode(&cookie.encode()).expect("a cookie");
        assert_eq!(accept(stored).map(drop), Err(Refusal::Absurd), "{stored:?}");
    }
    // An invalid fraction is unknown.
    let strange = Cookie { loss: f64::NAN, retransmission_loss: Some(f64::NAN), ..cookie() };
    let stored = Cookie::decode(&strange.encode()).expect("a cookie");
    assert_eq!((stored.loss, stored.retransmission_loss), (0.0, None));
}

#[test]
fn unmeasured_paths_and_failed_jumps_are_rejected() {
    assert_eq!(accept(Cookie { samples: 0, ..cookie() }).map(drop), Err(Refusal::Unmeasured));
    let failed = Cookie { verdict: Verdict::Failed, ..cookie() };
    assert_eq!(accept(failed).map(drop), Err(Refusal::Failed));
    assert!(accept(Cookie { verdict: Verdict::None, ..cookie() }).is_ok());
}

#[test]
fn confidence_falls_with_age_and_distance_of_addresses() {
    let of = |carrier, age| {
        let now = cookie().issued + age;
        let past = cookie().accept(carrier, client(), now, &CookieRules::default());
        past.expect("good").confidence
    };
    assert_eq!(of(Carrier::Token, 0), 1.0);
    assert_eq!(of(Carrier::Token, 1_800), 0.75);
    assert_eq!(of(Carrier::Token, 3_600), 0.5);
    assert_eq!(of(Carrier::Ticket, 0), 0.75);
    assert_eq!(of(Carrier::Http, 1_800), 0.5625);
    assert_eq!(of(Carrier::History, 3_600), 0.25);
}

#[test]
fn correlation_is_taken_from_measurements() {
    let mut measured = LossCorrelation::default();
    // One packet per 4 ms; 3 of 25 are lost, in a row.
    for n in 0..20_000 {
        measured.on_settled(units::Timestamp::from_millis(4 * n), n % 25 < 3);
        measured.on_all_settled();
    }
    let Correlation { burst, near, far } = Correlation::from(&measured);
    let [burst, near, far] = [burst, near, far].map(|chance| chance.expect("seen"));
    assert!((burst - 2.0 / 3.0).abs() < 0.01, "4 ms behind two of three: {burst}");
    assert!(near < 0.01, "12 to 20 ms behind none: {near}");
    // At lags of 13 to 25 packets, the next run starts at 23 to 25.
    assert!((0.05..0.2).contains(&far), "{far}");
}

#[test]
fn losses_are_expected_within_lifetime_and_network() {
    let rules = CookieRules::default();
    let of = |cookie: Cookie, client, now| cookie.expected(client, now, &rules);
    let expected = of(cookie(), client(), NOW).expect("same network, a moment later");
    assert_eq!((expected.loss_rate, expected.rtt), (0.03, Duration::from_millis(50)));
    assert!(expected.chances.is_some());
    // Missing rates and failed jumps do not matter.
    let thin = Cookie { samples: 0, verdict: Verdict::Failed, ..cookie() };
    assert!(of(thin, client(), NOW).is_some());
    assert_eq!(of(cookie(), "198.51.100.1".parse().expect("an address"), NOW), None);
    assert_eq!(of(cookie(), client(), cookie().issued + 3_601), None);
    assert_eq!(of(cookie(), client(), cookie().issued - 6), None);
    let absurd = Cookie { min_rtt: Duration::MAX, ..cookie() };
    assert_eq!(of(absurd, client(), NOW).map(|e| e.rtt), Some(rules.max_rtt));
}

#[test]
fn metric_names_are_distinct_and_in_order_of_discriminants() {
    let names: BTreeSet<_> = Refusal::ALL.iter().map(|refusal| refusal.name()).collect();
    assert_eq!(names.len(), Refusal::ALL.len());
    assert!(Refusal::ALL.into_iter().enumerate().all(|(at, refusal)| refusal as usize == at));
    let names: BTreeSet<_> = Carrier::ALL.iter().map(|carrier| carrier.name()).collect();
    assert_eq!(names.len(), Carrier::ALL.len());
    assert!(Carrier::ALL.into_iter().enumerate().all(|(at, carrier)| carrier as usize == at));
}

proptest! {
    #[test]
    fn any_31_bytes_are_rejected_or_within_the_rules(bytes: [u8; LEN], version: bool) {
        let mut bytes = bytes;
        if version {
            bytes[0] = VERSION << 4 | bytes[0] & 0x0f;
        }
        let Ok(cookie) = Cookie::decode(&bytes) else { return Ok(()) };
        prop_assert_eq!(Cookie::decode(&cookie.encode()), Ok(cookie));
        let rules = CookieRules::default();
        let mut near = cookie;
        near.prefix = Prefix::of(client());
        let Ok(past) = near.accept(Carrier::Token, client(), near.issued + 1, &rules) else {
            return Ok(());
        };
        prop_assert!(past.confidence > 0.0 && past.confidence <= 1.0);
        prop_assert!(past.cookie.max_rate <= rules.max_rate);
        prop_assert!(past.saved_window() <= past.max_bdp());
        prop_assert!(past.max_bdp() <= rules.max_rate.bytes_in(rules.max_rtt));
    }
}

#[test]
fn one_measured_lag_extends_to_all_lags() {
    assert_eq!(Correlation::default().chances(), None);
    let same = Correlation { burst: Some(CALLS[2]), near: Some(CALLS[4]), far: Some(CALLS[6]) };
    let chances = same.chances().expect("measured");
    assert!(chances.iter().zip(CALLS).all(|(ours, calls)| (ours - calls).abs() < 0.02));
    let half = Correlation { near: Some(CALLS[4] / 2.0), ..Correlation::default() };
    let chances = half.chances().expect("measured");
    assert!(chances.iter().zip(CALLS).all(|(ours, calls)| (ours - calls / 2.0).abs() < 1e-9));
    let sure = Correlation { far: Some(1.0), ..Correlation::default() };
    assert!(sure.chances().expect("measured").iter().all(|chance| *chance <= 1.0));
}
