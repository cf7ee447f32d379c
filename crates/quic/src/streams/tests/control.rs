//! Control frames: timing, content and loss.

use super::*;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

#[test]
fn an_idle_connection_has_nothing_to_say() {
    let streams = Streams::new(&StreamLimits::default());
    assert!(!streams.has_control() && !streams.has_sendable() && !streams.is_flow_blocked());
}

#[test]
fn limits_are_raised_when_half_of_a_window_was_read() {
    let mut streams = serving(&[A, B]);
    receive(&mut streams, A, 0, &[0; 1000], false).unwrap();
    assert!(!streams.has_control());
    streams.read(A, 499).unwrap();
    assert!(!streams.has_control());
    streams.on_stream(B, 0, b"", false, at(1000), SRTT).unwrap();
    streams.read(A, 1).unwrap();
    let frame = shown(Frame::MaxStreamData { id: A, max: 1500 });
    assert_eq!(control_frames(&mut streams), [frame]);
    streams.read(A, 500).unwrap();
    receive(&mut streams, B, 0, &[0; 500], false).unwrap();
    streams.on_stream(B, 500, &[], false, at(2000), SRTT).unwrap();
    streams.read(B, 500).unwrap();
    let frames = control_frames(&mut streams);
    assert!(frames.contains(&shown(Frame::MaxData(4500))), "{frames:?}");
    receive(&mut streams, A, 1000, &[0; 500], false).unwrap();
    let wrong = Some(TransportErrorCode::FLOW_CONTROL_ERROR);
    assert_eq!(code(receive(&mut streams, B, 0, &[0; 3000], false)), wrong);
}

#[test]
fn windows_grow_for_a_peer_that_they_hold_down() {
    let mut streams = serving(&[A]);
    let mut limit = 1000;
    let (mut sent, mut now) = (0, 0);
    // The peer sends all that it may, once per round trip.
    for _ in 0..8 {
        let len = (limit - sent) as usize;
        streams.on_stream(A, sent, &vec![0; len], false, at(now), SRTT).unwrap();
        sent = limit;
        while let Ok(ReadOutcome::Data(_)) = streams.read(A, 700) {}
        control_frames(&mut streams);
        let slot = streams.table.find(A).unwrap();
        limit = streams.table.at(slot).recv.as_ref().unwrap().window.limit();
        now += 50;
    }
    assert_eq!(limit - sent, 4000, "the ceiling of a stream's window");
    assert_eq!(streams.window.size(), 12_000, "the ceiling of the connection's window");
}

#[test]
fn windows_stay_small_for_a_slow_peer() {
    let mut streams = serving(&[A]);
    for i in 0..30 {
        streams.on_stream(A, i * 300, &[0; 300], false, at(i * 200), SRTT).unwrap();
        streams.read(A, 300).unwrap();
        control_frames(&mut streams);
    }
    assert_eq!(streams.window.size(), 3000);
}

#[test]
fn a_stream_with_a_known_end_gets_no_more_credit() {
    let mut streams = serving(&[A, B]);
    for id in [A, B] {
        receive(&mut streams, id, 0, &[0; 600], false).unwrap();
        streams.read(id, 600).unwrap();
    }
    assert!(streams.has_control());
    receive(&mut streams, A, 600, b"", true).unwrap();
    streams.on_reset_stream(B, 0, 600).unwrap();
    streams.on_control_lost(ControlFrame::MaxStreamData(A));
    streams.on_control_lost(ControlFrame::MaxStreamData(B));
    assert_eq!(control_frames(&mut streams), NO_FRAMES);
}

#[test]
fn a_lost_limit_is_sent_again_with_the_value_of_the_moment() {
    let mut streams = serving(&[A]);
    receive(&mut streams, A, 0, &[0; 1000], false).unwrap();
    streams.now = at(5000);
    streams.read(A, 500).unwrap();
    let (tokens, _) = control_in(&mut streams, 1200);
    assert_eq!(tokens, [ControlFrame::MaxStreamData(A)]);
    streams.read(A, 200).unwrap();
    assert!(!streams.has_control());
    streams.on_control_lost(tokens[0]);
    let frame = shown(Frame::MaxStreamData { id: A, max: 1700 });
    assert_eq!(control_frames(&mut streams), [frame]);
    streams.on_control_lost(ControlFrame::MaxData);
    assert_eq!(control_frames(&mut streams), [shown(Frame::MaxData(3700))]);
}

