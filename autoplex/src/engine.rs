//! The embedded engine: DataFusion over Parquet files, in this process.

use std::path::PathBuf;

use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

use crate::Error;
use crate::integers::Integers;

/// What a query reads.
#[derive(Debug)]
pub enum Source {
    /// Parquet files; if there are none, no rows with these columns.
    Files(Vec<PathBuf>, &'static [&'static str]),
    /// What another query gave.
    Table(Integers),
}

/// The engine.
#[derive(Debug)]
pub struct Engine {
    runtime: tokio::runtime::Runtime,
    threads: usize,
}

impl Engine {
    /// An engine of so many threads; 0 for as many as there are processors.
    ///
    /// # Errors
    /// One line: there are no such threads.
    pub fn new(threads: usize) -> Result<Self, Error> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build();
        let runtime = runtime.map_err(|e| Error::new(format!("threads of the engine: {e}")))?;
        Ok(Self { runtime, threads })
    }

    /// What `sql` gives, where `table` is the name of the rows of `source`.
    ///
    /// # Errors
    /// One line: the query is none, or a file cannot be read.
    pub fn run(&self, sql: &str, table: &str, source: Source) -> Result<Integers, Error> {
        self.runtime.block_on(self.query(sql, table, source)).map_err(|e| {
            let text = e.to_string();
            Error::new(format!("query: {}", text.lines().next().unwrap_or_default()))
        })
    }

    async fn query(
        &self,
        sql: &str,
        table: &str,
        source: Source,
    ) -> Result<Integers, Box<dyn core::error::Error>> {
        let mut config = SessionConfig::new().with_target_partitions(self.threads);
        // Columns of sessions that do not count stay as they are in the file: a query reads its sessions several times
        // over at once, and where few count that took more than half of its memory.
        config.options_mut().execution.parquet.pushdown_filters = true;
        let context = SessionContext::new_with_config(config);
        let rows = match source {
            Source::Files(files, columns) if files.is_empty() => {
                context.read_batch(Integers::empty(columns).into_batch())?
            }
            Source::Files(files, _) => {
                let files: Vec<String> =
                    files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
                context.read_parquet(files, ParquetReadOptions::default()).await?
            }
            Source::Table(rows) => context.read_batch(rows.into_batch())?,
        };
        context.register_table(table, rows.into_view())?;
        let found = context.sql(sql).await?;
        let schema = found.schema().as_arrow().clone();
        Ok(Integers::of_batches(&schema, &found.collect().await?)?)
    }
}
