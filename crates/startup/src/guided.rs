//! A congestion controller with a start: what [`decide`](crate::decision::decide) has decided is carried out beside
//! any other controller, and what the connection learns for its next cookie is gathered on the way.
//!
//! Without a [decision](Guided::begin) it is the controller that it holds, and only watches.

use congestion::{
    AckBatch, Cap, CongestionEvent, CongestionKind, Controller, Snapshot, Start, burst,
    initial_window, minimum_window,
};
use units::{PacketNumber, Rate, Timestamp};

use crate::careful::{self, Careful, Order};
use crate::cookie::Verdict;
use crate::decision::{Course, Decision};
use crate::observe::DeliveryRates;
use crate::rapid::{self, Rapid};

/// The multiplicative decrease of CUBIC, which RFC 9959, section 2.2 takes where the controller has its own. BBR and
/// Copa have none: the default of that section.
fn beta(controller: &dyn Controller) -> f64 {
    if controller.name().starts_with("cubic") { 0.7 } else { 0.5 }
}

/// What stands beside the controller.
#[derive(Debug)]
enum Beside {
    Nothing,
    Careful(Box<Careful>),
    Rapid(Box<Rapid>),
}

/// A controller that starts as it was decided.
#[derive(Debug)]
pub struct Guided {
    inner: Box<dyn Controller>,
    mtu: u16,
    cap: Cap,
    beside: Beside,
    /// Window and rate of Careful Resume's jump.
    jump: Option<(u64, Rate)>,
    /// The window that Careful Resume's retreat holds.
    hold: Option<u64>,
    /// The verdict of Careful Resume, once that is over.
    verdict: Verdict,
    flight: Option<Flight>,
    rates: DeliveryRates,
}

impl Guided {
    /// Around this controller, for datagrams of `mtu` bytes.
    pub fn new(inner: Box<dyn Controller>, mtu: u16) -> Self {
        Self {
            inner,
            mtu,
            cap: Cap::default(),
            beside: Beside::Nothing,
            jump: None,
            hold: None,
            verdict: Verdict::None,
            flight: None,
            rates: DeliveryRates::default(),
        }
    }

    /// Carries out this decision from the next packet on. To be called when a response begins, and again when the size of
    /// its first frame comes too late for that.
    pub fn begin(&mut self, decision: &Decision) {
        let Decision { start, course } = *decision;
        let window = start.window.unwrap_or(0);
        (self.jump, self.hold) = (None, None);
        self.beside = match course {
            Course::Normal => Beside::Nothing,
            Course::Careful(saved) => {
                let initial = initial_window(self.mtu);
                let careful = Careful::new(saved, initial, self.mtu, beta(&*self.inner));
                Beside::Careful(Box::new(careful))
            }
            Course::Rapid => {
                let rtt = start.rtt.unwrap_or_default();
                Beside::Rapid(Box::new(Rapid::new(window, rtt, self.mtu, beta(&*self.inner))))
            }
        };
        // Careful Resume judges its own jump.
        let is_jump = course == Course::Normal && window > initial_window(self.mtu);
        self.flight = is_jump.then(Flight::default);
        self.inner.start(start);
    }

    /// What became of the jump.
    pub fn verdict(&self) -> Verdict {
        match (&self.beside, &self.flight) {
            (Beside::Careful(careful), _) => careful.verdict(),
            (_, Some(flight)) => flight.verdict,
            _ => self.verdict,
        }
    }

    /// The delivery rates of this path.
    pub fn rates(&self) -> &DeliveryRates {
        &self.rates
    }

    fn rapid(&self) -> Option<&Rapid> {
        match &self.beside {
            Beside::Rapid(rapid) => Some(rapid),
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
        if let Beside::Careful(careful) = &self.beside
            && let careful::Phase::Normal(_) = careful.phase()
        {
            self.verdict = careful.verdict();
            (self.beside, self.jump, self.hold) = (Beside::Nothing, None, None);
        }
    }

    /// The window before caps, where the controller's own does not hold.
    fn own_window(&self) -> Option<u64> {
        let window = self.jump.map(|(window, _)| window);
        let window = window.or(self.rapid().map(Rapid::window));
        match self.hold {
            Some(hold) => Some(hold.min(window.unwrap_or_else(|| self.inner.window()))),
            None => window,
        }
    }

    /// The rate before caps, where the controller's own does not hold.
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
        match &mut self.beside {
            Beside::Nothing => {}
            Beside::Careful(careful) => {
                let order = careful.on_sent(now, bytes, in_flight);
                self.obey(order);
            }
            Beside::Rapid(rapid) => rapid.on_sent(now, in_flight),
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
        match &mut self.beside {
            Beside::Nothing => {}
            Beside::Careful(careful) => {
                let order = careful.on_ack(batch, self.inner.window());
                self.obey(order);
            }
            Beside::Rapid(rapid) => {
                rapid.on_ack(batch);
                if rapid.phase() == rapid::Phase::Over {
                    let window = rapid.window();
                    self.inner.resume(window, window);
                    self.beside = Beside::Nothing;
                }
            }
        }
    }

    fn on_packets_lost(&mut self, now: Timestamp, bytes: u64, in_flight: u64) {
        self.inner.on_packets_lost(now, bytes, in_flight);
        if let Some(flight) = &mut self.flight {
            flight.lost = flight.lost.saturating_add(bytes);
        }
        if let Beside::Rapid(rapid) = &mut self.beside {
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
        match &mut self.beside {
            Beside::Nothing => {}
            Beside::Careful(careful) => {
                let order = careful.on_congestion_event(event);
                self.obey(order);
            }
            // The minimum window is the controller's (RFC 9002, section 7.6.2).
            Beside::Rapid(_) if is_persistent => self.beside = Beside::Nothing,
            Beside::Rapid(rapid) => rapid.on_congestion_event(event),
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

    /// The decision that was under way is over.
    fn start(&mut self, start: Start) {
        (self.beside, self.jump, self.hold, self.flight) = (Beside::Nothing, None, None, None);
        self.inner.start(start);
    }

    fn resume(&mut self, window: u64, threshold: u64) {
        (self.beside, self.jump, self.hold) = (Beside::Nothing, None, None);
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

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn snapshot(&self) -> Snapshot {
        let state = match &self.beside {
            Beside::Nothing => return self.inner.snapshot(),
            Beside::Careful(careful) => careful.phase().name(),
            Beside::Rapid(_) => "rapid_start",
        };
        let (window, pacing_rate) = (self.window(), self.pacing_rate());
        Snapshot { state, window, pacing_rate, ..self.inner.snapshot() }
    }
}

/// A first flight beyond the initial window, as [`Verdict`] judges it.
///
/// RFC 9959 takes any loss for congestion. On a lossy last mile that would refuse the next cookie to most of those whom
/// it serves best: here a jump has failed when more than one byte in eight was lost before all of it was answered,
/// when packets came marked, or when congestion was persistent.
#[derive(Clone, Copy, Default, Debug)]
struct Flight {
    first: Option<Timestamp>,
    last: Timestamp,
    sent: u64,
    lost: u64,
    /// Whether something of it was acknowledged: what leaves from then on is not part of it.
    is_sent: bool,
    verdict: Verdict,
    is_judged: bool,
}

impl Flight {
    /// Losses are failures from this many datagrams on: two of ten are not the path's rate.
    const FEW: u64 = 3;

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
            let few = Self::FEW * u64::from(mtu);
            self.judge(match self.sent {
                _ if self.lost > (self.sent / 8).max(few) => Verdict::Failed,
                // Nothing was tried that the initial window would not have allowed.
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
