//! Congestion controller wrapper that carries out the [decided](crate::decision::decide) startup
//! and measures delivery rates for the next cookie.
//!
//! Before [`Guided::begin`], it only measures.

use congestion::{
    AckBatch, Cap, CongestionEvent, CongestionKind, Controller, Snapshot, Start, burst,
    initial_window, minimum_window,
};
use units::{PacketNumber, Rate, Timestamp};

use crate::careful::{self, Careful, Order};
use crate::cookie::Verdict;
use crate::decision::{Course, StartDecision};
use crate::observe::DeliveryRates;
use crate::rapid::{self, Rapid};

/// Startup algorithm next to the controller.
#[derive(Debug)]
enum Startup {
    None,
    Careful(Box<Careful>),
    Rapid(Box<Rapid>),
}

/// Controller with a startup algorithm.
#[derive(Debug)]
pub struct Guided {
    inner: Box<dyn Controller>,
    mtu: u16,
    cap: Cap,
    startup: Startup,
    /// Window and rate of Careful Resume's jump.
    jump: Option<(u64, Rate)>,
    /// Window limit during Careful Resume's retreat.
    hold: Option<u64>,
    /// Verdict of Careful Resume after its end.
    verdict: Verdict,
    flight: Option<Flight>,
    rates: DeliveryRates,
}

impl Guided {
    /// Wraps a controller, for datagrams of `mtu` bytes.
    pub fn new(inner: Box<dyn Controller>, mtu: u16) -> Self {
        Self {
            inner,
            mtu,
            cap: Cap::default(),
            startup: Startup::None,
            jump: None,
            hold: None,
            verdict: Verdict::None,
            flight: None,
            rates: DeliveryRates::default(),
        }
    }

    /// Carries out a decision from the next packet on. Call it at the start of a response, and
    /// again if the size of the first frame was unknown then.
    pub fn begin(&mut self, decision: &StartDecision) {
        let StartDecision { start, course } = *decision;
        let window = start.window.unwrap_or(0);
        (self.jump, self.hold) = (None, None);
        self.startup = match course {
            Course::Normal => Startup::None,
            Course::Careful(saved) => {
                let initial = initial_window(self.mtu);
                let careful = Careful::new(saved, initial, self.mtu, self.inner.beta());
                Startup::Careful(Box::new(careful))
            }
            Course::Rapid => {
                let rtt = start.rtt.unwrap_or_default();
                Startup::Rapid(Box::new(Rapid::new(window, rtt, self.mtu, self.inner.beta())))
            }
        };
        // Careful Resume determines its own verdict.
        let is_jump = course == Course::Normal && window > initial_window(self.mtu);
        self.flight = is_jump.then(Flight::default);
        self.inner.start(start);
    }

    /// Outcome of the jump.
    pub fn verdict(&self) -> Verdict {
        match (&self.startup, &self.flight) {
            (Startup::Careful(careful), _) => careful.verdict(),
            (_, Some(flight)) => flight.verdict,
            _ => self.verdict,
        }
    }

    /// Measured delivery rates.
    pub fn rates(&self) -> &DeliveryRates {
        &self.rates
    }

    fn rapid(&self) -> Option<&Rapid> {
        match &self.startup {
            Startup::Rapid(rapid) => Some(rapid),
            _ => None,
        }
    }

    fn obey(&mut self, order: Option<Order>) {
        if let Some(order) = order {
            self.jump = None;
            match order {
                Order::Jump { window, rate } => self.jump = Some((window, rate)),
                Order::Window(window) => {
                    self.inner.start(Start { window: Some(window), ..Start::default() });
                }
                Order::Hold(window) => self.hold = Some(window),
                Order::Release { ssthresh } => {
                    let window = self.hold.take().unwrap_or(ssthresh).min(ssthresh);
                    self.inner.resume(window.max(minimum_window(self.mtu)), ssthresh);
                }
            }
        }
        if let Startup::Careful(careful) = &self.startup
            && let careful::CarefulPhase::Normal(_) = careful.phase()
        {
            self.verdict = careful.verdict();
            (self.startup, self.jump, self.hold) = (Startup::None, None, None);
        }
    }

    /// Window before caps, if it overrides the controller's.
    fn own_window(&self) -> Option<u64> {
        let window = self.jump.map(|(window, _)| window);
        let window = window.or(self.rapid().map(Rapid::window));
        match self.hold {
            Some(hold) => Some(hold.min(window.unwrap_or_else(|| self.inner.window()))),
            None => window,
        }
    }

    /// Rate before caps, if it overrides the controller's.
    fn own_rate(&self) -> Option<Rate> {
        self.jump.map(|(_, rate)| rate).or(self.rapid().map(Rapid::pacing_rate))
    }
}

impl Controller for Guided {
    fn on_sent(&mut self, now: Timestamp, pn: PacketNumber, bytes: u64, in_flight: u64) {
        self.inner.on_sent(now, pn, bytes, in_flight);
        if let Some(flight) = &mut self.flight {
            flight.on_sent(now, bytes);
        }
        let in_flight = in_flight.saturating_add(bytes);
        match &mut self.startup {
            Startup::None => {}
            Startup::Careful(careful) => {
                let order = careful.on_sent(now, bytes, in_flight);
                self.obey(order);
            }
            Startup::Rapid(rapid) => rapid.on_sent(now, in_flight),
        }
    }

