//! Sessions of all files, as columns.
//!
//! Only the metrics' columns are kept, as numbers: about 8 bytes per session and column.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use records::{Column, Error, Input, Row};

use crate::options::CompareOptions;

/// Maximum number of cohorts.
const MAX_COHORTS: usize = 64;
/// Maximum number of schemes recorded per cohort.
const MAX_SCHEMES: usize = 16;

/// Columns read in addition to the metrics' columns.
const FIXED: [Column; 8] = [
    Column::cohort,
    Column::protocol,
    Column::scheme,
    Column::unit,
    Column::prefix,
    Column::viewer,
    Column::duration_s,
    Column::started_ms,
];

/// Sessions of all files.
#[derive(Debug, Default)]
pub(super) struct SessionTable {
    /// Cohorts in order of appearance.
    pub cohorts: Vec<CohortSeen>,
    /// Per session: index of its cohort.
    pub cohort: Vec<u16>,
    /// Per session: number of its viewer.
    pub unit: Vec<u32>,
    /// Columns of metrics by session; NaN if absent.
    columns: BTreeMap<Column, Vec<f64>>,
    /// Start of the first and the last session, in milliseconds since 1970.
    pub span: Option<(f64, f64)>,
    /// Viewer numbers by identifier.
    units: HashMap<String, u32>,
    /// Distinct pairs of cohort and viewer.
    places: HashSet<(u16, u32)>,
    /// Counts of records read and excluded.
    pub counts: ReadCounts,
}

/// Totals of a cohort.
#[derive(Debug, Default)]
pub(super) struct CohortSeen {
    pub name: String,
    pub schemes: BTreeSet<String>,
    /// Viewers and sessions before short ones are excluded.
    pub assigned_units: u64,
    pub assigned_sessions: u64,
    pub too_short: u64,
}

/// Counts of records read and excluded.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ReadCounts {
    /// Files and their records.
    #[serde(flatten)]
    pub input: Input,
    /// Records without a cohort: no scheme could act.
    pub without_cohort: u64,
    /// Records of another protocol than requested.
    pub other_protocol: u64,
    /// Records shorter than requested.
    pub too_short: u64,
    /// Sessions with a viewer identified by network only, because the record has no `unit`.
    pub unit_from_network: u64,
    /// Viewers in several cohorts.
    pub units_in_several_cohorts: u64,
    /// Compared sessions with player reports beyond the session's duration. These
    /// reports are excluded.
    pub reports_left_out: u64,
    /// Negative values. They are excluded.
    pub impossible_values: u64,
}

/// Returns a numeric column; NaN if absent.
fn number(record: &Row, column: Column) -> f64 {
    record.number(column).unwrap_or(f64::NAN)
}

impl SessionTable {
    /// Reads all files named by the options.
    pub(super) fn read(
        options: &CompareOptions,
        columns: &BTreeSet<Column>,
    ) -> Result<Self, Error> {
        let mut table = Self {
            columns: columns.iter().map(|column| (*column, Vec::new())).collect(),
            ..Self::default()
        };
        let wanted: Vec<Column> = FIXED.iter().chain(columns).copied().collect();
        let input = records::read(&options.files, &wanted, |_, record| table.add(record, options))?;
        table.counts.input = input;
        let several = table.places.len() - table.units.len();
        table.counts.units_in_several_cohorts = several as u64;
        for (cohort, _) in &table.places {
            table.cohorts[usize::from(*cohort)].assigned_units += 1;
        }
        Ok(table)
    }

    /// Returns a metric's column by session.
    pub(super) fn column(&self, column: Column) -> &[f64] {
        self.columns.get(&column).map_or(&[], Vec::as_slice)
    }

    /// Adds a record, or counts the reason for excluding it.
    fn add(&mut self, record: &Row, options: &CompareOptions) -> Result<(), Error> {
        let Some(cohort) = record.text(Column::cohort) else {
            self.counts.without_cohort += 1;
            return Ok(());
        };
        let protocol = record.text(Column::protocol);
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
        if let Some(scheme) = record.text(Column::scheme)
            && seen.schemes.len() < MAX_SCHEMES
            && !seen.schemes.contains(scheme)
        {
            seen.schemes.insert(scheme.into());
        }
        // A record without a unit (of an older version) is identified by its network, which then
        // decided its cohort.
        let (unit, prefix) = (record.text(Column::unit), record.text(Column::prefix));
        self.counts.unit_from_network += u64::from(unit.is_none() && prefix.is_some());
        let key = match (unit, prefix, record.text(Column::viewer)) {
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
        if number(record, Column::duration_s) < options.min_duration.as_secs_f64() {
            self.cohorts[place].too_short += 1;
            self.counts.too_short += 1;
            return Ok(());
        }
        let at = number(record, Column::started_ms);
        if at.is_finite() {
            let (first, last) = self.span.unwrap_or((at, at));
            self.span = Some((first.min(at), last.max(at)));
        }
        self.cohort.push(cohort);
        self.unit.push(unit);
        let is_clamped = record.is_clamped();
        self.counts.reports_left_out += u64::from(is_clamped);
        for (column, values) in &mut self.columns {
            let value = number(record, *column);
            let is_possible = value.is_nan() || value >= 0.0;
            self.counts.impossible_values += u64::from(!is_possible);
            let is_believed = is_possible && !(is_clamped && records::is_claim(*column));
            values.push(if is_believed { value } else { f64::NAN });
        }
        Ok(())
    }
}
