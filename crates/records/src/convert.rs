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

use crate::record::{COLUMNS, Kind};

/// Rows per Parquet row group.
pub(crate) const GROUP_ROWS: usize = 1_000;

/// Converts JSON lines to Parquet, one row group at a time. Truncated lines are skipped.
pub(crate) fn write(mut lines: impl BufRead, file: File) -> Result<(), ParquetError> {
    let mut fields = Vec::new();
    for (name, kind) in COLUMNS {
        let (physical, logical) = match kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Int => (Physical::INT64, None),
            Kind::Float => (Physical::DOUBLE, None),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    let schema = Type::group_type_builder("session").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let mut columns: Vec<Cells> = COLUMNS.iter().map(|(_, kind)| Cells::of(*kind)).collect();
    let mut rows = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let Ok(row) = serde_json::from_slice::<Map<String, Value>>(&line) else { continue };
        for (cells, (name, _)) in columns.iter_mut().zip(COLUMNS) {
            cells.push(row.get(*name));
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
    Text(Column<ByteArrayType>),
    Int(Column<Int64Type>),
    Float(Column<DoubleType>),
}

impl Cells {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text(Column::new()),
            Kind::Int => Self::Int(Column::new()),
            Kind::Float => Self::Float(Column::new()),
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
struct Column<T: DataType> {
    values: Vec<T::T>,
    levels: Vec<i16>,
}

impl<T: DataType> Column<T> {
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
