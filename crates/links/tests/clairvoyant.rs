//! Delays that a sender with knowledge of its packets' fates could achieve, without queues and
//! other packets: each lost packet by itself, under the loss model of calls.

use core::time::Duration;

use mendcast_links::{Link, LinkConfig, Packet, Passage};
use units::{Ecn, Timestamp};

const SEED: u64 = 20_261_122;
const RTT: Duration = Duration::from_millis(80);
/// Time from sending a packet to detecting its loss: one round trip plus 15 ms.
const DETECTION: Duration = Duration::from_millis(95);
const PACKETS: u64 = 300_000;

fn link(loss: &str) -> Link<u64> {
    let config = LinkConfig {
        delay: Some(RTT / 2),
        loss: Some(loss.parse().expect("a loss")),
        ..LinkConfig::default()
    };
    Link::new(&config, SEED, "down")
}

/// When a packet is sent first, and again after its loss is detected.
#[derive(Clone, Copy)]
struct Sender {
    first: Passage,
    again: Passage,
}

const ARQ: Sender = Sender { first: Passage::Ordinary, again: Passage::Ordinary };
const AFTER_DETECTION: Sender = Sender { first: Passage::Ordinary, again: Passage::Insistent };
const FROM_START: Sender = Sender { first: Passage::Insistent, again: Passage::Insistent };

/// Delays from the first transmission of packets, one per 20 ms, to their arrival.
fn delays(loss: &str, sender: Sender) -> Vec<Duration> {
    let mut link = link(loss);
    // Sendings, in order of time.
    let mut due: std::collections::BTreeSet<(Timestamp, u64, bool)> =
        (0..PACKETS).map(|n| (at(n), n, true)).collect();
    let mut came: Vec<Option<Timestamp>> = vec![None; PACKETS as usize];
    while let Some((now, number, is_first)) = due.pop_first() {
        let passage = if is_first { sender.first } else { sender.again };
        let lost = link.counters().lost.packets;
        link.send_as(now, packet(number), passage);
        if link.counters().lost.packets > lost {
            due.insert((now + DETECTION, number, false));
        }
    }
    while let Some(arrived) = link.poll(Timestamp::MAX) {
        came[arrived.packet.payload as usize].get_or_insert(arrived.at);
    }
    link.check_conservation().expect("balanced");
    let delay = |(n, came): (u64, &Option<Timestamp>)| Some((*came)?.since(at(n)));
    let delays = (0..).zip(&came).map(delay).collect::<Option<_>>();
    delays.expect("all packets arrive")
}

fn at(number: u64) -> Timestamp {
    Timestamp::from_millis(20 * number)
}

fn packet(number: u64) -> Packet<u64> {
    Packet { size: 1_200, ecn: Ecn::NotEct, payload: number }
}

/// Number of delays above `ms` milliseconds.
fn later(delays: &[Duration], ms: u64) -> usize {
    delays.iter().filter(|delay| **delay > Duration::from_millis(ms)).count()
}

/// Percentages of lost packets that arrive later than 150, 200, 300, 400 and 600 ms at a round-trip
/// time of 80 ms. First for the 60,000 fates at nominally 5 % used for the fit (printed by
/// `examples/fit_calls`), then for 1.2 million fates of the same generator.
const BOUNDS: [u64; 5] = [150, 200, 300, 400, 600];
const MEASURED: [(&str, Sender, [f64; 5], [f64; 5]); 3] = [
    ("ARQ", ARQ, [23.7, 23.7, 10.1, 5.6, 2.7], [24.8, 24.8, 11.7, 7.0, 2.9]),
    ("after detection", AFTER_DETECTION, [16.5, 9.4, 5.3, 3.6, 2.3], [19.4, 12.2, 7.0, 4.3, 1.7]),
    ("from the start", FROM_START, [13.9, 8.8, 5.3, 3.6, 2.3], [15.1, 11.1, 6.7, 4.1, 1.7]),
];

/// Compares the model at this rate with `measured`, per sender. Tolerates a fraction `part`, or 1.2
/// %.
fn compare(rate: &str, measured: [[f64; 5]; 3], part: f64) {
    let mut least = [f64::MAX; BOUNDS.len()];
    for ((name, sender, ..), measured) in MEASURED.into_iter().zip(measured) {
        let delays = delays(&format!("calls:rate={rate},reading=slots"), sender);
        // Lost packets arrive later than half a round trip.
        let lost = later(&delays, 40) as f64;
        let shares = BOUNDS.map(|bound| later(&delays, bound) as f64 * 100.0 / lost);
        println!("{rate}, {name}: {shares:.1?}, measured {measured:?} (seed {SEED})");
        for (index, bound) in BOUNDS.into_iter().enumerate() {
            let (share, measured) = (shares[index], measured[index]);
            let is_near = (share - measured).abs() < (part * measured).max(1.2);
            assert!(is_near, "{name}, {bound} ms: {share} against {measured}");
            assert!(share <= least[index], "{name}, {bound} ms: {share}");
            least[index] = share;
        }
    }
}

#[test]
fn lost_data_is_as_late_as_with_the_fitted_fates() {
    compare("5.42%", MEASURED.map(|(_, _, fitted, _)| fitted), 0.15);
}

#[test]
fn knowledge_of_fates_helps_as_much_as_in_simulated_calls() {
    // 20 minutes contain few long outages: by chance, the fitted fates have a lighter tail than the
    // rest.
    compare("5%", MEASURED.map(|(.., generated)| generated), 0.3);
}

#[test]
fn knowledge_of_fates_delays_no_packet() {
    // With per-packet fates in a slot, retransmissions shift the indexes of other packets, which
    // adds noise.
    for (loss, noise) in [
        ("outages:rate=5%,length=30ms", 0),
        ("calls:rate=5%", 150),
        ("calls:rate=5%,reading=slots", 0),
    ] {
        let [arq, after, start] =
            [ARQ, AFTER_DETECTION, FROM_START].map(|sender| delays(loss, sender));
        for bound in [50, 100, 200, 300, 600] {
            let late = [&start, &after, &arq].map(|delays| later(delays, bound));
            let never_later = late.windows(2).all(|pair| pair[0] <= pair[1] + noise);
            assert!(never_later, "{loss}, {bound} ms: {late:?} (seed {SEED})");
        }
    }
}
