//! When a server sends again, gives up, and forgets (RFC 9002, sections 5 and 6; RFC 9000, section
//! 10), for a client that answers at once or not at all.

use std::sync::Arc;
use std::time::Duration;

use mendcast_quic::detection::{Detection, STEADY_PROBE_PERIOD};
use mendcast_quic::wire::{Frame, Frames, PacketType, put_crypto, put_ping};
use mendcast_quic::{Connection, Endpoint, TransportConfig};
use units::Timestamp;

use crate::raw::{Raw, ack, frames, generous, honest, varint};
use crate::{client, client_tls, config, connected, download, downloading};

const MS: Duration = Duration::from_millis(1);

fn connection(raw: &mut Raw) -> &mut Connection {
    let handle = raw.handle.expect("a connection");
    raw.server.connection(handle).expect("not removed")
}

/// When packets of a type were sent that ask for an acknowledgement, each time once.
fn times(raw: &Raw, ty: PacketType, since: Timestamp) -> Vec<Timestamp> {
    let eliciting = raw.opened.iter().filter(|packet| {
        let mut frames = Frames::new(&packet.payload).flatten();
        packet.ty == ty && packet.at >= since && frames.any(|frame| frame.is_ack_eliciting())
    });
    let mut times: Vec<Timestamp> = eliciting.map(|packet| packet.at).collect();
    times.dedup();
    times
}

fn gaps(times: &[Timestamp]) -> Vec<Duration> {
    times.windows(2).map(|pair| pair[1].since(pair[0])).collect()
}

/// A client with `len` bytes in flight, and everything before acknowledged.
fn quiet_download(len: usize) -> Raw {
    acknowledged(downloading(&generous(), len))
}

fn acknowledged(mut raw: Raw) -> Raw {
    for number in raw.numbers(PacketType::OneRtt).to_vec() {
        raw.send(PacketType::OneRtt, &ack(number, number));
    }
    raw
}

#[test]
fn the_probes_of_a_handshake_come_after_999_ms_and_at_doubling_distances() {
    // RFC 9002, sections 6.2.1 and 6.2.2.
    let mut raw = client(&honest());
    let hello = raw.hello();
    // Enough of the client that the anti-amplification limit does not interfere.
    raw.send_crypto(PacketType::Initial, &hello);
    for _ in 0..20 {
        raw.send(PacketType::Initial, &frames(|w| put_crypto(w, 0, &hello[..100])));
    }
    let begin = raw.now;
    raw.wait(8_000 * MS);
    let sent = times(&raw, PacketType::Initial, begin);
    let waits = gaps(&sent);
    assert_eq!(waits[..3], [999 * MS, 1_998 * MS, 3_996 * MS], "{sent:?}");
    // Section 6.2.4: both spaces at a time.
    assert_eq!(times(&raw, PacketType::Handshake, begin)[..3], sent[..3]);
}

#[test]
fn probes_come_at_growing_distances_ask_for_an_answer_and_declare_nothing_lost() {
    // RFC 9002, sections 6.2, 6.2.1 and 6.2.4.
    let mut raw = quiet_download(400_000);
    let lost = connection(&mut raw).stats().packets_lost;
    let (begin, in_flight) = (raw.now, connection(&mut raw).in_flight());
    raw.wait(Duration::from_secs(4));
    let waits = gaps(&times(&raw, PacketType::OneRtt, begin));
    let tail = &waits[waits.len() - 4..];
    for pair in tail.windows(2) {
        assert_eq!(pair[1], pair[0] * 2, "{waits:?}");
    }
    assert_eq!(connection(&mut raw).stats().packets_lost, lost);
    // Section 7.5: they count as in flight.
    assert!(connection(&mut raw).in_flight() > in_flight);
}

#[test]
fn probes_stop_doubling_at_the_longest_wait_and_go_on_after_ten_seconds() {
    let mut config = config();
    let (detection, idle_timeout) = (Detection::LIVE, Duration::from_secs(60));
    let transport = TransportConfig { detection, idle_timeout, ..TransportConfig::default() };
    config.transport = Arc::new(transport);
    let mut raw = Raw::new(Endpoint::new(config, [3; 32]), client_tls(b"test"), &generous());
    raw.connect();
    download(&mut raw, 400_000);
    let mut raw = acknowledged(raw);
    let begin = raw.now;
    raw.wait(Duration::from_secs(20));
    let waits = gaps(&times(&raw, PacketType::OneRtt, begin));
    let longest = Detection::LIVE.longest_probe.expect("a limit");
    // The time-out here is 25 ms of max_ack_delay and the granularity: three doublings.
    assert_eq!(waits[..4], [26, 52, 104, 200].map(|ms| ms * MS), "{waits:?}");
    let steady = waits.iter().filter(|&&wait| wait == longest).count() as u32;
    assert!(
        (9 * STEADY_PROBE_PERIOD / 10..=STEADY_PROBE_PERIOD).contains(&(longest * steady)),
        "{waits:?}"
    );
    // Who stays away hears less and less.
    let rest: Vec<Duration> = waits.into_iter().skip_while(|&wait| wait <= longest).collect();
    assert_eq!(rest, [2, 4, 8, 16].map(|times| longest * times), "{rest:?}");
}

