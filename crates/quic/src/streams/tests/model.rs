//! Random histories against plain vectors: sending with losses, replicas, late and repeated
//! acknowledgements; receiving with duplicates, gaps, resets and stops.

use proptest::prelude::*;

use super::*;

/// Model of one of our streams: written data, and the peer's state.
#[derive(Default)]
struct Sent {
    id: Option<StreamId>,
    written: Vec<u8>,
    finished: bool,
    reset: bool,
    arrived: Vec<bool>,
    fin_arrived: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    Finish(usize),
    Reset(usize),
    Send(usize),
    Ack(usize),
    Lose(usize),
    Replicate(usize),
    RaiseStream(usize, u64),
    RaiseConnection(u64),
    Prioritise(usize, u8, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let stream = 0usize..4;
    let reset_or_send = |(s, n)| if n == 0 { Step::Reset(s) } else { Step::Send(90) };
    prop_oneof![
        6 => (stream.clone(), 0usize..400).prop_map(|(s, n)| Step::Write(s, n)),
        1 => stream.clone().prop_map(Step::Finish),
        1 => (stream.clone(), 0u8..8).prop_map(reset_or_send),
        8 => (1usize..300).prop_map(Step::Send),
        6 => any::<usize>().prop_map(Step::Ack),
        3 => any::<usize>().prop_map(Step::Lose),
        2 => any::<usize>().prop_map(Step::Replicate),
        2 => (stream.clone(), 0u64..500).prop_map(|(s, n)| Step::RaiseStream(s, n)),
        2 => (0u64..900).prop_map(Step::RaiseConnection),
        1 => (stream, 0u8..9, any::<bool>()).prop_map(|(s, u, i)| Step::Prioritise(s, u, i)),
    ]
}

/// Our sending side, its packets in flight, and the peer.
struct Sender {
    streams: Streams,
    model: Vec<Sent>,
    flight: Vec<StreamRange>,
    /// Ranges of acknowledged or lost packets, which may still be acknowledged late.
    old: Vec<StreamRange>,
    max_data: u64,
}

impl Sender {
    fn new() -> Self {
        let mut streams = streams(600, 200);
        let model = (0..4)
            .map(|_| Sent { id: streams.open(Direction::Unidirectional), ..Sent::default() })
            .collect();
        Self { streams, model, flight: Vec::new(), old: Vec::new(), max_data: 600 }
    }

    fn id(&self, stream: usize) -> StreamId {
        self.model[stream].id.unwrap()
    }

    fn of(&mut self, range: &StreamRange) -> &mut Sent {
        self.model.iter_mut().find(|sent| sent.id == Some(range.id)).unwrap()
    }

    /// A packet with `range` leaves: its bytes must be those that were written.
    fn transmit(&mut self, range: StreamRange) {
        let bytes = content(&self.streams, &range);
        let sent = self.of(&range);
        let start = range.offset as usize;
        assert_eq!(bytes.as_deref(), sent.written.get(start..start + usize::from(range.len)));
        if range.fin {
            assert!(sent.finished);
            assert_eq!(range.bytes().end, sent.written.len() as u64);
        }
        self.flight.push(range);
    }

    /// The peer has `range`.
    fn acknowledge(&mut self, range: StreamRange) {
        let sent = self.of(&range);
        sent.arrived.resize(sent.written.len(), false);
        let start = range.offset as usize;
        sent.arrived[start..start + usize::from(range.len)].fill(true);
        sent.fin_arrived |= range.fin;
        self.streams.on_acked(&range);
        self.old.push(range);
    }

