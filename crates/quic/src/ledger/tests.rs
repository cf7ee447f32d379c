use super::*;
use crate::streams::StreamRange;
use units::StreamId;

const RTT: Duration = Duration::from_millis(100);
const KEEP: Duration = Duration::from_millis(500);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) fn packet(sent: u64) -> SentPacket {
    SentPacket {
        time_sent: at(sent),
        stamp: RateStamp::default(),
        content: PacketContent::stream(StreamRange {
            slot: 0,
            id: StreamId(0),
            offset: sent,
            len: 1,
            fin: false,
        }),
        unit: None,
        kind: PacketKind::Original,
        size: 1_200,
        path: 0,
        ack_eliciting: true,
        ect: false,
        fate: Fate::Outstanding,
    }
}

/// A packet per millisecond, from 1 ms on.
fn ledger(packets: u64) -> Ledger {
    let mut ledger = Ledger::default();
    (1..=packets).for_each(|sent| ledger.push(packet(sent)));
    ledger
}

/// Numbers newly acknowledged, and whether each had been declared lost.
fn ack(ledger: &mut Ledger, ranges: &[RangeInclusive<u64>]) -> Result<Vec<(u64, bool)>, BadAck> {
    let mut all = Vec::new();
    let largest = *ranges.first().expect("a range").end();
    ledger.on_ack(largest, ranges.iter().cloned(), |number, _, _, acked| {
        all.push((number, acked == Acked::AfterLoss));
    })?;
    Ok(all)
}

fn lost(ledger: &mut Ledger, now: Timestamp, delay: Duration) -> (Vec<u64>, Option<Duration>) {
    lost_by(ledger, now, TimeThreshold::Since { delay, other_path: Duration::ZERO })
}

fn lost_by(
    ledger: &mut Ledger,
    now: Timestamp,
    time: TimeThreshold,
) -> (Vec<u64>, Option<Duration>) {
    let mut all = Vec::new();
    let first_rtt_sample = Some(Timestamp::ZERO);
    let thresholds = Thresholds { packets: 3, time, first_rtt_sample };
    let run = ledger.detect_lost(now, &thresholds, |number, _, _, _| {
        all.push(number);
        None
    });
    (all, run)
}

#[test]
fn each_packet_is_acknowledged_once() {
    let mut ledger = ledger(5);
    assert_eq!(
        ack(&mut ledger, &[3..=4, 0..=1]),
        Ok(vec![(3, false), (4, false), (0, false), (1, false)])
    );
    assert_eq!(ack(&mut ledger, &[0..=4]), Ok(vec![(2, false)]));
    assert!(!ledger.has_eliciting());
}

#[test]
fn packets_that_were_not_sent_are_not_acknowledged_by_honest_peers() {
    let mut ledger = ledger(2);
    assert_eq!(ack(&mut ledger, &[0..=2]), Err(BadAck::Unsent));
    ledger.skip_number();
    ledger.push(packet(4));
    assert_eq!(ack(&mut ledger, &[3..=3, 0..=1]), Ok(vec![(3, false), (0, false), (1, false)]));
    ledger.trim(at(5), KEEP);
    // Also when it has become the oldest number on the books.
    let mut guarded = self::ledger(1);
    guarded.skip_number();
    guarded.push(packet(3));
    ack(&mut guarded, &[0..=0]).expect("honest");
    guarded.trim(at(4), KEEP);
    assert_eq!(ack(&mut guarded, &[0..=2]), Err(BadAck::Skipped));
}

#[test]
fn packets_are_lost_by_number_or_by_time() {
    let mut ledger = ledger(6);
    ack(&mut ledger, &[4..=4]).expect("honest");
    // Three below the largest acknowledged: 0 and 1. The others wait for their time.
    assert_eq!(lost(&mut ledger, at(10), RTT).0, [0, 1]);
    assert_eq!(ledger.loss_time, Some(at(3) + RTT));
    assert_eq!(lost(&mut ledger, at(3) + RTT, RTT).0, [2]);
    assert_eq!(lost(&mut ledger, at(1_000), RTT).0, [3]);
    // The newest, beyond the largest acknowledged, is the probe's business.
    assert_eq!((lost(&mut ledger, at(10_000), RTT).0, ledger.loss_time), (vec![], None));
    assert_eq!(ledger.eliciting_in_flight, 1);
}

#[test]
fn packets_of_another_path_are_lost_by_a_longer_time_and_by_no_number() {
    let mut ledger = ledger(2);
    (3..=8).for_each(|sent| ledger.push(SentPacket { path: 1, ..packet(sent) }));
    ack(&mut ledger, &[7..=7]).expect("honest");
    let time = TimeThreshold::Since { delay: RTT, other_path: 2 * RTT };
    assert_eq!(lost_by(&mut ledger, at(10), time).0, [2, 3, 4]);
    assert!(lost_by(&mut ledger, at(2) + RTT, time).0.is_empty());
    assert_eq!(lost_by(&mut ledger, at(7) + RTT, time).0, [5, 6]);
    assert_eq!(lost_by(&mut ledger, at(2) + 2 * RTT, time).0, [0, 1]);
}

