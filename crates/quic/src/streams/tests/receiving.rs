//! Opening by the peer, reassembly, final sizes, limits, reset and stop.

use super::*;

fn data(bytes: &'static [u8]) -> Result<ReadOutcome, UnknownStream> {
    Ok(ReadOutcome::Data(Bytes::from_static(bytes)))
}

#[test]
fn the_peers_data_is_read_in_order_and_its_end_is_told() {
    let mut streams = streams(0, 0);
    receive(&mut streams, A, 3, b"def", true).unwrap();
    assert_eq!(events(&mut streams), [StreamEvent::Opened(A)]);
    assert_eq!(streams.read(A, 10), Ok(ReadOutcome::Blocked));
    receive(&mut streams, A, 0, b"abc", false).unwrap();
    assert_eq!(events(&mut streams), [StreamEvent::Readable(A)]);
    assert_eq!(streams.stats().buffered, 6);
    assert_eq!(streams.read(A, 2), data(b"ab"));
    assert_eq!(streams.read(A, 10), data(b"cdef"));
    assert_eq!(streams.read(A, 10), Ok(ReadOutcome::Finished));
    assert_eq!(streams.read(A, 10), Ok(ReadOutcome::Finished));
}

#[test]
fn events_are_told_once_until_something_new_comes() {
    let mut streams = streams(0, 0);
    receive(&mut streams, A, 0, b"a", false).unwrap();
    receive(&mut streams, A, 1, b"b", false).unwrap();
    assert_eq!(events(&mut streams), [StreamEvent::Opened(A), StreamEvent::Readable(A)]);
    receive(&mut streams, A, 0, b"ab", false).unwrap();
    assert_eq!(events(&mut streams), [], "nothing new");
    receive(&mut streams, A, 2, b"", true).unwrap();
    assert_eq!(events(&mut streams), [StreamEvent::Readable(A)]);
    receive(&mut streams, A, 2, b"", true).unwrap();
    assert_eq!(events(&mut streams), []);
}

#[test]
fn a_stream_opens_the_lower_ones_of_its_kind_without_state_for_them() {
    let mut streams = streams(0, 0);
    receive(&mut streams, C, 0, b"c", false).unwrap();
    assert_eq!(streams.stats().open, 1);
    assert_eq!(events(&mut streams), [StreamEvent::Opened(C), StreamEvent::Readable(C)]);
    streams.on_stream_data_blocked(A).unwrap();
    receive(&mut streams, B, 0, b"b", false).unwrap();
    let expected = [StreamEvent::Opened(A), StreamEvent::Opened(B), StreamEvent::Readable(B)];
    assert_eq!(events(&mut streams), expected);
}

#[test]
fn frames_for_a_stream_that_is_over_are_ignored() {
    let mut streams = serving(&[A]);
    close(&mut streams, A);
    assert_eq!(streams.stats().open, 0);
    receive(&mut streams, A, 0, b"again", true).unwrap();
    streams.on_reset_stream(A, 1, 1 << 40).unwrap();
    streams.on_stop_sending(A, 1).unwrap();
    streams.on_max_stream_data(A, 5).unwrap();
    assert_eq!(streams.stats().open, 0);
    assert_eq!(events(&mut streams), []);
    assert_eq!(streams.read(A, 1), Err(UnknownStream));
    let ours = streams.open(Direction::Unidirectional).unwrap();
    streams.finish(ours).unwrap();
    let fin = streams.next_range(100).unwrap();
    streams.on_acked(&fin);
    events(&mut streams);
    streams.on_stop_sending(ours, 1).unwrap();
    assert_eq!(streams.stats().open, 0);
}

