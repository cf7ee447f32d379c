//! `mendcast records export`: records for spreadsheets and shell tools.

use std::fmt::Write as _;
use std::path::PathBuf;

use ::records::{Column, Error as ReadError, Row};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::error::Error;
use crate::output::print;

/// Output that is written at once, in bytes.
const CHUNK: usize = 64 * 1024;

const EXAMPLES: &str = "\
Examples:
  mendcast records export records > records.csv
  mendcast records export records --columns stream,cohort,loss_rate,player_freeze_s
  mendcast records export records --format jsonl | jq -c 'select(.rounds_max > 3)'";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Export {
    /// Session records (.jsonl, .parquet), or directories of them.
    ///
    /// Two forms of one file count once.
    #[arg(required = true, value_name = "PATH")]
    files: Vec<PathBuf>,
    /// Columns, in this order [default: all].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = column)]
    columns: Vec<Column>,
    /// Form of the output.
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Comma-separated values with a header; absent values are empty.
    Csv,
    /// One JSON object per line, without absent values.
    Jsonl,
}

impl Export {
    pub(super) fn run(self) -> Result<(), Error> {
        let mut columns = self.columns;
        if columns.is_empty() {
            columns = Column::ALL.to_vec();
        }
        let mut text = match self.format {
            Format::Csv => columns.iter().map(|c| c.name()).collect::<Vec<_>>().join(",") + "\n",
            Format::Jsonl => String::new(),
        };
        let input = ::records::read(&self.files, &columns, |_, record| {
            text += &match self.format {
                Format::Csv => csv(record, &columns),
                Format::Jsonl => json(record, &columns)?,
            };
            text.push('\n');
            if text.len() >= CHUNK {
                print(&text);
                text.clear();
            }
            Ok(())
        })?;
        print(&text);
        let (files, lines) = (input.unreadable_files, input.broken_lines);
        if files + lines > 0 {
            log_line!("excluded: unreadable files: {files}, broken lines: {lines}");
        }
        Ok(())
    }
}

/// A record as a line of CSV (RFC 4180, with LF).
fn csv(record: &Row, columns: &[Column]) -> String {
    let mut text = String::new();
    for (place, column) in columns.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        // Writing to a string does not fail.
        let _ = match record.value(*column) {
            None | Some(Value::Null) => Ok(()),
            Some(Value::String(cell)) if cell.contains([',', '"', '\n', '\r']) => {
                write!(text, "\"{}\"", cell.replace('"', "\"\""))
            }
            Some(Value::String(cell)) => write!(text, "{cell}"),
            Some(value) => write!(text, "{value}"),
        };
    }
    text
}

/// A record as a JSON object, with the columns in their order.
fn json(record: &Row, columns: &[Column]) -> Result<String, ReadError> {
    let mut text = String::from("{");
    for column in columns {
        let Some(value) = record.value(*column).filter(|value| !value.is_null()) else { continue };
        let key = serde_json::to_string(column.name()).map_err(ReadError::new)?;
        let comma = if text.len() > 1 { "," } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{key}:{value}");
    }
    text.push('}');
    Ok(text)
}

fn column(text: &str) -> Result<Column, &'static str> {
    Column::named(text).ok_or("expected a column of docs/reference/records.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_absent_values_left_out() {
        let record = serde_json::json!({ "stream": "a,\"b\"", "loss_rate": 0.5, "rtt_ms": null });
        let record = Row::from(record.as_object().expect("an object").clone());
        let columns = [Column::loss_rate, Column::rtt_ms, Column::stream, Column::cohort];
        assert_eq!(csv(&record, &columns), "0.5,,\"a,\"\"b\"\"\",");
        assert_eq!(
            json(&record, &columns).as_deref(),
            Ok(r#"{"loss_rate":0.5,"stream":"a,\"b\""}"#)
        );
    }
}
