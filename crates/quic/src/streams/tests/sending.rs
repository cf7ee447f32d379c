//! Writing, scheduling, flow control, copies and acknowledgements.

use super::*;
use recovery::Content;

fn write(streams: &mut Streams, id: StreamId, len: usize) {
    let written = streams.table.find(id).map(|slot| {
        let send = streams.table.at(slot).send.as_ref().unwrap();
        send.sent() + send.unsent()
    });
    streams.write(id, pattern(written.unwrap(), len).into()).unwrap();
}

fn incremental(urgency: u8) -> Priority {
    Priority { urgency, incremental: true }
}

fn order(streams: &mut Streams, room: usize) -> Vec<u64> {
    send_all(streams, room).iter().map(|range| range.id.0).collect()
}

#[test]
fn a_written_chunk_is_never_copied_before_a_packet_needs_it() {
    let mut streams = serving(&[A]);
    let chunk = Bytes::from(pattern(0, 5000));
    streams.write(A, chunk.clone()).unwrap();
    assert!(!chunk.is_unique());
    let range = streams.next_range(1200).unwrap();
    assert_eq!(content(&streams, &range).unwrap(), pattern(0, usize::from(range.len)));
    for range in core::iter::once(range).chain(send_all(&mut streams, 1200)) {
        streams.on_acked(&range);
    }
    assert!(chunk.is_unique());
}

#[test]
fn a_range_fills_the_room_exactly_whatever_the_length_of_the_length_field() {
    for room in (5..200).chain(16_370..16_400).chain([70_000]) {
        let mut streams = serving(&[A]);
        write(&mut streams, A, 100);
        let head = streams.next_range(60).unwrap();
        write(&mut streams, A, 80_000);
        let Some(range) = streams.next_range(room) else {
            panic!("nothing fits in {room}");
        };
        assert_eq!(range.offset, u64::from(head.len));
        let len = usize::from(range.len);
        let total = |len: usize| crate::wire::stream_header_len(A, range.offset, Some(len)) + len;
        assert!(total(len) <= room, "{room}: {len}");
        assert!(total(len + 1) > room || len + 4 >= usize::from(u16::MAX) - 4, "{room}: {len}");
    }
    let mut streams = serving(&[A]);
    write(&mut streams, A, 100);
    assert_eq!(streams.next_range(3), None);
    assert!(streams.has_sendable());
}

#[test]
fn streams_of_lower_urgency_go_first() {
    let mut streams = serving(&[A, B, C]);
    for (id, urgency) in [(A, 5), (B, 0), (C, 200)] {
        streams.set_priority(id, Priority { urgency, incremental: false });
        write(&mut streams, id, 150);
    }
    assert_eq!(order(&mut streams, 110), [4, 4, 0, 0, 8, 8]);
}

#[test]
fn non_incremental_streams_are_served_one_after_the_other_by_identifier() {
    let mut streams = serving(&[A, B, C]);
    for id in [C, A, B] {
        write(&mut streams, id, 150);
    }
    assert_eq!(order(&mut streams, 110), [0, 0, 4, 4, 8, 8]);
}

#[test]
fn incremental_streams_share_in_turns() {
    let mut streams = serving(&[A, B, C]);
    for (id, len) in [(B, 350), (A, 150), (C, 250)] {
        streams.set_priority(id, incremental(3));
        write(&mut streams, id, len);
    }
    assert_eq!(order(&mut streams, 110), [4, 0, 8, 4, 0, 8, 4, 8, 4]);
}

#[test]
fn neither_kind_of_one_urgency_starves_the_other() {
    let mut streams = serving(&[A, B, C]);
    streams.set_priority(B, incremental(3));
    streams.set_priority(C, incremental(3));
    for id in [A, B, C] {
        write(&mut streams, id, 350);
    }
    assert_eq!(order(&mut streams, 110), [0, 4, 0, 8, 0, 4, 0, 8, 4, 8, 4, 8]);
}

