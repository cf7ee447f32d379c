//! Properties of real links: batched delivery, rare acknowledgements, steps of the round-trip time,
//! ECN treatment, policers. Shares and distributions of a population, and the draw of a session.

use recovery::Random;

use super::distribution::Distribution;
use super::section::KeyReader;
use super::session::{ACCESS, Acks, Bunches, EcnFault, Links, Policer};
use super::unit::NumberUnit;
use crate::error::Error;

/// Maximum round-trip-time steps of a session.
const MAX_STEPS: usize = 1_000;
/// Largest `awake` as a share of the period.
const MAX_AWAKE: f64 = 0.9;
/// Minimum time between two steps, in seconds.
const MIN_GAP_S: f64 = 0.001;

/// Section `links` of a population: shares and distributions. Without it every session has
/// [`Links::default`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LinkShares {
    /// Share of viewers with Chromium's acknowledgement behaviour.
    browsers: f64,
    /// Share of the other viewers with rare acknowledgements.
    rare: f64,
    /// Packets per acknowledgement of these clients.
    each: Distribution,
    /// Maximum acknowledgement delay of these clients.
    within_ms: Distribution,
    /// Properties by access, in the order of [`ACCESS`].
    accesses: Vec<AccessLinks>,
}

/// Links of one kind of access. Shares refer to viewers with that access.
#[derive(Clone, Debug, PartialEq)]
struct AccessLinks {
    bunches: Bunching,
    bunches_up: Bunching,
    steps: Stepping,
    bleach: f64,
    drop: f64,
    policer: Policing,
}

#[derive(Clone, Debug, PartialEq)]
struct Bunching {
    share: f64,
    every_ms: Distribution,
    awake_ms: Distribution,
}

#[derive(Clone, Debug, PartialEq)]
struct Stepping {
    share: f64,
    per_hour: Distribution,
    /// Round-trip time of each step as a multiple of the session's initial one.
    factor: Distribution,
}

#[derive(Clone, Debug, PartialEq)]
struct Policing {
    share: f64,
    /// Rate as a multiple of the stream's.
    times: Distribution,
    burst_kb: Distribution,
}

fn share(section: &mut KeyReader) -> Result<f64, Error> {
    section.number("share", NumberUnit::One, 0.0..=1.0)
}

impl Bunching {
    fn read(mut section: KeyReader) -> Result<Self, Error> {
        let bunching = Self {
            share: share(&mut section)?,
            every_ms: section.distribution("every", NumberUnit::Milliseconds, 1.0..=5_000.0)?,
            awake_ms: section.distribution("awake", NumberUnit::Milliseconds, 0.0..=5_000.0)?,
        };
        section.finish()?;
        Ok(bunching)
    }

    fn draw(&self, name: &str, of: &impl Fn(&str) -> Random) -> Option<Bunches> {
        let stream = |part: &str| of(&format!("{name}{part}"));
        let every_ms = self.every_ms.draw(&mut stream(" period"));
        let awake_ms = self.awake_ms.draw(&mut stream(" awake")).min(MAX_AWAKE * every_ms);
        happens(self.share, &mut stream("")).then_some(Bunches { every_ms, awake_ms })
    }
}

impl Stepping {
    fn read(mut section: KeyReader) -> Result<Self, Error> {
        let stepping = Self {
            share: share(&mut section)?,
            per_hour: section.distribution("per_hour", NumberUnit::One, 0.1..=3_600.0)?,
            factor: section.distribution("factor", NumberUnit::One, 0.01..=100.0)?,
        };
        section.finish()?;
        Ok(stepping)
    }

    /// Draws times and factors within a session. Gaps are exponential.
    fn draw(
        &self,
        seconds: f64,
        of: &impl Fn(&str) -> Random,
        session: &impl Fn(&str) -> Random,
    ) -> Vec<(f64, f64)> {
        if !happens(self.share, &mut of("round-trip steps")) {
            return Vec::new();
        }
        let mean_s = 3_600.0 / self.per_hour.draw(&mut of("round-trip step rate"));
        let (mut gaps, mut factors) = (session("round-trip gaps"), session("round-trip factors"));
        let times = core::iter::successors(Some(0.0), |before: &f64| {
            Some(before + (-mean_s * (1.0 - gaps.fraction()).ln()).max(MIN_GAP_S))
        });
        let within = times.skip(1).take_while(|at| *at < seconds).take(MAX_STEPS);
        within.map(|at| (at, self.factor.draw(&mut factors))).collect()
    }
}

