//! Population: viewers, arrival times, paths and streams. It comes from a specification, or from an
//! operator's records completed by a specification.
//!
//! Each quantity has its own random stream per user group, viewer or session. Adding a quantity
//! changes none of the others, and a small population is a prefix of a larger one.

use recovery::Random;

use super::distribution::pick;
use super::draws::Draws;
use super::history::{Past, RecordHistory};
use super::session::{DrawnViewer, Encoder, Links, LossKind, Session};
use super::specification::{Levels, RandomStreams, Specification};

/// Day of the sessions: 1 January 2026, 0:00 UTC, in milliseconds since 1970.
const DAY: i64 = 1_767_225_600_000;
const HOUR_MS: f64 = 3_600_000.0;

/// Source of sessions.
#[derive(Clone, Debug)]
pub(super) struct Population {
    specification: Specification,
    /// Past sessions, if the population comes from records.
    history: Option<RecordHistory>,
}

/// Random streams of one session.
#[derive(Clone, Copy)]
struct Of {
    draws: Draws,
    group: u32,
    viewer: u32,
    session: u32,
}

impl Of {
    fn viewer(self, name: &str) -> Random {
        self.draws.of(&format!("viewer {name}"), self.viewer.into())
    }

    fn session(self, name: &str) -> Random {
        self.draws.of(&format!("session {name}"), self.session.into())
    }

    fn levels(self, name: &str, levels: &Levels) -> f64 {
        levels.draw(RandomStreams {
            group: self.draws.of(&format!("group {name}"), self.group.into()),
            pair: self.viewer(name),
            session: self.session(name),
        })
    }
}

impl Population {
    pub(super) fn new(specification: Specification, history: Option<RecordHistory>) -> Self {
        Self { specification, history }
    }

    pub(super) fn title(&self) -> &str {
        match &self.history {
            Some(history) => &history.title,
            None => &self.specification.title,
        }
    }

    /// Returns the recorded sessions, if the population comes from records.
    pub(super) fn history(&self) -> Option<&RecordHistory> {
        self.history.as_ref()
    }

    /// Returns the first `count` sessions of this seed.
    pub(super) fn sessions(&self, seed: u64, count: u32) -> Vec<Session> {
        let draws = Draws::new(seed);
        let mut sessions = Vec::with_capacity(count as usize);
        let mut viewer = 0;
        loop {
            let visits = self.visits(draws, viewer);
            let mut begins_ms = self.arrives_ms(draws, viewer);
            for visit in 0..visits {
                if sessions.len() == count as usize {
                    return sessions;
                }
                let session = sessions.len() as u32;
                let group =
                    self.specification.groups.draw(&mut draws.of("viewer group", viewer.into()));
                let of = Of { draws, group, viewer, session };
                sessions.push(self.session(of, visit, begins_ms));
                let age = self.specification.age_minutes.draw(&mut of.session("age"));
                begins_ms += age * 60_000.0;
            }
            viewer += 1;
        }
    }

    /// Number of a viewer's sessions. A recorded session is a viewer of its own.
    fn visits(&self, draws: Draws, viewer: u32) -> u32 {
        match self.history {
            Some(_) => 1,
            None => {
                let visits =
                    self.specification.visits.draw(&mut draws.of("viewer visits", viewer.into()));
                visits.round().max(1.0) as u32
            }
        }
    }

    /// Arrival of a viewer, in milliseconds of the day.
    fn arrives_ms(&self, draws: Draws, viewer: u32) -> f64 {
        let hour = self.specification.hour(&mut draws.of("viewer hour", viewer.into()));
        (hour as f64 + draws.of("viewer minute", viewer.into()).fraction()) * HOUR_MS
    }

