//! Session records from files, as columns: JSON lines and Parquet.
//!
//! Only what the metrics need is kept, as numbers: about 8 bytes per session and column.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record;
use parquet::schema::types::Type;
use serde_json::{Map, Value};

use crate::options::Options;
use records::Error;

/// The longest line that is taken for a record.
const MAX_LINE: u64 = 64 * 1024;
/// More cohorts than that are no experiment.
const MAX_COHORTS: usize = 64;
/// The most schemes of a cohort that are remembered.
const MAX_SCHEMES: usize = 16;
/// The most unreadable files that are named.
const MAX_NAMED: usize = 20;

/// What is read of every record, before the metrics' columns.
const FIXED: [&str; 8] =
    ["cohort", "protocol", "scheme", "unit", "prefix", "viewer", "duration_s", "started_ms"];

/// The sessions of all files.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The columns read: [`FIXED`], then the metrics'.
    names: Vec<&'static str>,
    /// In the order in which they appeared.
    pub cohorts: Vec<CohortSeen>,
    /// Per session: the place of its cohort.
    pub cohort: Vec<u16>,
    /// Per session: its viewer's number.
    pub unit: Vec<u32>,
    /// The metrics' columns, by session; NaN for what is absent.
    columns: Vec<Vec<f64>>,
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
    /// Files read, each pair of a `.jsonl` and a `.parquet` file as one.
    pub files: u64,
    /// Files that could not be read, or not to their end, and why; not more than 20 are named.
    pub unreadable: Vec<String>,
    /// How many they are.
    pub unreadable_files: u64,
    /// Lines that are no record: broken, cut off, or too long.
    pub broken_lines: u64,
    /// Records altogether.
    pub records: u64,
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
}

/// A value of a record.
#[derive(Clone, Copy)]
enum Cell<'a> {
    Absent,
    Text(&'a str),
    Number(f64),
}

impl<'a> Cell<'a> {
    fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    fn number(self) -> f64 {
        match self {
            Self::Number(number) => number,
            _ => f64::NAN,
        }
    }
}

impl<'a> From<Option<&'a Value>> for Cell<'a> {
    fn from(value: Option<&'a Value>) -> Self {
        match value {
            Some(Value::String(text)) => Self::Text(text),
            Some(Value::Number(number)) => number.as_f64().map_or(Self::Absent, Self::Number),
            _ => Self::Absent,
        }
    }
}

impl<'a> From<&'a record::Field> for Cell<'a> {
    fn from(field: &'a record::Field) -> Self {
        match field {
            record::Field::Str(text) => Self::Text(text),
            record::Field::Int(number) => Self::Number(f64::from(*number)),
            record::Field::Long(number) => Self::Number(*number as f64),
            record::Field::Float(number) => Self::Number(f64::from(*number)),
            record::Field::Double(number) => Self::Number(*number),
            _ => Self::Absent,
        }
    }
}

impl Table {
    /// Reads all files that the options name.
    pub(super) fn read(options: &Options, columns: &BTreeSet<&'static str>) -> Result<Self, Error> {
        let mut table = Self {
            names: FIXED.into_iter().chain(columns.iter().copied()).collect(),
            columns: vec![Vec::new(); columns.len()],
            ..Self::default()
        };
        for forms in found(&options.files)?.into_values() {
            table.counts.files += 1;
            table.read_one(&forms, options)?;
        }
        let several = table.places.len() - table.units.len();
        table.counts.units_in_several_cohorts = several as u64;
        for (cohort, _) in &table.places {
            table.cohorts[usize::from(*cohort)].assigned_units += 1;
        }
        Ok(table)
    }

    /// A column of a metric, by session.
    pub(super) fn column(&self, name: &str) -> &[f64] {
        let place = self.names.iter().skip(FIXED.len()).position(|column| *column == name);
        place.map_or(&[], |place| &self.columns[place])
    }

    /// Reads the Parquet form, which is exact and complete or not there; the other if that fails.
    fn read_one(&mut self, forms: &Forms, options: &Options) -> Result<(), Error> {
        if let Some(path) = &forms.parquet {
            let opened = File::open(path).map_err(ParquetError::from);
            match opened.and_then(SerializedFileReader::new) {
                Ok(file) => return self.read_parquet(path, &file, options),
                Err(e) => self.unreadable(path, &e),
            }
        }
        let Some(path) = &forms.lines else { return Ok(()) };
        match File::open(path) {
            Ok(file) => self.read_lines(path, file, options),
            Err(e) => {
                self.unreadable(path, &e);
                Ok(())
            }
        }
    }

    fn unreadable(&mut self, path: &Path, why: &dyn core::fmt::Display) {
        self.counts.unreadable_files += 1;
        if self.counts.unreadable.len() < MAX_NAMED {
            self.counts
                .unreadable
                .push(Error::new(format!("{}: {why}", path.display())).to_string());
        }
    }

