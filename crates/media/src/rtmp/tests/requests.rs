//! Commands, metadata, acknowledgements and pings of peers that write their own chunks.

use super::*;

#[test]
fn a_replaced_publisher_is_notified_and_ignored() {
    let mut served = active(publish());
    served.server.revoke("taken");
    let [status] = &served.commands()[..] else { panic!("one status") };
    let text = format!("{status:?}");
    let parts = ["onStatus", "error", "NetStream.Publish.BadName", "taken"];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    served.server.revoke("again");
    assert!(served.commands().is_empty());
    let close = command("deleteStream", 0.0, &[Value::Null, 1.0.into()]);
    assert_eq!(served.server.handle(&close), Ok(()));
    assert!(served.events().is_empty(), "the stream is another one's");
}

#[test]
fn messages_without_media_have_an_allowance_and_media_of_a_publisher_has_none() {
    let floods: [(&str, Vec<u8>); 9] = [
        ("empty audio", message(8, 1, b"")),
        ("empty video", message(9, 1, b"")),
        ("empty data", message(15, 1, b"")),
        ("acknowledgement", message(3, 0, &[0; 4])),
        ("user control", message(4, 0, &[0, 9, 0, 0])),
        ("window", message(5, 0, &[0, 1, 0, 0])),
        ("shared object", message(19, 0, b"x")),
        ("empty aggregate", message(22, 1, b"")),
        ("unknown command", command("what", 0.0, &[])),
    ];
    for (name, part) in floods {
        for before in [Vec::new(), vec![connect()], vec![connect(), publish()]] {
            let (mut served, result) = after(&before);
            assert_eq!(result, Ok(()));
            served.server.allow(0, 100);
            let sent = (0..200).take_while(|_| served.server.handle(&part).is_ok()).count();
            assert!(sent <= 100, "{name}: {sent}");
        }
    }
    let mut server = publishing();
    server.allow(0, 100);
    let frame = message(8, 1, &[0xaf, 1, 0x21]);
    assert!((0..1_000).all(|_| server.handle(&frame).is_ok()));
    // Media without a publish request does not count as media.
    let (mut served, _) = after(&[connect()]);
    served.server.allow(0, 100);
    assert!(!(0..200).all(|_| served.server.handle(&frame).is_ok()));
    // A refill does not exceed the maximum.
    let mut server = publishing();
    server.allow(0, 100);
    (0..3).for_each(|_| server.allow(80, 100));
    let part = message(8, 1, b"");
    let sent = (0..200).take_while(|_| server.handle(&part).is_ok()).count();
    assert_eq!(sent, 100);
}

#[test]
fn queries_are_joined_and_enhanced_rtmp_is_announced_on_request() {
    let (mut served, result) = after(&[connect(), publish()]);
    assert_eq!(result, Ok(()));
    let Some(Event::Publish(request)) = served.server.poll_event() else { panic!("no request") };
    assert_eq!((&*request.app, &*request.stream, &*request.query), ("live", "demo", "a=1&b=2"));
    let any_video = |served: &mut Served| {
        let answer = served.commands().swap_remove(0);
        assert_eq!(answer[3].get("code"), Some(&"NetConnection.Connect.Success".into()));
        answer[2].get("videoFourCcInfoMap")?.get("*")?.number()
    };
    assert_eq!(any_video(&mut served), Some(4.0));
    let plain = command("connect", 1.0, &[object([("app", "live".into())])]);
    assert_eq!(any_video(&mut after(&[plain]).0), None);
}

#[test]
fn several_tracks_are_announced_if_they_are_taken() {
    for (multitrack, expected) in [(false, 4.0), (true, 6.0)] {
        let config = Config { multitrack, ..Config::default() };
        let mut server = Server::new(config, &[1; 1_528]);
        server.handle(&greeting()).expect("a handshake");
        output(|| server.poll_output());
        server.handle(&connect()).expect("a command");
        let mut served = Served { server, reader: ChunkReader::new(1 << 20) };
        let answer = served.commands().swap_remove(0);
        assert_eq!(answer[2].get("capsEx").and_then(Value::number), Some(expected));
    }
}

