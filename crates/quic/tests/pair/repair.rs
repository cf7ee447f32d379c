//! Recovery schemes over the whole transport, against an unmodified client: which copies are sent,
//! in which packets, and what ends them.

use crate::common::{Dice, Pair, Setup, content};
use congestion::{AckBatch, Cap, CongestionEvent, Controller, Snapshot, Start};
use mendcast_quic::TransportConfig;
use mendcast_quic::detection::Detection;
use mendcast_quic::observer::{Event, Observer, Purpose};
use mendcast_quic::wire::{Frame, Frames, PacketType};
use recovery::autorec::{self, FixedLife, Tolerances};
use recovery::{Arq, Guard, Scheme, WindowExcess, art, deadline};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use units::{Mark, PacketNumber, Rate, Timestamp};

const SECOND: Duration = Duration::from_secs(1);

/// A 1-RTT packet that the server sent: when, its number, why, and the stream bytes in it.
#[derive(Clone, Debug)]
struct Sent {
    at: Timestamp,
    number: u64,
    purpose: Purpose,
    bytes: Option<(u64, usize)>,
}

/// The server's 1-RTT packets, and the marks of its finished lost units.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Sent>>>, Arc<Mutex<Vec<Option<Mark>>>>);

impl Log {
    fn all(&self) -> Vec<Sent> {
        self.0.lock().expect("one thread").clone()
    }

    /// The packets that carried this stream byte, in order.
    fn with_byte(&self, byte: u64) -> Vec<Sent> {
        let carries =
            |sent: &Sent| sent.bytes.is_some_and(|(at, len)| (at..at + len as u64).contains(&byte));
        self.all().into_iter().filter(carries).collect()
    }
}

impl Observer for Log {
    fn on_event(&mut self, at: Timestamp, event: &Event<'_>) {
        if let Event::UnitFinished { unit } = event {
            self.1.lock().expect("one thread").push(unit.mark);
        }
        let Event::PacketSent { ty: PacketType::OneRtt, number, payload, purpose, .. } = event
        else {
            return;
        };
        let bytes = Frames::new(payload).flatten().find_map(|frame| match frame {
            Frame::Stream { offset, data, .. } => Some((offset, data.len())),
            _ => None,
        });
        let sent = Sent { at, number: *number, purpose: *purpose, bytes };
        self.0.lock().expect("one thread").push(sent);
    }
}

/// A pair with the server's recovery scheme `scheme`. `loses` decides the fate of each 1-RTT packet
/// with stream data.
fn pair(
    seed: u64,
    scheme: impl Fn() -> Scheme + Send + Sync + 'static,
    guard: Option<Guard>,
    loses: impl FnMut(&Sent) -> bool + 'static,
) -> (Pair, Log) {
    let set = |transport: &mut TransportConfig| {
        transport.scheme = Arc::new(scheme);
        transport.guard = guard;
    };
    pair_with(seed, set, loses)
}

/// The same, with other settings of the server.
fn pair_with(
    seed: u64,
    set: impl FnOnce(&mut TransportConfig),
    mut loses: impl FnMut(&Sent) -> bool + 'static,
) -> (Pair, Log) {
    let log = Log::default();
    let mut setup = Setup::new(seed);
    let observed = log.clone();
    setup.transport(|transport| {
        set(transport);
        transport.observer = Some(Arc::new(move |_, _, _| Some(Box::new(observed.clone()) as _)));
    });
    let mut pair = Pair::new(&setup);
    pair.connect();
    // From here on, each of the server's datagrams is one packet.
    let (sent, mut seen) = (log.clone(), log.all().len());
    pair.loses = Box::new(move || {
        let packet = sent.0.lock().expect("one thread")[seen].clone();
        seen += 1;
        packet.bytes.is_some() && loses(&packet)
    });
    (pair, log)
}

/// Downloads all data and lets the last acknowledgements arrive.
fn download(pair: &mut Pair, bytes: usize, name: &str) {
    pair.answer = content(bytes);
    assert_eq!(pair.download(120 * SECOND), pair.answer, "{name}");
    pair.run_until(SECOND, |_| false);
}

fn fixed(level: u32) -> impl Fn() -> Scheme + Send + Sync {
    move || autorec::fixed(FixedLife::new(level).expect("in range"))
}

