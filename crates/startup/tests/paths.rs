//! First frames over a simulated bottleneck, in virtual time: Careful Resume and Rapid Start
//! against CUBIC, with accurate and stale cookies.
//!
//! The path has a rate, a round trip and a drop-tail queue. Packets are declared lost after three
//! later acknowledged packets, or after 200 ms without an acknowledgement. Everything is
//! deterministic.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use congestion::{
    AckBatch, CongestionEvent, CongestionKind, Controller, Cubic, RttSnapshot, Start,
};
use mendcast_startup::Guided;
use mendcast_startup::careful::Saved;
use mendcast_startup::cookie::Verdict;
use mendcast_startup::decision::{Course, StartDecision};
use units::{PacketNumber, Rate, Timestamp};

const MTU: u64 = 1_200;
const IW: u64 = 12_000;
/// The paper's testbed (figure 2): 8 Mbit/s, 50 ms, a queue of 25 KB, and a first frame of 66 KB.
const RTT: Duration = Duration::from_millis(50);

/// Time without acknowledgements after which packets are declared lost.
const TAIL_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Clone, Copy)]
struct Path {
    rate: Rate,
    queue: u64,
}

/// A sender, set up as in a server.
struct Sender {
    controller: Guided,
    /// Window at the end of Rapid Start.
    converged: Option<u64>,
    /// Time of the connection, and its next packet number.
    now: Timestamp,
    next_pn: u64,
}

impl Sender {
    fn new(window: u64, course: Course) -> Self {
        let mut controller = Guided::new(Box::new(Cubic::new(MTU as u16)), MTU as u16);
        let start = Start { window: Some(window), rtt: Some(RTT), ..Start::default() };
        controller.begin(&StartDecision { start, course });
        Self { controller, converged: None, now: Timestamp::from_secs(1), next_pn: 0 }
    }

    fn is_rapid(&self) -> bool {
        self.controller.snapshot().state == "rapid_start"
    }

    fn on_sent(&mut self, now: Timestamp, pn: u64, in_flight: u64) {
        self.controller.on_sent(now, PacketNumber(pn), MTU, in_flight - MTU);
    }

    fn on_loss(&mut self, event: &CongestionEvent) {
        self.controller.on_packets_lost(event.now, event.lost_bytes, event.in_flight);
        self.controller.on_congestion_event(event);
    }

    fn on_ack(&mut self, batch: &AckBatch) {
        let was_rapid = self.is_rapid();
        self.controller.on_ack(batch);
        if was_rapid && !self.is_rapid() {
            self.converged = Some(self.controller.window());
        }
    }
}

/// Delivery of a first frame.
#[derive(Debug)]
struct Outcome {
    /// Time from sending the first packet to receiving the last one.
    time: Duration,
    sent: u64,
    lost: u64,
    largest_window: u64,
}

/// A packet in flight: its send time, and the arrival of its acknowledgement unless it is lost.
struct Packet {
    sent: Timestamp,
    piece: u64,
    acked: Option<Timestamp>,
}

