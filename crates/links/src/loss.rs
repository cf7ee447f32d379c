//! Loss models.
//!
//! The fate of a packet is a function of the seed and the packet's index among those offered to the
//! link, or of the seed and the time slot. The crate's documentation explains why.

use core::str::FromStr;
use core::time::Duration;
use std::sync::Arc;

use units::Timestamp;

use crate::calls;
use crate::random::{DrawStream, Probability};
use crate::sessions::{self, SessionChain};
use crate::text::{Fields, ParseError, parse_duration};
use crate::trace::Rows;
use crate::window::Window;

/// Loss model.
///
/// As text: `none`; `5%`; `corr:rate=5%,correlation=25%`; `gauss:mean=5%,sd=2%,every=1s`;
/// `ge:p=0.2,r=0.8,good=1%,bad=40%,slot=30ms` (without `slot`, the chain steps per packet);
/// `outages:rate=5%,length=2ms` (a chain in time with outages of 2 ms on average); `lomax:rate=1%`
/// (optionally `alpha`, `sigma`, `max`); `calls:rate=5%` (optionally `reading=slots`);
/// `gilbert:file=PATH` (optionally `network=wifi`, `row=7`, `bad=50%`); `script:0,7-9,1s+200ms`
/// (packets counted from 0, and windows `AT+FOR`).
///
/// ```
/// use mendcast_links::Loss;
///
/// let loss: Loss = "outages:rate=5%,length=30ms".parse().unwrap();
/// assert!(matches!(loss, Loss::GilbertElliott { slot: Some(_), .. }));
/// let error = "outages:rate=500%".parse::<Loss>().unwrap_err();
/// assert!(error.to_string().contains("rate"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Independent losses with this probability.
    Independent(Probability),
    /// netem's `loss RATE CORRELATION` (`get_crandom` in `sch_netem.c`): each packet's draw is
    /// blended with the previous one. This narrows the distribution of draws, so the actual loss
    /// rate is far below `rate`: with a correlation of 25 %, 0.19 % for 5 % and 1.7 % for 10 %.
    Correlated {
        /// netem's nominal rate.
        rate: Probability,
        /// Weight of the previous draw.
        correlation: Probability,
    },
    /// A loss rate drawn per slot from a Gaussian distribution, clamped to three standard
    /// deviations and to 0 to 1.
    Gaussian {
        /// Mean of the rate.
        mean: Probability,
        /// Standard deviation of the rate.
        sd: Probability,
        /// Length of a slot, above zero.
        every: Duration,
    },
    /// Gilbert-Elliott: a chain with a good and a bad state, each with its loss rate. Starts good.
    GilbertElliott {
        /// Probability of a transition from good to bad.
        p: Probability,
        /// Probability of a transition from bad to good.
        r: Probability,
        /// Loss rate in the good state.
        good: Probability,
        /// Loss rate in the bad state.
        bad: Probability,
        /// Time between steps, above zero. `None` for one step per packet.
        slot: Option<Duration>,
    },
    /// Bursts of consecutive losses, with lengths from a discretized Lomax distribution:
    /// P(length > k) = (1 + k / sigma)^−alpha. Gaps are geometric, with at least one packet. The
    /// bursts measured by ART fit `alpha` 1.08, `sigma` 1.78.
    Lomax {
        /// Mean loss rate. At most m / (m + 1) is achievable with a mean burst of m packets.
        rate: Probability,
        /// Shape, above zero.
        alpha: f64,
        /// Scale in packets, above zero.
        sigma: f64,
        /// Maximum burst in packets, from 1. Longer ones are truncated. (ART's bursts have a mean
        /// of 9.4 packets if truncated at 1,000, and of 22.8 otherwise. More than half of the
        /// latter results from bursts longer than an experiment.)
        max: u32,
    },
    /// Losses of calls (sources in `calls.rs`): a chain with a step per 20 ms.
    Calls {
        /// Mean loss rate, 1 % to 20 %.
        rate: Probability,
        /// Effect of a step on the packets in its slot.
        reading: Reading,
    },
    /// Gilbert chain of a recorded session, which the link's seed selects, with a step per 16.7 ms.
    ///
    /// In the recordings, a row is bad if any of its packets was lost. The loss rate within a bad
    /// row and the pattern within a row are therefore assumptions. With `bad` = 100 %, the mean
    /// loss is the highest that the recording allows, p ÷ (p + r).
    Sessions {
        /// Candidate sessions, at least one.
        sessions: Arc<[SessionChain]>,
        /// Loss rate of bad rows. Default 50 %, about the loss rate of [`Loss::Calls`] in slots
        /// with a loss.
        bad: Probability,
    },
    /// Explicit packets and times.
    Script {
        /// First and last index of each run, counted from 0 among the packets offered to the link.
        packets: Vec<(u64, u64)>,
        /// Windows with complete loss.
        windows: Vec<Window>,
    },
}

