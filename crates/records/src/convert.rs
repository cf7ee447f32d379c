//! Converts session records from JSON lines to Parquet.

use std::fs::File;
use std::io::BufRead;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde_json::{Map, Value};

use crate::kind::Kind;
use crate::schema::Column;

/// Rows per Parquet row group.
pub(crate) const GROUP_ROWS: usize = 1_000;

/// Converts JSON lines to Parquet, one row group at a time. Truncated lines are skipped.
pub(crate) fn write(mut lines: impl BufRead, file: File) -> Result<(), ParquetError> {
    let mut fields = Vec::new();
    for column in Column::ALL {
        let (physical, logical) = match column.kind() {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Int => (Physical::INT64, None),
            Kind::Float => (Physical::DOUBLE, None),
        };
        let field = Type::primitive_type_builder(column.name(), physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    let schema = Type::group_type_builder("session").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let mut columns = Column::ALL.map(|column| Cells::of(column.kind()));
    let mut rows = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let Ok(row) = serde_json::from_slice::<Map<String, Value>>(&line) else { continue };
        for (cells, column) in columns.iter_mut().zip(Column::ALL) {
            cells.push(row.get(column.name()));
        }
        rows += 1;
        if rows == GROUP_ROWS {
            write_group(&mut writer, &mut columns)?;
            rows = 0;
        }
    }
    if rows > 0 {
        write_group(&mut writer, &mut columns)?;
    }
    writer.close()?;
    Ok(())
}

/// A column of a row group. JSON rows would take ten times as much memory.
enum Cells {
    Text(Values<ByteArrayType>),
    Int(Values<Int64Type>),
    Float(Values<DoubleType>),
}

impl Cells {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text(Values::new()),
            Kind::Int => Self::Int(Values::new()),
            Kind::Float => Self::Float(Values::new()),
        }
    }

    fn push(&mut self, cell: Option<&Value>) {
        match self {
            Self::Text(column) => column.push(cell.and_then(Value::as_str).map(ByteArray::from)),
            Self::Int(column) => column.push(cell.and_then(Value::as_i64)),
            Self::Float(column) => column.push(cell.and_then(Value::as_f64)),
        }
    }

    fn write(&mut self, to: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match self {
            Self::Text(column) => column.write(to),
            Self::Int(column) => column.write(to),
            Self::Float(column) => column.write(to),
        }
    }
}

/// Present values, and the definition level of each row: 1 if present.
struct Values<T: DataType> {
    values: Vec<T::T>,
    levels: Vec<i16>,
}

impl<T: DataType> Values<T> {
    fn new() -> Self {
        Self { values: Vec::new(), levels: Vec::new() }
    }

    fn push(&mut self, cell: Option<T::T>) {
        self.levels.push(i16::from(cell.is_some()));
        self.values.extend(cell);
    }

    /// Writes and clears the column.
    fn write(&mut self, to: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        to.typed::<T>().write_batch(&self.values, Some(&self.levels), None)?;
        self.values.clear();
        self.levels.clear();
        Ok(())
    }
}

fn write_group(
    writer: &mut SerializedFileWriter<File>,
    columns: &mut [Cells],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    let mut columns = columns.iter_mut();
    while let (Some(mut to), Some(cells)) = (group.next_column()?, columns.next()) {
        cells.write(&mut to)?;
        to.close()?;
    }
    group.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    use super::*;
    use crate::reader;

    /// Records written before the columns were declared in one table: four of the testbed, and a
    /// fifth line with every column.
    fn stored(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stored").join(name)
    }

    /// Name and type of each column, in order.
    fn columns(path: &Path) -> Vec<String> {
        let file = SerializedFileReader::new(File::open(path).expect("a file")).expect("readable");
        let schema = file.metadata().file_metadata().schema_descr_ptr();
        schema.columns().iter().map(|column| format!("{:?}", column.self_type())).collect()
    }

    /// Values of each row. A column that the file lacks is as one without a value.
    fn rows(path: PathBuf) -> Vec<Vec<Option<Value>>> {
        let mut rows = Vec::new();
        let input = reader::read(&[path], &Column::ALL, |_, row| {
            rows.push(Column::ALL.map(|column| row.value(column).cloned()).to_vec());
            Ok(())
        });
        let input = input.expect("read");
        assert_eq!((input.broken_lines, input.unreadable_files), (0, 0), "{input:?}");
        rows
    }

    #[test]
    fn parquet_files_have_the_columns_of_earlier_versions() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("sessions.parquet");
        let lines = File::open(stored("sessions.jsonl")).expect("a file");
        write(std::io::BufReader::new(lines), File::create(&path).expect("created"))
            .expect("written");
        // Newer columns stand between them.
        let mut new = columns(&path).into_iter();
        for old in columns(&stored("sessions.parquet")) {
            assert!(new.any(|column| column == old), "{old} is missing, or out of order");
        }
        // The same values return from both formats of both versions.
        let (new, old) = (rows(path), rows(stored("sessions.parquet")));
        assert_eq!((old.len(), &new[..4]), (4, &old[..]));
        assert_eq!(new, rows(stored("sessions.jsonl")));
    }
}