/// AutoRec, journal version, section VIII-C: "P1 (carrying application data D) is lost, it
/// retransmits P1 by renumbering it as P2 […] reinjects P2 by renumbering P2 as P3 […] P3 as P4 […]
/// Upon a third trigger, AutoRec skips reinjection […] Should P4 be lost, QUIC's native
/// loss-recovery mechanism […] retransmits P4 by renumbering P4 as P5".
#[test]
fn lost_data_goes_out_again_in_renumbered_packets_as_often_as_the_level_says() {
    let lost_byte = 200_000;
    let mut lost = 0;
    let (mut pair, log) = pair(1, fixed(2), None, move |packet| {
        let (at, len) = packet.bytes.expect("data");
        let loses = (at..at + len as u64).contains(&lost_byte) && lost < 4;
        lost += u32::from(loses);
        loses
    });
    download(&mut pair, 1_000_000, "one loss");
    let copies = log.with_byte(lost_byte);
    let purposes: Vec<Purpose> = copies.iter().map(|sent| sent.purpose).collect();
    use Purpose::{Original, Replica, Retransmission};
    assert_eq!(purposes, [Original, Retransmission, Replica, Replica, Retransmission]);
    assert!(copies.is_sorted_by(|a, b| a.number < b.number), "{copies:?}");
    let recovery = pair.connection().recovery();
    let totals = &recovery.totals;
    assert_eq!((totals.units, totals.finished, totals.finished_late), (1, 1, 1));
    assert_eq!((totals.replicas, totals.replicas_lost, totals.rounds_max), (2, 2, 2));
    // P1's loss was detected when P2 left; P5 is what arrived.
    let latency = copies[4].at.since(copies[1].at);
    assert_eq!(recovery.losses.latencies.max(), Some(latency));
    assert_eq!(recovery.losses.unit_times.mean(), Some(copies[1].at.since(copies[0].at)));
}

#[test]
fn a_mark_travels_with_written_data_to_the_lost_unit() {
    let lost_byte = 200_000;
    let (mut pair, log) = pair(3, fixed(2), None, move |packet| {
        let (at, len) = packet.bytes.expect("data");
        (at..at + len as u64).contains(&lost_byte) && packet.purpose == Purpose::Original
    });
    pair.marked = 7_000;
    download(&mut pair, 1_000_000, "one loss");
    let (first, _) = log.with_byte(lost_byte)[0].bytes.expect("data");
    let mark = Mark {
        media_time: Some(Duration::from_millis(first / 7_000)),
        deadline: None,
        catching_up: None,
    };
    assert_eq!(*log.1.lock().expect("one thread"), [Some(mark)]);
}

#[test]
fn copies_that_wait_go_first_where_the_path_delivers_more_than_a_viewer_catches_up_with() {
    let replicas = |catching_up| {
        let scheme = || fixed(2)().when_idle();
        let (mut pair, _) = pair(3, scheme, None, |packet| {
            let (at, len) = packet.bytes.expect("data");
            (at..at + len as u64).contains(&200_000) && packet.purpose == Purpose::Original
        });
        (pair.marked, pair.catching_up) = (7_000, catching_up);
        download(&mut pair, 1_000_000, "one loss");
        pair.connection().recovery().totals.replicas
    };
    // The retransmission is acknowledged long before nothing else waits.
    assert_eq!(replicas(None), 0);
    assert_eq!(replicas(Some(Rate::from_mbps(1_000_000))), 0);
    assert!(replicas(Some(Rate::from_kbps(100))) > 0);
}

/// A window of 100 kB; notes of each ACK whether marked data was written before it.
#[derive(Debug)]
struct Noting(Arc<Mutex<Vec<bool>>>);

impl Controller for Noting {
    fn on_sent(&mut self, _: Timestamp, _: PacketNumber, _: u64, _: u64) {}
    fn on_ack(&mut self, batch: &AckBatch) {
        self.0.lock().expect("one thread").push(batch.source_paced);
    }
    fn on_packets_lost(&mut self, _: Timestamp, _: u64, _: u64) {}
    fn on_congestion_event(&mut self, _: &CongestionEvent) {}
    fn window(&self) -> u64 {
        100_000
    }
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }
    fn send_quantum(&self) -> u64 {
        12_000
    }
    fn start(&mut self, _: Start) {}
    fn resume(&mut self, _: u64, _: u64) {}
    fn cap(&mut self, _: Cap) {}
    fn on_mtu(&mut self, _: u16) {}
    fn name(&self) -> &'static str {
        "noting"
    }
    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }
}

