//! Senders in virtual time for tests of controllers, on a path of `links`: one bottleneck with a
//! drop-tail queue, random loss, one or two flows. A sender has RFC 9002's loss detection in its
//! simplest form. Every packet is acknowledged by its own ACK, which is never lost; a peer may
//! withhold ACKs.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use links::{LinkConfig, LossPlace, Packet, PathConfig, Probability, Queue, Rows, Trace, TraceRow};
use mendcast_congestion::{
    AckBatch, CongestionEvent, CongestionKind, Controller, Pacer, RateSampler, RateStamp,
    RttSnapshot,
};
use units::{Ecn, PacketNumber, Rate, Timestamp};

pub const MTU: u16 = 1_200;
const SIZE: u64 = MTU as u64;

#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub rate: Rate,
    /// Round trip of an empty path, without serialisation.
    pub rtt: Duration,
    /// Capacity of the queue in bytes.
    pub queue: u64,
    pub loss: f64,
    pub loss_place: LossPlace,
}

impl Path {
    /// Creates a path without random loss and with a queue of `bdps` bandwidth-delay products.
    pub fn new(rate: Rate, rtt: Duration, bdps: f64) -> Self {
        let queue = (rate.bytes_in(rtt) as f64 * bdps) as u64;
        Self { rate, rtt, queue, loss: 0.0, loss_place: LossPlace::BeforeQueue }
    }

    pub fn min_rtt(&self) -> Duration {
        self.rtt + self.rate.time_for(SIZE)
    }
}

/// Builds the links of a path that changes to the `later` paths at their times, in order. Packets
/// carry the numbers of their flow and their own.
fn links(first: Path, later: &[(Duration, Path)], seed: u64) -> links::Path<(usize, u64)> {
    let row = |&(at, path): &(Duration, Path)| TraceRow {
        at,
        rate: path.rate,
        rtt: path.rtt,
        loss: Probability::new(path.loss).expect("a probability"),
    };
    let mut rows: Vec<TraceRow> = [(Duration::ZERO, first)].iter().chain(later).map(row).collect();
    // Traces repeat; this one does so after the end of any test.
    rows.extend(
        rows.last().map(|last| TraceRow { at: Duration::from_secs(1_000_000_000), ..*last }),
    );
    let path = PathConfig::both(LinkConfig {
        queue: Queue::drop_tail(first.queue),
        loss_place: first.loss_place,
        trace: Some(Trace::Rows(Arc::new(Rows::new(rows).expect("times ascend")))),
        ..LinkConfig::default()
    });
    links::Path::new(&path, seed, "path")
}

/// Data to send.
#[derive(Clone, Copy, Debug)]
pub enum App {
    Bulk,
    /// `bytes` bytes become available every `every`.
    Frames {
        every: Duration,
        bytes: u64,
    },
}

/// Acknowledgement policy of a peer.
#[derive(Clone, Copy, Debug)]
pub enum Acks {
    /// Immediately.
    Prompt,
    /// This long after the packet's arrival.
    After(Duration),
    /// All together at this time; immediately from then on.
    At(Timestamp),
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    time: Timestamp,
    stamp: RateStamp,
    outstanding: bool,
}

#[derive(Debug)]
pub struct Sim {
    /// Path at the start.
    pub path: Path,
    links: links::Path<(usize, u64)>,
    pub controller: Box<dyn Controller>,
    pub now: Timestamp,
    pub in_flight: u64,
    /// Bytes acknowledged before they were declared lost.
    pub delivered: u64,
    pub sent: u64,
    /// Times when ProbeRTT was entered.
    pub probe_rtts: Vec<Timestamp>,
    app: App,
    next_frame: Timestamp,
    backlog: u64,
    /// Current policy of the peer, and withheld packet numbers with their acknowledgement times.
    pub acks: Acks,
    withheld: VecDeque<(Timestamp, u64)>,
    /// Packet numbers that are on no link yet.
    outbox: Vec<u64>,
    packets: Vec<Sent>,
    /// No packet below is outstanding.
    base: usize,
    rtt: Option<RttSnapshot>,
    loss_time: Option<Timestamp>,
    last_sent: Timestamp,
    pto_count: u32,
    sampler: RateSampler,
    pacer: Pacer,
    wake: Option<Timestamp>,
    cwnd_limited: bool,
}

