//! The sessions of all files, as columns.
//!
//! Only what the metrics need is kept, as numbers: about 8 bytes per session and column.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use records::{Error, Input};
use serde_json::{Map, Value};

use crate::options::Options;

/// More cohorts than that are no experiment.
const MAX_COHORTS: usize = 64;
/// The most schemes of a cohort that are remembered.
const MAX_SCHEMES: usize = 16;

/// What is read of every record, beside the metrics' columns.
const FIXED: [&str; 8] =
    ["cohort", "protocol", "scheme", "unit", "prefix", "viewer", "duration_s", "started_ms"];

/// The sessions of all files.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// In the order in which they appeared.
    pub cohorts: Vec<CohortSeen>,
    /// Per session: the place of its cohort.
    pub cohort: Vec<u16>,
    /// Per session: its viewer's number.
    pub unit: Vec<u32>,
    /// The metrics' columns, by session; NaN for what is absent.
    columns: BTreeMap<&'static str, Vec<f64>>,
    /// When the first and the last session began, in milliseconds since 1970.
    pub span: Option<(f64, f64)>,
    /// Viewers by what identifies them.
    units: HashMap<String, u32>,
    /// Which viewers were in which cohort.
    places: HashSet<(u16, u32)>,
    /// What was read and left out.
    pub counts: Counts,
}

/// What is known of a cohort as a whole.
#[derive(Debug, Default)]
pub(super) struct CohortSeen {
    pub name: String,
    pub schemes: BTreeSet<String>,
    /// Viewers and sessions before any was left out for being short.
    pub assigned_units: u64,
    pub assigned_sessions: u64,
    pub too_short: u64,
}

/// What was read and left out.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Counts {
    /// The files and their records.
    #[serde(flatten)]
    pub input: Input,
    /// Records of no cohort: no scheme could act.
    pub without_cohort: u64,
    /// Records of other protocols than the one asked for.
    pub other_protocol: u64,
    /// Records shorter than asked for.
    pub too_short: u64,
    /// Sessions whose viewer is known by the network only, because their record has no `unit`.
    pub unit_from_network: u64,
    /// Viewers who were in several cohorts.
    pub units_in_several_cohorts: u64,
    /// Sessions compared whose players reported more than the session has room for. What they
    /// reported is left out.
    pub reports_left_out: u64,
    /// Values that cannot be, as they are below 0. They are left out.
    pub impossible_values: u64,
}

/// Text of a record, if it is there and not empty.
fn text<'a>(record: &'a Map<String, Value>, column: &str) -> Option<&'a str> {
    record.get(column)?.as_str().filter(|text| !text.is_empty())
}

/// A number of a record; NaN for what is absent.
fn number(record: &Map<String, Value>, column: &str) -> f64 {
    record.get(column).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

impl Table {
    /// Reads all files that the options name.
    pub(super) fn read(options: &Options, columns: &BTreeSet<&'static str>) -> Result<Self, Error> {
        let mut table = Self {
            columns: columns.iter().map(|name| (*name, Vec::new())).collect(),
            ..Self::default()
        };
        let wanted: Vec<&str> = FIXED.iter().chain(columns).copied().collect();
        let input = records::read(&options.files, &wanted, |_, record| table.add(record, options))?;
        table.counts.input = input;
        let several = table.places.len() - table.units.len();
        table.counts.units_in_several_cohorts = several as u64;
        for (cohort, _) in &table.places {
            table.cohorts[usize::from(*cohort)].assigned_units += 1;
        }
        Ok(table)
    }

    /// A column of a metric, by session.
    pub(super) fn column(&self, name: &str) -> &[f64] {
        self.columns.get(name).map_or(&[], Vec::as_slice)
    }

    /// Takes a record in, or counts why not.
    fn add(&mut self, record: &Map<String, Value>, options: &Options) -> Result<(), Error> {
        let Some(cohort) = text(record, "cohort") else {
            self.counts.without_cohort += 1;
            return Ok(());
        };
        let protocol = text(record, "protocol");
        if options.protocol.as_deref().is_some_and(|asked| protocol != Some(asked)) {
            self.counts.other_protocol += 1;
            return Ok(());
        }
        let place = match self.cohorts.iter().position(|seen| seen.name == cohort) {
            Some(place) => place,
            None if self.cohorts.len() < MAX_COHORTS => {
                self.cohorts.push(CohortSeen { name: cohort.into(), ..CohortSeen::default() });
                self.cohorts.len() - 1
            }
            None => return Err(Error::new(format!("more than {MAX_COHORTS} cohorts"))),
        };
        let seen = &mut self.cohorts[place];
        seen.assigned_sessions += 1;
        if let Some(scheme) = text(record, "scheme")
            && seen.schemes.len() < MAX_SCHEMES
            && !seen.schemes.contains(scheme)
        {
            seen.schemes.insert(scheme.into());
        }
        // A record without its unit (of an older version) goes with its network: a viewer who is not
        // told apart there was divided by it.
        let (unit, prefix) = (text(record, "unit"), text(record, "prefix"));
        self.counts.unit_from_network += u64::from(unit.is_none() && prefix.is_some());
        let key = match (unit, prefix, text(record, "viewer")) {
            (Some(unit), _, _) => format!("u{unit}"),
            (None, Some(prefix), _) => format!("n{prefix}"),
            (None, None, Some(viewer)) => format!("v{viewer}"),
            (None, None, None) => format!("r{}", self.units.len()),
        };
        let next = u32::try_from(self.units.len())
            .map_err(|_| Error::new("more viewers than can be counted"))?;
        let unit = *self.units.entry(key).or_insert(next);
        let cohort = place as u16;
        self.places.insert((cohort, unit));
        if number(record, "duration_s") < options.min_duration.as_secs_f64() {
            self.cohorts[place].too_short += 1;
            self.counts.too_short += 1;
            return Ok(());
        }
        let at = number(record, "started_ms");
        if at.is_finite() {
            let (first, last) = self.span.unwrap_or((at, at));
            self.span = Some((first.min(at), last.max(at)));
        }
        self.cohort.push(cohort);
        self.unit.push(unit);
        let is_clamped = records::is_clamped(record);
        self.counts.reports_left_out += u64::from(is_clamped);
        for (name, column) in &mut self.columns {
            let value = number(record, name);
            let is_possible = value.is_nan() || value >= 0.0;
            self.counts.impossible_values += u64::from(!is_possible);
            let is_believed = is_possible && !(is_clamped && records::is_claim(name));
            column.push(if is_believed { value } else { f64::NAN });
        }
        Ok(())
    }
}