/// Sends a first frame of `first_frame` bytes over the path.
fn send(sender: &mut Sender, path: Path, first_frame: u64) -> Outcome {
    let pieces = first_frame.div_ceil(MTU);
    let mut todo: VecDeque<u64> = (0..pieces).collect();
    let mut arrived = vec![false; pieces as usize];
    let mut packets: BTreeMap<u64, Packet> = BTreeMap::new();
    let (start, first_pn) = (sender.now, sender.next_pn);
    let (mut now, mut next_send, mut link_free) = (start, start, start);
    let (mut lost, mut largest_window) = (0, 0);
    let (mut done, mut min_rtt, mut news) = (start, Duration::MAX, start);
    while arrived.contains(&false) {
        assert!(now.since(start) < Duration::from_secs(60), "stuck");
        // Send everything that is permitted now.
        while !todo.is_empty()
            && packets.len() as u64 * MTU + MTU <= sender.controller.window()
            && next_send <= now
        {
            let piece = todo.pop_front().expect("not empty");
            let waits = link_free.since(now);
            let fits = path.rate.bytes_in(waits) + MTU <= path.queue.max(MTU);
            let mut acked = None;
            if fits {
                link_free = link_free.max(now) + path.rate.time_for(MTU);
                acked = Some(link_free + RTT);
            }
            packets.insert(sender.next_pn, Packet { sent: now, piece, acked });
            largest_window = largest_window.max(sender.controller.window());
            sender.on_sent(now, sender.next_pn, packets.len() as u64 * MTU);
            sender.next_pn += 1;
            next_send = sender
                .controller
                .pacing_rate()
                .map_or(now, |rate| now.max(next_send) + rate.time_for(MTU));
        }
        let limited = !todo.is_empty();
        let ack = packets.iter().filter_map(|(pn, p)| Some((p.acked?, *pn))).min();
        let timer = news + TAIL_TIMEOUT;
        let send_at = (limited && next_send > now).then_some(next_send);
        let at = ack.map(|(at, _)| at).unwrap_or(timer).min(send_at.unwrap_or(Timestamp::MAX));
        now = now.max(at);
        let Some((_, pn)) = ack.filter(|(at, _)| *at <= now) else {
            if ack.is_none() && now >= timer {
                // No acknowledgement is outstanding: the rest was lost.
                let gone = declare_lost(&mut packets, u64::MAX, &mut todo);
                lost += gone.len() as u64;
                report(sender, now, &gone, 0);
                news = now;
            }
            continue;
        };
        let packet = packets.remove(&pn).expect("it was there");
        news = now;
        if !arrived[packet.piece as usize] {
            arrived[packet.piece as usize] = true;
            done = now - RTT / 2;
        }
        let rtt = now.since(packet.sent);
        min_rtt = min_rtt.min(rtt);
        let gone = declare_lost(&mut packets, pn.saturating_sub(2), &mut todo);
        lost += gone.len() as u64;
        let in_flight = packets.len() as u64 * MTU;
        report(sender, now, &gone, in_flight);
        sender.on_ack(&AckBatch {
            now,
            acked_bytes: MTU,
            largest_acked: PacketNumber(pn),
            largest_sent_time: packet.sent,
            in_flight_before: in_flight + MTU,
            in_flight,
            rtt: RttSnapshot { latest: rtt, smoothed: rtt, min: min_rtt, variance: rtt / 8 },
            rate: None,
            cwnd_limited: limited,
            source_paced: false,
            lost_bytes: gone.len() as u64 * MTU,
            ecn_ce: 0,
        });
    }
    sender.now = now;
    Outcome { time: done.since(start), sent: sender.next_pn - first_pn, lost, largest_window }
}

/// Declares packets below a number lost and queues their data first.
fn declare_lost(
    packets: &mut BTreeMap<u64, Packet>,
    below: u64,
    todo: &mut VecDeque<u64>,
) -> Vec<Timestamp> {
    let gone: Vec<u64> =
        packets.range(..below).filter(|(_, p)| p.acked.is_none()).map(|(pn, _)| *pn).collect();
    let packets = gone.iter().rev().filter_map(|pn| packets.remove(pn));
    packets
        .map(|packet| {
            todo.push_front(packet.piece);
            packet.sent
        })
        .collect()
}

fn report(sender: &mut Sender, now: Timestamp, gone: &[Timestamp], in_flight: u64) {
    if let Some(latest) = gone.iter().max() {
        sender.on_loss(&CongestionEvent {
            now,
            lost_bytes: gone.len() as u64 * MTU,
            largest_lost_sent_time: *latest,
            largest_lost: PacketNumber(0),
            in_flight,
            rtt: RTT,
            kind: CongestionKind::Loss,
        });
    }
}

const FIRST_FRAME: u64 = 66_000;

fn path(mbps: u64) -> Path {
    Path { rate: Rate::from_mbps(mbps), queue: 25_000 }
}

