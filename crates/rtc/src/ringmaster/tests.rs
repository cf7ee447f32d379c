use super::*;
use crate::maker::SchemeKeys;
use units::Rate;

fn conference(loss: &str, seconds: u64) -> Conference {
    Conference {
        path: CallPath {
            rate: Rate::from_mbps(12),
            rtt: Duration::from_millis(60),
            loss: loss.parse().expect("a loss model"),
            trace: None,
        },
        source: Source { fps: 30, packets: 7, key_factor: 4.0, key_every: 0, variation: 0.0 },
        duration: Duration::from_secs(seconds),
        key_after: Duration::from_secs(1),
    }
}

const TAMBUR: Tambur =
    Tambur { tau: 3, parity: Parity::Ratio(0.5), retransmits: false, key_behind: true };

fn engine(name: &str) -> Protection {
    Protection::Engine(Engine::new(name, &SchemeKeys::default()).expect("known").into())
}

fn run(loss: &str, seconds: u64, protection: &Protection) -> ConferenceOutcome {
    conference(loss, seconds).run(protection, 3).expect("in range")
}

#[test]
fn without_loss_every_frame_is_shown_and_no_parity_is_sent() {
    for protection in [engine("arq"), engine("autorec"), Protection::Tambur(TAMBUR)] {
        let outcome = run("none", 10, &protection);
        assert_eq!((outcome.frozen, outcome.unshown, outcome.key_frames), (0.0, 0.0, 1));
        assert_eq!(outcome.sent, Sent { first: 28 + 299 * 7, ..Sent::default() });
    }
}

#[test]
fn a_gap_in_the_path_freezes_the_video_until_a_key_frame() {
    // Nothing arrives from 5 s to 7 s: the key frame of 6 s is lost too, the next one is not.
    let outcome = run("script:5s+2s", 20, &Protection::Tambur(TAMBUR));
    assert!(outcome.key_frames >= 2, "{outcome:?}");
    assert!((0.09..0.14).contains(&outcome.frozen), "{outcome:?}");
    let arq = run("script:5s+2s", 20, &engine("arq"));
    assert!((0.09..0.2).contains(&arq.frozen), "{arq:?}");
}

#[test]
fn a_streaming_code_repairs_what_its_frames_cannot() {
    // Seven packets in a row are lost, more than a frame's parity covers; parities start after an
    // earlier loss. Without retransmissions, the next frames repair it.
    let loss = "script:30,300-306";
    let outcome = run(loss, 10, &Protection::Tambur(TAMBUR));
    assert_eq!((outcome.sent.retransmitted, outcome.frozen), (0, 0.0), "{outcome:?}");
    assert!(outcome.sent.redundant > 0 && outcome.unshown < 0.1, "{outcome:?}");
    let bare = Tambur { parity: Parity::Ratio(0.0), ..TAMBUR };
    let bare = run(loss, 10, &Protection::Tambur(bare));
    assert!(bare.unshown > outcome.unshown, "{bare:?}");
}

#[test]
fn a_clairvoyant_sender_freezes_only_in_outages() {
    let bursts = "ge:p=0.2,r=0.8,good=1%,bad=80%,slot=30ms";
    let outcome = run(bursts, 20, &Protection::Clairvoyant);
    assert_eq!((outcome.frozen, outcome.unshown, outcome.key_frames), (0.0, 0.0, 1));
    assert_eq!(outcome.sent.overhead(), 0.0);
    assert!(run(bursts, 20, &engine("arq")).frozen > 0.0);
    assert!(run("script:5s+2s", 20, &Protection::Clairvoyant).frozen > 0.05);
}

#[test]
fn impossible_codes_are_rejected() {
    let error = |tambur| {
        let outcome = conference("none", 1).run(&Protection::Tambur(tambur), 1);
        outcome.expect_err("rejected").to_string()
    };
    assert_eq!(error(Tambur { tau: 0, ..TAMBUR }), "tau = 0: expected 1 to 16 frames");
    let bad = Tambur { parity: Parity::Ratio(1.5), ..TAMBUR };
    assert_eq!(error(bad), "parity = 1.5: expected 0 to 1");
}