#[test]
fn a_packet_is_lost_three_packets_later_or_a_little_more_than_a_round_trip_later() {
    // RFC 9002, sections 6.1.1 and 6.1.2. Round trips take no time here, so that the granularity of
    // 1 ms counts.
    for (distance, at_once) in [(3, true), (2, false)] {
        let mut raw = downloading(&generous(), 400_000);
        let numbers = raw.numbers(PacketType::OneRtt).to_vec();
        let (known, flight) = numbers.split_at(numbers.len() - 5);
        assert!(flight.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        known.iter().for_each(|&number| raw.send(PacketType::OneRtt, &ack(number, number)));
        let lost = |raw: &mut Raw| connection(raw).stats().packets_lost;
        assert_eq!(lost(&mut raw), 0);
        let arrived = flight[0] + distance;
        raw.send(PacketType::OneRtt, &ack(arrived, arrived));
        assert_eq!(lost(&mut raw), u64::from(at_once), "distance {distance}");
        raw.wait(2 * MS);
        assert_eq!(lost(&mut raw), distance, "distance {distance}");
    }
}

#[test]
fn a_closing_connection_stays_for_three_probe_time_outs_and_then_goes() {
    // RFC 9000, section 10.2. This client acknowledges nothing: a probe time-out is 999 ms and the
    // 25 ms of its max_ack_delay.
    for payload in [vec![0x21], [&[0x1c], &varint(0)[..], &[0, 0]].concat()] {
        let mut raw = connected();
        raw.send(PacketType::OneRtt, &payload);
        raw.wait(3 * 1_020 * MS);
        assert!(!connection(&mut raw).is_drained());
        raw.wait(20 * MS);
        assert!(connection(&mut raw).is_drained());
    }
}

#[test]
fn an_idle_time_out_is_no_shorter_than_three_probe_time_outs() {
    // RFC 9000, section 10.1.
    let mut config = config();
    let idle_timeout = Duration::from_secs(2);
    let transport = TransportConfig { idle_timeout, ..TransportConfig::default() };
    config.transport = Arc::new(transport);
    let mut raw = Raw::new(Endpoint::new(config, [3; 32]), client_tls(b"test"), &honest());
    raw.connect();
    raw.wait(3 * 1_020 * MS);
    assert!(!connection(&mut raw).is_drained());
    raw.wait(Duration::from_secs(60));
    assert!(connection(&mut raw).is_drained());
}

#[test]
fn what_the_client_knows_to_be_acknowledged_is_not_reported_again() {
    // RFC 9000, section 13.2.3.
    let mut raw = connected();
    raw.send(PacketType::OneRtt, &frames(put_ping));
    raw.skip_numbers(PacketType::OneRtt, 5);
    raw.send(PacketType::OneRtt, &frames(put_ping));
    raw.wait(50 * MS);
    let ranges = |raw: &Raw| {
        let frames = raw.opened.iter().flat_map(|packet| Frames::new(&packet.payload).flatten());
        let acks = frames.filter_map(|frame| match frame {
            Frame::Ack(ack) => Some(ack.ranges().collect::<Vec<_>>()),
            _ => None,
        });
        acks.last().expect("acknowledgements")
    };
    let before = ranges(&raw);
    assert_eq!(before.len(), 2, "{before:?}");
    let largest = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
    raw.send(PacketType::OneRtt, &ack(largest, largest));
    raw.skip_numbers(PacketType::OneRtt, 5);
    raw.send(PacketType::OneRtt, &frames(put_ping));
    raw.wait(50 * MS);
    let after = ranges(&raw);
    // The newest packets always are.
    assert!(after[0].end() > before[0].end(), "{before:?} {after:?}");
    assert!(after.iter().all(|range| range.start() > before[1].end()), "{before:?} {after:?}");
}

#[test]
fn a_round_trip_is_measured_by_the_largest_number_and_by_packets_that_ask_for_an_answer() {
    // RFC 9002, section 5.1.
    let mut raw = connected();
    let numbers = raw.numbers(PacketType::OneRtt).to_vec();
    let samples = |raw: &mut Raw| connection(raw).rtt().first_sample();
    // Two packets draw an acknowledgement that is alone in its packet.
    for _ in 0..2 {
        raw.send(PacketType::OneRtt, &frames(put_ping));
    }
    let alone = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
    assert!(numbers.last() < Some(&alone));
    raw.send(PacketType::OneRtt, &ack(alone, alone));
    assert_eq!(samples(&mut raw), None);
    // A frame that repeats its largest number gives no RTT sample.
    raw.wait(30 * MS);
    raw.send(PacketType::OneRtt, &ack(numbers[0], alone));
    assert_eq!(samples(&mut raw), None);
    // A probe is both.
    raw.wait(Duration::from_secs(2));
    let probe = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
    raw.send(PacketType::OneRtt, &ack(probe, probe));
    assert!(samples(&mut raw).is_some());
}