/// Sender with a cookie of a path of `saved_mbps`. The jump may use half of it.
fn careful(saved_mbps: u64) -> Sender {
    let jump = Rate::from_mbps(saved_mbps).bytes_in(RTT) / 2;
    let saved = Saved { jump, rtt: RTT, first_frame: Some(FIRST_FRAME) };
    Sender::new(IW, Course::Careful(saved))
}

fn rapid() -> Sender {
    Sender::new(2 * IW, Course::Rapid)
}

fn normal() -> Sender {
    Sender::new(IW, Course::Normal)
}

#[test]
fn a_jump_to_half_of_the_path_saves_time_and_is_validated() {
    let wide = Path { rate: Rate::from_mbps(40), queue: 100_000 };
    let normal = send(&mut normal(), wide, FIRST_FRAME);
    let mut sender = careful(40);
    let jumped = send(&mut sender, wide, FIRST_FRAME);
    assert_eq!((normal.lost, jumped.lost), (0, 0));
    assert!(jumped.time < normal.time.mul_f64(0.9), "{jumped:?} {normal:?}");
    let state = sender.controller.snapshot().state;
    assert!(matches!(state, "validating" | "slow_start"), "{state}");
    // A second frame provides the acknowledgements that are missing after the first.
    send(&mut sender, wide, FIRST_FRAME);
    assert_eq!(sender.controller.verdict(), Verdict::Passed);
}

#[test]
fn a_stale_cookie_of_a_faster_path_costs_little_unless_the_tail_is_lost() {
    for (saved, now) in [(8, 2), (16, 4), (40, 10)] {
        let normal = send(&mut normal(), path(now), FIRST_FRAME);
        let stale = send(&mut careful(saved), path(now), FIRST_FRAME);
        let shown = format!("{saved} to {now} Mbit/s: {stale:?} {normal:?}");
        // A full queue drops the end of the frame, and no later packet reveals it.
        let tail = if stale.lost > 0 { TAIL_TIMEOUT + RTT } else { Duration::ZERO };
        assert!(stale.time <= normal.time.mul_f64(1.1) + tail, "{shown}");
        assert!(stale.lost <= stale.sent / 10, "{shown}");
        println!("{shown}");
    }
}

#[test]
fn rapid_start_is_faster_than_slow_start_without_a_cookie() {
    for mbps in [8, 20, 40] {
        let path = Path { rate: Rate::from_mbps(mbps), queue: 200_000 };
        let normal = send(&mut normal(), path, 200_000);
        let rapid = send(&mut rapid(), path, 200_000);
        assert_eq!((normal.lost, rapid.lost), (0, 0));
        assert!(rapid.time < normal.time, "{mbps} Mbit/s: {rapid:?} {normal:?}");
    }
}

#[test]
fn rapid_start_converges_on_a_fraction_of_the_full_bdp() {
    for (mbps, queue) in [(4, 25_000), (8, 25_000), (8, 100_000), (20, 50_000)] {
        let path = Path { rate: Rate::from_mbps(mbps), queue };
        let mut sender = rapid();
        let outcome = send(&mut sender, path, 2_000_000);
        let Some(converged) = sender.converged else { panic!("not over: {outcome:?}") };
        assert!(outcome.lost > 0 && outcome.sent > outcome.lost);
        // The full BDP includes the queue.
        let full = (path.rate.bytes_in(RTT) + queue) as f64;
        let part = converged as f64 / full;
        assert!((0.45..=0.95).contains(&part), "{mbps} Mbit/s, {queue} B: {part}, {outcome:?}");
    }
}

#[test]
fn no_jump_exceeds_the_rest_of_the_first_frame() {
    let wide = Path { rate: Rate::from_mbps(400), queue: 4_000_000 };
    let outcome = send(&mut careful(400), wide, FIRST_FRAME);
    assert!(outcome.largest_window <= FIRST_FRAME * 17 / 16, "{outcome:?}");
}