/// Interpretation of a chain fitted to packets 20 ms apart, for packets that are closer together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reading {
    /// A slot of 20 ms has a loss rate, and each packet its own fate: if one packet of a slot is
    /// lost, so is about half of the others.
    #[default]
    Packets,
    /// All packets of a slot share one fate: the burstiest interpretation.
    Slots,
}

const EXPECTED: &str = "none, a probability like `5%`, or one of `corr:rate=5%,correlation=25%`, \
    `gauss:mean=5%,sd=2%,every=1s`, `ge:p=0.2,r=0.8,good=1%,bad=40%,slot=30ms`, \
    `outages:rate=5%,length=2ms`, `lomax:rate=1%,alpha=1.08,sigma=1.78,max=1000`, \
    `calls:rate=5%,reading=packets`, `gilbert:file=PATH,network=wifi,row=7,bad=50%`, \
    `script:0,7-9,1s+200ms`";

impl FromStr for Loss {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        let Some((model, settings)) = text.split_once(':') else {
            return match text {
                "none" => Ok(Self::None),
                _ => text
                    .parse()
                    .map(Self::Independent)
                    .map_err(|_: ParseError| ParseError::new(text, EXPECTED)),
            };
        };
        if model == "script" {
            return read_script(settings).ok_or_else(|| ParseError::new(text, EXPECTED));
        }
        let mut fields = Fields::new(text, settings, EXPECTED)?;
        let loss = match model {
            "corr" => Self::Correlated {
                rate: fields.required("rate")?,
                correlation: fields.required("correlation")?,
            },
            "gauss" => Self::Gaussian {
                mean: fields.required("mean")?,
                sd: fields.required("sd")?,
                every: fields.optional_with("every", parse_slot)?.unwrap_or(Duration::from_secs(1)),
            },
            "ge" => Self::GilbertElliott {
                p: fields.required("p")?,
                r: fields.required("r")?,
                good: fields.optional("good")?.unwrap_or(Probability::ZERO),
                bad: fields.optional("bad")?.unwrap_or(Probability::ONE),
                slot: fields.optional_with("slot", parse_slot)?,
            },
            "outages" => {
                let rate: Probability = fields.required("rate")?;
                let length = fields.optional_with("length", parse_slot)?;
                let length = length.unwrap_or(Duration::from_millis(2));
                // An outage lasts a geometric number of steps, 1 ÷ r on average. The chain is bad
                // for p ÷ (p + r) of the time.
                let slot = (length / 20).max(MIN_SLOT);
                let r = slot.as_secs_f64() / length.as_secs_f64();
                let p = r * rate.as_f64() / (1.0 - rate.as_f64());
                Self::GilbertElliott {
                    p: Probability::clamped(p),
                    r: Probability::clamped(r),
                    good: Probability::ZERO,
                    bad: Probability::ONE,
                    slot: Some(slot),
                }
            }
            "lomax" => {
                let positive = |text: &str| match text.parse::<f64>() {
                    Ok(n) if n.is_finite() && n > 0.0 => Ok(n),
                    _ => Err(ParseError::new(text, "a number above 0")),
                };
                let length = |text: &str| match text.parse::<u32>() {
                    Ok(n) if (1..=1_000_000).contains(&n) => Ok(n),
                    _ => Err(ParseError::new(text, "a number of packets from 1 to 1000000")),
                };
                Self::Lomax {
                    rate: fields.required("rate")?,
                    alpha: fields.optional_with("alpha", positive)?.unwrap_or(1.08),
                    sigma: fields.optional_with("sigma", positive)?.unwrap_or(1.78),
                    max: fields.optional_with("max", length)?.unwrap_or(1_000),
                }
            }
            "calls" => read_calls(text, &mut fields)?,
            "gilbert" => {
                let (sessions, bad) = sessions::read(text, &mut fields)?;
                Self::Sessions { sessions, bad }
            }
            _ => return Err(ParseError::new(text, EXPECTED)),
        };
        fields.finish()?;
        Ok(loss)
    }
}