#[test]
fn as_lsquic_has_it_packets_are_lost_by_the_distance_of_sendings_or_early_at_the_tail() {
    let between = TimeThreshold::Between(RTT);
    // Packets sent more than an RTT before the largest acknowledged one are lost.
    let mut ledger = ledger(2);
    ledger.push(packet(102));
    ledger.push(packet(210));
    ack(&mut ledger, &[2..=2]).expect("honest");
    assert_eq!(lost_by(&mut ledger, at(202), between).0, [0]);
    // With another one in flight, there is no hurry.
    assert_eq!((lost_by(&mut ledger, at(230), between).0, ledger.loss_time), (vec![], None));
    // Once that one is acknowledged too, nothing later is in flight.
    let mut tail = self::ledger(4);
    ack(&mut tail, &[2..=2, 0..=0]).expect("honest");
    assert_eq!(lost_by(&mut tail, at(104), between).0, [0; 0]);
    ack(&mut tail, &[3..=3]).expect("honest");
    assert_eq!((lost_by(&mut tail, at(105), between).0, tail.loss_time), (vec![1], None));
}

/// Two copies of a unit as packets 2 and 5, and an acknowledgement of nothing yet. The newer copy
/// supersedes the older one.
fn superseded() -> (Ledger, UnitKey) {
    let mut recovery = recovery::Recovery::<()>::new(recovery::Arq::scheme(), None, at(0));
    let (number, sent, bytes) = (0, at(0), 1_200);
    let lost = recovery::Packet { number, sent, bytes, copy: None, unit: None };
    let unit = recovery.lost(at(1), &lost, [1_200], &mut ()).opened;
    let kind = PacketKind::Copy(recovery::CopyKind::Replica);
    let mut ledger = ledger(2);
    ledger.push(SentPacket { unit, kind, ..packet(3) });
    (4..=5).for_each(|sent| ledger.push(packet(sent)));
    ledger.push(SentPacket { unit, kind, ..packet(6) });
    (7..=9).for_each(|sent| ledger.push(packet(sent)));
    let unit = unit.expect("all of it is missing");
    let older = ledger.supersede(unit, 5).expect("a copy in flight");
    assert_eq!((older.time_sent, older.size), (at(3), 1_200));
    (ledger, unit)
}

#[test]
fn a_superseded_copy_is_out_of_flight_and_never_lost() {
    let (mut ledger, unit) = superseded();
    assert_eq!((ledger.eliciting_in_flight, ledger.in_flight(0)), (8, 8 * 1_200));
    assert!(ledger.supersede(unit, 5).is_none(), "only once");
    ack(&mut ledger, &[8..=8]).expect("honest");
    // The run of losses passes over it.
    let (numbers, run) = lost(&mut ledger, at(1_000), RTT);
    assert_eq!((numbers, run), (vec![0, 1, 3, 4, 5, 6, 7], Some(Duration::from_millis(7))));
    assert_eq!((ledger.eliciting_in_flight, ledger.loss_time), (0, None));
    assert_eq!(ledger.oldest_eliciting().map(|oldest| oldest.time_sent), None);
}

#[test]
fn a_superseded_copy_is_no_tail_of_lsquic() {
    let (mut ledger, unit) = superseded();
    ledger.supersede(unit, 9).expect("the newer copy");
    (6..=8).for_each(|number| drop(ack(&mut ledger, &[number..=number])));
    assert_eq!(ledger.eliciting_in_flight, 4);
    // 3 and 4 are lost early, as are 0 and 1 by number, and 2 and 5 are nobody's.
    assert_eq!(lost_by(&mut ledger, at(20), TimeThreshold::Between(RTT)).0, [0, 1, 3, 4]);
}