#[test]
fn media_sent_before_the_response_is_held() {
    let tag = &tags()[1];
    let (mut served, result) = after(&[connect(), publish()]);
    assert_eq!(result, Ok(()));
    let server = &mut served.server;
    server.handle(&message(9, 0, &tag.payload())).expect("held");
    assert_eq!(server_events(server).len(), 1, "the request");
    server.accept();
    assert_eq!(server_events(server), [Event::Tag(tag.clone())]);

    let mut server = after(&[connect(), publish()]).0.server;
    let flood = message(9, 0, &[0x17; 60_000]);
    let result = (0..1_000).try_for_each(|_| server.handle(&flood));
    assert_eq!(result, Err(Error::EarlyMedia));
}

#[test]
fn large_messages_before_authorisation_are_rejected() {
    // The start of a message of 1 MiB.
    let large = [6, 0, 0, 0, 0x10, 0, 0, 9, 1, 0, 0, 0, 0x17];
    let mut server = after(&[connect(), publish()]).0.server;
    assert_eq!(server.handle(&large), Err(Error::MessageTooLarge(1 << 20)));
    let mut server = after(&[connect(), publish()]).0.server;
    server.accept();
    assert_eq!(server.handle(&large), Ok(()));
}

#[test]
fn a_reading_peer_answers_pings() {
    let (mut served, _) = after(&[connect()]);
    while served.server.poll_output().is_some() {}
    served.server.ping();
    let bytes: Vec<u8> =
        std::iter::from_fn(|| served.server.poll_output()).flat_map(|b| b.to_vec()).collect();
    // A user control message (type 4) with event 6, PingRequest.
    assert!(bytes.windows(6).any(|part| part == [0, 6, 0, 0, 0, 0]), "{bytes:?}");
    assert_eq!(bytes[7], 4);
}

#[test]
fn a_withdrawn_request_cannot_be_accepted_for_another() {
    let close = command("deleteStream", 0.0, &[Value::Null, f64::from(STREAM).into()]);
    let (mut served, result) = after(&[connect(), publish(), close.clone()]);
    assert_eq!(result, Ok(()));
    assert_eq!(served.events()[1..], [Event::Unpublish]);
    let again = served.server.handle(&publish());
    assert_eq!(again, Err(Error::SecondStream), "before the first is answered");

    let (mut served, _) = after(&[connect(), publish(), close]);
    served.server.accept();
    assert_eq!(served.server.handle(&publish()), Ok(()));
    assert_eq!(served.events().len(), 3);
}

#[test]
fn other_commands_get_the_expected_responses() {
    let answer = |parts: Vec<u8>| {
        let (mut served, _) = after(&[connect()]);
        served.sent();
        served.server.handle(&parts).expect("allowed");
        served.commands()
    };
    for (name, first) in [
        ("createStream", "_result"),
        ("releaseStream", "_result"),
        ("FCPublish", "_result"),
        ("_checkbw", "_result"),
        ("getStreamLength", "_result"),
        ("play2", "onStatus"),
        ("somethingElse", "_error"),
    ] {
        let commands = answer(command(name, 7.0, &[Value::Null]));
        assert_eq!(commands[0][0], first.into(), "{name}");
        let transaction = if first == "onStatus" { 0.0 } else { 7.0 };
        assert_eq!(commands[0][1], transaction.into(), "{name}");
    }
    assert!(answer(command("somethingElse", 0.0, &[])).is_empty());
    // The same after the zero byte of an AMF3 command.
    let payload = b"\x00\x02\x00\x0ccreateStream\x00\x3f\xf0\0\0\0\0\0\0\x05";
    assert_eq!(answer(message(17, 0, payload)).len(), 1);
}