const MIN_SLOT: Duration = Duration::from_micros(100);

fn parse_slot(text: &str) -> Result<Duration, ParseError> {
    match parse_duration(text)? {
        slot if slot >= MIN_SLOT => Ok(slot),
        _ => Err(ParseError::new(text, "a slot of at least 100us")),
    }
}

fn read_calls(text: &str, fields: &mut Fields<'_>) -> Result<Loss, ParseError> {
    let rate = |text: &str| match text.parse::<Probability>()? {
        rate if (Probability::clamped(*calls::RATES.start())
            ..=Probability::clamped(*calls::RATES.end()))
            .contains(&rate) =>
        {
            Ok(rate)
        }
        _ => Err(ParseError::new(text, "a rate from 1% to 20%")),
    };
    let reading = |text: &str| match text {
        "packets" => Ok(Reading::Packets),
        "slots" => Ok(Reading::Slots),
        _ => Err(ParseError::new(text, "`packets` or `slots`")),
    };
    let missing = || ParseError::new(text, "`calls:rate=5%`");
    Ok(Loss::Calls {
        rate: fields.optional_with("rate", rate)?.ok_or_else(missing)?,
        reading: fields.optional_with("reading", reading)?.unwrap_or_default(),
    })
}

fn read_script(items: &str) -> Option<Loss> {
    let (mut packets, mut windows) = (Vec::new(), Vec::new());
    for item in items.split(',').map(str::trim) {
        if let Some((at, length)) = item.split_once('+') {
            let at = Timestamp::ZERO + parse_duration(at).ok()?;
            windows.push(Window { at, length: parse_duration(length).ok()? });
        } else {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            packets.push((first.parse().ok()?, last.parse().ok()?));
        }
    }
    Some(Loss::Script { packets, windows })
}

/// State of a loss model.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    model: Model,
    /// Draws for the fates of packets.
    fates: DrawStream,
    /// Draws for the states of the model.
    states: DrawStream,
}

#[derive(Clone, Debug)]
enum Model {
    None,
    Independent(Probability),
    Correlated { rate: u32, rho: u32, last: u32, fate: Stepped },
    Gaussian { mean: f64, sd: f64, every: u64, current: Option<(u64, Probability)> },
    GilbertElliott { chain: Chain, good: Probability, bad: Probability, slot: Option<u64> },
    Bursts { start: Probability, exceeds: Arc<[Probability]>, left: usize, fate: Stepped },
    Calls { chain: Box<calls::Chain>, reading: Reading },
    Rows { rows: Arc<Rows>, cursor: usize },
    Script { packets: Vec<(u64, u64)>, windows: Vec<Window> },
}

