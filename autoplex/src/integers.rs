//! Tables of integers: inputs and results of queries. Their CSV is identical for every engine.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array as _, ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;

use crate::{Error, store};

/// Named columns of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Integers {
    /// Column names.
    pub names: Vec<String>,
    /// Values of each column.
    pub columns: Vec<Vec<i64>>,
}

impl Integers {
    /// Creates a table without rows.
    pub fn empty(names: &[&str]) -> Self {
        let columns = names.iter().map(|_| Vec::new()).collect();
        Self { names: names.iter().map(|name| (*name).to_owned()).collect(), columns }
    }

    /// Appends a row with a value for each column.
    pub fn push(&mut self, row: &[i64]) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.columns.iter_mut().zip(row).for_each(|(column, value)| column.push(*value));
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, Vec::len)
    }

    /// Returns true without rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the rows.
    pub fn rows(&self) -> impl Iterator<Item = Vec<i64>> {
        (0..self.len()).map(|row| self.columns.iter().map(|column| column[row]).collect())
    }

    /// Returns the table as CSV with a header.
    pub fn csv(&self) -> String {
        let mut text = self.names.join(",") + "\n";
        for row in self.rows() {
            for (place, value) in row.iter().enumerate() {
                let comma = if place > 0 { "," } else { "" };
                let _ = write!(text, "{comma}{value}");
            }
            text.push('\n');
        }
        text
    }

    /// Reads a CSV file.
    ///
    /// # Errors
    /// If the file cannot be read, or has other columns or values that are not integers.
    pub fn read_csv(path: &Path, names: &[&str]) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
        let mut lines = text.lines();
        if lines.next() != Some(&names.join(",")) {
            return Err(Error::invalid(path, format!("expected the columns {}", names.join(","))));
        }
        let mut table = Self::empty(names);
        for (line, number) in lines.zip(2..) {
            let row: Result<Vec<i64>, _> = line.split(',').map(str::parse).collect();
            let row = row.ok().filter(|row| row.len() == names.len());
            let problem = || format!("line {number}: expected {} integers", names.len());
            table.push(&row.ok_or_else(|| Error::invalid(path, problem()))?);
        }
        Ok(table)
    }

    /// Converts record batches of integer columns.
    ///
    /// # Errors
    /// If a value is null or exceeds 64 bits.
    pub fn of_batches(schema: &Schema, batches: &[RecordBatch]) -> Result<Self, Error> {
        let names = schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        let mut columns = vec![Vec::new(); names.len()];
        for batch in batches {
            for ((to, from), name) in columns.iter_mut().zip(batch.columns()).zip(&names) {
                let cast =
                    cast(from, &DataType::Int64).map_err(|source| Error::Convert { source })?;
                let ints = cast.as_any().downcast_ref::<Int64Array>();
                let ints = ints.filter(|ints| ints.null_count() == 0);
                let failed = || Error::NotInteger { column: name.clone() };
                to.extend_from_slice(ints.ok_or_else(failed)?.values());
            }
        }
        Ok(Self { names, columns })
    }

    fn schema(&self) -> SchemaRef {
        let fields = self.names.iter().map(|name| Field::new(name, DataType::Int64, false));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// Converts the table to the engine's format.
    pub fn into_batch(self) -> RecordBatch {
        let schema = self.schema();
        let columns = self.columns.into_iter().map(|c| Arc::new(Int64Array::from(c)) as ArrayRef);
        RecordBatch::try_new(schema, columns.collect()).expect("columns of equal length")
    }

    /// Writes a Parquet file atomically.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_parquet(self, path: &Path) -> Result<(), Error> {
        let batch = self.into_batch();
        let failed = |source| Error::Parquet { path: path.to_owned(), source };
        store::replace(path, |file: &File| {
            let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1 << 18));
            let to = BufWriter::with_capacity(1 << 20, file);
            let mut writer = ArrowWriter::try_new(to, batch.schema(), Some(properties.build()))
                .map_err(failed)?;
            writer.write(&batch).map_err(failed)?;
            writer.close().map_err(failed)?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_round_trips_and_invalid_files_are_rejected() {
        let mut table = Integers::empty(&["a", "b"]);
        table.push(&[1, -2]);
        table.push(&[i64::MAX, i64::MIN]);
        assert_eq!(table.csv(), "a,b\n1,-2\n9223372036854775807,-9223372036854775808\n");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("table.csv");
        std::fs::write(&path, table.csv()).expect("written");
        assert_eq!(Integers::read_csv(&path, &["a", "b"]).expect("read"), table);
        let wrong = Integers::read_csv(&path, &["a", "c"]).expect_err("other columns");
        assert!(wrong.to_string().ends_with("expected the columns a,c"), "{wrong}");
        for bad in ["a,b\n1\n", "a,b\n1,2.5\n", "a,b\n1,2,3\n", "a,b\n1,99999999999999999999\n"] {
            std::fs::write(&path, bad).expect("written");
            let wrong = Integers::read_csv(&path, &["a", "b"]).expect_err(bad);
            assert!(wrong.to_string().contains("line 2: expected 2 integers"), "{wrong}");
        }
    }
}
