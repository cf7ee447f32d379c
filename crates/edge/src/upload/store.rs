//! Object stores and shared folders. Credentials, regions and endpoints come from the environment
//! variables of the stores' own tools. No error contains an answer of the store, which may repeat
//! credentials.

use core::fmt;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use object_store::{
    ClientOptions, Error as ObjectError, ObjectStore, ObjectStoreExt as _, RetryConfig,
};
use tokio::time::timeout;

use crate::config::{StoreScheme, StoreUrl};

/// Part size of uploads in bytes. Smaller files are uploaded in one request. A store accepts 10,000
/// parts of a file.
const PART_SIZE: usize = 8 << 20;
/// Maximum time of a request with a part: 8 MiB at 28 kB/s.
const REQUEST_LIMIT: Duration = Duration::from_secs(300);
/// Maximum time to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Maximum length of the quoted cause of an error.
const MAX_CAUSE: usize = 120;

/// Reason why an upload failed.
#[derive(Debug)]
pub(crate) enum StoreError {
    /// A local file cannot be read or written.
    Local(io::Error),
    /// The store is not configured: text of the cause.
    Setting(String),
    /// The bucket, container or folder does not exist.
    Missing,
    /// The store does not accept the credentials.
    Denied,
    /// No answer in this time.
    Timeout(Duration),
    /// Another failure: text of the cause.
    Other(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(error) => write!(f, "local file: {error}"),
            Self::Setting(what) => write!(f, "credentials or settings in the environment: {what}"),
            Self::Missing => f.write_str("the bucket, container or folder does not exist"),
            Self::Denied => f.write_str("the store does not accept the credentials"),
            Self::Timeout(limit) => write!(f, "no answer in {} s", limit.as_secs()),
            Self::Other(what) => f.write_str(what),
        }
    }
}

impl core::error::Error for StoreError {}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        Self::Local(error)
    }
}

impl From<ObjectError> for StoreError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::NotFound { .. } => Self::Missing,
            ObjectError::PermissionDenied { .. } | ObjectError::Unauthenticated { .. } => {
                Self::Denied
            }
            other => Self::Other(cause(&other)),
        }
    }
}

/// Returns the innermost cause of an error, without answers of the store and URLs.
fn cause(error: &ObjectError) -> String {
    let mut innermost: &dyn core::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    // Answers of stores are XML or JSON after the status.
    let end = text.find(['<', '{', '\n']).unwrap_or(text.len());
    let end = text[..end].find("://").map_or(end, |at| text[..at].rfind(' ').unwrap_or(0));
    let short: String = text[..end].chars().take(MAX_CAUSE).collect();
    let short = short.trim_end_matches([' ', ':']);
    if short.is_empty() { "the store failed".to_owned() } else { short.to_owned() }
}

