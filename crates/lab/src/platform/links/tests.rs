use super::*;
use crate::platform::population::Population;
use crate::platform::session::Session;
use crate::platform::specification::{FLEET, Specification};

/// The fleet without its links, and with links of share zero.
pub(in crate::platform) fn without_links() -> [String; 2] {
    let (plain, _) = FLEET.split_once("\n[links.acks]").expect("the section");
    let mut zero = String::from("like = 'fleet'\n[links.acks]\nbrowsers = 0\nrare = 0\n");
    for access in ACCESS {
        zero += &format!("[links.{access}]\necn = {{ bleach = 0, drop = 0 }}\n");
        for model in ["bunches", "bunches_up", "rtt_steps", "policer"] {
            zero += &format!("{model} = {{ share = 0 }}\n");
        }
    }
    [plain.to_owned(), zero]
}

fn sessions(text: &str, seed: u64, count: u32) -> Vec<Session> {
    Population::new(Specification::parse(text).expect("valid"), None).sessions(seed, count)
}

#[test]
fn links_change_nothing_else_of_a_session() {
    let own = sessions(FLEET, 3, 300);
    assert!(own.iter().any(|session| session.links.policer.is_some()));
    for text in without_links() {
        for (own, other) in own.iter().zip(sessions(&text, 3, 300)) {
            assert_eq!(other.links, Links::default());
            assert_eq!(other, Session { links: Links::default(), ..own.clone() });
        }
    }
}

#[test]
fn another_share_of_one_model_shifts_no_other() {
    let text = "like = 'fleet'\n[links.wifi]\npolicer = { share = 1 }\n\
                [links.cellular]\nbunches = { every = '77ms' }\n";
    for (own, other) in sessions(FLEET, 3, 300).into_iter().zip(sessions(text, 3, 300)) {
        let mut links = own.links.clone();
        match own.access {
            0 => links.policer = other.links.policer.clone(),
            1 => links.bunches.iter_mut().for_each(|bunches| bunches.every_ms = 77.0),
            _ => {}
        }
        assert!(own.access != 0 || other.links.policer.is_some());
        assert_eq!(other, Session { links, ..own });
    }
}

#[test]
fn shares_and_rates_come_out() {
    let all = sessions(FLEET, 1, 60_000);
    let share = |access: usize, is: &dyn Fn(&Links) -> bool| {
        let own = all.iter().filter(|session| session.access == access);
        let (mut has, mut count) = (0.0, 0.0);
        own.for_each(|session| {
            count += 1.0;
            has += f64::from(u8::from(is(&session.links)));
        });
        has / count
    };
    // Allowed errors for some ten thousand viewers with two or three visits each.
    for (what, got, stated, error) in [
        ("browsers", share(0, &|l| l.acks == Acks::Chromium), 0.75, 0.02),
        ("rare", share(0, &|l| matches!(l.acks, Acks::Rare { .. })), 0.0125, 0.004),
        ("bunches", share(0, &|l| l.bunches.is_some()), 0.03, 0.006),
        ("requests", share(2, &|l| l.bunches_up.is_some()), 0.3, 0.03),
        ("bleached", share(1, &|l| l.ecn == Some(EcnFault::Bleach)), 0.084 * 0.99, 0.01),
        ("black holes", share(0, &|l| l.ecn == Some(EcnFault::Drop)), 0.01, 0.003),
        ("policed", share(1, &|l| l.policer.is_some()), 0.06, 0.008),
    ] {
        assert!((got - stated).abs() < error, "{what}: {got} instead of {stated}");
    }
    let always = "like = 'fleet'\n[viewers]\nstay = '600s'\naccess = { cable = 1 }\n\
                  [links.cable]\nrtt_steps = { share = 1, per_hour = 60 }\n";
    let always = sessions(always, 1, 2_000);
    let steps = always.iter().map(|session| session.links.rtt_steps.len()).sum::<usize>();
    assert!((steps as f64 / 20_000.0 - 1.0).abs() < 0.05, "{steps} in 20,000 minutes");
    for session in &always {
        let times: Vec<f64> = session.links.rtt_steps.iter().map(|(at, _)| *at).collect();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
        assert!(times.last().is_none_or(|last| *last < session.stay_s), "{times:?}");
    }
}

#[test]
fn a_session_has_a_bounded_number_of_steps_and_wakes_up_within_its_period() {
    let text = "like = 'fleet'\n[viewers]\nstay = '86400s'\naccess = { cable = 1 }\n[links.cable]\n\
                rtt_steps = { share = 1, per_hour = 3600 }\n\
                bunches = { share = 1, every = '10ms', awake = '40ms' }\n";
    for session in sessions(text, 1, 5) {
        assert_eq!(session.links.rtt_steps.len(), MAX_STEPS);
        assert_eq!(session.links.bunches, Some(Bunches { every_ms: 10.0, awake_ms: 9.0 }));
    }
}

#[test]
fn links_with_impossible_values_are_refused_by_key() {
    for (text, part) in [
        ("[links]\nfiber = 1", "unknown key `links.fiber`"),
        ("[links.acks]\nbrowsers = 2", "`links.acks.browsers` is 2; it may be 0 to 1"),
        ("[links.acks]\neach = 1", "`links.acks.each` is 1; it may be 2 to 1000"),
        ("[links.acks]\nwithin = '0ms'", "`links.acks.within` is 0ms; it may be 1ms to 5000ms"),
        ("[links.wifi]\nbunches = 3", "`links.wifi.bunches` is 3; it may be a table"),
        (
            "[links.wifi]\nbunches = { share = -1 }",
            "`links.wifi.bunches.share` is -1; it may be 0 to 1",
        ),
        (
            "[links.wifi]\nbunches_up = { every = '0ms' }",
            "`links.wifi.bunches_up.every` is 0ms; it may be 1ms to 5000ms",
        ),
        (
            "[links.cable]\nbunches = { awake = '6s' }",
            "`links.cable.bunches.awake` is 6000ms; it may be 0ms to 5000ms",
        ),
        (
            "[links.cellular]\nrtt_steps = { per_hour = 0 }",
            "`links.cellular.rtt_steps.per_hour` is 0; it may be 0.1 to 3600",
        ),
        (
            "[links.cable]\nrtt_steps = { factor = 0 }",
            "`links.cable.rtt_steps.factor` is 0; it may be 0.01 to 100",
        ),
        ("[links.cable]\necn = { mark = 1 }", "unknown key `links.cable.ecn.mark`"),
        (
            "[links.cable]\npolicer = { times = 0 }",
            "`links.cable.policer.times` is 0; it may be 0.1 to 100",
        ),
        (
            "[links.cable]\npolicer = { burst = '1kB' }",
            "`links.cable.policer.burst` is 1kB; it may be 1.5kB to 100000kB",
        ),
        ("[links.cable]\npolicer = { rate = 1 }", "unknown key `links.cable.policer.rate`"),
    ] {
        let parsed = Specification::parse(&format!("like = 'fleet'\n{text}\n"));
        let line = parsed.expect_err(text).to_string();
        assert!(line.contains(part) && !line.contains('\n'), "{text}: {line}");
    }
    let half = FLEET.replace("burst =", "burts =");
    let error = Specification::parse(&half).expect_err("a missing key");
    assert_eq!(error.to_string(), "`links.wifi.policer.burst` is missing");
}