impl Policing {
    fn read(mut section: KeyReader) -> Result<Self, Error> {
        let policing = Self {
            share: share(&mut section)?,
            times: section.distribution("times", NumberUnit::One, 0.1..=100.0)?,
            burst_kb: section.distribution("burst", NumberUnit::Kilobytes, 1.5..=100_000.0)?,
        };
        section.finish()?;
        Ok(policing)
    }

    fn draw(&self, of: &impl Fn(&str) -> Random) -> Option<Policer> {
        happens(self.share, &mut of("policer")).then(|| Policer {
            times: self.times.draw(&mut of("policer rate")),
            burst_kb: self.burst_kb.draw(&mut of("policer burst")),
        })
    }
}

impl AccessLinks {
    fn read(mut section: KeyReader) -> Result<Self, Error> {
        let mut ecn = section.section("ecn")?;
        let links = Self {
            bunches: Bunching::read(section.section("bunches")?)?,
            bunches_up: Bunching::read(section.section("bunches_up")?)?,
            steps: Stepping::read(section.section("rtt_steps")?)?,
            bleach: ecn.number("bleach", NumberUnit::One, 0.0..=1.0)?,
            drop: ecn.number("drop", NumberUnit::One, 0.0..=1.0)?,
            policer: Policing::read(section.section("policer")?)?,
        };
        for section in [ecn, section] {
            section.finish()?;
        }
        Ok(links)
    }

    /// A black hole takes precedence, so that a path has one fault.
    fn ecn(&self, of: &impl Fn(&str) -> Random) -> Option<EcnFault> {
        let is_dropped = happens(self.drop, &mut of("ecn drop"));
        let is_bleached = happens(self.bleach, &mut of("ecn bleach"));
        match is_dropped {
            true => Some(EcnFault::Drop),
            false => is_bleached.then_some(EcnFault::Bleach),
        }
    }
}

impl LinkShares {
    pub(super) fn read(mut section: KeyReader) -> Result<Self, Error> {
        let mut acks = section.section("acks")?;
        let shares = Self {
            browsers: acks.number("browsers", NumberUnit::One, 0.0..=1.0)?,
            rare: acks.number("rare", NumberUnit::One, 0.0..=1.0)?,
            each: acks.distribution("each", NumberUnit::One, 2.0..=1_000.0)?,
            within_ms: acks.distribution("within", NumberUnit::Milliseconds, 1.0..=5_000.0)?,
            accesses: ACCESS
                .iter()
                .map(|name| AccessLinks::read(section.section(name)?))
                .collect::<Result<_, _>>()?,
        };
        for section in [acks, section] {
            section.finish()?;
        }
        Ok(shares)
    }

    /// Draws the link of a session from the viewer's and the session's own streams.
    pub(super) fn draw(
        &self,
        access: usize,
        seconds: f64,
        viewer: &impl Fn(&str) -> Random,
        session: &impl Fn(&str) -> Random,
    ) -> Links {
        let own = &self.accesses[access];
        Links {
            bunches: own.bunches.draw("bunches", viewer),
            bunches_up: own.bunches_up.draw("bunches up", viewer),
            acks: self.acks(viewer),
            rtt_steps: own.steps.draw(seconds, viewer, session),
            ecn: own.ecn(viewer),
            policer: own.policer.draw(viewer),
        }
    }

    fn acks(&self, of: &impl Fn(&str) -> Random) -> Acks {
        let is_rare = happens(self.rare, &mut of("rare acknowledgements"));
        if happens(self.browsers, &mut of("browser")) {
            return Acks::Chromium;
        }
        match is_rare {
            false => Acks::EachSecond,
            true => Acks::Rare {
                each: self.each.draw(&mut of("packets of an acknowledgement")).round() as u32,
                within_ms: self.within_ms.draw(&mut of("wait of an acknowledgement")),
            },
        }
    }
}

fn happens(share: f64, random: &mut Random) -> bool {
    random.fraction() < share
}

#[cfg(test)]
pub(super) mod tests;
