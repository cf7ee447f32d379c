//! Reads records from JSON lines or Parquet.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::claim;
use crate::error::Error;
use crate::row::Row;
use crate::schema::Column;

/// Maximum length of a line, in bytes.
const MAX_LINE: u64 = 64 * 1024;
/// Maximum number of unreadable files to name.
const MAX_NAMED: usize = 20;

/// Summary of the records read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Input {
    /// Files read, counting the two formats of one file once.
    pub files: u64,
    /// Files that could not be read to their end, with the reason. Names at most 20.
    pub unreadable: Vec<String>,
    /// Number of unreadable files.
    pub unreadable_files: u64,
    /// Invalid, truncated or overlong lines.
    pub broken_lines: u64,
    /// Records read.
    pub records: u64,
    /// Records with clamped player claims.
    pub reports_clamped: u64,
}

/// Location of a record, displayed as `FILE:ROW`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location<'a> {
    /// The file.
    pub file: &'a Path,
    /// Line, or row of a Parquet file, from 1.
    pub row: u64,
}

impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.row)
    }
}

/// Numbered rows of a file; `None` for an invalid line.
type Rows = Box<dyn Iterator<Item = Result<(u64, Option<Row>), Failure>>>;
type Failure = Box<dyn core::error::Error>;

/// Reads records from files and directories and passes each to `take`.
///
/// Reads only `columns` of Parquet files, but all fields of JSON lines. Numbers that JSON cannot
/// represent (NaN, infinities) become text rather than absent values. Player claims are clamped to
/// the session with the server's [`Claim`](crate::Claim), and such records are marked
/// ([`Row::is_clamped`]).
///
/// # Errors
/// If a path does not exist, or `take` fails. Unreadable files are listed in the result instead.
pub fn read(
    paths: &[PathBuf],
    columns: &[Column],
    mut take: impl FnMut(Location<'_>, &Row) -> Result<(), Error>,
) -> Result<Input, Error> {
    let mut input = Input::default();
    let columns = columns.iter().copied().chain(claim::needed(columns));
    let columns: BTreeSet<&str> = columns.map(Column::name).collect();
    for forms in found(paths)?.into_values() {
        input.files += 1;
        let Some((path, rows)) = input.open(&forms, &columns) else { continue };
        for row in rows {
            match row {
                Ok((row, Some(mut record))) => {
                    input.records += 1;
                    input.reports_clamped += u64::from(claim::clamp_row(&mut record));
                    take(Location { file: path, row }, &record)?;
                }
                Ok((_, None)) => input.broken_lines += 1,
                Err(e) => {
                    input.failed(path, e.as_ref());
                    break;
                }
            }
        }
    }
    Ok(input)
}

impl Input {
    /// Opens the Parquet file, which is always complete, or else the JSON lines.
    fn open<'a>(&mut self, forms: &'a Forms, columns: &BTreeSet<&str>) -> Option<(&'a Path, Rows)> {
        let parquet = forms.parquet.iter().map(|path| (path, parquet_rows(path, columns)));
        let lines = forms.lines.iter().map(|path| (path, json_rows(path)));
        parquet.chain(lines).find_map(|(path, rows)| match rows {
            Ok(rows) => Some((path.as_path(), rows)),
            Err(e) => {
                self.failed(path, e.as_ref());
                None
            }
        })
    }

    fn failed(&mut self, path: &Path, why: &dyn core::error::Error) {
        self.unreadable_files += 1;
        if self.unreadable.len() < MAX_NAMED {
            self.unreadable.push(Error::new(format!("{}: {why}", path.display())).to_string());
        }
    }
}

fn parquet_rows(path: &Path, columns: &BTreeSet<&str>) -> Result<Rows, Failure> {
    let file = SerializedFileReader::new(open(path)?)?;
    let schema = file.metadata().file_metadata().schema();
    let wanted = |field: &&Arc<Type>| columns.contains(field.name());
    let fields = schema.get_fields().iter().filter(wanted).cloned().collect();
    let projection = Type::group_type_builder(schema.name()).with_fields(fields).build()?;
    let rows = RowIter::from_file_into(Box::new(file)).project(Some(projection))?;
    Ok(Box::new(rows.zip(1..).map(|(row, number)| Ok((number, Some(record(&row?)))))))
}

/// Opens a regular file. Rejects devices and pipes, which may be endless or block.
fn open(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path)?.is_file() {
        File::open(path)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

/// Converts a row of a Parquet file.
fn record(row: &parquet::record::Row) -> Row {
    let cell = |field: &Field| match field {
        Field::Double(number) if !number.is_finite() => number.to_string().into(),
        Field::Float(number) if !number.is_finite() => number.to_string().into(),
        field => field.to_json_value(),
    };
    let cells = row.get_column_iter().map(|(name, field)| (name.clone(), cell(field)));
    cells.collect::<Map<_, _>>().into()
}

fn json_rows(path: &Path) -> Result<Rows, Failure> {
    let mut file = BufReader::new(open(path)?);
    let mut line = Vec::new();
    let mut row = 0;
    Ok(Box::new(core::iter::from_fn(move || {
        loop {
            row += 1;
            return match next_line(&mut file, &mut line) {
                Ok(LineEnd::End) => None,
                Ok(LineEnd::Whole) if line.trim_ascii().is_empty() => continue,
                Ok(LineEnd::Whole) => {
                    let values = serde_json::from_slice::<Map<String, Value>>(&line);
                    Some(Ok((row, values.ok().map(Row::from))))
                }
                Ok(LineEnd::TooLong) => Some(Ok((row, None))),
                Err(e) => Some(Err(e.into())),
            };
        }
    })))
}

/// A file in one or both formats.
#[derive(Debug, Default)]
struct Forms {
    lines: Option<PathBuf>,
    parquet: Option<PathBuf>,
}

/// Finds the files in `paths` and in directories among them, by name without extension.
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
        // Different paths may name the same file.
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

enum LineEnd {
    Whole,
    TooLong,
    End,
}

/// Reads the next line. Skips the contents of overlong ones.
fn next_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<LineEnd> {
    let mut too_long = false;
    loop {
        line.clear();
        let read = file.take(MAX_LINE).read_until(b'\n', line)?;
        let whole = line.ends_with(b"\n") || (read as u64) < MAX_LINE;
        match (whole, too_long) {
            (true, false) if read == 0 => return Ok(LineEnd::End),
            (true, false) => return Ok(LineEnd::Whole),
            (true, true) => return Ok(LineEnd::TooLong),
            (false, _) => too_long = true,
        }
    }
}