impl LossProcess {
    /// Creates the process of `loss` or, without `loss`, of the trace's loss column.
    pub(crate) fn new(
        loss: Option<&Loss>,
        trace: Option<&Arc<Rows>>,
        seed: u64,
        link: &str,
    ) -> Self {
        let fates = DrawStream::new(seed, link, "loss");
        let states = DrawStream::new(seed, link, "loss state");
        let model = match (loss, trace) {
            (None, Some(rows)) => Model::Rows { rows: Arc::clone(rows), cursor: 0 },
            (None, None) => Model::None,
            (Some(loss), _) => Model::new(loss, fates, states),
        };
        Self { model, fates, states }
    }

    /// Returns true if the packet with this index is lost at `now`.
    ///
    /// Indexes must increase from call to call, possibly with gaps.
    #[inline]
    pub(crate) fn is_lost(&mut self, now: Timestamp, index: u64) -> bool {
        let fate = self.fates.at(index);
        match &mut self.model {
            Model::None => false,
            Model::Independent(rate) => rate.hit(fate),
            Model::Correlated { rate, rho, last, fate } => fate.at(index, |n| {
                let (value, rho) = (self.fates.at(n) >> 32, u64::from(*rho) + 1);
                let blended = (value * ((1 << 32) - rho) + u64::from(*last) * rho) >> 32;
                *last = blended as u32;
                *rate > 0 && *last <= *rate
            }),
            Model::Gaussian { mean, sd, every, current } => {
                let slot = now.as_nanos() / *every;
                let rate = match *current {
                    Some((known, rate)) if known == slot => rate,
                    _ => {
                        let deviation = self.states.gaussian(slot) as f64 / 65_536.0;
                        Probability::clamped(*mean + *sd * deviation)
                    }
                };
                *current = Some((slot, rate));
                rate.hit(fate)
            }
            Model::GilbertElliott { chain, good, bad, slot } => {
                let step = slot.map_or(index, |length| now.as_nanos() / length);
                let rate = if chain.is_bad(self.states, step) { bad } else { good };
                rate.hit(fate)
            }
            Model::Bursts { start, exceeds, left, fate } => fate.at(index, |n| {
                if *left > 0 {
                    *left -= 1;
                    // One packet passes after the last loss of a burst.
                    return *left > 0;
                }
                let begins = start.hit(self.fates.at(n));
                if begins {
                    let draw = self.states.at(n);
                    *left = 1 + exceeds.partition_point(|longer| longer.hit(draw));
                }
                begins
            }),
            Model::Calls { chain, reading } => {
                let slot = now.as_nanos() / calls::SLOT.as_nanos() as u64;
                let fate = match reading {
                    Reading::Packets => fate,
                    Reading::Slots => self.fates.at(slot),
                };
                chain.rate(self.states, slot).hit(fate)
            }
            Model::Rows { rows, cursor } => rows.at(now, cursor).0.loss.hit(fate),
            Model::Script { packets, windows } => {
                packets.iter().any(|&(first, last)| (first..=last).contains(&index))
                    || windows.iter().any(|window| window.contains(now))
            }
        }
    }
}