#[test]
fn a_new_priority_holds_for_data_that_already_waits() {
    let mut streams = serving(&[A, B]);
    write(&mut streams, A, 100);
    write(&mut streams, B, 100);
    streams.set_priority(B, incremental(1));
    assert_eq!(order(&mut streams, 200), [4, 0]);
    assert!(streams.schedule.is_empty());
}

#[test]
fn a_blocked_stream_leaves_the_others_their_turn_until_its_limit_is_raised() {
    let mut streams = streams(10_000, 100);
    receive(&mut streams, A, 0, b"", false).unwrap();
    receive(&mut streams, B, 0, b"", false).unwrap();
    write(&mut streams, A, 150);
    write(&mut streams, B, 50);
    assert_eq!(order(&mut streams, 1200), [0, 4]);
    assert!(!streams.has_sendable());
    assert!(streams.is_flow_blocked());
    let blocked = shown(Frame::StreamDataBlocked { id: A, limit: 100 });
    assert_eq!(control_frames(&mut streams), [blocked]);
    streams.on_max_stream_data(A, 100).unwrap();
    assert!(!streams.has_sendable());
    streams.on_max_stream_data(A, 120).unwrap();
    assert!(streams.has_sendable() && !streams.is_flow_blocked());
    let range = streams.next_range(1200).unwrap();
    assert_eq!((range.offset, range.len), (100, 20));
    assert_eq!(
        control_frames(&mut streams),
        [shown(Frame::StreamDataBlocked { id: A, limit: 120 })]
    );
    streams.on_max_stream_data(A, 1000).unwrap();
    assert_eq!(streams.next_range(1200).unwrap().len, 30);
    assert!(!streams.is_flow_blocked() && !streams.has_control());
}

#[test]
fn the_connections_limit_holds_all_streams_together() {
    let mut streams = streams(120, 100);
    receive(&mut streams, A, 0, b"", false).unwrap();
    receive(&mut streams, B, 0, b"", false).unwrap();
    write(&mut streams, A, 80);
    write(&mut streams, B, 80);
    let sent = send_all(&mut streams, 1200);
    assert_eq!(sent.iter().map(|range| range.len).collect::<Vec<_>>(), [80, 40]);
    assert!(!streams.has_sendable() && streams.is_flow_blocked());
    assert_eq!(control_frames(&mut streams), [shown(Frame::DataBlocked(120))]);
    streams.on_max_data(130);
    assert!(streams.has_sendable());
    assert_eq!(streams.next_range(1200).unwrap().len, 10);
    streams.on_max_data(1000);
    assert_eq!(streams.next_range(1200).unwrap().len, 30);
    assert_eq!(control_frames(&mut streams), NO_FRAMES);
}

#[test]
fn retransmissions_take_no_flow_control_credit() {
    let mut streams = streams(100, 100);
    receive(&mut streams, A, 0, b"", false).unwrap();
    write(&mut streams, A, 100);
    let range = streams.next_range(1200).unwrap();
    assert_eq!(unacked(&streams, &range), [range]);
    assert_eq!(content(&streams, &range).unwrap(), pattern(0, 100));
    assert_eq!(streams.data_sent, 100);
}

#[test]
fn a_bare_fin_passes_an_exhausted_connection_limit() {
    let mut streams = streams(100, 100);
    receive(&mut streams, A, 0, b"", false).unwrap();
    receive(&mut streams, B, 0, b"", false).unwrap();
    write(&mut streams, A, 100);
    streams.next_range(1200).unwrap();
    write(&mut streams, A, 1);
    write(&mut streams, B, 1);
    assert!(!streams.has_sendable());
    receive(&mut streams, C, 0, b"", false).unwrap();
    streams.finish(C).unwrap();
    assert!(streams.has_sendable() && !streams.is_flow_blocked());
    let range = streams.next_range(1200).unwrap();
    assert_eq!((range.id, range.offset, range.len, range.fin), (C, 0, 0, true));
    assert!(!streams.has_sendable() && streams.is_flow_blocked());
    assert_eq!(streams.next_range(1200), None);
}