#[test]
fn frames_in_the_wrong_direction_or_for_streams_not_opened_are_errors() {
    let state = Some(TransportErrorCode::STREAM_STATE_ERROR);
    let mut streams = serving(&[]);
    let ours = streams.open(Direction::Unidirectional).unwrap();
    assert_eq!(code(receive(&mut streams, ours, 0, b"x", false)), state);
    assert_eq!(code(streams.on_reset_stream(ours, 0, 0)), state);
    assert_eq!(code(streams.on_stream_data_blocked(ours)), state);
    let theirs = StreamId(2);
    assert_eq!(code(streams.on_stop_sending(theirs, 0)), state);
    assert_eq!(code(streams.on_max_stream_data(theirs, 9)), state);
    for unopened in [StreamId(1), StreamId(7)] {
        assert_eq!(code(streams.on_stop_sending(unopened, 0)), state);
        assert_eq!(code(streams.on_max_stream_data(unopened, 9)), state);
    }
    assert_eq!(code(receive(&mut streams, StreamId(1), 0, b"x", false)), state);
    assert_eq!(streams.stats().open, 1);
}

#[test]
fn a_stream_beyond_the_limit_is_an_error() {
    let limit = Some(TransportErrorCode::STREAM_LIMIT_ERROR);
    let mut streams = streams(0, 0);
    receive(&mut streams, StreamId(15 << 2), 0, b"x", false).unwrap();
    assert_eq!(code(receive(&mut streams, StreamId(16 << 2), 0, b"x", false)), limit);
    receive(&mut streams, StreamId(1 << 2 | 2), 0, b"x", false).unwrap();
    assert_eq!(code(streams.on_reset_stream(StreamId(2 << 2 | 2), 0, 0)), limit);
    assert_eq!(code(streams.on_stop_sending(StreamId((1 << 62) - 4), 0)), limit);
}

#[test]
fn a_final_size_neither_changes_nor_is_passed() {
    let wrong = Some(TransportErrorCode::FINAL_SIZE_ERROR);
    let mut streams = streams(0, 0);
    receive(&mut streams, A, 0, b"0123456789", false).unwrap();
    assert_eq!(code(receive(&mut streams, A, 5, b"", true)), wrong);
    assert_eq!(code(streams.on_reset_stream(A, 0, 9)), wrong);
    receive(&mut streams, A, 12, b"", true).unwrap();
    assert_eq!(code(receive(&mut streams, A, 13, b"", true)), wrong);
    assert_eq!(code(receive(&mut streams, A, 11, b"", true)), wrong);
    assert_eq!(code(receive(&mut streams, A, 12, b"x", false)), wrong);
    assert_eq!(code(streams.on_reset_stream(A, 0, 13)), wrong);
    receive(&mut streams, A, 10, b"ab", true).unwrap();
    streams.on_reset_stream(B, 4, 100).unwrap();
    assert_eq!(code(streams.on_reset_stream(B, 4, 99)), wrong);
    assert_eq!(code(receive(&mut streams, B, 100, b"x", false)), wrong);
    receive(&mut streams, B, 90, b"x", false).unwrap();
}

#[test]
fn data_beyond_a_limit_is_an_error_and_a_final_size_counts_as_data() {
    let wrong = Some(TransportErrorCode::FLOW_CONTROL_ERROR);
    let mut streams = streams(0, 0);
    assert_eq!(code(receive(&mut streams, A, 1000, b"x", false)), wrong);
    assert_eq!(code(streams.on_reset_stream(A, 0, 1001)), wrong);
    assert_eq!(code(receive(&mut streams, A, u64::MAX, b"x", false)), wrong);
    for (index, fin) in [(0, false), (1, true), (2, false)] {
        receive(&mut streams, StreamId(index << 2), 999, b"x", fin).unwrap();
    }
    let fourth = StreamId(3 << 2);
    assert_eq!(code(receive(&mut streams, fourth, 0, b"x", false)), wrong);
    assert_eq!(code(streams.on_reset_stream(fourth, 0, 1)), wrong);
    receive(&mut streams, A, 500, b"inside", false).unwrap();
}

#[test]
fn a_reset_drops_what_was_not_read_and_gives_its_credit_back() {
    let mut streams = serving(&[A]);
    receive(&mut streams, A, 0, &[1; 500], false).unwrap();
    receive(&mut streams, A, 600, &[1; 100], false).unwrap();
    streams.read(A, 100).unwrap();
    streams.on_reset_stream(A, 77, 1000).unwrap();
    assert_eq!(streams.stats().buffered, 0);
    assert!(!streams.window.consume(0));
    assert_eq!(streams.window.advertise(Timestamp::ZERO, SRTT), 4000, "1000 of 3000 consumed");
    assert_eq!(streams.read(A, 10), Ok(ReadOutcome::Reset(77)));
    assert_eq!(events(&mut streams), [StreamEvent::Reset { id: A, code: 77 }]);
    streams.on_reset_stream(A, 78, 1000).unwrap();
    assert_eq!(events(&mut streams), []);
    assert_eq!(streams.read(A, 10), Ok(ReadOutcome::Reset(77)));
}

