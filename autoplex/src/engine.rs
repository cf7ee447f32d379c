//! The embedded query engine: DataFusion over Parquet files.

use std::path::PathBuf;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::error::DataFusionError;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

use crate::Error;
use crate::integers::Integers;

/// Part of its rows that a query keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// Most rows.
    Most,
    /// Perhaps a few. Other columns of a row are decoded once its filter has passed, which saves up
    /// to a third of the memory if few rows pass, and costs a fifth more time if all do.
    Few,
}

/// Input of a query.
#[derive(Debug)]
pub enum Source {
    /// Parquet files; without any, an empty table with these columns.
    Files(Vec<PathBuf>, &'static [&'static str], Kept),
    /// Result of another query.
    Table(Integers),
}

/// Query engine with its own threads.
#[derive(Debug)]
pub struct Engine {
    runtime: tokio::runtime::Runtime,
    threads: usize,
}

impl Engine {
    /// Starts an engine. With 0 `threads`, it has one per processor.
    ///
    /// # Errors
    /// If the threads cannot be started.
    pub fn new(threads: usize) -> Result<Self, Error> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build();
        Ok(Self { runtime: runtime.map_err(Error::Threads)?, threads })
    }

    /// Runs `sql` with `source` as the table called `table`.
    ///
    /// # Errors
    /// If the query is invalid, a file cannot be read, or a result is not a 64-bit integer.
    pub fn run(&self, sql: &str, table: &str, source: Source) -> Result<Integers, Error> {
        let (schema, batches) = self
            .runtime
            .block_on(self.query(sql, table, source))
            .map_err(|e| Error::Query { source: e.into() })?;
        Integers::of_batches(&schema, &batches)
    }

    async fn query(
        &self,
        sql: &str,
        table: &str,
        source: Source,
    ) -> Result<(Schema, Vec<RecordBatch>), DataFusionError> {
        let mut config = SessionConfig::new().with_target_partitions(self.threads);
        config.options_mut().execution.parquet.pushdown_filters =
            matches!(source, Source::Files(.., Kept::Few));
        let context = SessionContext::new_with_config(config);
        let rows = match source {
            Source::Files(files, columns, _) if files.is_empty() => {
                context.read_batch(Integers::empty(columns).into_batch())?
            }
            Source::Files(files, ..) => {
                let files: Vec<String> =
                    files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
                context.read_parquet(files, ParquetReadOptions::default()).await?
            }
            Source::Table(rows) => context.read_batch(rows.into_batch())?,
        };
        context.register_table(table, rows.into_view())?;
        let found = context.sql(sql).await?;
        let schema = found.schema().as_arrow().clone();
        Ok((schema, found.collect().await?))
    }
}