    fn on_ack(&mut self, batch: &AckBatch) {
        self.inner.on_ack(batch);
        if let Some(sample) = &batch.rate {
            self.rates.on_sample(sample);
        }
        if let Some(flight) = &mut self.flight {
            flight.on_ack(batch, self.mtu);
        }
        match &mut self.startup {
            Startup::None => {}
            Startup::Careful(careful) => {
                let order = careful.on_ack(batch, self.inner.window());
                self.obey(order);
            }
            Startup::Rapid(rapid) => {
                rapid.on_ack(batch);
                if rapid.phase() == rapid::RapidPhase::Over {
                    let window = rapid.window();
                    self.inner.resume(window, window);
                    self.startup = Startup::None;
                }
            }
        }
    }

    fn on_packets_lost(&mut self, now: Timestamp, bytes: u64, in_flight: u64) {
        self.inner.on_packets_lost(now, bytes, in_flight);
        if let Some(flight) = &mut self.flight {
            flight.lost = flight.lost.saturating_add(bytes);
        }
        if let Startup::Rapid(rapid) = &mut self.startup {
            rapid.on_packets_lost(bytes);
        }
    }

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        self.inner.on_congestion_event(event);
        let is_persistent = event.kind == CongestionKind::Persistent;
        if let Some(flight) = &mut self.flight
            && (is_persistent || event.kind == CongestionKind::Ecn)
        {
            flight.judge(Verdict::Failed);
        }
        match &mut self.startup {
            Startup::None => {}
            Startup::Careful(careful) => {
                let order = careful.on_congestion_event(event);
                self.obey(order);
            }
            // The minimum window is the controller's (RFC 9002, section 7.6.2).
            Startup::Rapid(_) if is_persistent => self.startup = Startup::None,
            Startup::Rapid(rapid) => rapid.on_congestion_event(event),
        }
    }

    fn on_spurious_congestion(&mut self, now: Timestamp) {
        self.inner.on_spurious_congestion(now);
    }

    fn window(&self) -> u64 {
        let minimum = minimum_window(self.mtu);
        self.own_window().map_or_else(|| self.inner.window(), |own| self.cap.window(own, minimum))
    }

    fn pacing_rate(&self) -> Option<Rate> {
        match self.own_rate() {
            Some(own) => self.cap.rate(Some(own), self.mtu),
            None => self.inner.pacing_rate(),
        }
    }

    fn send_quantum(&self) -> u64 {
        match self.own_rate() {
            Some(_) => burst(self.pacing_rate(), self.mtu),
            None => self.inner.send_quantum(),
        }
    }

    /// Ends the startup algorithm.
    fn start(&mut self, start: Start) {
        (self.startup, self.jump, self.hold, self.flight) = (Startup::None, None, None, None);
        self.inner.start(start);
    }

    fn resume(&mut self, window: u64, threshold: u64) {
        (self.startup, self.jump, self.hold) = (Startup::None, None, None);
        self.inner.resume(window, threshold);
    }

    fn cap(&mut self, cap: Cap) {
        self.cap = cap;
        self.inner.cap(cap);
    }

    fn on_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
        self.inner.on_mtu(mtu);
    }

    fn beta(&self) -> f64 {
        self.inner.beta()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn snapshot(&self) -> Snapshot {
        let state = match &self.startup {
            Startup::None => return self.inner.snapshot(),
            Startup::Careful(careful) => careful.phase().name(),
            Startup::Rapid(_) => "rapid_start",
        };
        let (window, pacing_rate) = (self.window(), self.pacing_rate());
        Snapshot { state, window, pacing_rate, ..self.inner.snapshot() }
    }
}

/// First flight beyond the initial window, and its [`Verdict`].
///
/// RFC 9959 treats any loss as congestion. On lossy last miles, this would reject the cookies of
/// the viewers who benefit most. Here, a jump fails on ECN marks, on persistent congestion, or if
/// more than 1/8 of its bytes are lost before all of it is resolved.
#[derive(Clone, Copy, Default, Debug)]
struct Flight {
    first: Option<Timestamp>,
    last: Timestamp,
    sent: u64,
    lost: u64,
    /// Whether any of it was acknowledged. Later packets do not belong to it.
    is_sent: bool,
    verdict: Verdict,
    is_judged: bool,
}

impl Flight {
    /// Losses up to this many datagrams are tolerated, regardless of the fraction.
    const TOLERATED_LOSSES: u64 = 3;

    fn on_sent(&mut self, now: Timestamp, bytes: u64) {
        if !self.is_sent {
            self.first.get_or_insert(now);
            self.last = now;
            self.sent = self.sent.saturating_add(bytes);
        }
    }

    fn on_ack(&mut self, batch: &AckBatch, mtu: u16) {
        if self.first.is_none_or(|first| batch.largest_sent_time < first) {
            return;
        }
        self.is_sent = true;
        if batch.largest_sent_time >= self.last {
            let few = Self::TOLERATED_LOSSES * u64::from(mtu);
            self.judge(match self.sent {
                _ if self.lost > (self.sent / 8).max(few) => Verdict::Failed,
                // It did not exceed the initial window.
                sent if sent <= initial_window(mtu) => Verdict::None,
                _ => Verdict::Passed,
            });
        }
    }

    fn judge(&mut self, verdict: Verdict) {
        if !self.is_judged {
            (self.verdict, self.is_judged) = (verdict, true);
        }
    }
}

#[cfg(test)]
mod tests;
