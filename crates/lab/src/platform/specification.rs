//! Specification of a population: a table of numbers (`experiments/populations/*.toml`), each with
//! its source.

use std::path::Path;

use recovery::Random;
use toml::Table;

use super::distribution::{Distribution, not_allowed, pick};
use super::draws::normal;
use super::links::LinkShares;
use super::section::KeyReader;
use super::session::{ACCESS, LOSSES};
use super::unit::NumberUnit;
use crate::error::{Context as _, Error};

/// The papers' fleet, with assumptions for the unstated numbers.
pub(super) const FLEET: &str = include_str!("../../../../experiments/populations/fleet.toml");
/// Built-in returning viewers: the fleet on the paths of Wira's production.
pub(super) const WIRA: &str = include_str!("../../../../experiments/populations/wira.toml");

/// User groups by size: the share of the group of rank k is proportional to (k + shift)^−exponent
/// (Zipf-Mandelbrot).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GroupShares {
    /// Cumulative shares.
    sums: Vec<f64>,
}

/// A quantity with a global median, and lognormal deviations between user groups, between viewers
/// of a group and between sessions of a viewer. The viewers' deviation is drawn per group, the
/// sessions' per viewer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Levels {
    median: f64,
    group: f64,
    pair: Distribution,
    session: Distribution,
    low: f64,
    high: f64,
}

/// A kind of access.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AccessKind {
    /// Factor to the bottleneck's rate.
    pub rate: f64,
    /// Factor to the round-trip time.
    pub rtt: f64,
    pub jitter_ms: Distribution,
    /// Weights of the loss models.
    pub losses: Vec<f64>,
}

/// Distributions of all properties of sessions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Specification {
    pub title: String,
    pub groups: GroupShares,
    /// Sessions per viewer.
    pub visits: Distribution,
    /// Time from the start of a session to the start of the next one.
    pub age_minutes: Distribution,
    /// Weights of arrival hours.
    pub hours: [f64; 24],
    /// Factor to the loss rate by hour.
    pub hours_loss: [f64; 24],
    pub rtt_ms: Levels,
    pub rate_mbps: Levels,
    pub loss: Levels,
    /// Share of viewers with a lossless path.
    pub lossless: f64,
    pub buffer_ms: Distribution,
    pub gilbert_bad_ms: Distribution,
    pub gilbert_share: Distribution,
    pub outage_ms: Distribution,
    /// Weights of the kinds of access.
    pub access: Vec<f64>,
    pub accesses: Vec<AccessKind>,
    /// Further link properties; `None` without the section.
    pub links: Option<LinkShares>,
    pub bitrate_mbps: Distribution,
    /// Largest share of the bottleneck that a viewer's stream takes.
    pub fits: f64,
    pub fps: Distribution,
    pub group_s: Distribution,
    pub key_ratio: Distribution,
    pub size_variation: Distribution,
    pub size_correlation: f64,
    pub b_frames: Distribution,
    pub audio_kbps: Distribution,
    pub joined_s: Distribution,
    pub players: Vec<f64>,
    pub stay_s: Distribution,
    pub patience_s: Distribution,
}

impl GroupShares {
    fn read(mut section: KeyReader) -> Result<Self, Error> {
        let count = section.number("count", NumberUnit::One, 1.0..=1e6)?;
        let exponent = section.number("exponent", NumberUnit::One, 0.0..=5.0)?;
        let shift = section.number("shift", NumberUnit::One, 0.0..=1e6)?;
        section.finish()?;
        let mut sum = 0.0;
        let mut next = |place: u32| {
            sum += (f64::from(place) + shift).powf(-exponent);
            sum
        };
        Ok(Self { sums: (1..=count as u32).map(&mut next).collect() })
    }

    pub(super) fn draw(&self, random: &mut Random) -> u32 {
        let all = self.sums.last().copied().unwrap_or(0.0);
        let point = random.fraction() * all;
        let place = self.sums.partition_point(|sum| *sum <= point);
        place.min(self.sums.len() - 1) as u32
    }