#[test]
fn a_reset_after_all_data_changes_nothing() {
    let mut streams = serving(&[A]);
    receive(&mut streams, A, 0, b"all", true).unwrap();
    streams.on_reset_stream(A, 1, 3).unwrap();
    assert_eq!(streams.read(A, 10), data(b"all"));
    assert_eq!(streams.read(A, 10), Ok(ReadOutcome::Finished));
}

#[test]
fn a_reset_at_the_end_of_the_received_data_is_no_proper_end() {
    let mut streams = serving(&[A]);
    receive(&mut streams, A, 0, b"all", false).unwrap();
    streams.on_reset_stream(A, 1, 3).unwrap();
    assert_eq!(streams.read(A, 10), Ok(ReadOutcome::Reset(1)));
}

#[test]
fn a_stopped_stream_drops_what_comes_and_keeps_the_connections_credit_flowing() {
    let mut streams = serving(&[A]);
    receive(&mut streams, A, 0, &[1; 300], false).unwrap();
    streams.stop_sending(A, 5).unwrap();
    streams.stop_sending(A, 6).unwrap();
    assert_eq!(events(&mut streams), [], "nothing is readable any more");
    assert_eq!(streams.read(A, 10), Err(UnknownStream));
    let stop = shown(Frame::StopSending { id: A, error_code: 5 });
    assert_eq!(control_frames(&mut streams), [stop.as_str()]);
    receive(&mut streams, A, 300, &[1; 700], false).unwrap();
    assert_eq!(streams.stats().buffered, 0);
    assert_eq!(streams.window.advertise(Timestamp::ZERO, SRTT), 4000);
    streams.on_control_lost(ControlFrame::StopSending(A));
    assert_eq!(control_frames(&mut streams), [stop]);
    streams.on_reset_stream(A, 5, 1000).unwrap();
    streams.on_control_lost(ControlFrame::StopSending(A));
    assert!(!streams.has_control());
    assert_eq!(events(&mut streams), [], "the application did not want to know");
    streams.reset(A, 0).unwrap();
    streams.on_control_acked(ControlFrame::ResetStream(A));
    assert_eq!(streams.stats().open, 0);
}

#[test]
fn stop_sending_is_not_sent_once_the_final_size_is_known() {
    let mut streams = serving(&[A]);
    receive(&mut streams, A, 500, b"tail", true).unwrap();
    streams.stop_sending(A, 5).unwrap();
    assert!(!streams.has_control());
    streams.reset(A, 0).unwrap();
    control_frames(&mut streams);
    streams.on_control_acked(ControlFrame::ResetStream(A));
    assert_eq!(streams.stats().open, 0);
}

#[test]
fn scattered_data_ends_the_connection_before_it_costs_much() {
    let mut streams = Streams::new(&StreamLimits::default());
    let mut result = Ok(());
    let mut frames = 0;
    // One-byte frames with gaps, over several streams.
    while result.is_ok() {
        let (id, offset) = (StreamId((frames % 7) << 2), 2 * (frames / 7) + 1);
        result = receive(&mut streams, id, offset, b"x", false);
        frames += 1;
    }
    assert_eq!(code(result), Some(TransportErrorCode::INTERNAL_ERROR));
    assert_eq!(frames, 7 + 256 + 128 + 1);
}

#[test]
fn a_window_full_of_alternate_losses_is_accepted() {
    let mut streams = Streams::new(&StreamLimits::default());
    for packet in (0..64_000 / 1200).rev() {
        if packet % 2 == 0 {
            receive(&mut streams, A, packet * 1200, &pattern(packet * 1200, 1200), false).unwrap();
        }
    }
    assert_eq!(streams.read(A, usize::MAX), Ok(ReadOutcome::Data(pattern(0, 1200).into())));
}
