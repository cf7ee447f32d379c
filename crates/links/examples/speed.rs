//! Cost of a packet through a link: `cargo run --release -p mendcast-links --example speed`. Uses a
//! trace instead of the built-in settings if its path is given as an argument.

use std::time::{Duration, Instant};

use mendcast_links::{Link, LinkConfig, Packet, Probability, Queue, Trace};
use units::{Ecn, Rate, Timestamp};

/// Offers packets slightly below the rate of the link and polls them.
fn measure(name: &str, config: &LinkConfig) {
    const PACKETS: u64 = 4_000_000;
    let mut link: Link<u32> = Link::new(config, 1, "speed");
    let mut now = Timestamp::ZERO;
    let mut delivered = 0_u64;
    let mut events = 0_u64;
    let begin = Instant::now();
    for i in 0..PACKETS {
        // Trains of eight packets, like real senders.
        if i % 8 == 0 {
            now += Duration::from_micros(8 * 1_050);
        }
        while let Some(event) = link.next_event().filter(|event| *event <= now) {
            events += 1;
            while link.poll(event).is_some() {
                delivered += 1;
            }
        }
        link.send(now, Packet { size: 1_378, ecn: Ecn::NotEct, payload: i as u32 });
    }
    let spent = begin.elapsed();
    link.check_conservation().expect("balanced");
    println!(
        "{name:28} {:6.1} ns per packet, {:.2} events per packet, {:.1} % delivered",
        spent.as_nanos() as f64 / PACKETS as f64,
        events as f64 / PACKETS as f64,
        100.0 * delivered as f64 / PACKETS as f64
    );
}

fn main() {
    if let Some(path) = std::env::args().nth(1) {
        match Trace::load(&path) {
            Ok(trace) => measure(&path, &LinkConfig { trace: Some(trace), ..Default::default() }),
            Err(error) => eprintln!("{error}"),
        }
        return;
    }
    let delay = Some(Duration::from_millis(30));
    let base = LinkConfig { delay, rate: Some(Rate::from_mbps(12)), ..LinkConfig::default() };
    let with_loss =
        |loss: &str| LinkConfig { loss: Some(loss.parse().expect("a loss model")), ..base.clone() };
    measure("delay only", &LinkConfig { delay, ..LinkConfig::default() });
    measure("rate, drop-tail, delay", &base);
    measure("codel", &LinkConfig { queue: Queue::codel(500_000), ..base.clone() });
    measure("5 % loss", &with_loss("5%"));
    measure("slotted Gilbert-Elliott", &with_loss("ge:p=0.2,r=0.8,good=1%,bad=40%,slot=30ms"));
    measure("Lomax bursts", &with_loss("lomax:rate=5%"));
    measure(
        "everything",
        &LinkConfig {
            jitter: Some("gauss:2ms,reorder".parse().expect("valid jitter")),
            reorder: Some("2%,30ms".parse().expect("valid reordering")),
            duplicate: Probability::new(0.01).expect("a probability"),
            ..with_loss("5%")
        },
    );
}