#[test]
fn the_fin_goes_with_the_last_bytes_or_alone() {
    let mut streams = serving(&[A, B]);
    write(&mut streams, A, 150);
    streams.finish(A).unwrap();
    let ranges = send_all(&mut streams, 110);
    assert_eq!(ranges.iter().map(|r| r.fin).collect::<Vec<_>>(), [false, true]);
    write(&mut streams, B, 10);
    assert!(!streams.next_range(1200).unwrap().fin);
    streams.finish(B).unwrap();
    let fin = streams.next_range(4).unwrap();
    assert_eq!((fin.offset, fin.len, fin.fin), (10, 0, true));
    assert_eq!(content(&streams, &fin), Some(vec![]));
    assert_eq!(unacked(&streams, &fin), [fin]);
    streams.on_acked(&fin);
    assert_eq!(unacked(&streams, &fin), []);
    assert_eq!(streams.write(B, Bytes::from_static(b"x")), Err(WriteError::Finished));
    assert_eq!(streams.finish(B), Err(WriteError::Finished));
}

#[test]
fn copies_gather_across_chunks_in_any_order() {
    let mut streams = serving(&[A]);
    for len in [1, 70, 3, 500, 2, 2, 900, 40] {
        write(&mut streams, A, len);
    }
    let ranges = send_all(&mut streams, 101);
    let total: u64 = ranges.iter().map(|range| u64::from(range.len)).sum();
    assert_eq!(total, 1518);
    for range in ranges.iter().chain(ranges.iter().rev()).chain(ranges.iter().step_by(5)) {
        let expected = pattern(range.offset, usize::from(range.len));
        assert_eq!(content(&streams, range), Some(expected));
    }
}

#[test]
fn acknowledgements_free_whole_chunks_wherever_they_stand() {
    let mut streams = serving(&[A]);
    let chunks: Vec<Bytes> = (0..3).map(|i| pattern(i * 100, 100).into()).collect();
    for chunk in &chunks {
        streams.write(A, chunk.clone()).unwrap();
    }
    let whole = streams.next_range(1200).unwrap();
    let part = |offset, len| StreamRange { offset, len, ..whole };
    let kept = || chunks.iter().map(|chunk| !chunk.is_unique()).collect::<Vec<_>>();
    streams.on_acked(&part(250, 50));
    streams.on_acked(&part(100, 150));
    assert_eq!(kept(), [true, false, false], "a part of the first is missing");
    streams.on_acked(&part(0, 50));
    streams.on_acked(&part(0, 50));
    assert_eq!(kept(), [true, false, false]);
    assert_eq!(content(&streams, &part(50, 50)).unwrap(), pattern(50, 50));
    streams.on_acked(&part(50, 20));
    streams.on_acked(&part(70, 130));
    assert_eq!(kept(), [false, false, false]);
    assert_eq!(content(&streams, &part(50, 50)), None);
}

#[test]
fn bytes_that_are_missing_for_long_are_kept_without_the_chunks_around_them() {
    for (offset, len) in [(0, 10), (120, 30), (100, 100), (280, 20), (90, 20)] {
        let mut streams = serving(&[A]);
        let chunks: Vec<Bytes> = (0..3).map(|i| pattern(i * 100, 100).into()).collect();
        for chunk in &chunks {
            streams.write(A, chunk.clone()).unwrap();
        }
        let whole = streams.next_range(1200).unwrap();
        let part = |offset, len| StreamRange { offset, len, ..whole };
        let missing = part(offset, len);
        let before = part(0, offset as u16);
        let behind = part(offset + u64::from(len), 300 - offset as u16 - len);
        streams.on_acked(&behind);
        streams.detach(&missing);
        streams.detach(&missing);
        streams.on_acked(&before);
        let kept = chunks.iter().filter(|chunk| !chunk.is_unique()).count();
        // A fully missing chunk is kept without a copy. A partly missing one has its first part
        // copied.
        assert!(kept <= 1, "{kept} chunks for {missing:?}");
        assert_eq!(content(&streams, &missing).unwrap(), pattern(offset, usize::from(len)));
        streams.on_acked(&missing);
        assert!(chunks.iter().all(Bytes::is_unique));
    }
}