#[test]
fn credit_for_streams_returns_when_an_eighth_is_over() {
    let mut streams = serving(&[A, B]);
    let raised = |max| [shown(Frame::MaxStreams { direction: Direction::Bidirectional, max })];
    close(&mut streams, B);
    assert_eq!(control_frames(&mut streams), NO_FRAMES);
    close(&mut streams, A);
    assert_eq!(control_frames(&mut streams), raised(18));
    receive(&mut streams, StreamId(17 << 2), 0, b"", false).unwrap();
    streams.on_control_lost(ControlFrame::MaxStreams(Direction::Bidirectional));
    assert_eq!(control_frames(&mut streams), raised(18));
    let uni = StreamId(2);
    receive(&mut streams, uni, 0, b"", true).unwrap();
    streams.read(uni, 1).unwrap();
    assert_eq!(streams.stats().open, 2, "the application has not polled the event");
    events(&mut streams);
    assert_eq!(streams.stats().open, 1);
    let direction = Direction::Unidirectional;
    assert_eq!(control_frames(&mut streams), [shown(Frame::MaxStreams { direction, max: 3 })]);
}

#[test]
fn opening_and_resetting_gives_no_credit_before_all_state_is_gone() {
    let mut streams = serving(&[]);
    for index in 0..16 {
        let id = StreamId(index << 2);
        receive(&mut streams, id, 0, b"request", false).unwrap();
        streams.on_reset_stream(id, 1, 7).unwrap();
        streams.on_stop_sending(id, 1).unwrap();
    }
    let limit = Some(TransportErrorCode::STREAM_LIMIT_ERROR);
    assert_eq!(code(receive(&mut streams, StreamId(16 << 2), 0, b"", false)), limit);
    let told = events(&mut streams);
    assert_eq!(told.len(), 3 * 16);
    let (tokens, _) = control_in(&mut streams, 1200);
    assert_eq!(tokens.len(), 16);
    assert_eq!(streams.stats().open, 16, "no RESET_STREAM was acknowledged");
    for token in tokens {
        streams.on_control_acked(token);
        streams.on_control_acked(token);
    }
    assert_eq!(streams.stats().open, 0);
    assert!(streams.events.is_empty() && streams.due_streams.is_empty());
    let direction = Direction::Bidirectional;
    assert_eq!(control_frames(&mut streams), [shown(Frame::MaxStreams { direction, max: 32 })]);
}

#[test]
fn our_streams_wait_for_the_peers_limit() {
    let mut streams = serving(&[]);
    let direction = Direction::Unidirectional;
    let opened: Vec<_> = core::iter::from_fn(|| streams.open(direction)).collect();
    assert_eq!(opened.len(), 10);
    assert_eq!((opened[0], opened[9]), (StreamId(3), StreamId(39)));
    assert_eq!(streams.open(direction), None);
    let blocked = [shown(Frame::StreamsBlocked { direction, limit: 10 })];
    assert_eq!(control_frames(&mut streams), blocked);
    assert_eq!(streams.open(direction), None);
    assert!(!streams.has_control(), "said once per limit");
    streams.on_control_lost(ControlFrame::StreamsBlocked(direction));
    assert_eq!(control_frames(&mut streams), blocked);
    streams.on_max_streams(direction, 9);
    assert_eq!(streams.open(direction), None);
    streams.on_max_streams(direction, 11);
    streams.on_control_lost(ControlFrame::StreamsBlocked(direction));
    assert!(!streams.has_control());
    assert_eq!(streams.open(direction), Some(StreamId(43)));
    assert_eq!(streams.open(Direction::Bidirectional), Some(StreamId(1)));
}

#[test]
fn lost_reports_of_blocking_are_repeated_only_while_it_lasts() {
    let mut streams = streams(100, 80);
    for id in [A, B] {
        receive(&mut streams, id, 0, b"", false).unwrap();
        streams.write(id, pattern(0, 90).into()).unwrap();
    }
    send_all(&mut streams, 1200);
    let (tokens, frames) = control_in(&mut streams, 1200);
    assert_eq!(tokens, [ControlFrame::DataBlocked, ControlFrame::StreamDataBlocked(A)]);
    tokens.iter().for_each(|token| streams.on_control_lost(*token));
    assert_eq!(control_frames(&mut streams), frames);
    streams.on_max_data(200);
    streams.on_max_stream_data(A, 200).unwrap();
    tokens.iter().for_each(|token| streams.on_control_lost(*token));
    assert!(!streams.has_control());
}

#[test]
fn control_frames_wait_for_room_and_none_is_lost() {
    let mut streams = serving(&[A, B, C]);
    for id in [A, B, C] {
        streams.reset(id, 1).unwrap();
        streams.stop_sending(id, 1).unwrap();
    }
    let mut tokens = Vec::new();
    let mut packets = 0;
    while streams.has_control() {
        let (some, _) = control_in(&mut streams, 30);
        tokens.extend(some);
        packets += 1;
    }
    assert_eq!((tokens.len(), packets), (6, 3));
    assert_eq!(control_in(&mut streams, 0).0, []);
}
