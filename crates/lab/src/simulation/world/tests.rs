//! Downloads over hostile links.

use core::time::Duration;

use links::{LinkConfig, PathConfig, Queue};
use units::Rate;

use crate::client::ClientKind;
use crate::simulation::{RunOutcome, Scenario, run};
use crate::traffic::Traffic;

/// A download of this size at 12 Mbps and 60 ms.
fn scenario(bytes: u64) -> Scenario {
    let delay = Some(Duration::from_millis(30));
    let up = LinkConfig { delay, ..LinkConfig::default() };
    let (rate, queue) = (Some(Rate::from_mbps(12)), Queue::drop_tail(180_000));
    let down = LinkConfig { rate, queue, ..up.clone() };
    let path = PathConfig { down, up };
    let limit = Duration::from_secs(60);
    Scenario { path, traffic: Traffic::Download { bytes }, seed: 5, limit, ..Scenario::default() }
}

/// Runs a scenario that must complete.
fn complete(scenario: &Scenario) -> RunOutcome {
    let outcome = run(scenario).expect("it runs");
    assert!(outcome.completed && outcome.intact, "{outcome:?}");
    outcome
}

#[test]
fn a_client_with_two_addresses_in_turn_gets_its_download() {
    for client in [ClientKind::Quinn, ClientKind::Noq] {
        let one = Scenario { client, ..scenario(3_000_000) };
        let two = Scenario { flap_every: Some(Duration::from_millis(50)), ..one.clone() };
        let (one, two) = (complete(&one), complete(&two));
        assert_eq!(one.stats.migrations, 0, "{client:?}");
        assert!(two.stats.migrations >= 2, "{client:?}: {:?}", two.stats);
    }
}

#[test]
fn a_client_that_acknowledges_each_32nd_packet_gets_its_download() {
    let mut usual = scenario(3_000_000);
    // No loss, because acknowledgements with many gaps are large yet must pass.
    usual.path.down.queue = Queue::drop_tail(4_000_000);
    let rare = "each=32,within=250ms".parse().expect("a rule");
    let rare = Scenario { acks: Some(rare), ..usual.clone() };
    // The client's packets: acknowledgements and others.
    let up = |outcome: RunOutcome| outcome.packets - outcome.down.sent.packets;
    let (usual, rare) = (up(complete(&usual)), up(complete(&rare)));
    assert!(rare * 5 < usual, "{rare} against {usual}");
}

#[test]
fn bunches_steps_policers_and_ecn_policies_reach_the_server() {
    let usual = scenario(1_000_000);
    let with = |change: &dyn Fn(&mut PathConfig)| {
        let mut scenario = usual.clone();
        change(&mut scenario.path);
        complete(&scenario)
    };
    let bunched = with(&|path| path.down.bunches = Some("200ms".parse().expect("bunches")));
    assert!(bunched.smoothed_rtt > Duration::from_millis(90), "{:?}", bunched.smoothed_rtt);
    let longer = with(&|path| {
        let steps = Some("300ms:400ms".parse().expect("steps"));
        (path.down.rtt_steps, path.up.rtt_steps) = (steps.clone(), steps);
    });
    assert!(longer.smoothed_rtt > Duration::from_millis(200), "{:?}", longer.smoothed_rtt);
    let policed = with(&|path| path.down.policer = "4mbps,burst=20kB".parse().ok());
    assert!(policed.down.policed.packets > 0, "{:?}", policed.down);
    let bleached = with(&|path| path.down.ecn = "bleach".parse().ok());
    assert!(bleached.down.ecn_bleached.packets > 10, "{:?}", bleached.down);
    let mut black_hole = usual.clone();
    black_hole.path.down.ecn = "drop,from=200ms".parse().ok();
    let dropped = run(&black_hole).expect("it runs");
    assert!(dropped.down.ecn_dropped.packets > 0, "{:?}", dropped.down);
}