    /// Returns the share of sessions in the largest groups.
    #[cfg(test)]
    pub(super) fn share_of_largest(&self, groups: usize) -> f64 {
        self.sums[groups - 1] / self.sums.last().copied().unwrap_or(1.0)
    }
}

/// Random streams of a quantity: of its user group, its viewer and its session.
pub(super) struct RandomStreams {
    pub group: Random,
    pub pair: Random,
    pub session: Random,
}

impl Levels {
    fn read(mut section: KeyReader, unit: NumberUnit, low: f64, high: f64) -> Result<Self, Error> {
        let levels = Self {
            median: section.number("median", unit, low..=high)?,
            group: section.number("group", NumberUnit::One, 0.0..=3.0)?,
            pair: section.distribution("pair", NumberUnit::One, 0.0..=3.0)?,
            session: section.distribution("session", NumberUnit::One, 0.0..=3.0)?,
            low: section.number("low", unit, low..=high)?,
            high: section.number("high", unit, low..=high)?,
        };
        section.finish()?;
        Ok(levels)
    }

    /// Draws the quantity for a session, before factors.
    pub(super) fn draw(&self, mut streams: RandomStreams) -> f64 {
        let group = self.group * normal(&mut streams.group);
        let pair = self.pair.draw(&mut streams.group) * normal(&mut streams.pair);
        let session = self.session.draw(&mut streams.pair) * normal(&mut streams.session);
        self.median * (group + pair + session).exp()
    }

    /// Clamps a value to the quantity's range.
    pub(super) fn within(&self, value: f64) -> f64 {
        value.clamp(self.low.min(self.high), self.high)
    }
}

impl AccessKind {
    fn read(mut section: KeyReader) -> Result<Self, Error> {
        let access = Self {
            rate: section.number("rate", NumberUnit::One, 0.01..=100.0)?,
            rtt: section.number("rtt", NumberUnit::One, 0.01..=100.0)?,
            jitter_ms: section.distribution("jitter", NumberUnit::Milliseconds, 0.0..=1_000.0)?,
            losses: section.weights("loss", &LOSSES)?,
        };
        section.finish()?;
        Ok(access)
    }
}