    /// Missing parts of `range` must be missing at the peer.
    fn check_unacked(&mut self, range: &StreamRange) -> Vec<StreamRange> {
        let left = unacked(&self.streams, range);
        let sent = self.of(range);
        if sent.reset {
            assert_eq!(left, []);
            return left;
        }
        let missing: Vec<u64> =
            range.bytes().filter(|i| !sent.arrived.get(*i as usize).is_some_and(|a| *a)).collect();
        let found: Vec<u64> = left.iter().flat_map(|piece| piece.bytes()).collect();
        assert_eq!(found, missing);
        let fins = left.iter().filter(|piece| piece.fin).count();
        assert_eq!(fins == 1, range.fin && !sent.fin_arrived);
        assert!(fins == 0 || left.last().unwrap().fin);
        left
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Write(stream, len) => {
                let at = self.model[stream].written.len() as u64;
                let data = pattern(at, len);
                let done = self.streams.write(self.id(stream), data.clone().into());
                let sent = &mut self.model[stream];
                assert_eq!(done.is_ok(), !sent.finished && !sent.reset);
                if done.is_ok() {
                    sent.written.extend(data);
                }
            }
            Step::Finish(stream) => {
                let done = self.streams.finish(self.id(stream)).is_ok();
                self.model[stream].finished |= done;
            }
            Step::Reset(stream) => {
                let sent = &self.model[stream];
                let complete = sent.fin_arrived
                    && sent.arrived.len() == sent.written.len()
                    && sent.arrived.iter().all(|arrived| *arrived);
                if self.streams.reset(self.id(stream), 0).is_ok() && !complete {
                    self.model[stream].reset = true;
                }
            }
            Step::Send(room) => {
                let could = self.streams.has_sendable();
                match self.streams.next_range(room) {
                    Some(range) => {
                        assert!(could);
                        self.transmit(range);
                    }
                    None => assert!(!could || room < 7, "{room}"),
                }
            }
            Step::Ack(which) if !self.flight.is_empty() => {
                let range = self.flight.swap_remove(which % self.flight.len());
                self.acknowledge(range);
            }
            Step::Ack(which) if !self.old.is_empty() => {
                let range = self.old[which % self.old.len()];
                self.acknowledge(range);
            }
            Step::Lose(which) if !self.flight.is_empty() => {
                let range = self.flight.swap_remove(which % self.flight.len());
                for piece in self.check_unacked(&range) {
                    self.transmit(piece);
                }
                self.old.push(range);
            }
            Step::Replicate(which) if !self.flight.is_empty() => {
                let range = self.flight[which % self.flight.len()];
                for piece in self.check_unacked(&range) {
                    self.transmit(piece);
                }
            }
            Step::RaiseStream(stream, max) => {
                let written = self.model[stream].written.len() as u64;
                self.streams.on_max_stream_data(self.id(stream), written + max).unwrap();
            }
            Step::RaiseConnection(more) => {
                self.max_data += more;
                self.streams.on_max_data(self.max_data);
            }
            Step::Prioritise(stream, urgency, incremental) => {
                self.streams.set_priority(self.id(stream), Priority { urgency, incremental });
            }
            Step::Ack(_) | Step::Lose(_) | Step::Replicate(_) => {}
        }
        self.check();
    }

    /// The counters match the state.
    fn check(&self) {
        let sends = || self.streams.table.iter().filter_map(|(_, stream)| stream.send.as_ref());
        assert_eq!(self.streams.unsent, sends().map(|send| send.unsent()).sum::<u64>());
        assert!(self.streams.data_sent <= self.streams.max_data);
        let credit = self.streams.max_data > self.streams.data_sent;
        let fin = |sendable| sendable == Some(send::Sendable::Fin);
        let can = sends().any(|s| (credit && s.sendable().is_some()) || fin(s.sendable()));
        assert_eq!(self.streams.has_sendable(), can);
        let waits = sends().any(|send| send.unsent() > 0);
        assert_eq!(self.streams.is_flow_blocked(), waits && !can);
        assert_eq!(
            self.streams.schedule.iter().count(),
            sends().filter(|s| s.sendable().is_some()).count()
        );
    }