#[test]
fn what_is_left_of_a_lost_range_are_its_unacknowledged_parts() {
    let mut streams = serving(&[A]);
    write(&mut streams, A, 100);
    streams.finish(A).unwrap();
    let whole = streams.next_range(1200).unwrap();
    assert!(whole.fin);
    let part = |offset, len, fin| StreamRange { offset, len, fin, ..whole };
    streams.on_acked(&part(0, 10, false));
    streams.on_acked(&part(40, 20, false));
    assert_eq!(unacked(&streams, &whole), [part(10, 30, false), part(60, 40, true)]);
    streams.on_acked(&part(90, 10, false));
    assert_eq!(
        unacked(&streams, &whole),
        [part(10, 30, false), part(60, 30, false), part(100, 0, true)]
    );
    streams.on_acked(&part(90, 10, true));
    assert_eq!(unacked(&streams, &whole), [part(10, 30, false), part(60, 30, false)]);
    assert_eq!(events(&mut streams), []);
    streams.on_acked(&part(10, 80, false));
    assert_eq!(unacked(&streams, &whole), []);
    assert_eq!(events(&mut streams), [StreamEvent::Finished(A)]);
}

#[test]
fn a_late_ack_of_a_removed_stream_is_ignored() {
    let mut streams = serving(&[]);
    let first = streams.open(Direction::Unidirectional).unwrap();
    write(&mut streams, first, 10);
    streams.finish(first).unwrap();
    let range = streams.next_range(1200).unwrap();
    streams.on_acked(&range);
    let told = [StreamEvent::Finished(first), StreamEvent::Closed(first)];
    assert_eq!(events(&mut streams), told);
    assert_eq!(streams.stats().open, 0);
    let second = streams.open(Direction::Unidirectional).unwrap();
    write(&mut streams, second, 10);
    streams.finish(second).unwrap();
    let other = streams.next_range(1200).unwrap();
    assert_eq!(other.slot, range.slot, "the slot is used again");
    streams.on_acked(&range);
    assert_eq!(unacked(&streams, &range), []);
    assert_eq!(content(&streams, &range), None);
    assert_eq!(unacked(&streams, &other), [other]);
    assert_eq!(streams.write(first, Bytes::from_static(b"x")), Err(WriteError::UnknownStream));
}

#[test]
fn writable_is_told_once_when_much_became_little() {
    let mut streams = serving(&[A]);
    write(&mut streams, A, 900);
    send_all(&mut streams, 1200);
    assert_eq!(events(&mut streams), [], "it was never high");
    write(&mut streams, A, 2000);
    assert_eq!(streams.unsent(A), Some(2000));
    streams.next_range(1200).unwrap();
    assert_eq!(events(&mut streams), []);
    streams.next_range(600).unwrap();
    assert_eq!(events(&mut streams), [StreamEvent::Writable(A)]);
    send_all(&mut streams, 100);
    assert_eq!(events(&mut streams), []);
}

#[test]
fn a_reset_drops_the_data_and_abandons_its_ranges() {
    let mut streams = serving(&[A]);
    let chunk = Bytes::from(pattern(0, 2000));
    streams.write(A, chunk.clone()).unwrap();
    let range = streams.next_range(1000).unwrap();
    streams.reset(A, 7).unwrap();
    streams.reset(A, 8).unwrap();
    assert!(chunk.is_unique());
    assert_eq!(unacked(&streams, &range), []);
    assert_eq!(content(&streams, &range), None);
    assert_eq!(streams.oldest_unacked(1000), None);
    assert!(!streams.has_sendable() && !streams.is_flow_blocked());
    assert_eq!(streams.stats().unsent, 0);
    assert_eq!(streams.write(A, Bytes::from_static(b"x")), Err(WriteError::Finished));
    let final_size = u64::from(range.len);
    let frame = shown(Frame::ResetStream { id: A, error_code: 7, final_size });
    assert_eq!(control_frames(&mut streams), [frame]);
    streams.on_acked(&range);
    assert_eq!(events(&mut streams), []);
}