    fn read_lines(&mut self, path: &Path, file: File, options: &Options) -> Result<(), Error> {
        let mut file = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            match next_line(&mut file, &mut line) {
                Ok(Line::End) => return Ok(()),
                Ok(Line::TooLong) => self.counts.broken_lines += 1,
                Ok(Line::Whole) if line.trim_ascii().is_empty() => {}
                Ok(Line::Whole) => match serde_json::from_slice::<Map<String, Value>>(&line) {
                    Ok(object) => {
                        let cells: Vec<Cell<'_>> =
                            self.names.iter().map(|name| object.get(*name).into()).collect();
                        self.add(&cells, options)?;
                    }
                    Err(_) => self.counts.broken_lines += 1,
                },
                Err(e) => {
                    self.unreadable(path, &e);
                    return Ok(());
                }
            }
        }
    }

    fn read_parquet(
        &mut self,
        path: &Path,
        file: &SerializedFileReader<File>,
        options: &Options,
    ) -> Result<(), Error> {
        let schema = file.metadata().file_metadata().schema();
        let wanted = |field: &&Arc<Type>| self.names.contains(&field.name());
        let fields: Vec<_> = schema.get_fields().iter().filter(wanted).cloned().collect();
        let places: Vec<_> = self
            .names
            .iter()
            .map(|name| fields.iter().position(|field| field.name() == *name))
            .collect();
        let projection = Type::group_type_builder(schema.name()).with_fields(fields).build();
        let rows = match projection.and_then(|projection| file.get_row_iter(Some(projection))) {
            Ok(rows) => rows,
            Err(e) => {
                self.unreadable(path, &e);
                return Ok(());
            }
        };
        for row in rows {
            let row = match row {
                Ok(row) => row,
                Err(e) => {
                    self.unreadable(path, &e);
                    return Ok(());
                }
            };
            let fields: Vec<_> = row.get_column_iter().map(|(_, field)| field).collect();
            let cell = |place: &Option<usize>| {
                place.and_then(|place| fields.get(place)).map_or(Cell::Absent, |f| (*f).into())
            };
            self.add(&places.iter().map(cell).collect::<Vec<_>>(), options)?;
        }
        Ok(())
    }

    /// Takes a record in, or counts why not.
    fn add(&mut self, cells: &[Cell<'_>], options: &Options) -> Result<(), Error> {
        self.counts.records += 1;
        let (fixed, rest) = cells.split_at(FIXED.len());
        let [cohort, protocol, scheme, unit, prefix, viewer, duration, started] = fixed else {
            return Ok(());
        };
        let Some(cohort) = cohort.text() else {
            self.counts.without_cohort += 1;
            return Ok(());
        };
        if options.protocol.as_deref().is_some_and(|asked| protocol.text() != Some(asked)) {
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
        if let Some(scheme) = scheme.text()
            && seen.schemes.len() < MAX_SCHEMES
            && !seen.schemes.contains(scheme)
        {
            seen.schemes.insert(scheme.into());
        }
        // A record without its unit (of an older version) goes with its network: a viewer who is not
        // told apart there was divided by it.
        let known = unit.text().map(|unit| format!("u{unit}"));
        self.counts.unit_from_network += u64::from(known.is_none() && prefix.text().is_some());
        let key = known
            .or_else(|| Some(format!("n{}", prefix.text()?)))
            .or_else(|| Some(format!("v{}", viewer.text()?)))
            .unwrap_or_else(|| format!("r{}", self.counts.records));
        let next = u32::try_from(self.units.len())
            .map_err(|_| Error::new("more viewers than can be counted"))?;
        let unit = *self.units.entry(key).or_insert(next);
        let cohort = place as u16;
        self.places.insert((cohort, unit));
        let short = duration.number() < options.min_duration.as_secs_f64();
        if short {
            self.cohorts[place].too_short += 1;
            self.counts.too_short += 1;
            return Ok(());
        }
        if started.number().is_finite() {
            let at = started.number();
            let (first, last) = self.span.unwrap_or((at, at));
            self.span = Some((first.min(at), last.max(at)));
        }
        self.cohort.push(cohort);
        self.unit.push(unit);
        for (column, cell) in self.columns.iter_mut().zip(rest) {
            column.push(cell.number());
        }
        Ok(())
    }
}

/// One file, or the two forms of one.
#[derive(Debug, Default)]
struct Forms {
    lines: Option<PathBuf>,
    parquet: Option<PathBuf>,
}

/// The files that are named or lie in directories that are, by their name without the form.
fn found(paths: &[PathBuf]) -> Result<BTreeMap<PathBuf, Forms>, Error> {
    let mut all: BTreeMap<PathBuf, Forms> = BTreeMap::new();
    let mut take = |path: &Path, form: &str| {
        let forms = all.entry(path.with_extension("")).or_default();
        match form {
            "parquet" => forms.parquet = Some(path.to_owned()),
            _ => forms.lines = Some(path.to_owned()),
        }
    };
    let form = |path: &Path| path.extension().and_then(|e| e.to_str()).unwrap_or("").to_owned();
    for path in paths {
        let failed = |e: io::Error| Error::new(format!("{}: {e}", path.display()));
        // One file by several ways is one file.
        let path = path.canonicalize().map_err(failed)?;
        if !path.is_dir() {
            take(&path, &form(&path));
            continue;
        }
        for entry in std::fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?.path();
            let form = form(&entry);
            if form == "jsonl" || form == "parquet" {
                take(&entry, &form);
            }
        }
    }
    Ok(all)
}

enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads the next line; one that is too long is passed over.
fn next_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    let mut too_long = false;
    loop {
        line.clear();
        let read = file.take(MAX_LINE).read_until(b'\n', line)?;
        let whole = line.ends_with(b"\n") || (read as u64) < MAX_LINE;
        match (whole, too_long) {
            (true, false) if read == 0 => return Ok(Line::End),
            (true, false) => return Ok(Line::Whole),
            (true, true) => return Ok(Line::TooLong),
            (false, _) => too_long = true,
        }
    }
}