#[test]
fn the_controller_learns_with_the_next_acknowledgement_that_live_data_was_written() {
    let paced = |is_live| {
        let noted = Arc::new(Mutex::new(Vec::new()));
        let notes = noted.clone();
        let set = move |transport: &mut TransportConfig| {
            transport.congestion = Arc::new(move |_, _| Box::new(Noting(notes.clone())) as _);
        };
        let (mut pair, _) = pair_with(3, set, |_| false);
        assert!(!noted.lock().expect("one thread").contains(&true), "a handshake");
        (pair.marked, pair.is_live) = (7_000, is_live);
        download(&mut pair, 1_000_000, "all written at once");
        let noted = noted.lock().expect("one thread");
        assert!(noted.len() > 10, "{noted:?}");
        noted.iter().filter(|paced| **paced).count()
    };
    assert_eq!(paced(true), 1);
    assert_eq!(paced(false), 0, "it is fetched");
}

/// ART, section 6.4: "*opportunism*, which allows replicas to be sent on time even when the
/// congestion window is insufficient".
#[test]
fn replicas_exceed_the_window_as_far_as_the_scheme_says() {
    let most_in_flight = |excess| {
        let set = move |transport: &mut TransportConfig| {
            transport.congestion = Arc::new(|_, _| Box::new(Noting(Arc::default())) as _);
            transport.scheme = Arc::new(move || Scheme {
                excess,
                ..art::with_schedule(fixed(10)(), art::Spread::AtOnce, 1)
            });
        };
        let mut dice = Dice(6);
        let (mut pair, _) = pair_with(6, set, move |_| dice.chance(10));
        pair.answer = content(1_000_000);
        let id = pair.request();
        let (mut got, mut most) = (Vec::new(), 0);
        let done = pair.run_until(60 * SECOND, |pair| {
            most = most.max(pair.connection().in_flight());
            pair.read(id, &mut got)
        });
        assert!(done && got == pair.answer, "{excess:?}");
        most
    };
    let packet = 1_500;
    let [never, bounded, unbounded] =
        [WindowExcess::Never, WindowExcess::Bounded, WindowExcess::Unbounded].map(most_in_flight);
    assert!((90_000..100_000 + packet).contains(&never), "{never}");
    assert!((120_000..125_000 + packet).contains(&bounded), "{bounded}");
    assert!(unbounded > 150_000, "{unbounded}");
}

#[test]
fn an_acknowledgement_of_any_copy_ends_recovery() {
    let lost_byte = 200_000;
    let (mut pair, log) = pair(2, fixed(3), None, move |packet| {
        let (at, len) = packet.bytes.expect("data");
        let is_it = (at..at + len as u64).contains(&lost_byte);
        is_it && matches!(packet.purpose, Purpose::Original | Purpose::Retransmission)
    });
    download(&mut pair, 1_000_000, "one loss");
    let copies = log.with_byte(lost_byte);
    assert_eq!(copies[2].purpose, Purpose::Replica);
    let recovery = pair.connection().recovery();
    assert_eq!(recovery.totals.rounds_max, 1);
    assert_eq!(recovery.losses.latencies.max(), Some(copies[2].at.since(copies[1].at)));
    // Copies in flight at the acknowledgement are scored too.
    let totals = &recovery.totals;
    assert_eq!(totals.replicas, totals.replicas_acked + totals.replicas_lost);
    assert_eq!(pair.connection().lost_units(), 0);
}

#[test]
fn every_scheme_delivers_whatever_is_lost() {
    use recovery::fixed::{Reading, odd, or3, or3_code};
    let schemes: [fn() -> Scheme; 11] = [
        || autorec::scheme(Tolerances::default()),
        || autorec::scheme_mm24(autorec::Options::default(), 7),
        || autorec::fixed(FixedLife::new(10).expect("in range")),
        || art::paper(Reading::Extra, 7),
        || art::paper(Reading::Copies, 7),
        || art::code(Reading::Extra, 7),
        || art::egreedy(Reading::Extra, <_>::default(), art::Penalty::Quotient(art::ETA), 7),
        || art::ucb(Reading::Extra, <_>::default(), art::Penalty::Quotient(art::ETA), 7),
        || or3(Reading::Extra),
        || or3_code(Reading::Extra),
        || odd(Reading::Copies),
    ];
    for (number, scheme) in schemes.into_iter().enumerate() {
        for percent in [2, 20] {
            let seed = number as u64 * 100 + percent;
            let mut dice = Dice(seed);
            let (mut pair, log) = pair(seed, scheme, None, move |_| dice.chance(percent));
            let name = scheme().name;
            download(&mut pair, 400_000, &format!("{name}, {percent} %"));
            let recovery = pair.connection().recovery();
            let totals = recovery.totals;
            assert_eq!(totals.units, totals.finished, "{name}, {percent} %");
            let sent = log.all().iter().filter(|p| p.purpose == Purpose::Replica).count();
            assert_eq!(totals.replicas, sent as u64, "{name}, {percent} %");
            assert_eq!(totals.replicas, totals.replicas_acked + totals.replicas_lost, "{name}");
            assert!(totals.lost > 0 && totals.replica_bytes <= totals.copy_bytes);
        }
    }
}