    fn session(&self, of: Of, visit: u32, begins_ms: f64) -> Session {
        let own = &self.specification;
        let access = pick(&mut of.viewer("access"), own.access.iter().copied());
        let kind = &own.accesses[access];
        let hour = (begins_ms / HOUR_MS) as usize % 24;
        let is_lossless = of.viewer("lossless").fraction() < own.lossless;
        let loss = own.loss.within(of.levels("loss", &own.loss) * own.hours_loss[hour]);
        let rate_mbps = own.rate_mbps.within(of.levels("rate", &own.rate_mbps) * kind.rate);
        let drawn = own.bitrate_mbps.draw(&mut of.viewer("bitrate"));
        let mut session = Session {
            number: of.session,
            viewer: DrawnViewer {
                number: of.viewer,
                group: of.group,
                unit: of.draws.number("unit", of.viewer.into()),
            },
            visit,
            started_ms: DAY + begins_ms as i64,
            access,
            rtt_ms: own.rtt_ms.within(of.levels("rtt", &own.rtt_ms) * kind.rtt),
            rate_mbps,
            buffer_ms: own.buffer_ms.draw(&mut of.viewer("buffer")),
            jitter_ms: kind.jitter_ms.draw(&mut of.session("jitter")),
            loss: if is_lossless { 0.0 } else { loss },
            kind: self.loss(of, &kind.losses),
            links: Links::default(),
            bitrate_mbps: own.rung(drawn, rate_mbps),
            fps: own.fps.draw(&mut of.viewer("fps")),
            encoder: Encoder {
                group_s: own.group_s.draw(&mut of.viewer("group of pictures")),
                key_ratio: own.key_ratio.draw(&mut of.viewer("key frames")),
                size_variation: own.size_variation.draw(&mut of.viewer("sizes")),
                size_correlation: own.size_correlation,
                b_frames: own.b_frames.draw(&mut of.viewer("b-frames")).round() as u32,
                audio_kbps: own.audio_kbps.draw(&mut of.viewer("sound")),
            },
            joined_s: own.joined_s.draw(&mut of.session("joined")),
            player: pick(&mut of.viewer("player"), own.players.iter().copied()),
            stay_s: own.stay_s.draw(&mut of.session("stay")),
            patience_s: own.patience_s.draw(&mut of.session("patience")),
            seed: of.draws.number("session seed", of.session.into()) >> 24,
        };
        if let Some(history) = &self.history {
            let past = history.pick(&mut of.session("record"));
            self.follow(&mut session, past);
        }
        if let Some(links) = &own.links {
            let (viewer, own) = (|name: &str| of.viewer(name), |name: &str| of.session(name));
            session.links = links.draw(access, session.stay_s, &viewer, &own);
        }
        session
    }

    fn loss(&self, of: Of, weights: &[f64]) -> LossKind {
        let own = &self.specification;
        match pick(&mut of.viewer("kind of loss"), weights.iter().copied()) {
            0 => LossKind::Calls,
            1 => LossKind::Slots,
            2 => LossKind::Independent,
            3 => LossKind::Gilbert {
                bad_ms: own.gilbert_bad_ms.draw(&mut of.viewer("bad times")),
                share: own.gilbert_share.draw(&mut of.viewer("bad share")),
            },
            _ => LossKind::Outages { length_ms: own.outage_ms.draw(&mut of.viewer("outages")) },
        }
    }