#[test]
fn a_player_pauses_and_selects_tracks() {
    let mut served = active(command("play", 0.0, &[Value::Null, "demo".into()]));
    let wish = |name, value: bool| command(name, 0.0, &[Value::Null, value.into()]);
    served.server.handle(&wish("pause", true)).expect("allowed");
    assert_eq!(served.events(), [Event::Paused(true)]);
    served.server.handle(&wish("receiveVideo", false)).expect("allowed");
    served.sent();
    tags()[..5].iter().for_each(|tag| served.server.send_tag(tag));
    let kinds: Vec<u8> = served.sent().iter().map(|message| message.kind).collect();
    assert_eq!(kinds, [18, 9, 8, 8], "the sequence header, but no frame");
}

#[test]
fn an_aggregate_becomes_its_tags() {
    let mut server = publishing();
    let aggregate: Vec<u8> =
        [&tags()[4], &tags()[1]].iter().flat_map(|tag| tag.bytes().to_vec()).collect();
    server.handle(&message(22, 1_000, &aggregate)).expect("allowed");
    let at = |tag: &Tag, time| Tag::new(tag.kind(), time, &tag.payload()).expect("short");
    let expected = [at(&tags()[4], 1_000), at(&tags()[1], 1_000u32.wrapping_sub(33))];
    assert_eq!(server_events(&mut server), tag_events(&expected));
    let cut = message(22, 0, &aggregate[..12]);
    assert_eq!(server.handle(&cut), Err(Error::Malformed("aggregate")));
}

#[test]
fn set_data_frame_is_removed_from_metadata() {
    let kept = [&b"\x02\x00\x0d@setDataFrame"[..], METADATA].concat();
    let amf3 = [&[0][..], METADATA].concat();
    for (kind, payload) in [(18, &kept), (18, &METADATA.to_vec()), (15, &amf3)] {
        let mut server = publishing();
        server.handle(&message(kind, 0, payload)).expect("allowed");
        assert_eq!(server_events(&mut server), tag_events(&tags()[..1]), "{kind}");
    }
}

#[test]
fn bytes_are_acknowledged_and_pings_answered() {
    let mut served = active(publish());
    let mut sent_for = |kind, payload: &[u8]| {
        let input = message(kind, 0, payload);
        served.server.handle(&input).expect("allowed");
        let sent = served.sent().into_iter();
        sent.map(|message| (message.kind, message.payload().to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(sent_for(4, &[0, 6, 1, 2, 3, 4]), [(4, vec![0, 7, 1, 2, 3, 4])], "pong");
    assert_eq!(sent_for(6, &[0, 1, 0, 0, 2])[0].0, 5, "our window");
    // More than 1,000 bytes have arrived since the start: acknowledged at once, and then after
    // another 1,000.
    assert_eq!(sent_for(5, &[0, 0, 3, 232])[0].0, 3);
    assert_eq!(sent_for(9, &[0x17; 500]), []);
    assert_eq!(sent_for(9, &[0x17; 500])[0].0, 3);
}

#[test]
fn bytes_are_acknowledged_without_an_announced_window() {
    let acknowledgements = |window: Option<u32>| {
        let mut served = active(publish());
        if let Some(window) = window {
            served.server.handle(&message(5, 0, &window.to_be_bytes())).expect("allowed");
        }
        let mut count = 0;
        for _ in 0..90 {
            served.server.handle(&message(9, 0, &[0x17; 100_000])).expect("allowed");
            count += served.sent().into_iter().filter(|message| message.kind == 3).count();
        }
        count
    };
    assert_eq!(acknowledgements(None), 3, "9 MB in windows of 2.5 MB");
    assert_eq!(acknowledgements(Some(0)), 3);
    assert_eq!(acknowledgements(Some(0x7fff_ffff)), 3);
    assert!(acknowledgements(Some(500_000)) >= 15);
}