impl Model {
    fn new(loss: &Loss, fates: DrawStream, states: DrawStream) -> Self {
        let whole_nanos =
            |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1);
        let as_u32 = |p: Probability| (p.as_f64() * f64::from(u32::MAX)) as u32;
        match *loss {
            Loss::None => Self::None,
            Loss::Independent(rate) => Self::Independent(rate),
            Loss::Correlated { rate, correlation } => Self::Correlated {
                rate: as_u32(rate),
                rho: as_u32(correlation),
                last: (fates.at(u64::MAX) >> 32) as u32,
                fate: Stepped::default(),
            },
            Loss::Gaussian { mean, sd, every } => Self::Gaussian {
                mean: mean.as_f64(),
                sd: sd.as_f64(),
                every: whole_nanos(every),
                current: None,
            },
            Loss::GilbertElliott { p, r, good, bad, slot } => Self::GilbertElliott {
                chain: Chain::new(p, r),
                good,
                bad,
                slot: slot.map(whole_nanos),
            },
            Loss::Sessions { ref sessions, bad } => {
                // The index of a slot never reaches u64::MAX, so no state uses this draw.
                let drawn = u128::from(states.at(u64::MAX)) * sessions.len() as u128;
                let SessionChain { p, r } = sessions[(drawn >> 64) as usize];
                let (good, slot) = (Probability::ZERO, Some(whole_nanos(sessions::ROW)));
                Self::GilbertElliott { chain: Chain::new(p, r), good, bad, slot }
            }
            Loss::Lomax { rate, alpha, sigma, max } => {
                let exceeds = lomax_exceeds(alpha, sigma, max);
                let mean = 1.0 + exceeds.iter().map(|p| p.as_f64()).sum::<f64>();
                let start = burst_start(rate.as_f64(), mean);
                Self::Bursts { start, exceeds, left: 0, fate: Stepped::default() }
            }
            Loss::Calls { rate, reading } => {
                Self::Calls { chain: Box::new(calls::Chain::new(rate.as_f64())), reading }
            }
            Loss::Script { ref packets, ref windows } => {
                Self::Script { packets: packets.clone(), windows: windows.clone() }
            }
        }
    }
}

/// P(length > k) for k from 1 to `max` − 1.
fn lomax_exceeds(alpha: f64, sigma: f64, max: u32) -> Arc<[Probability]> {
    (1..max).map(|k| Probability::clamped((1.0 + f64::from(k) / sigma).powf(-alpha))).collect()
}

/// Returns the probability that a packet starts a burst, for a mean loss rate of `rate` with a mean
/// burst of `mean` packets.
///
/// After a burst, one packet passes. Each following packet starts the next burst with probability
/// q, so the mean gap is 1 / q. The fraction of lost packets is mean / (mean + 1 / q).
fn burst_start(rate: f64, mean: f64) -> Probability {
    if rate >= 1.0 { Probability::ONE } else { Probability::clamped(rate / (mean * (1.0 - rate))) }
}

/// Evaluates fates packet by packet, although some packets are dropped elsewhere.
#[derive(Clone, Debug, Default)]
struct Stepped {
    next: u64,
}

impl Stepped {
    /// Steps through all indexes up to `index` and returns the fate of the last one.
    #[inline]
    fn at(&mut self, index: u64, mut step: impl FnMut(u64) -> bool) -> bool {
        let mut lost = false;
        while self.next <= index {
            lost = step(self.next);
            self.next += 1;
        }
        lost
    }
}

/// The two-state chain of Gilbert and Elliott.
#[derive(Clone, Debug)]
struct Chain {
    /// Probability of a bad step after a good one.
    enter: Probability,
    /// Probability of a bad step after a bad one.
    remain: Probability,
    /// The last evaluated step, and whether it was bad.
    known: (u64, bool),
}

impl Chain {
    fn new(enter: Probability, leave: Probability) -> Self {
        Self { enter, remain: leave.complement(), known: (0, false) }
    }

    /// Returns true if the chain is in the bad state at `step`.
    ///
    /// Searches backwards only to a step with a draw that determines its state regardless of the
    /// previous one. Long gaps are therefore cheap unless transitions are rare.
    #[inline]
    fn is_bad(&mut self, states: DrawStream, step: u64) -> bool {
        let mut inverted = false;
        let mut at = step;
        let bad = loop {
            if at == 0 {
                break false;
            }
            if at == self.known.0 {
                break self.known.1;
            }
            let draw = states.at(at);
            match (self.enter.hit(draw), self.remain.hit(draw)) {
                (true, true) => break true,
                (false, false) => break false,
                (enters, _) => inverted ^= enters,
            }
            at -= 1;
        };
        self.known = (step, bad ^ inverted);
        self.known.1
    }
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;
