//! Arbitrary bytes as a transport cookie. They must be rejected or lead to parameters within the
//! rules, with no window above `max_jump`.

#![no_main]

use core::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use startup::cookie::{Carrier, Cookie, CookieRules};
use startup::decision::{Course, Inputs, Limits, Mode, decide};

fuzz_target!(|bytes: &[u8]| {
    let Ok(cookie) = Cookie::decode(bytes) else { return };
    assert_eq!(Cookie::decode(&cookie.encode()), Ok(cookie));
    // A client in the cookie's network.
    let prefix: [u8; 6] = core::array::from_fn(|at| bytes[5 + at]);
    let client: IpAddr = match bytes[0] & 1 {
        0 => [prefix[0], prefix[1], prefix[2], 1].into(),
        _ => {
            let mut address = [0; 16];
            address[..6].copy_from_slice(&prefix);
            address.into()
        }
    };
    let rules = CookieRules::default();
    let Ok(past) = cookie.accept(Carrier::Http, client, cookie.issued, &rules) else { return };
    assert!(past.cookie.max_rate <= rules.max_rate && past.confidence > 0.0);
    let limits = Limits::default();
    for mode in Mode::ALL {
        let inputs = Inputs { first_frame: None, past: Some(past), handshake_rtt: None };
        let decision = decide(mode, &inputs, &limits);
        assert!(decision.start.window.is_some_and(|window| window <= limits.max_jump));
        if let Course::Careful(saved) = decision.course {
            assert!(saved.jump <= past.saved_window() / 2);
        }
    }
});