#[test]
fn stop_sending_resets_the_stream_with_the_same_code_and_tells_the_application() {
    let mut streams = serving(&[A]);
    write(&mut streams, A, 100);
    let range = streams.next_range(60).unwrap();
    streams.on_stop_sending(A, 9).unwrap();
    streams.on_stop_sending(A, 10).unwrap();
    assert_eq!(events(&mut streams), [StreamEvent::Stopped { id: A, code: 9 }]);
    assert_eq!(streams.write(A, Bytes::from_static(b"x")), Err(WriteError::Stopped(9)));
    assert_eq!(streams.finish(A), Err(WriteError::Stopped(9)));
    assert_eq!(unacked(&streams, &range), []);
    let final_size = u64::from(range.len);
    let frame = shown(Frame::ResetStream { id: A, error_code: 9, final_size });
    assert_eq!(control_frames(&mut streams), [frame]);
    streams.on_control_lost(ControlFrame::ResetStream(A));
    assert!(streams.has_control());
    streams.on_control_acked(ControlFrame::ResetStream(A));
    assert!(!streams.has_control());
    streams.on_control_lost(ControlFrame::ResetStream(A));
    assert!(!streams.has_control());
}

#[test]
fn stop_sending_after_everything_arrived_changes_nothing() {
    let mut streams = serving(&[A]);
    write(&mut streams, A, 10);
    streams.finish(A).unwrap();
    let range = streams.next_range(100).unwrap();
    streams.on_acked(&range);
    streams.on_stop_sending(A, 9).unwrap();
    assert_eq!(events(&mut streams), [StreamEvent::Finished(A)]);
    assert!(!streams.has_control());
}

#[test]
fn probes_carry_the_oldest_unacknowledged_data_of_the_most_urgent_stream() {
    let mut streams = serving(&[A, B]);
    streams.set_priority(B, Priority { urgency: 1, incremental: false });
    write(&mut streams, A, 100);
    write(&mut streams, B, 100);
    streams.finish(B).unwrap();
    assert_eq!(streams.oldest_unacked(50), None, "nothing was sent");
    let b = streams.next_range(1200).unwrap();
    let a = streams.next_range(1200).unwrap();
    assert_eq!(streams.oldest_unacked(50), Some(StreamRange { len: 50, fin: false, ..b }));
    streams.on_acked(&StreamRange { offset: 60, len: 10, fin: false, ..b });
    assert_eq!(streams.oldest_unacked(100), Some(StreamRange { len: 60, fin: false, ..b }));
    streams.on_acked(&StreamRange { fin: false, ..b });
    assert_eq!(streams.oldest_unacked(100), Some(StreamRange { offset: 100, len: 0, ..b }));
    streams.on_acked(&b);
    assert_eq!(streams.oldest_unacked(usize::MAX), Some(a));
    streams.on_acked(&a);
    assert_eq!(streams.oldest_unacked(100), None);
}

#[test]
fn remembered_limits_of_the_peer_only_rise() {
    let mut streams = serving(&[A]);
    streams.set_peer_limits(&peer(10, 10));
    write(&mut streams, A, 100);
    assert_eq!(streams.next_range(1200).unwrap().len, 100);
    let mut streams = super::streams(10, 10);
    receive(&mut streams, A, 0, b"", false).unwrap();
    write(&mut streams, A, 100);
    assert_eq!(streams.next_range(1200).unwrap().len, 10);
    streams.set_peer_limits(&peer(50, 40));
    assert_eq!(streams.next_range(1200).unwrap().len, 30);
}
