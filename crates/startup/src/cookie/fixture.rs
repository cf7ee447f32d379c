//! A cookie as tests begin with it.

use super::*;

/// 8 Mbit/s at best, 6 usually, 50 ms; issued at 1,800,000,000 to a viewer in 192.0.2.0/24.
pub(crate) fn cookie() -> Cookie {
    Cookie {
        issued: 1_800_000_000,
        prefix: Prefix::of("192.0.2.7".parse().expect("an address")),
        min_rtt: Duration::from_millis(50),
        max_rate: Rate::from_mbps(8),
        usual_rate: Rate::from_mbps(6),
        samples: 12,
        loss: 0.03,
        retransmission_loss: Some(0.25),
        correlation: Correlation { burst: Some(0.4), near: Some(0.2), far: None },
        verdict: Verdict::Passed,
        unit: 0x0123_4567_89ab_cdef,
    }
}