/// A place for files.
#[derive(Clone)]
pub(crate) struct Store {
    store: Arc<dyn ObjectStore>,
    prefix: StorePath,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The store's own output has its credentials.
        f.debug_struct("Store").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a store by the variables of the environment. Connects to nothing. The directory of a
    /// `file://` URL is created.
    ///
    /// # Errors
    /// The variables are invalid, or the directory cannot be created.
    pub(crate) fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        if url.scheme() == StoreScheme::File {
            fs::create_dir_all(url.path())?;
        }
        Self::build(url, &environment())
    }

    /// As [`Store::open`], with these variables, and creates nothing.
    ///
    /// # Errors
    /// The variables are invalid.
    pub(crate) fn build(
        url: &StoreUrl,
        variables: &[(String, String)],
    ) -> Result<Self, StoreError> {
        let setting = |error: ObjectError| StoreError::Setting(cause(&error));
        let prefix = StorePath::from_url_path(url.path())
            .map_err(|error| StoreError::Setting(error.to_string()))?;
        let options =
            ClientOptions::new().with_timeout(REQUEST_LIMIT).with_connect_timeout(CONNECT_LIMIT);
        // The worker repeats, and backs off for all files together.
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let of = |prefix: &'static str| {
            let variables = variables.iter().filter(move |(name, _)| name.starts_with(prefix));
            variables.map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        };
        let store: Arc<dyn ObjectStore> = match url.scheme() {
            StoreScheme::S3 => {
                let builder = AmazonS3Builder::new().with_url(url.as_str());
                let builder = builder.with_client_options(options).with_retry(retry);
                let builder = of("AWS_").fold(builder, |builder, (name, value)| {
                    name.parse().map_or(builder.clone(), |key| builder.with_config(key, value))
                });
                Arc::new(builder.build().map_err(setting)?)
            }
            StoreScheme::Google => {
                let builder = GoogleCloudStorageBuilder::new().with_url(url.as_str());
                let builder = builder.with_client_options(options).with_retry(retry);
                let builder = of("GOOGLE_").fold(builder, |builder, (name, value)| {
                    name.parse().map_or(builder.clone(), |key| builder.with_config(key, value))
                });
                Arc::new(builder.build().map_err(setting)?)
            }
            StoreScheme::Azure => {
                let builder = MicrosoftAzureBuilder::new().with_url(url.as_str());
                let builder = builder.with_client_options(options).with_retry(retry);
                let builder = of("AZURE_").fold(builder, |builder, (name, value)| {
                    name.parse().map_or(builder.clone(), |key| builder.with_config(key, value))
                });
                Arc::new(builder.build().map_err(setting)?)
            }
            StoreScheme::File => Arc::new(LocalFileSystem::new()),
        };
        Ok(Self { store, prefix })
    }

    /// Returns the store's name of a file. `name` has parts separated by `/`.
    fn path(&self, name: &str) -> StorePath {
        StorePath::from_iter(self.prefix.parts().chain(StorePath::from(name).parts()))
    }

    /// Writes a small file as a whole.
    ///
    /// # Errors
    /// The store fails.
    pub(super) async fn put(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        let path = self.path(name);
        let put = async { Ok(self.store.put(&path, content.into()).await.map(drop)?) };
        limited(REQUEST_LIMIT, put).await
    }

    /// Uploads a local file, with at most [`PART_SIZE`] in memory. Returns its size; `None` if it
    /// does not exist.
    ///
    /// # Errors
    /// The file cannot be read, or the store fails.
    pub(super) async fn upload(&self, name: &str, local: &Path) -> Result<Option<u64>, StoreError> {
        let mut file = match File::open(local) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let first = next_part(&mut file)?;
        if first.len() < PART_SIZE {
            let size = first.len() as u64;
            self.put(name, first).await?;
            return Ok(Some(size));
        }
        self.upload_parts(name, first, file).await.map(Some)
    }

    async fn upload_parts(
        &self,
        name: &str,
        first: Bytes,
        mut file: File,
    ) -> Result<u64, StoreError> {
        let path = self.path(name);
        let start = async { Ok(self.store.put_multipart(&path).await?) };
        let mut upload = limited(REQUEST_LIMIT, start).await?;
        let sent = async {
            let (mut part, mut size) = (first, 0);
            while !part.is_empty() {
                size += part.len() as u64;
                let sending = upload.put_part(part.into());
                limited(REQUEST_LIMIT, async { Ok(sending.await?) }).await?;
                part = next_part(&mut file)?;
            }
            limited(REQUEST_LIMIT, async { Ok(upload.complete().await?) }).await?;
            Ok(size)
        };
        let result = sent.await;
        if result.is_err() {
            // The first error matters more than a failure to discard the uploaded parts.
            let abort = async { Ok(upload.abort().await?) };
            let _ = limited(CONNECT_LIMIT, abort).await;
        }
        result
    }

    /// Returns the names and sizes of the files in the place itself.
    ///
    /// # Errors
    /// The store fails.
    pub(super) async fn list(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let list = async { Ok(self.store.list_with_delimiter(Some(&self.prefix)).await?) };
        match limited(REQUEST_LIMIT, list).await {
            Ok(found) => {
                let file = |meta: object_store::ObjectMeta| {
                    Some((meta.location.filename()?.to_owned(), meta.size))
                };
                Ok(found.objects.into_iter().filter_map(file).collect())
            }
            Err(error) => Err(error),
        }
    }
}

/// Limits the time of an operation on the store.
async fn limited<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(limit, work).await.unwrap_or(Err(StoreError::Timeout(limit)))
}

/// Returns the variables of the environment that are text.
pub(crate) fn environment() -> Vec<(String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// Reads up to [`PART_SIZE`] bytes; none at the end.
fn next_part(file: &mut File) -> io::Result<Bytes> {
    let mut part = Vec::new();
    file.take(PART_SIZE as u64).read_to_end(&mut part)?;
    Ok(part.into())
}