impl Sim {
    /// Creates a sender on this path, or on one that changes: see [`links`].
    pub fn new(
        path: Path,
        later: &[(Duration, Path)],
        controller: Box<dyn Controller>,
        seed: u64,
    ) -> Self {
        Self {
            path,
            links: links(path, later, seed),
            controller,
            now: Timestamp::ZERO,
            in_flight: 0,
            delivered: 0,
            sent: 0,
            probe_rtts: Vec::new(),
            app: App::Bulk,
            next_frame: Timestamp::ZERO,
            backlog: 0,
            acks: Acks::Prompt,
            withheld: VecDeque::new(),
            outbox: Vec::new(),
            packets: Vec::new(),
            base: 0,
            rtt: None,
            loss_time: None,
            last_sent: Timestamp::ZERO,
            pto_count: 0,
            sampler: RateSampler::new(),
            pacer: Pacer::new(),
            wake: None,
            cwnd_limited: false,
        }
    }

    pub fn set_app(&mut self, app: App) {
        self.app = app;
        self.backlog = 0;
        self.next_frame = self.now;
    }

    /// Runs for `span`. Returns the mean rate of delivery.
    pub fn run(&mut self, span: Duration) -> Rate {
        let before = self.delivered;
        Self::run_all(&mut [self], span);
        Rate::from_bytes_in(self.delivered - before, span)
    }

    /// Runs two flows for `span` on the path of `self`.
    pub fn run_with(&mut self, other: &mut Self, span: Duration) {
        Self::run_all(&mut [self, other], span);
    }

    /// Runs flows for `span` on the path of the first one.
    fn run_all(flows: &mut [&mut Self], span: Duration) {
        let mut now = flows[0].now;
        let end = now + span;
        loop {
            for id in 0..flows.len() {
                flows[id].transmit();
                for pn in core::mem::take(&mut flows[id].outbox) {
                    let packet = Packet { size: MTU.into(), ecn: Ecn::NotEct, payload: (id, pn) };
                    flows[0].links.down.send(now, packet);
                }
            }
            let of_links = flows[0].links.next_event();
            let next = flows.iter().filter_map(|flow| flow.next_event()).chain(of_links).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            now = now.max(next);
            flows.iter_mut().for_each(|flow| flow.now = now);
            while let Some(arrived) = flows[0].links.down.poll(now) {
                flows[0].links.up.send(now, arrived.packet);
            }
            if let Some(ack) = flows[0].links.up.poll(now) {
                let (id, pn) = ack.packet.payload;
                flows[id].withhold(pn);
                continue;
            }
            // One at a time: the sender may send in between.
            if let Some(flow) = flows.iter_mut().find(|flow| flow.is_ack_due()) {
                let (_, pn) = flow.withheld.pop_front().expect("it is due");
                flow.on_ack(pn);
                continue;
            }
            for flow in flows.iter_mut().filter(|flow| flow.timer().is_some_and(|at| at <= now)) {
                flow.on_timer();
            }
        }
        flows.iter_mut().for_each(|flow| flow.now = end);
        // Nothing arrives until `end`, but the queue advances.
        assert!(flows[0].links.down.poll(end).is_none());
    }

    /// Returns the queued bytes at the bottleneck, without the packet being sent.
    pub fn queued(&self) -> u64 {
        self.links.down.queued_bytes()
    }

    /// Returns the packets dropped by the full queue.
    pub fn overflows(&self) -> u64 {
        self.links.down.counters().queue_dropped.packets
    }

    /// Returns the time of this flow's next own event.
    fn next_event(&self) -> Option<Timestamp> {
        let frame = matches!(self.app, App::Frames { .. }).then_some(self.next_frame);
        let ack = self.withheld.front().map(|(at, _)| *at);
        [frame, ack, self.timer(), self.wake].into_iter().flatten().min()
    }

    /// Withholds the acknowledgement of a packet, after those already withheld.
    fn withhold(&mut self, pn: u64) {
        let at = match self.acks {
            Acks::Prompt => self.now,
            Acks::After(delay) => self.now + delay,
            Acks::At(at) => at.max(self.now),
        };
        let last = self.withheld.back().map_or(at, |(last, _)| at.max(*last));
        self.withheld.push_back((last, pn));
    }

    fn is_ack_due(&self) -> bool {
        self.withheld.front().is_some_and(|(at, _)| *at <= self.now)
    }

    fn transmit(&mut self) {
        self.wake = None;
        match self.app {
            App::Bulk => self.backlog = u64::MAX,
            App::Frames { every, bytes } => {
                while self.next_frame <= self.now {
                    self.backlog += bytes;
                    self.next_frame += every;
                }
            }
        }
        loop {
            self.cwnd_limited = self.backlog >= SIZE;
            if !self.cwnd_limited {
                if self.in_flight + SIZE <= self.controller.window() {
                    self.sampler.set_app_limited(self.in_flight);
                }
                return;
            }
            if self.in_flight + SIZE > self.controller.window() {
                return;
            }
            let rate = self.controller.pacing_rate().unwrap_or(Rate::MAX);
            if self.pacer.budget(self.now, rate, self.controller.send_quantum()) < SIZE {
                self.wake = self.pacer.time_until(SIZE, self.now, rate);
                return;
            }
            self.send();
        }
    }

