//! ECN policies on complete links: effects on each codepoint, and counters.

use super::*;
use crate::{Counters, Link, LinkConfig};

const ALL: [Ecn; 4] = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce];

/// Sends 1,000 packets per codepoint, one per millisecond. Returns the fields sent and delivered,
/// and the counters.
fn arriving(policy: &str, seed: u64) -> (Vec<(Ecn, Ecn)>, Counters) {
    let ecn = Some(policy.parse().unwrap());
    let mut link = Link::new(&LinkConfig { ecn, ..LinkConfig::default() }, seed, "test");
    let mut arrived = Vec::new();
    for n in 0..4_000 {
        let now = Timestamp::from_millis(n);
        let ecn = ALL[(n % 4) as usize];
        link.send(now, Packet { size: 100, ecn, payload: ecn });
        let delivered = core::iter::from_fn(|| link.poll(now));
        arrived.extend(delivered.map(|d| (d.packet.payload, d.packet.ecn)));
    }
    link.check_conservation().unwrap();
    (arrived, *link.counters())
}

fn count(arrived: &[(Ecn, Ecn)], of: (Ecn, Ecn)) -> usize {
    arrived.iter().filter(|pair| **pair == of).count()
}

#[test]
fn a_bleached_field_arrives_as_not_ect() {
    let (arrived, counters) = arriving("bleach", 1);
    assert_eq!(arrived.len(), 4_000);
    assert!(arrived.iter().all(|(_, ecn)| *ecn == Ecn::NotEct));
    assert_eq!(counters.ecn_bleached.packets, 3_000);
}

#[test]
fn packets_with_ect_or_ce_are_dropped_with_their_probability() {
    let (arrived, counters) = arriving("drop", 1);
    assert!(arrived.iter().all(|(sent, ecn)| *sent == Ecn::NotEct && *ecn == Ecn::NotEct));
    assert_eq!((arrived.len(), counters.ecn_dropped.packets), (1_000, 3_000));
    let (arrived, counters) = arriving("drop:50%", 2);
    assert_eq!(count(&arrived, (Ecn::NotEct, Ecn::NotEct)), 1_000);
    assert!((1_350..1_650).contains(&counters.ecn_dropped.packets), "{counters:?}");
    assert_eq!(arrived.len() as u64 + counters.ecn_dropped.packets, 4_000);
}

#[test]
fn remarking_changes_only_ect_0() {
    let (arrived, counters) = arriving("remark", 1);
    assert_eq!(count(&arrived, (Ecn::Ect0, Ecn::Ect1)), 1_000);
    for same in [Ecn::NotEct, Ecn::Ect1, Ecn::Ce] {
        assert_eq!(count(&arrived, (same, same)), 1_000);
    }
    assert_eq!(counters.ecn_remarked.packets, 1_000);
}

#[test]
fn ect_becomes_ce_with_its_probability() {
    let (arrived, counters) = arriving("mark:5%", 3);
    let marked = count(&arrived, (Ecn::Ect0, Ecn::Ce)) + count(&arrived, (Ecn::Ect1, Ecn::Ce));
    assert!((70..130).contains(&marked), "{marked}");
    assert_eq!((marked as u64, arrived.len()), (counters.ecn_marked.packets, 4_000));
    assert_eq!(count(&arrived, (Ecn::NotEct, Ecn::NotEct)), 1_000);
}

#[test]
fn a_policy_starts_at_its_time() {
    let (arrived, counters) = arriving("drop,from=2s", 1);
    assert_eq!((arrived.len(), counters.ecn_dropped.packets), (2_500, 1_500));
}

#[test]
fn policies_parse_or_state_the_expected_format() {
    let half = "50%".parse().unwrap();
    let policy = |rule, from| Ok(EcnPolicy { rule, from: Timestamp::from_secs(from) });
    assert_eq!("bleach".parse(), policy(EcnRule::Bleach, 0));
    assert_eq!("drop:50%,from=5s".parse(), policy(EcnRule::Drop(half), 5));
    assert_eq!("remark,from=1s".parse(), policy(EcnRule::Remark, 1));
    for bad in ["", "x", "mark", "mark:2", "bleach:5%", "drop:50%,to=5s", "drop,from=5"] {
        let error = bad.parse::<EcnPolicy>().unwrap_err().to_string();
        assert!(error.contains(bad), "{error}");
        assert!(error.contains("mark:5%") || error.contains("`from`"), "{error}");
    }
}
