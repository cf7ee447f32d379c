//! Servers that watch only the newest copy of lost data (`CopyAccounting::Newest`): superseded
//! copies leave the flight, count as delivered once if they arrive, and gain a client nothing else.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use congestion::{AckBatch, Cap, CongestionEvent, Controller, Snapshot, Start};
use mendcast_quic::wire::{Frame, Frames, PacketType};
use mendcast_quic::{Connection, CopyAccounting, Endpoint, TransportConfig};
use recovery::autorec::{self, FixedLife};
use units::{PacketNumber, Rate, StreamId, Timestamp};

use crate::raw::{Raw, ack_of, generous};
use crate::{client_tls, config, download};

const WINDOW: u64 = 100_000;
/// Size of a full packet.
const ORIGINAL: u64 = 1_200;

/// Events that a controller was told of.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    acked: u64,
    sent: u64,
    /// Bytes of the delivery-rate samples, from the first to the newest.
    delivered: u64,
    lost: u64,
    signals: u32,
}

/// A controller with a fixed window that counts its events.
#[derive(Debug)]
struct Noting(Arc<Mutex<Told>>);

impl Noting {
    fn note(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.0.lock().expect("one thread"));
    }
}

impl Controller for Noting {
    fn on_sent(&mut self, _: Timestamp, _: PacketNumber, bytes: u64, _: u64) {
        self.note(|told| told.sent += bytes);
    }
    fn on_ack(&mut self, batch: &AckBatch) {
        self.note(|told| {
            told.acked += batch.acked_bytes;
            if let Some(sample) = batch.rate {
                told.delivered = sample.prior_delivered + sample.delivered;
            }
        });
    }
    fn on_packets_lost(&mut self, _: Timestamp, bytes: u64, _: u64) {
        self.note(|told| told.lost += bytes);
    }
    fn on_congestion_event(&mut self, _: &CongestionEvent) {
        self.note(|told| told.signals += 1);
    }
    fn window(&self) -> u64 {
        WINDOW
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

/// A client of a server that sends two replicas of each lost unit.
fn client_of(accounting: CopyAccounting) -> (Raw, Arc<Mutex<Told>>) {
    let told = Arc::new(Mutex::new(Told::default()));
    let notes = told.clone();
    let mut config = config();
    config.transport = Arc::new(TransportConfig {
        accounting,
        max_mtu: ORIGINAL as u16,
        congestion: Arc::new(move |_, _| Box::new(Noting(notes.clone())) as _),
        scheme: Arc::new(|| autorec::fixed(FixedLife::new(2).expect("in range"))),
        ..TransportConfig::default()
    });
    let mut raw = Raw::new(Endpoint::new(config, [3; 32]), client_tls(b"test"), &generous());
    raw.connect();
    raw.wait(Duration::from_millis(50));
    let all = raw.numbers(PacketType::OneRtt).to_vec();
    raw.send(PacketType::OneRtt, &ack_of(&all));
    (raw, told)
}

fn connection(raw: &mut Raw) -> &mut Connection {
    let handle = raw.handle.expect("a connection");
    raw.server.connection(handle).expect("open")
}

/// Numbers of the packets with this byte of the answer, in order.
fn with_byte(raw: &Raw, byte: u64) -> Vec<u64> {
    let carries = |payload: &[u8]| {
        Frames::new(payload).flatten().any(|frame| match frame {
            Frame::Stream { id: StreamId(0), offset, data, .. } => {
                (offset..offset + data.len() as u64).contains(&byte)
            }
            _ => false,
        })
    };
    let sent = raw.opened.iter().filter(|sent| sent.ty == PacketType::OneRtt);
    sent.filter(|sent| carries(&sent.payload)).map(|sent| sent.number).collect()
}

/// Downloads 6,000 bytes and loses the first packet. Returns the packet numbers of the lost data:
/// original, retransmission and two replicas.
fn lose_first(raw: &mut Raw) -> Vec<u64> {
    let before = raw.numbers(PacketType::OneRtt).len();
    download(raw, 6_000);
    raw.wait(Duration::from_millis(20));
    let news = raw.numbers(PacketType::OneRtt)[before + 1..].to_vec();
    raw.send(PacketType::OneRtt, &ack_of(&news));
    raw.wait(Duration::from_millis(5));
    let copies = with_byte(raw, 0);
    assert_eq!(copies.len(), 4, "nothing else waits, so all replicas leave at once");
    copies
}

#[test]
fn only_the_newest_copy_is_in_flight_and_a_late_one_counts_as_delivered() {
    let (mut raw, told) = client_of(CopyAccounting::Every);
    lose_first(&mut raw);
    let three = connection(&mut raw).in_flight();
    drop((raw, told));

    let (mut raw, told) = client_of(CopyAccounting::Newest);
    let [_, first, second, newest] = lose_first(&mut raw)[..] else { unreachable!("four") };
    let size = connection(&mut raw).in_flight();
    assert_eq!(3 * size, three);
    let before = *told.lock().expect("one thread");
    assert_eq!((before.signals, before.lost), (1, ORIGINAL), "the original");

    // The retransmission arrives although two copies have taken its place.
    raw.wait(Duration::from_millis(25));
    raw.send(PacketType::OneRtt, &ack_of(&[first]));
    let after = *told.lock().expect("one thread");
    assert_eq!(after.acked - before.acked, size);
    assert_eq!(after.delivered - before.delivered, size);
    // The unit is finished, and the newest copy is watched no longer.
    let c = connection(&mut raw);
    assert_eq!((c.lost_units(), c.in_flight()), (0, 0));
    let totals = c.recovery().totals;
    assert_eq!((totals.finished, totals.rounds_max, totals.spurious), (1, 1, 0));

    // Packets sent later are acknowledged: none of the copies is declared lost.
    download(&mut raw, 6_000);
    raw.wait(Duration::from_millis(20));
    let news = raw.numbers(PacketType::OneRtt).to_vec();
    let later: Vec<u64> = news.into_iter().filter(|&number| number > newest).collect();
    raw.send(PacketType::OneRtt, &ack_of(&later));
    let before = *told.lock().expect("one thread");
    assert_eq!((before.signals, before.lost), (1, ORIGINAL));
    raw.send(PacketType::OneRtt, &ack_of(&[second, newest]));
    let after = *told.lock().expect("one thread");
    assert_eq!(after.acked - before.acked, 2 * size);
    let stats = *connection(&mut raw).stats();
    assert_eq!((stats.packets_lost, stats.spurious_losses), (1, 0));
    assert_eq!((raw.close.clone(), connection(&mut raw).in_flight()), (None, 0));
}

#[test]
fn the_loss_of_the_newest_copy_begins_the_next_round() {
    let (mut raw, told) = client_of(CopyAccounting::Newest);
    let copies = lose_first(&mut raw);
    let size = connection(&mut raw).in_flight();
    // Four later packets arrive; none of the copies has.
    download(&mut raw, 6_000);
    raw.wait(Duration::from_millis(20));
    let all = raw.numbers(PacketType::OneRtt).to_vec();
    let later: Vec<u64> = all.into_iter().filter(|number| *number > copies[3]).collect();
    raw.send(PacketType::OneRtt, &ack_of(&later));
    raw.wait(Duration::from_millis(5));
    let told = *told.lock().expect("one thread");
    assert_eq!((told.signals, told.lost), (2, ORIGINAL + size), "the newest copy too");
    assert_eq!(with_byte(&raw, 0).len(), 5, "one retransmission; the level is for a unit's life");
    raw.send(PacketType::OneRtt, &ack_of(&with_byte(&raw, 0)[4..]));
    let totals = connection(&mut raw).recovery().totals;
    assert_eq!((totals.finished, totals.rounds_max, totals.replicas_lost), (1, 2, 1));
}

#[test]
fn acknowledgements_of_superseded_numbers_gain_nothing() {
    let (mut raw, told) = client_of(CopyAccounting::Newest);
    download(&mut raw, 400_000);
    let mut acknowledged = 0;
    let mut late = Vec::new();
    for turn in 0..200 {
        raw.wait(Duration::from_millis(10));
        let numbers = raw.numbers(PacketType::OneRtt)[acknowledged..].to_vec();
        acknowledged += numbers.len();
        // Claims the loss of every fifth packet, and claims later that it arrived, many times.
        let (held, now): (Vec<u64>, Vec<u64>) = numbers.iter().partition(|n| *n % 5 == 2);
        late.extend(held);
        if !now.is_empty() {
            raw.send(PacketType::OneRtt, &ack_of(&now));
        }
        if turn % 10 == 9 {
            for _ in 0..3 {
                late.chunks(100).rev().for_each(|part| {
                    raw.send(PacketType::OneRtt, &ack_of(part));
                });
                late.iter().rev().take(20).for_each(|&number| {
                    raw.send(PacketType::OneRtt, &ack_of(&[number]));
                });
            }
        }
        let told = *told.lock().expect("one thread");
        assert!(told.acked <= told.sent, "each sent byte counts at most once: {told:?}");
        let c = connection(&mut raw);
        assert!(c.in_flight() <= WINDOW && c.in_flight() <= told.sent - told.acked, "{told:?}");
        assert_eq!(raw.close, None);
    }
    let c = connection(&mut raw);
    let totals = c.recovery().totals;
    assert!(totals.replicas > 30, "{totals:?}");
    assert_eq!((c.unsent(StreamId(0)), c.in_flight(), c.lost_units()), (Some(0), 0, 0));
}
