//! Stalls of a session in the qlog of its connection.
//!
//! The qlog shows when data was sent and acknowledged, not when it was played. In a stall, no data
//! arrived in order for 200 ms or more. In a slow stretch, data was always outstanding, yet arrived
//! at less than 0.7 times the stream's rate. The times are the server's, about half a round trip
//! after the viewer's.

use records::Column;
use serde::Serialize;

use super::event::Line;
use super::facts::Facts;
use super::finding::Cause;
use super::gap::{Gap, PATH_CHANGE_MS, QUEUE_MS};
use super::progress::Progress;

/// Minimum length of a stall, in ms.
const MIN_STALL_MS: f64 = 200.0;
/// Window of the delivery rate, in ms, and the share of the stream's rate below which it is slow.
const WINDOW_MS: f64 = 1_000.0;
const SLOW_SHARE: f64 = 0.7;
/// A path that was this many times faster than the stream is slow because of other traffic.
const FAST: f64 = 1.5;
/// Minimum length of a slow stretch, in windows.
const MIN_SLOW_WINDOWS: u32 = 2;
/// Maximum number of stalls that are kept.
const MAX_STALLS: usize = 1_000;
/// A server that is alive sends a probe after a PTO. A silence beyond three of them is the
/// server's own, as is none below 200 ms.
const MISSED_PTOS: f64 = 3.0;
/// Maximum plausible time in a qlog, in ms: 100 days.
const MAX_TIME_MS: f64 = 8.64e9;

/// A time without media, or with too little.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stall {
    /// Start, in s after the start of the session.
    pub at_s: f64,
    /// Length in s.
    pub length_s: f64,
    /// Cause; `None` if the qlog does not show it.
    pub cause: Option<Cause>,
    /// Whether data arrived, but more slowly than the stream.
    pub is_slow: bool,
    /// Packets declared lost in it.
    pub lost: u64,
    /// Longest run of consecutive lost packets.
    pub run: u64,
    /// Largest round-trip time in it, in ms; 0 without a sample.
    pub rtt_ms: f64,
    /// Highest number of rounds of lost data that arrived at its end; 0 without one.
    pub rounds: u64,
    /// Delivered rate in Mbps, of a slow stretch; else 0.
    pub rate_mbps: f64,
}

/// Window of the delivery rate.
#[derive(Debug, Default)]
struct Window {
    start: f64,
    arrived: u64,
    /// Whether all sent data was delivered at some time.
    was_idle: bool,
    lost: u64,
    rtt: f64,
}

/// A slow stretch in progress.
#[derive(Debug)]
struct Slow {
    start: f64,
    windows: u32,
    bytes: u64,
    lost: u64,
    rtt: f64,
}

/// Analysis of a qlog, event by event.
#[derive(Debug)]
pub(super) struct Trace {
    /// Start and end of the session in ms since 1970.
    span: Option<(f64, f64)>,
    /// Start of the log in ms since 1970.
    reference: Option<f64>,
    stream_mbps: Option<f64>,
    /// Whether the path was much faster than the stream at some time.
    is_fast: bool,
    progress: Progress,
    now: f64,
    gap: Gap,
    last_arrival: Option<f64>,
    last_received: f64,
    last_path_change: Option<f64>,
    probes: i32,
    min_rtt: Option<f64>,
    smoothed_rtt: f64,
    rtt_variance: f64,
    congestion_window: f64,
    in_flight: f64,
    window: Window,
    slow: Option<Slow>,
    is_closed: bool,
    /// Damaged events.
    pub broken: u64,
    /// Stalls and slow stretches in order.
    pub stalls: Vec<Stall>,
    /// Number of changes of the viewer's address.
    pub path_changes: u64,
    /// Longest time from the first transmission of lost data to its arrival, in ms.
    pub longest_repair_ms: f64,
    /// Number of packets declared lost.
    pub lost: u64,
    /// Largest deficit of delivered media, in s: the buffer that bridges all stalls. `None` without
    /// the stream's rate.
    pub deficit_s: Option<f64>,
    /// Largest lead of delivered media until now.
    lead: Option<f64>,
    base: u64,
}

impl Trace {
    pub(super) fn new(facts: &Facts) -> Self {
        Self {
            span: facts.span_ms(),
            reference: None,
            stream_mbps: facts[Column::stream_mbps].filter(|rate| *rate > 0.0),
            is_fast: facts[Column::open_rate_mbps]
                .or(facts[Column::max_bandwidth_mbps])
                .zip(facts[Column::stream_mbps])
                .is_some_and(|(path, stream)| path >= FAST * stream),
            progress: Progress::default(),
            now: 0.0,
            gap: Gap::default(),
            last_arrival: None,
            last_received: 0.0,
            last_path_change: None,
            probes: 0,
            min_rtt: None,
            smoothed_rtt: 0.0,
            rtt_variance: 0.0,
            congestion_window: f64::INFINITY,
            in_flight: 0.0,
            window: Window::default(),
            slow: None,
            is_closed: false,
            broken: 0,
            stalls: Vec::new(),
            path_changes: 0,
            longest_repair_ms: 0.0,
            lost: 0,
            deficit_s: None,
            lead: None,
            base: 0,
        }
    }