#[test]
fn whatever_is_lost_or_pretended_redundancy_stays_below_the_guard() {
    let mut dice = Dice(5);
    let guard = Guard::new(0.1, None);
    let (mut pair, _) = pair(5, fixed(10), Some(guard), move |_| dice.chance(30));
    download(&mut pair, 500_000, "many losses");
    let recovery = pair.connection().recovery();
    let totals = &recovery.totals;
    let bound = totals.first_bytes / 10 + 9 * 1_452;
    assert!(totals.replica_bytes > totals.first_bytes / 20, "{totals:?}");
    assert!(totals.replica_bytes <= bound, "{} of {bound}", totals.replica_bytes);
    assert!(pair.connection().guard().is_some_and(|guard| guard.refusals() > 0));
}

/// Equation 5 of AutoRec: with new data to send, copies are T_unit / (K + 1) apart.
#[test]
fn while_there_is_new_data_the_copies_of_a_unit_are_spread_over_its_t_unit() {
    let mut dice = Dice(6);
    let (mut pair, log) = pair(6, fixed(5), None, move |_| dice.chance(10));
    download(&mut pair, 2_000_000, "many losses");
    let all = log.all();
    let last = all.iter().rfind(|sent| sent.purpose == Purpose::Original && sent.bytes.is_some());
    let last = last.expect("data").at;
    let t_unit = pair.connection().recovery().losses.unit_times.mean().expect("losses");
    let mut gaps = Vec::new();
    for replica in all.iter().filter(|sent| sent.purpose == Purpose::Replica && sent.at < last) {
        let before = all.iter().rfind(|sent| {
            sent.number < replica.number && sent.bytes.is_some_and(|b| Some(b) == replica.bytes)
        });
        gaps.push(replica.at.since(before.expect("a copy").at));
    }
    gaps.sort();
    assert!(gaps.len() > 200, "{}", gaps.len());
    // T_unit changes from interval to interval.
    let (shortest, middle) = (gaps[gaps.len() / 20], gaps[gaps.len() / 2]);
    assert!(shortest > t_unit / 12, "{shortest:?} of {t_unit:?}");
    assert!(middle > t_unit / 9 && middle < t_unit / 4, "{middle:?} of {t_unit:?}");
}

/// RFC 9002, section 7.3.1: a lost packet signals congestion, even if a probe has already delivered
/// its data.
#[test]
fn a_loss_that_a_probe_repaired_is_a_signal_of_congestion() {
    const BYTES: usize = 10_000;
    let mut is_first = true;
    let (mut pair, _) = pair(31, Arq::scheme, None, move |packet| {
        let (at, len) = packet.bytes.expect("data");
        at + len as u64 == BYTES as u64 && std::mem::take(&mut is_first)
    });
    download(&mut pair, BYTES, "the tail is lost");
    let connection = pair.connection();
    assert_eq!((connection.stats().packets_lost, connection.recovery().totals.units), (1, 0));
    assert_eq!(connection.stats().congestion_events, 1);
}