    /// Applies a record. The bottleneck is at least as wide as the recorded rate.
    fn follow(&self, session: &mut Session, past: &Past) {
        session.viewer.number = past.viewer;
        session.rtt_ms = past.rtt_ms;
        session.loss = past.loss;
        session.kind = past.kind.clone().unwrap_or_else(|| session.kind.clone());
        session.bitrate_mbps = past.bitrate_mbps;
        session.rate_mbps = session.rate_mbps.max(past.bitrate_mbps / self.specification.fits);
        session.stay_s = past.duration_s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::specification::FLEET;

    const MANY: u32 = 60_000;

    fn sessions(text: &str, seed: u64, count: u32) -> Vec<Session> {
        Population::new(Specification::parse(text).expect("valid"), None).sessions(seed, count)
    }

    fn mean(all: &[Session], of: impl Fn(&Session) -> f64) -> f64 {
        all.iter().map(of).sum::<f64>() / all.len() as f64
    }

    fn quantile(all: &[Session], p: f64, of: impl Fn(&Session) -> f64) -> f64 {
        qoe::stats::Sample::new(all.iter().map(of)).expect("values").quantile(p)
    }

    #[test]
    fn the_population_reproduces_the_papers_fleets() {
        let all = sessions(FLEET, 1, MANY);
        // Mean and allowed error: several per cent, given heavy tails and a few ten thousand
        // viewers.
        let moments = [
            ("loss rate", mean(&all, |s| s.loss), 0.04, 0.002),
            ("bit rate", mean(&all, |s| s.bitrate_mbps), 0.9845, 0.03),
            ("stay", mean(&all, |s| s.stay_s), 99.6, 3.0),
            ("rate p50", quantile(&all, 0.5, |s| s.rate_mbps), 5.4, 0.4),
            ("rate p90", quantile(&all, 0.9, |s| s.rate_mbps), 15.2, 1.5),
            ("rtt", mean(&all, |s| s.rtt_ms), 87.8, 5.5),
            ("lossless", mean(&all, |s| f64::from(u8::from(s.loss == 0.0))), 0.1, 0.01),
            ("bit rate p95", quantile(&all, 0.95, |s| s.bitrate_mbps), 3.0, 0.01),
        ];
        for (what, got, stated, _) in moments {
            println!("{what}: {got:.4} ({stated})");
        }
        for (what, got, stated, error) in moments {
            assert!((got - stated).abs() <= error, "{what}: {got} instead of {stated}");
        }
        // Loss over the day by hour: 2 to 5 %.
        let hour = |s: &Session| (s.started_ms - DAY) / HOUR_MS as i64 % 24;
        let factors = Specification::parse(FLEET).expect("valid").hours_loss;
        let factor = mean(&all, |s| factors[hour(s) as usize]);
        assert!((factor - 1.0).abs() < 0.02, "{factor}");
    }

    #[test]
    fn sessions_of_a_pair_differ_less_than_pairs_of_a_group() {
        let all = sessions(FLEET, 2, MANY);
        // Coefficients of variation of the round-trip time: Wira, sections II-C and II-D.
        let cv = |key: &dyn Fn(&Session) -> u32, least: usize| {
            let mut groups = std::collections::BTreeMap::<u32, Vec<f64>>::new();
            for session in &all {
                groups.entry(key(session)).or_default().push(session.rtt_ms);
            }
            let cvs = groups.values().filter(|values| values.len() >= least).filter_map(|values| {
                let sample = qoe::stats::Sample::new(values.iter().copied())?;
                Some(sample.variance()?.sqrt() / sample.mean())
            });
            let cvs: Vec<f64> = cvs.collect();
            cvs.iter().sum::<f64>() / cvs.len() as f64
        };
        let (pair, group) = (cv(&|s| s.viewer.number, 8), cv(&|s| s.viewer.group, 30));
        println!("within a pair {pair:.3}, within a group {group:.3}");
        assert!((0.08..0.12).contains(&pair), "{pair}");
        assert!((0.29..0.45).contains(&group), "{group}");
    }

    #[test]
    fn a_small_population_is_the_beginning_of_a_large_one_and_another_seed_is_another() {
        let (few, many) = (sessions(FLEET, 5, 40), sessions(FLEET, 5, 400));
        assert_eq!(few, many[..40]);
        assert_ne!(few, sessions(FLEET, 6, 40));
    }

    #[test]
    fn another_distribution_of_one_quantity_shifts_no_other() {
        let fixed = FLEET
            .replace("stay = \"lognormal:median=50s,sigma=1.29,low=5s,high=900s\"", "stay = '60s'");
        assert_ne!(fixed, FLEET);
        let (own, other) = (sessions(FLEET, 3, 300), sessions(&fixed, 3, 300));
        for (own, other) in own.iter().zip(&other) {
            assert_eq!(other.stay_s, 60.0);
            // A longer stay has the same round-trip-time steps and more.
            let (steps, others) = (&own.links.rtt_steps, &other.links.rtt_steps);
            assert!(steps.iter().zip(others).all(|(own, other)| own == other));
            let links = Links { rtt_steps: steps.clone(), ..other.links.clone() };
            assert_eq!(*own, Session { stay_s: own.stay_s, links, ..other.clone() });
        }
    }
}