    /// Smallest round-trip time in ms.
    pub(super) fn min_rtt_ms(&self) -> Option<f64> {
        self.min_rtt
    }

    /// End of the log, in s after the start of the session, if it ends before the session by 5 s or
    /// more without the end of the connection.
    pub(super) fn cut_at_s(&self) -> Option<f64> {
        let (_, end) = self.session();
        (!self.is_closed && self.now + 5_000.0 < end).then(|| self.since_start(self.now) / 1e3)
    }

    /// Start and end of the session in the log's time. Without times, the whole log.
    fn session(&self) -> (f64, f64) {
        match self.span.zip(self.reference) {
            Some(((start, end), reference)) => ((start - reference).max(0.0), end - reference),
            None => (0.0, MAX_TIME_MS),
        }
    }

    fn since_start(&self, at: f64) -> f64 {
        (at - self.session().0).max(0.0)
    }

    pub(super) fn on_header(&mut self, reference: Option<f64>) {
        self.reference = reference.filter(|time| *time >= 0.0);
    }

    /// Handles an event. Returns false after the end of the session.
    pub(super) fn on_event(&mut self, line: &Line) -> bool {
        let Some(time) = line.time.filter(|time| (0.0..=MAX_TIME_MS).contains(time)) else {
            self.broken += 1;
            return true;
        };
        if time > self.session().1 {
            return false;
        }
        self.advance(time.max(self.now));
        let data = &line.data;
        let is_media = data.header.packet_type == "1RTT";
        match line.name.as_deref().unwrap_or("") {
            "transport:packet_sent" if is_media => self.on_sent(line),
            "transport:packet_received" => {
                self.gap.received += 1;
                (self.last_received, self.probes) = (self.now, 0);
                let acks = data.frames.iter().filter(|frame| frame.frame_type == "ack");
                let mut has_arrived = false;
                for frame in acks.filter(|_| is_media) {
                    has_arrived |= self.progress.on_acked(&frame.acked_ranges);
                }
                if has_arrived {
                    self.on_arrival();
                }
            }
            "recovery:packet_lost" if is_media => {
                self.lost += 1;
                self.window.lost += 1;
                self.gap.on_lost(data.header.packet_number.unwrap_or(0));
            }
            "recovery:metrics_updated" => self.on_metrics(line),
            "mendcast:lost_data_recovered" => {
                let positive = |value: Option<f64>| value.filter(|v| *v >= 0.0).unwrap_or(0.0);
                self.gap.rounds = self.gap.rounds.max(positive(data.rounds));
                self.longest_repair_ms = self.longest_repair_ms.max(positive(data.after));
                // The event follows the acknowledgement that ended the gap.
                if let Some(last) =
                    self.stalls.last_mut().filter(|_| self.last_arrival == Some(time))
                {
                    last.rounds = last.rounds.max(positive(data.rounds) as u64);
                }
            }
            "connectivity:path_updated" => {
                self.path_changes += 1;
                self.last_path_change = Some(self.now);
                self.gap.path_changed = true;
            }
            "connectivity:connection_closed" => self.is_closed = true,
            _ => {}
        }
        true
    }

    fn on_sent(&mut self, line: &Line) {
        self.gap.sent += 1;
        if line.data.trigger.as_deref() == Some("pto_probe") {
            self.probes = (self.probes + 1).min(20);
        }
        let was_idle = self.progress.outstanding() == 0;
        let number = line.data.header.packet_number.unwrap_or(0);
        if self.progress.on_sent(number, &line.data.frames) && was_idle {
            // Silence counts only while an answer is due.
            self.last_received = self.now;
        }
    }

    fn on_metrics(&mut self, line: &Line) {
        let data = &line.data;
        let valid = |value: Option<f64>| value.filter(|value| *value >= 0.0);
        if let Some(rtt) = valid(data.min_rtt) {
            self.min_rtt = Some(rtt);
        }
        if let Some(rtt) = valid(data.latest_rtt) {
            self.gap.rtt = self.gap.rtt.max(rtt);
            self.window.rtt = self.window.rtt.max(rtt);
        }
        self.smoothed_rtt = valid(data.smoothed_rtt).unwrap_or(self.smoothed_rtt);
        self.rtt_variance = valid(data.rtt_variance).unwrap_or(self.rtt_variance);
        self.congestion_window = valid(data.congestion_window).unwrap_or(self.congestion_window);
        self.in_flight = valid(data.bytes_in_flight).unwrap_or(self.in_flight);
    }

