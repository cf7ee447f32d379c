//! The error of this crate. Its messages have one line.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};

use datafusion::arrow::error::ArrowError;
use datafusion::parquet::errors::ParquetError;

/// Failure of a measurement, a decision or a copy. The message names the file, object or query.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be read, written, listed or removed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The content of a file is invalid.
    #[error("{}: {problem}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The fault, and the expected content.
        problem: String,
    },
    /// A Parquet file cannot be written.
    #[error("{}: {}", path.display(), OneLine(source))]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: ParquetError,
    },
    /// An address database cannot be read.
    #[error("{}: {}", path.display(), OneLine(source))]
    Database {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: maxminddb::MaxMindDbError,
    },
    /// The URL of an object store cannot be parsed.
    #[error("{url}: {source}")]
    Url {
        /// The URL.
        url: String,
        /// The cause.
        source: url::ParseError,
    },
    /// The name of a file to copy is not a relative path.
    #[error("{name}: {source}")]
    Name {
        /// The name.
        name: String,
        /// The cause.
        source: object_store::path::Error,
    },
    /// A directory or object store, or an object in it, cannot be read or written.
    #[error("{object}: {}", OneLine(source))]
    Store {
        /// The directory or URL, and the object if the failure concerns one.
        object: String,
        /// The cause.
        source: object_store::Error,
    },
    /// Session records cannot be read.
    #[error(transparent)]
    Records(#[from] records::Error),
    /// A query failed.
    #[error("query: {}", FirstLine(source))]
    Query {
        /// The cause.
        source: Box<dyn core::error::Error + Send + Sync>,
    },
    /// A query result cannot be converted to integers.
    #[error("cannot convert a query result to integers: {}", OneLine(source))]
    Convert {
        /// The cause.
        source: ArrowError,
    },
    /// A query result has a null, or a number beyond 64 bits.
    #[error("column {column} of a query result has a value that is not a 64-bit integer")]
    NotInteger {
        /// The column.
        column: String,
    },
    /// Threads cannot be started.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    /// The address ranges of a decision overlap.
    #[error("address ranges: {0}")]
    Ranges(#[from] groups::Overlap),
    /// The table of a decision exceeds the maximum size.
    #[error("the table has {bytes} bytes, at most {} are allowed", groups::MAX_FILE)]
    TableSize {
        /// Size of the encoded table.
        bytes: usize,
    },
    /// The report cannot be encoded.
    #[error("report: {0}")]
    Report(#[from] serde_json::Error),
}

impl Error {
    /// Returns a conversion of I/O errors that adds the path.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    /// Creates an [`Error::Invalid`].
    pub(crate) fn invalid(path: &Path, problem: impl Into<String>) -> Self {
        Self::Invalid { path: path.to_owned(), problem: problem.into() }
    }
}

/// Displays a message with `; ` instead of line breaks.
struct OneLine<T>(T);

impl<T: fmt::Display> fmt::Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        f.write_str(&lines.collect::<Vec<_>>().join("; "))
    }
}

/// Displays the first line of a message: query engines append plans and suggestions.
struct FirstLine<T>(T);

impl<T: fmt::Display> fmt::Display for FirstLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_string().lines().next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_one_line() {
        assert_eq!(OneLine("bad\n  worse\n\n").to_string(), "bad; worse");
        let error = Error::Query { source: "no such column\nplan: …".into() };
        assert_eq!(error.to_string(), "query: no such column");
    }
}