    fn send(&mut self) {
        let pn = self.packets.len() as u64;
        let stamp = self.sampler.on_sent(self.now, self.in_flight);
        self.controller.on_sent(self.now, PacketNumber(pn), SIZE, self.in_flight);
        self.pacer.consumed(SIZE);
        self.packets.push(Sent { time: self.now, stamp, outstanding: true });
        self.backlog = self.backlog.saturating_sub(SIZE);
        self.in_flight += SIZE;
        self.sent += SIZE;
        self.last_sent = self.now;
        self.outbox.push(pn);
    }

    fn timer(&self) -> Option<Timestamp> {
        if self.in_flight == 0 {
            return None;
        }
        self.loss_time.or_else(|| {
            let pto = self.rtt.map_or(Duration::from_millis(999), |rtt| {
                rtt.smoothed + (4 * rtt.variance).max(Duration::from_millis(1))
            });
            Some(self.last_sent + pto * (1 << self.pto_count))
        })
    }

    fn on_timer(&mut self) {
        if self.loss_time.is_some() {
            self.detect_losses(self.base as u64);
        } else {
            self.pto_count = (self.pto_count + 1).min(6);
            self.send();
        }
    }

    fn on_ack(&mut self, pn: u64) {
        let packet = self.packets[pn as usize];
        if !packet.outstanding {
            return;
        }
        self.packets[pn as usize].outstanding = false;
        let in_flight_before = self.in_flight;
        self.in_flight -= SIZE;
        self.delivered += SIZE;
        self.pto_count = 0;
        let rtt = self.update_rtt(self.now - packet.time);
        self.sampler.on_acked(self.now, &packet.stamp, packet.time, SIZE);
        let lost_bytes = self.detect_losses(pn);
        let batch = AckBatch {
            now: self.now,
            acked_bytes: SIZE,
            largest_acked: PacketNumber(pn),
            largest_sent_time: packet.time,
            in_flight_before,
            in_flight: self.in_flight,
            rtt,
            rate: self.sampler.finish_batch(self.now, rtt.min),
            cwnd_limited: self.cwnd_limited,
            source_paced: matches!(self.app, App::Frames { .. }),
            lost_bytes,
            ecn_ce: 0,
        };
        let was_probing = self.controller.snapshot().state == "probe_rtt";
        self.controller.on_ack(&batch);
        if !was_probing && self.controller.snapshot().state == "probe_rtt" {
            self.probe_rtts.push(self.now);
        }
    }

    /// RFC 9002, section 5.3, without ACK delay.
    fn update_rtt(&mut self, latest: Duration) -> RttSnapshot {
        let rtt = match self.rtt {
            None => RttSnapshot { latest, smoothed: latest, min: latest, variance: latest / 2 },
            Some(old) => RttSnapshot {
                latest,
                smoothed: (old.smoothed * 7 + latest) / 8,
                min: old.min.min(latest),
                variance: (old.variance * 3 + old.smoothed.abs_diff(latest)) / 4,
            },
        };
        self.rtt = Some(rtt);
        rtt
    }

    /// Detects losses by packet and time thresholds (RFC 9002, section 6.1). Returns the lost
    /// bytes.
    fn detect_losses(&mut self, largest_acked: u64) -> u64 {
        self.loss_time = None;
        let Some(rtt) = self.rtt else { return 0 };
        let delay = rtt.smoothed.max(rtt.latest) * 9 / 8;
        let (mut lost_bytes, mut largest_lost) = (0, None);
        let largest_acked = largest_acked.max(self.base as u64);
        for pn in self.base..largest_acked as usize {
            let packet = &mut self.packets[pn];
            if !packet.outstanding {
                continue;
            }
            if largest_acked - pn as u64 >= 3 || packet.time + delay <= self.now {
                packet.outstanding = false;
                lost_bytes += SIZE;
                largest_lost = Some((pn as u64, packet.time));
            } else {
                let at = packet.time + delay;
                self.loss_time = Some(self.loss_time.map_or(at, |earlier| earlier.min(at)));
            }
        }
        while self.packets.get(self.base).is_some_and(|packet| !packet.outstanding) {
            self.base += 1;
        }
        self.in_flight -= lost_bytes;
        if let Some((pn, time)) = largest_lost {
            self.backlog = self.backlog.saturating_add(lost_bytes);
            self.controller.on_packets_lost(self.now, lost_bytes, self.in_flight);
            self.controller.on_congestion_event(&CongestionEvent {
                now: self.now,
                lost_bytes,
                largest_lost_sent_time: time,
                largest_lost: PacketNumber(pn),
                in_flight: self.in_flight,
                rtt: rtt.latest,
                kind: CongestionKind::Loss,
            });
        }
        lost_bytes
    }
}