impl Specification {
    /// Reads a specification file.
    ///
    /// # Errors
    /// One line: the file cannot be read, or a key is invalid.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).at(path)?;
        Self::parse(&text).at(path)
    }

    /// Parses a specification. With `like = "fleet"` it states only differences from the built-in
    /// one.
    ///
    /// # Errors
    /// One line that names the key and the allowed values.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let mut table = table(text)?;
        if let Some(like) = table.remove("like") {
            if like.as_str() != Some("fleet") {
                return Err(not_allowed("like", &like, "\"fleet\""));
            }
            table = overlaid(self::table(FLEET)?, table);
        }
        let mut all = KeyReader::new("", table);
        let mut viewers = all.section("viewers")?;
        let mut path = all.section("path")?;
        let mut source = all.section("source")?;
        let players: Vec<&str> = qoe::Policy::PRESETS.iter().map(|(name, _)| *name).collect();
        let specification = Self {
            title: all.text("title")?,
            groups: GroupShares::read(all.section("groups")?)?,
            visits: viewers.distribution("visits", NumberUnit::One, 1.0..=10_000.0)?,
            age_minutes: viewers.distribution("age", NumberUnit::Minutes, 0.0..=1e6)?,
            hours: viewers.hours("hours")?,
            stay_s: viewers.distribution("stay", NumberUnit::Seconds, 1.0..=86_400.0)?,
            patience_s: viewers.distribution("patience", NumberUnit::Seconds, 0.1..=86_400.0)?,
            players: viewers.weights("player", &players)?,
            access: viewers.weights("access", &ACCESS)?,
            hours_loss: path.hours("loss_by_hour")?,
            rtt_ms: Levels::read(path.section("rtt")?, NumberUnit::Milliseconds, 0.1, 5_000.0)?,
            rate_mbps: Levels::read(path.section("rate")?, NumberUnit::Mbps, 0.05, 10_000.0)?,
            loss: Levels::read(path.section("loss")?, NumberUnit::One, 0.0, 0.9)?,
            lossless: path.number("lossless", NumberUnit::One, 0.0..=1.0)?,
            buffer_ms: path.distribution("buffer", NumberUnit::Milliseconds, 1.0..=10_000.0)?,
            gilbert_bad_ms: path.distribution(
                "gilbert_bad",
                NumberUnit::Milliseconds,
                1.0..=60_000.0,
            )?,
            gilbert_share: path.distribution("gilbert_share", NumberUnit::One, 0.01..=1.0)?,
            outage_ms: path.distribution("outage", NumberUnit::Milliseconds, 2.0..=60_000.0)?,
            accesses: ACCESS
                .iter()
                .map(|name| AccessKind::read(path.section(name)?))
                .collect::<Result<_, _>>()?,
            links: all.section_if("links")?.map(LinkShares::read).transpose()?,
            bitrate_mbps: source.distribution("rate", NumberUnit::Mbps, 0.02..=1_000.0)?,
            fits: source.number("fits", NumberUnit::One, 0.01..=10.0)?,
            fps: source.distribution("fps", NumberUnit::One, 1.0..=240.0)?,
            group_s: source.distribution("group", NumberUnit::Seconds, 0.1..=60.0)?,
            key_ratio: source.distribution("key_ratio", NumberUnit::One, 0.1..=100.0)?,
            size_variation: source.distribution("size_variation", NumberUnit::One, 0.0..=2.0)?,
            size_correlation: source.number("size_correlation", NumberUnit::One, 0.0..=0.999)?,
            b_frames: source.distribution("b_frames", NumberUnit::One, 0.0..=16.0)?,
            audio_kbps: source.distribution("audio", NumberUnit::Kbps, 0.0..=1_000.0)?,
            joined_s: source.distribution("cached", NumberUnit::Seconds, 0.0..=60.0)?,
        };
        for section in [viewers, path, source, all] {
            section.finish()?;
        }
        Ok(specification)
    }

    /// Returns the specification with only its largest user groups.
    ///
    /// # Errors
    /// One line: it has fewer groups, or `count` is 0.
    pub(super) fn with_largest_groups(mut self, count: u32) -> Result<Self, Error> {
        let most = self.groups.sums.len();
        if !(1..=most).contains(&(count as usize)) {
            return Err(not_allowed("--groups", &count, &format!("1 to {most}")));
        }
        self.groups.sums.truncate(count as usize);
        Ok(self)
    }

    /// Returns the ladder rung for a viewer: the drawn one if it fits the bottleneck, else the best
    /// one that fits, else the lowest. A continuous bit rate is clamped to the bottleneck.
    pub(super) fn rung(&self, drawn: f64, rate_mbps: f64) -> f64 {
        let most = self.fits * rate_mbps;
        match &self.bitrate_mbps {
            _ if drawn <= most => drawn,
            Distribution::Choice(rungs) => {
                let rungs = || rungs.iter().map(|(rung, _)| *rung);
                let fitting = rungs().filter(|rung| *rung <= most).reduce(f64::max);
                fitting.or_else(|| rungs().reduce(f64::min)).unwrap_or(drawn)
            }
            _ => most,
        }
    }

    /// Draws the hour of arrival, 0 to 23.
    pub(super) fn hour(&self, random: &mut Random) -> usize {
        pick(random, self.hours.iter().copied())
    }
}

fn table(text: &str) -> Result<Table, Error> {
    text.parse().map_err(|e| Error::Population(Box::new(e)))
}

/// Overrides `below` with the keys of `above`, section by section.
fn overlaid(mut below: Table, above: Table) -> Table {
    for (key, value) in above {
        let value = match (below.remove(&key), value) {
            (Some(toml::Value::Table(old)), toml::Value::Table(new)) if !is_one_value(&old) => {
                toml::Value::Table(overlaid(old, new))
            }
            (_, value) => value,
        };
        below.insert(key, value);
    }
    below
}