    /// No limits, no losses: everything ends.
    fn drain(&mut self) {
        self.streams.on_max_data(1 << 40);
        for stream in 0..self.model.len() {
            self.streams.on_max_stream_data(self.id(stream), 1 << 40).unwrap();
            if !self.model[stream].reset && !self.model[stream].finished {
                self.apply(&Step::Finish(stream));
            }
        }
        while let Some(range) = self.streams.next_range(1200) {
            self.transmit(range);
        }
        // All packets in flight are lost; only probes continue.
        self.flight.clear();
        while let Some(range) = self.streams.oldest_unacked(150) {
            self.transmit(range);
            self.flight.clear();
            self.acknowledge(range);
        }
        for token in control_in(&mut self.streams, 1200).0 {
            self.streams.on_control_acked(token);
        }
        events(&mut self.streams);
        for sent in &self.model {
            assert!(sent.reset || (sent.fin_arrived && sent.arrived.iter().all(|a| *a)));
        }
        assert_eq!(self.streams.stats(), StreamStats::default());
        assert!(self.streams.schedule.is_empty());
    }
}

/// One stream of the peer, as it sends it.
#[derive(Clone, Default)]
struct Received {
    have: Vec<bool>,
    read: usize,
    over: bool,
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_written_byte_arrives_whatever_is_lost(
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut sender = Sender::new();
        for step in &steps {
            sender.apply(step);
        }
        sender.drain();
    }

    #[test]
    fn received_streams_and_their_credit_follow_the_model(
        steps in proptest::collection::vec(
            (0u64..3, 0u8..20, 0u64..900, 0usize..120, any::<bool>()), 1..150),
    ) {
        const SIZE: u64 = 1000;
        let mut streams = serving(&[A, B, C]);
        let empty = Received { have: vec![false; SIZE as usize + 1], ..Default::default() };
        let mut model = vec![empty; 3];
        for (index, kind, offset, len, reads) in steps {
            let id = StreamId(index << 2);
            let stream = &mut model[index as usize];
            match kind {
                0 if reads => {
                    streams.on_reset_stream(id, 1, SIZE).unwrap();
                    stream.over = true;
                }
                1 if reads => {
                    streams.stop_sending(id, 1).unwrap();
                    stream.over = true;
                }
                2 => receive(&mut streams, id, SIZE, b"", true).unwrap(),
                _ => {
                    let len = len.min((SIZE - offset) as usize);
                    receive(&mut streams, id, offset, &pattern(offset, len), false).unwrap();
                    stream.have[offset as usize..offset as usize + len].fill(true);
                }
            }
            if reads && !stream.over {
                match streams.read(id, len + 1).unwrap() {
                    ReadOutcome::Data(data) => {
                        prop_assert_eq!(&data[..], &pattern(stream.read as u64, data.len())[..]);
                        stream.read += data.len();
                    }
                    ReadOutcome::Blocked => prop_assert!(!stream.have[stream.read]),
                    ReadOutcome::Finished => prop_assert_eq!(stream.read as u64, SIZE),
                    ReadOutcome::Reset(_) => prop_assert!(false),
                }
            }
            let fragments: usize = streams.table.iter()
                .map(|(_, stream)| stream.recv.as_ref().unwrap().assembler.fragments())
                .sum();
            prop_assert_eq!(streams.fragments, fragments);
            control_in(&mut streams, 1200);
        }
        for index in 0..3 {
            let id = StreamId(index << 2);
            let _ = streams.stop_sending(id, 0);
            streams.on_reset_stream(id, 0, SIZE).unwrap();
            let _ = streams.reset(id, 0);
            control_in(&mut streams, 1200);
            streams.on_control_acked(ControlFrame::ResetStream(id));
        }
        events(&mut streams);
        // A stream that was read to its end but not told so waits for the application.
        for index in 0..3 {
            let _ = streams.read(StreamId(index << 2), 1);
        }
        prop_assert_eq!(streams.stats(), StreamStats::default());
        prop_assert_eq!(streams.fragments, 0);
        prop_assert_eq!(streams.data_received, 3 * SIZE);
        let size = streams.window.size();
        let limit = { streams.window.consume(0); streams.window.advertise(Timestamp::MAX, SRTT) };
        prop_assert_eq!(limit, 3 * SIZE + size, "all credit of the connection came back");
    }
}