#[test]
fn a_superseded_copy_is_acknowledged_once_as_such_while_it_is_remembered() {
    let acked = |ledger: &mut Ledger, number: u64| {
        let mut all = Vec::new();
        let outcome =
            ledger.on_ack(number, [number..=number].into_iter(), |number, _, _, acked| {
                all.push((number, acked));
            });
        (all, outcome.expect("honest").newly_acked)
    };
    let (mut ledger, unit) = superseded();
    ledger.supersede(unit, 9).expect("the newer copy");
    assert_eq!(acked(&mut ledger, 5), (vec![(5, Acked::Superseded)], 1));
    assert_eq!(acked(&mut ledger, 5), (vec![], 0));
    assert_eq!(ledger.eliciting_in_flight, 7, "none of it was in flight");
    // The deque moves on, and the other one is remembered as long as a lost packet.
    ack(&mut ledger, &[6..=8, 3..=4, 0..=1]).expect("honest");
    ledger.trim(at(10), KEEP);
    assert_eq!(ledger.oldest_number(), 2);
    let mut forgotten = ledger;
    let mut remembered = superseded().0;
    ack(&mut remembered, &[3..=8, 0..=1]).expect("honest");
    remembered.trim(at(10), KEEP);
    assert_eq!(acked(&mut remembered, 2), (vec![(2, Acked::Superseded)], 1));
    assert_eq!(acked(&mut remembered, 2), (vec![], 0));
    forgotten.trim(at(10) + KEEP, KEEP);
    assert_eq!(acked(&mut forgotten, 2), (vec![], 0));
}

#[test]
fn a_late_acknowledgement_of_a_lost_packet_is_told_as_such() {
    let mut ledger = ledger(6);
    ack(&mut ledger, &[5..=5]).expect("honest");
    assert_eq!(lost(&mut ledger, at(10), RTT).0, [0, 1, 2]);
    ledger.trim(at(10), KEEP);
    assert_eq!(ack(&mut ledger, &[1..=1]), Ok(vec![(1, true)]));
    assert_eq!(ack(&mut ledger, &[1..=1]), Ok(vec![]), "only once");
    // Lost records are kept for a while, then they are nobody's.
    ledger.trim(at(10) + KEEP, KEEP);
    assert_eq!(ack(&mut ledger, &[0..=0]), Ok(vec![]));
    assert_eq!(ledger.eliciting_in_flight, 2, "3 and 4");
}

#[test]
fn persistent_congestion_is_a_run_without_an_acknowledgement_inside() {
    let mut ledger = ledger(60);
    ack(&mut ledger, &[59..=59]).expect("honest");
    assert_eq!(lost(&mut ledger, at(1_000), RTT).1, Some(Duration::from_millis(58)));
    let mut broken = self::ledger(60);
    ack(&mut broken, &[59..=59, 30..=30]).expect("honest");
    assert_eq!(lost(&mut broken, at(1_000), RTT).1, Some(Duration::from_millis(29)));
}

#[test]
fn a_pass_breaks_off_and_the_next_goes_on() {
    const MOST: u64 = MAX_LOSSES as u64;
    let now = at(2_000);
    let mut ledger = ledger(2 * MOST + 10);
    ack(&mut ledger, &[2 * MOST + 9..=2 * MOST + 9, 40..=40]).expect("honest");
    assert_eq!(lost(&mut ledger, now, RTT).0.last(), Some(&MOST), "40 is none of them");
    assert_eq!(ledger.loss_time, Some(now), "the rest is due");
    let (numbers, run) = lost(&mut ledger, now, RTT);
    assert_eq!((numbers.len() as u64, ledger.loss_time), (MOST, Some(now)));
    assert_eq!(
        run,
        Some(Duration::from_millis(2 * MOST - 41)),
        "since 41, which is of the first pass"
    );
    assert_eq!((lost(&mut ledger, now, RTT).0.len(), ledger.loss_time), (8, None));
    assert!(!ledger.has_eliciting());
}

#[test]
fn lists_are_handed_out_with_their_packet_and_given_back() {
    let mut ledger = Ledger::default();
    let content = ledger.keep(&[SentFrame::HandshakeDone, SentFrame::RetireConnectionId(3)]);
    ledger.push(SentPacket { content, ..packet(1) });
    let mut seen = Vec::new();
    ledger
        .on_ack(0, [0..=0].into_iter(), |_, _, frames, _| seen.extend_from_slice(frames))
        .expect("honest");
    assert_eq!(seen, [SentFrame::HandshakeDone, SentFrame::RetireConnectionId(3)]);
    ledger.trim(at(2), KEEP);
    assert!(ledger.lists.is_empty());
}

#[test]
fn the_memory_of_a_burst_goes_back() {
    let mut ledger = ledger(10_000);
    ack(&mut ledger, &[0..=9_999]).expect("honest");
    ledger.trim(at(20_000), KEEP);
    assert_eq!(ledger.records.capacity(), 0);
    assert_eq!(ledger.next_number(), 10_000);
}

#[test]
fn content_survives_its_encoding() {
    let range = StreamRange { slot: 9, id: StreamId(4), offset: 1 << 40, len: 0, fin: true };
    assert_eq!(PacketContent::stream(range).get(), Carried::Stream(range));
    let long = StreamRange { len: 65_507, fin: false, ..range };
    assert_eq!(PacketContent::stream(long).get(), Carried::Stream(long));
    assert_eq!(PacketContent::list(7).get(), Carried::List(7));
    assert_eq!(PacketContent::NOTHING.get(), Carried::Nothing);
}
