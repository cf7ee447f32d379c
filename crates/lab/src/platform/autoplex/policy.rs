//! Policies that cap sessions, and their learned state from period to period.

use std::collections::HashMap;

use delivery::Capping;
use groups::decide::{Rules, decide};
use groups::select::{Policy, Sample, choose, group_id};
use groups::{Arm, Limits, Mode, Parameters, Shares, Table, Times};
use records::Record;
use units::Rate;

use super::paper::{Deployment, GoodputReading, LIFETIME, MIN_PACKETS, PaperPolicy};
use super::world::PERIOD_S;
use crate::error::{Error, NameError};
use crate::platform::session::Session;
use crate::simulation::Held;

/// Unix time at the start of the day, for tables.
const MIDNIGHT: u64 = 1_767_225_600;
/// Periods that our own decision looks back over, because explorer sessions are few.
const LOOK_BACK: usize = 12;
/// Share of the bottleneck rate that the oracle uses. The rest is for headers below QUIC.
const ORACLE_SHARE: f64 = 0.95;
/// A window too large to limit anything.
const UNLIMITED_WINDOW: u64 = 1 << 30;

/// Name of the reference policy without caps.
pub(super) const FREE: &str = "bbr";

/// Policy for capping sessions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum CapPolicy {
    /// No caps: plain BBR.
    Free,
    /// One rate for all sessions, in kbit/s, or the stream's rate if that is higher: the best that
    /// a single number can do.
    Constant(u64),
    /// Algorithm 1 and equation 1 with this policy.
    Paper(PaperPolicy),
    /// Our decision, with this share of the capacity of the group's paths.
    Safe(f64),
    /// A fixed multiple of each stream's demand. Learns nothing.
    Demand(f64),
    /// Each session's own bottleneck rate, unknown in practice.
    Oracle,
}

impl CapPolicy {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let number = |kind: &str| text.strip_prefix(kind)?.parse::<f64>().ok();
        if let Some(share) = number("safe-").filter(|share| (0.05..=5.0).contains(share)) {
            return Ok(Self::Safe(share));
        }
        if let Some(floor) = number("demand-").filter(|floor| (1.0..=100.0).contains(floor)) {
            return Ok(Self::Demand(floor));
        }
        if let Some(policy) = text.strip_prefix("paper-").and_then(PaperPolicy::parse) {
            return Ok(Self::Paper(policy));
        }
        match (text, number("constant-")) {
            (FREE, _) => Ok(Self::Free),
            ("safe", _) => Ok(Self::Safe(1.0)),
            ("oracle", _) => Ok(Self::Oracle),
            (_, Some(mbps)) if (0.1..=1_000.0).contains(&mbps) => {
                Ok(Self::Constant((mbps * 1e3) as u64))
            }
            _ => Err(NameError::Policy(text.to_owned()).into()),
        }
    }

    fn policy(self) -> Option<Policy> {
        match self {
            Self::Paper(policy) => policy.selection(),
            Self::Safe(_) => Some(Policy::OPEN_RATE),
            _ => None,
        }
    }

    /// Returns whether only some sessions are capped, and only capped sessions are reported.
    pub(super) fn is_partial(self) -> bool {
        matches!(self, Self::Paper(policy) if policy.deployment != Deployment::All)
    }
}

/// Parameters of our decision.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Tuning {
    pub rules: Rules,
    pub limits: Limits,
    pub shares: Shares,
}

impl Default for Tuning {
    fn default() -> Self {
        // Groups of forty have a handful of explorers per period. Alternation is for real
        // operators, who cannot repeat the same sessions.
        let rules = Rules { min_sessions: 10, parent_weight: 10.0, ..Rules::default() };
        let shares = Shares { control: 0.0, holdout: 0.0, ..Shares::default() };
        Self { rules, limits: Limits::default(), shares }
    }
}

/// Learned state of a policy at the end of a period.
pub(super) struct Learner {
    policy: CapPolicy,
    tuning: Tuning,
    table: Option<Table>,
    parameters: HashMap<String, Parameters>,
    /// Group names by number.
    names: HashMap<i64, String>,
    /// Samples of each period, newest last.
    samples: Vec<Vec<Sample>>,
    periods: u64,
}

impl Learner {
    pub(super) fn new(policy: CapPolicy, tuning: Tuning) -> Self {
        let (table, parameters, names) = (None, HashMap::new(), HashMap::new());
        Self { policy, tuning, table, parameters, names, samples: vec![Vec::new()], periods: 0 }
    }

    /// Returns the rules of a decision, and the number of periods that it covers.
    fn rules(&self) -> (Rules, usize) {
        match self.policy {
            CapPolicy::Paper(policy) => policy.rules(&self.tuning.rules),
            CapPolicy::Safe(share) => (Rules { share, ..self.tuning.rules.clone() }, LOOK_BACK),
            _ => (self.tuning.rules.clone(), 1),
        }
    }

