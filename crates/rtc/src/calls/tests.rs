use super::*;
use crate::hairpin::{HIGH_COST, LOW_COST, STANDARD};
use crate::maker::SchemeKeys;

fn call(loss: &str, seconds: u64) -> Call {
    Call {
        path: CallPath {
            rate: Rate::from_mbps(12),
            rtt: Duration::from_millis(30),
            loss: loss.parse().expect("a loss model"),
            trace: None,
        },
        source: Source { fps: 60, packets: 6, key_factor: 1.0, key_every: 0, variation: 0.0 },
        deadline: Duration::from_millis(100),
        duration: Duration::from_secs(seconds),
    }
}

fn engine(name: &str) -> Policy {
    Policy::Engine(Engine::new(name, &SchemeKeys::default()).expect("known").into())
}

fn hairpin(lambda: f64) -> Policy {
    Policy::Hairpin(lambda, LossCount::Retransmissions)
}

fn run(call: &Call, policy: &Policy) -> CallOutcome {
    call.run(policy, 7).expect("in range")
}

fn all() -> Vec<Policy> {
    let mut all: Vec<_> =
        ["arq", "autorec", "art-code", "art-paper", "deadline"].map(engine).into();
    all.extend([LOW_COST, STANDARD, HIGH_COST].map(hairpin));
    all.extend([Version::Of14, Version::Now].map(|v| Policy::WebRtc(v, Decoding::Mds)));
    all.push(Policy::WebRtc(Version::Now, Decoding::Xor));
    all.extend([Policy::Clairvoyant, Policy::Reactive]);
    all
}

#[test]
fn without_loss_every_frame_is_in_time_and_nothing_is_repeated() {
    for policy in all() {
        let outcome = run(&call("none", 5), &policy);
        assert_eq!((outcome.deadlines.frames(), outcome.deadlines.missed()), (300, 0));
        assert_eq!(outcome.sent, Sent { first: 1_800, ..Sent::default() }, "{policy:?}");
    }
}

#[test]
fn retransmissions_repair_independent_losses_and_their_number_is_that_of_losses() {
    let outcome = run(&call("5%", 60), &engine("arq"));
    let sent = outcome.sent;
    assert_eq!(sent.redundant, 0);
    // 5 % of first transmissions and of retransmissions, within four standard deviations.
    let expected = 0.05 / 0.95 * sent.first as f64;
    assert!((sent.retransmitted as f64 - expected).abs() < 4.0 * expected.sqrt(), "{sent:?}");
    // A frame is late if a packet is lost three times: 6 × 5 %^3, more with detection.
    let rate = outcome.deadlines.rate().expect("frames");
    assert!((0.0001..0.01).contains(&rate), "{rate}");
}

#[test]
fn schemes_trade_cost_for_frames_in_time() {
    let call = call("10%", 60);
    let late = |policy: &Policy| run(&call, policy).deadlines.rate().expect("frames");
    let cost = |policy: &Policy| run(&call, policy).sent.redundancy();
    let [low, standard, high] = [LOW_COST, STANDARD, HIGH_COST].map(hairpin);
    assert!(cost(&low) < cost(&standard) && cost(&standard) < cost(&high));
    for policy in [low, standard, high, engine("autorec")] {
        assert!(late(&policy) < late(&engine("arq")), "{policy:?}");
    }
    assert_eq!(late(&Policy::Clairvoyant), 0.0);
}

#[test]
fn no_sender_that_reacts_is_below_the_reactive_bound_and_none_below_the_clairvoyant() {
    // The second transmission arrives 75 ms after the first, and 113 ms with a round trip of 75 ms.
    let late = |call: &Call, policy: &Policy| run(call, policy).deadlines.missed();
    let near = call("20%", 60);
    assert_eq!(late(&near, &Policy::Reactive), 0);
    assert!(late(&near, &engine("arq")) > 0);
    let mut far = call("5%", 60);
    far.path.rtt = Duration::from_millis(75);
    let bound = late(&far, &Policy::Reactive);
    // A frame is late if one of its six packets is lost: 1 − 0.95^6, four standard deviations.
    assert!((953 - 108..953 + 108).contains(&bound), "{bound}");
    for policy in ["arq", "art-code", "art-paper", "deadline"].map(engine) {
        assert!(late(&far, &policy) >= bound, "{policy:?}");
    }
    assert_eq!(late(&far, &Policy::Clairvoyant), 0);
}

#[test]
fn a_call_that_is_repeated_has_the_same_outcome() {
    for policy in all() {
        let [a, b] =
            [0, 1].map(|_| run(&call("ge:p=0.2,r=0.8,good=1%,bad=40%,slot=30ms", 5), &policy));
        assert_eq!((a.sent, a.deadlines.missed()), (b.sent, b.deadlines.missed()));
    }
}

#[test]
fn rows_of_a_trace_set_delay_and_loss_but_not_the_rate() {
    let rows = |rtt: &str, loss: &str| {
        let row = |n: u32| format!("{} 0.1 {rtt} {loss}\n", f64::from(n) * 0.015);
        (0..100).map(row).collect::<String>()
    };
    let traced = |rtt, loss| {
        let trace = crate::trace::parse("rows", &rows(rtt, loss)).expect("rows");
        let mut call = call("50%", 5);
        call.path.trace = Some(trace);
        run(&call, &engine("arq"))
    };
    let clean = traced("20ms", "0");
    assert_eq!((clean.deadlines.missed(), clean.sent.retransmitted), (0, 0));
    assert_eq!(traced("220ms", "0").deadlines.missed(), 300, "half of it is above the deadline");
    assert!(traced("20ms", "0.1").sent.retransmitted > 100);
}

#[test]
fn impossible_calls_are_rejected() {
    let bad = Call { deadline: Duration::ZERO, ..call("none", 1) };
    let bad = bad.run(&Policy::Clairvoyant, 1).expect_err("rejected").to_string();
    assert_eq!(bad, "deadline = 0: expected above 0");
    assert!(call("none", 1).run(&hairpin(-1.0), 1).is_err());
}