    /// Accounts the time up to this event.
    fn advance(&mut self, to: f64) {
        let passed = to - self.now;
        let is_idle = self.progress.outstanding() == 0;
        if is_idle {
            self.gap.idle += passed;
            self.window.was_idle = true;
        } else {
            self.gap.silence = self.gap.silence.max(to - self.last_received);
            // RFC 9002, section 6.2.1, with the client's default maximum delay, doubled per probe.
            let pto = self.smoothed_rtt + (4.0 * self.rtt_variance).max(1.0) + 25.0;
            let allowed = MISSED_PTOS * pto * f64::from(self.probes).exp2();
            if self.smoothed_rtt > 0.0 && passed > allowed.max(MIN_STALL_MS) {
                self.gap.frozen_server += passed;
            }
        }
        if self.in_flight >= 0.9 * self.congestion_window {
            self.gap.full_window += passed;
        }
        self.now = to;
        while self.now >= self.window.start + WINDOW_MS {
            self.end_window();
        }
    }

    fn on_arrival(&mut self) {
        let (start, _) = self.session();
        if self.now >= start {
            self.count_deficit();
            if let Some(last) = self.last_arrival.filter(|last| *last >= start)
                && self.now - last >= MIN_STALL_MS
            {
                self.add_gap(last);
            }
        }
        self.last_arrival = Some(self.now);
        let path_changed = self.last_path_change.is_some_and(|at| self.now - at <= PATH_CHANGE_MS);
        self.gap = Gap::new(path_changed);
    }

    fn count_deficit(&mut self) {
        let Some(rate) = self.stream_mbps else { return };
        if self.lead.is_none() {
            self.base = self.progress.arrived;
        }
        let media_s = (self.progress.arrived - self.base) as f64 * 8e-6 / rate;
        let lead = media_s - self.now / 1e3;
        let most = self.lead.map_or(lead, |most| most.max(lead));
        self.lead = Some(most);
        self.deficit_s = Some(self.deficit_s.unwrap_or(0.0).max(most - lead));
    }

    fn add_gap(&mut self, from: f64) {
        let length = self.now - from;
        let (gap, min_rtt) = (&self.gap, self.min_rtt.unwrap_or(0.0));
        let stall = Stall {
            at_s: self.since_start(from) / 1e3,
            length_s: length / 1e3,
            cause: gap.cause(length, min_rtt, self.smoothed_rtt),
            is_slow: false,
            lost: gap.lost,
            run: gap.run,
            rtt_ms: gap.rtt,
            rounds: gap.rounds as u64,
            rate_mbps: 0.0,
        };
        self.add(stall);
    }

    fn add(&mut self, stall: Stall) {
        if self.stalls.len() < MAX_STALLS {
            self.stalls.push(stall);
        }
    }

    /// Ends a window of the delivery rate, and starts the next.
    fn end_window(&mut self) {
        let window = core::mem::take(&mut self.window);
        let bytes = self.progress.arrived - window.arrived.min(self.progress.arrived);
        let end = window.start + WINDOW_MS;
        // After a long silence, skip to the last whole window: the silence is a stall.
        let start = end.max(((self.now - WINDOW_MS) / WINDOW_MS).floor() * WINDOW_MS);
        self.window = Window { start, arrived: self.progress.arrived, ..Window::default() };
        let is_slow = self.stream_mbps.is_some_and(|rate| {
            bytes as f64 * 8e-6 < SLOW_SHARE * rate
                && !window.was_idle
                && window.start >= self.session().0
        }) && self.progress.arrived > 0
            && bytes > 0;
        if !is_slow || start > end {
            return self.end_slow();
        }
        let slow = self.slow.get_or_insert(Slow {
            start: window.start,
            windows: 0,
            bytes: 0,
            lost: 0,
            rtt: 0.0,
        });
        slow.windows += 1;
        slow.bytes += bytes;
        slow.lost += window.lost;
        slow.rtt = slow.rtt.max(window.rtt);
    }

    fn end_slow(&mut self) {
        let Some(slow) = self.slow.take().filter(|slow| slow.windows >= MIN_SLOW_WINDOWS) else {
            return;
        };
        let length = f64::from(slow.windows) * WINDOW_MS;
        let is_queue = slow.rtt - self.min_rtt.unwrap_or(0.0) >= QUEUE_MS;
        let cause = match (slow.lost > 0, is_queue) {
            (_, true) if self.is_fast => Cause::Queue,
            (_, true) | (false, false) => Cause::Capacity,
            (true, false) => Cause::Controller,
        };
        self.add(Stall {
            at_s: self.since_start(slow.start) / 1e3,
            length_s: length / 1e3,
            cause: Some(cause),
            is_slow: true,
            lost: slow.lost,
            run: 0,
            rtt_ms: slow.rtt,
            rounds: 0,
            rate_mbps: slow.bytes as f64 * 8e-3 / length,
        });
    }

    /// Ends the log: a stall that lasts until then counts.
    pub(super) fn finish(&mut self) {
        self.end_slow();
        let end = self.session().1;
        if end < MAX_TIME_MS && self.cut_at_s().is_none() {
            self.advance(end.max(self.now));
        }
        if let Some(last) = self.last_arrival.filter(|last| *last >= self.session().0)
            && self.now - last >= MIN_STALL_MS
        {
            self.add_gap(last);
        }
        self.stalls.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    }
}