    /// Returns the session's arm.
    pub(super) fn arm(&self, session: &Session) -> Arm {
        match self.policy {
            CapPolicy::Free => Arm::Holdout,
            CapPolicy::Safe(_) => {
                let group = session.viewer.group_name();
                self.tuning.shares.arm("lab", session.viewer.unit, &group, self.periods)
            }
            CapPolicy::Paper(policy) => policy.arm(session),
            _ => Arm::Treated,
        }
    }

    /// Returns the session's cap.
    pub(super) fn capping(&self, session: &Session, arm: Arm) -> Option<Held> {
        let known = |rate, in_flight| Parameters { rate, in_flight, sessions: 1, decided: 0 };
        let group = || self.parameters.get(&session.viewer.group_name()).copied();
        let limits = self.tuning.limits;
        let (mode, limits, parameters) = match self.policy {
            _ if arm != Arm::Treated => return None,
            CapPolicy::Free => return None,
            CapPolicy::Constant(kbps) => {
                let limits = Limits { floor: 1.0, ceiling: f64::INFINITY, behind: 1.0 };
                (Mode::Safe, limits, Some(known(Rate::from_kbps(kbps), UNLIMITED_WINDOW)))
            }
            CapPolicy::Paper(_) => (Mode::Paper, limits, group()),
            CapPolicy::Safe(_) => (Mode::Safe, limits, group()),
            CapPolicy::Demand(floor) => {
                let limits = Limits { ceiling: floor, ..limits };
                (Mode::Demand, limits, Some(known(Rate::ZERO, 0)))
            }
            CapPolicy::Oracle => {
                let rate = Rate::from_kbps((session.rate_mbps * ORACLE_SHARE * 1e3) as u64);
                let limits = Limits { ceiling: f64::INFINITY, ..limits };
                (Mode::Safe, limits, Some(known(rate, UNLIMITED_WINDOW)))
            }
        };
        Some((Capping::new(mode, limits), parameters?))
    }

    /// Records the end of a session.
    pub(super) fn learn(&mut self, session: &Session, arm: Arm, record: &Record) {
        let (reading, min_packets) = match self.policy {
            CapPolicy::Paper(policy) if !policy.learns_from(arm) => return,
            CapPolicy::Paper(policy) => (policy.reading, policy.min_packets()),
            _ => (GoodputReading::Session, MIN_PACKETS),
        };
        let sample = sample(session, arm, record, reading);
        let sample = sample.filter(|sample| sample.packets >= min_packets);
        if let (Some(last), Some(sample)) = (self.samples.last_mut(), sample) {
            self.names.entry(sample.group).or_insert_with(|| session.viewer.group_name());
            last.push(sample);
        }
    }

    /// Ends the period and computes the caps for the next one.
    pub(super) fn decide(&mut self) {
        self.periods += 1;
        if let Some(policy) = self.policy.policy() {
            self.renew(&policy);
        }
        let (_, back) = self.rules();
        if self.samples.len() >= back {
            self.samples.remove(0);
        }
        self.samples.push(Vec::new());
    }

    fn renew(&mut self, policy: &Policy) {
        let chosen = choose(self.samples.iter().flatten().copied(), policy);
        let named = chosen.into_iter().filter_map(|c| Some((self.names.get(&c.group)?.clone(), c)));
        let groups = policy.groups(named);
        let times = Times { issued: MIDNIGHT + self.periods * PERIOD_S, lifetime: LIFETIME };
        let (rules, _) = self.rules();
        // The paper's decision does not depend on the last one.
        let is_literal = matches!(self.policy, CapPolicy::Paper(policy) if !policy.is_shipped);
        let last = self.table.as_ref().filter(|_| !is_literal);
        let (building, _) = decide(&groups, last, &rules, times);
        if let Ok(table) = building.finish() {
            let known = table.groups().iter();
            let known = known.filter_map(|group| Some((group.name.to_string(), group.parameters?)));
            self.parameters = known.collect();
            self.table = Some(table);
        }
    }
}

/// Converts a session to a sample for decisions; `None` if it sent nothing.
fn sample(session: &Session, arm: Arm, record: &Record, reading: GoodputReading) -> Option<Sample> {
    let kbps = |mbps: f64| (mbps * 1e3) as i64;
    Some(Sample {
        group: group_id(&session.viewer.group_name()),
        session: session.number.into(),
        prefix: session.viewer.number.into(),
        ended: record.session.started_ms? / 1_000,
        explorer: (arm == Arm::Explorer).into(),
        packets: record.recovery.first_transmissions?,
        retransmitted: record.recovery.retransmissions?,
        goodput_kbps: kbps(reading.of(record)?),
        rtt_us: (record.path.rtt_ms? * 1e3) as i64,
        in_flight: record.path.max_in_flight?,
        window: record.path.max_window?,
        open_kbps: record.path.open_rate_mbps.map_or(0, kbps),
    })
}