/// Drops the last packet of an answer. Returns the delay of its retransmission and the number of
/// the server's PINGs, on a path with or without recent loss.
fn tail(detection: Detection, is_lossy: bool) -> (Duration, usize) {
    let (first, second) = (300_000, 30_000);
    let last = second as u64 - 1;
    let (mut lost, mut answers) = (0, 0);
    let (mut pair, log) = pair_with(
        5,
        |transport| transport.detection = detection,
        move |packet| {
            let (at, len) = packet.bytes.expect("data");
            let carries = |byte: u64| (at..at + len as u64).contains(&byte);
            answers += u32::from(at == 0 && packet.purpose == Purpose::Original);
            let loses = match (answers, lost) {
                (1, 0) if is_lossy => carries(100_000),
                (2, 0..=1) => carries(last),
                _ => false,
            };
            // One of each.
            let expected = u32::from(answers == 2 && is_lossy);
            let loses = loses && lost == expected;
            lost += u32::from(loses);
            loses
        },
    );
    download(&mut pair, first, "the first answer");
    let before = log.all().len();
    download(&mut pair, second, "the second answer");
    let all = log.all().split_off(before);
    let carries =
        |sent: &&Sent| sent.bytes.is_some_and(|(at, len)| (at..at + len as u64).contains(&last));
    let copies: Vec<&Sent> = all.iter().filter(carries).collect();
    assert!(copies.len() >= 2, "{copies:?}");
    let pings = all.iter().filter(|sent| sent.bytes.is_none() && sent.at > copies[0].at);
    (copies[1].at.since(copies[0].at), pings.count())
}

#[test]
fn on_a_lossy_path_a_ping_reveals_the_loss_of_the_last_packet() {
    // RTT 20 ms, and acknowledgements delayed by 25 ms unless packets arrive out of order.
    let (after, pings) = tail(Detection::LIVE, true);
    assert_eq!(after, Duration::from_millis(24));
    assert_eq!(
        pings, 2,
        "one after the answer and one after its last packet's copy, and no more in a second"
    );
    let (after, pings) = tail(Detection { tail: false, ..Detection::LIVE }, true);
    assert!(after > Duration::from_millis(45), "{after:?} is a probe time-out");
    assert_eq!(pings, 0);
    let (after, pings) = tail(Detection::LIVE, false);
    assert!(after > Duration::from_millis(45), "{after:?}: nothing was lost before");
    assert!(pings <= 1, "{pings}");
}

/// Drops all packets within `outage` of a third answer's first packet. Returns when its data is
/// resent, how, and how often.
fn overdue(
    outage: Duration,
    scheme: impl Fn() -> Scheme + Send + Sync + 'static,
) -> (Duration, Purpose, usize) {
    let mut answers = 0;
    let mut begun = None;
    let mut lost = 0;
    let guard = Some(Guard::new(0.2, None));
    let set = |transport: &mut TransportConfig| {
        transport.scheme = Arc::new(scheme);
        transport.guard = guard;
        transport.detection = Detection { tail: false, ..Detection::LIVE };
    };
    let (mut pair, log) = pair_with(6, set, move |packet| {
        let (at, len) = packet.bytes.expect("data");
        answers += u32::from(at == 0 && packet.purpose == Purpose::Original);
        if answers == 1 {
            let loses = lost == 0 && (at..at + len as u64).contains(&100_000);
            lost += u32::from(loses);
            return loses;
        }
        answers == 3 && packet.at.since(*begun.get_or_insert(packet.at)) < outage
    });
    download(&mut pair, 300_000, "the first answer");
    // By now it is known what became of what followed the loss.
    download(&mut pair, 300_000, "the second answer");
    let before = log.all().len();
    download(&mut pair, 60_000, "the third answer");
    let all = log.all().split_off(before);
    let first = |sent: &&Sent| sent.bytes.is_some_and(|(at, _)| at == 0);
    let copies: Vec<&Sent> = all.iter().filter(first).collect();
    (copies[1].at.since(copies[0].at), copies[1].purpose, copies.len())
}

#[test]
fn what_is_overdue_leaves_again_before_a_probe_would() {
    let of = |patience| deadline::Options { patience, ..deadline::Options::default() };
    // A player without time for another round.
    let deadline = move || deadline::scheme(of(Duration::from_millis(50))).expect("in range");
    // RTT 20 ms, and an acknowledgement delay of up to 25 ms.
    let outage = Duration::from_millis(40);
    let (after, purpose, copies) = overdue(outage, deadline);
    assert!((45..48).contains(&after.as_millis()), "{after:?}");
    assert_eq!((purpose, copies), (Purpose::Replica, 2));
    let (probe, purpose, _) = overdue(outage, Arq::scheme);
    assert!(purpose == Purpose::Probe && probe > after, "{probe:?}");
    let patient = move || deadline::scheme(of(Duration::from_millis(500))).expect("in range");
    assert_eq!(overdue(outage, patient).1, Purpose::Probe, "a round later is in time");
    // An outage that goes on takes one copy by this, and then probes.
    let (_, _, copies) = overdue(Duration::from_millis(100), deadline);
    assert!((3..=6).contains(&copies), "{copies}");
}