/// Returns whether a table is a distribution or a list of shares, replaced as a whole, rather than
/// a section.
fn is_one_value(table: &Table) -> bool {
    let is_share = |name: &str| {
        let mut players = qoe::Policy::PRESETS.iter();
        ACCESS.contains(&name)
            || LOSSES.contains(&name)
            || players.any(|(player, _)| *player == name)
    };
    table.contains_key("kind") || table.keys().all(|key| is_share(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_overrides_the_fleet() {
        let fleet = Specification::parse(FLEET).expect("valid");
        let text = "like = 'fleet'\ntitle = 'mine'\n[path.rtt]\nmedian = '30ms'\n[path.wifi]\nloss = { slots = 1 }\n\
                    [viewers]\nplayer = { cautious = 1 }\n[source]\nrate = '2mbps'\n";
        let mine = Specification::parse(text).expect("valid");
        let rtt_ms = Levels { median: 30.0, ..fleet.rtt_ms.clone() };
        let title = "mine".to_owned();
        let bitrate_mbps = mine.bitrate_mbps.clone();
        assert_eq!(bitrate_mbps.draw(&mut Random::new(1)), 2.0);
        let mut accesses = fleet.accesses.clone();
        accesses[0].losses = vec![0.0, 1.0, 0.0, 0.0, 0.0];
        let players = vec![0.0, 0.0, 1.0];
        assert_eq!(mine, Specification { title, rtt_ms, bitrate_mbps, accesses, players, ..fleet });
        for (text, part) in [
            ("like = 'flet'", "`like` is \"flet\"; it may be \"fleet\""),
            ("like = 'fleet'\n[path]\nrtts = 3", "unknown key `path.rtts`"),
        ] {
            let line = Specification::parse(text).expect_err(text).to_string();
            assert!(line.contains(part), "{text}: {line}");
        }
    }

    #[test]
    fn the_built_in_population_is_read_and_its_groups_have_their_published_shares() {
        let fleet = Specification::parse(FLEET).expect("valid");
        // AutoPlex, table 1, State-City-ASN: 11.8, 22.2, 27.3 %.
        for (groups, share) in [(10, 0.118), (50, 0.222), (100, 0.273)] {
            let got = fleet.groups.share_of_largest(groups);
            assert!((got - share).abs() < 0.003, "{groups}: {got}");
        }
    }

    #[test]
    fn a_specification_with_impossible_values_is_refused_by_key() {
        for (from, to, part) in [
            ("count = 18620", "count = 0", "`groups.count` is 0; it may be 1 to 1000000"),
            ("lossless = 0.1", "lossless = 1.5", "`path.lossless` is 1.5; it may be 0 to 1"),
            ("lossless = 0.1", "", "`path.lossless` is missing"),
            ("lossless = 0.1", "lossless = 0.1\nlossles = 0", "unknown key `path.lossles`"),
            ("fits = 0.9", "fits = 'x'", "`source.fits` is \"x\"; it may be a number from 0.01"),
            ("mobile = 40", "telly = 40", "`viewers.player` has no `telly`; it may be low-latency"),
            ("title = ", "title = 3 #", "`title` is 3; it may be text"),
            ("[viewers]", "[viewers", "line"),
        ] {
            assert!(FLEET.contains(from), "{from}");
            let text = FLEET.replacen(from, to, 1);
            let line = Specification::parse(&text).expect_err(to).to_string();
            assert!(line.contains(part) && !line.contains('\n'), "{to}: {line}");
        }
    }

    #[test]
    fn a_viewer_takes_the_best_rung_that_fits() {
        let fleet = Specification::parse(FLEET).expect("valid");
        assert_eq!(fleet.rung(3.0, 10.0), 3.0);
        assert_eq!(fleet.rung(3.0, 2.0), 1.5);
        assert_eq!(fleet.rung(3.0, 0.1), 0.35);
    }
}
