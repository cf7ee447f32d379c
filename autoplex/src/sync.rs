//! Copies new files between directories and object stores: closed record files to the deciding
//! machine, and tables back to the edges. Receivers see complete files only.

use core::fmt;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt as _, WriteMultipart,
};
use url::Url;

use crate::Error;

/// Part size of multipart uploads, in bytes. Smaller files are copied in one request.
const PART_SIZE: u64 = 8 << 20;
/// Maximum parts of a file in flight.
const MAX_PARTS_IN_FLIGHT: usize = 4;
/// Suffix of incomplete files.
const PARTIAL: &str = ".part";

/// A directory or object store.
#[derive(Clone)]
pub struct Place {
    name: String,
    store: Arc<dyn ObjectStore>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.name).finish()
    }
}

impl Place {
    /// Opens a directory, which is created if missing, or the URL of an object store: `s3://`,
    /// `gs://`, `az://`, `http://`, `https://` or `file://`. Credentials, regions and endpoints
    /// come from the environment variables of the stores' own tools, such as `AWS_ACCESS_KEY_ID`.
    ///
    /// # Errors
    /// If the URL is invalid or its scheme unsupported, or the directory cannot be created.
    pub fn open(text: &str) -> Result<Self, Error> {
        let failed = |source| Error::Store { object: text.to_owned(), source };
        let store: Arc<dyn ObjectStore> = if text.contains("://") {
            let invalid = |source| Error::Url { url: text.to_owned(), source };
            let url: Url = text.parse().map_err(invalid)?;
            // An http:// URL is explicit consent to an unencrypted connection.
            let plain =
                (url.scheme() == "http").then(|| ("allow_http".to_owned(), "true".to_owned()));
            let options = store_options(std::env::vars_os()).chain(plain);
            let (store, path) = object_store::parse_url_opts(&url, options).map_err(failed)?;
            Arc::new(PrefixStore::new(store, path))
        } else {
            std::fs::create_dir_all(text).map_err(Error::io(text.as_ref()))?;
            Arc::new(LocalFileSystem::new_with_prefix(text).map_err(failed)?)
        };
        Ok(Self { name: text.to_owned(), store })
    }

    fn failed(&self, path: &Path, source: StoreError) -> Error {
        Error::Store { object: format!("{}: {path}", self.name), source }
    }

    /// Returns the metadata of a file; `None` if it does not exist.
    async fn head(&self, path: &Path) -> Result<Option<ObjectMeta>, Error> {
        match self.store.head(path).await {
            Ok(meta) => Ok(Some(meta)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(path, e)),
        }
    }

    /// Lists all complete files.
    async fn list(&self) -> Result<Vec<ObjectMeta>, Error> {
        let all: Result<Vec<ObjectMeta>, StoreError> = self.store.list(None).try_collect().await;
        let failed = |source| Error::Store { object: self.name.clone(), source };
        let mut all = all.map_err(failed)?;
        all.retain(|meta| !meta.location.as_ref().ends_with(PARTIAL));
        Ok(all)
    }

    /// Removes a file. Returns true if it existed.
    async fn remove(&self, path: &Path) -> Result<bool, Error> {
        if self.head(path).await?.is_none() {
            return Ok(false);
        }
        match self.store.delete(path).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(true),
            Err(e) => Err(self.failed(path, e)),
        }
    }
}

/// Filters the environment variables of object stores. Without the filter, unrelated variables such
/// as TOKEN or TIMEOUT would be taken for settings.
fn store_options(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (String, String)> {
    variables.filter_map(|(key, value)| {
        let (key, value) =
            (key.into_string().ok()?.to_ascii_lowercase(), value.into_string().ok()?);
        let is_option = ["aws_", "azure_", "google_"].iter().any(|store| key.starts_with(store));
        is_option.then_some((key, value))
    })
}

/// Identifies a version of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Version {
    size: u64,
    tag: String,
}

impl From<&ObjectMeta> for Version {
    fn from(meta: &ObjectMeta) -> Self {
        let time = || meta.last_modified.to_rfc3339();
        Self { size: meta.size, tag: meta.e_tag.clone().unwrap_or_else(time) }
    }
}

/// Result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Files at the source.
    pub files: usize,
    /// Copied files.
    pub copied: usize,
    /// Removed files: named ones that no longer exist at the source.
    pub removed: usize,
    /// Copied bytes.
    pub bytes: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, copied, removed, bytes } = self;
        write!(f, "{copied} of {files} files copied ({bytes} bytes), {removed} removed")
    }
}

/// Copies files from one place to another.
#[derive(Debug)]
pub struct Sync {
    from: Place,
    to: Place,
    /// Mirrored files, including their removal. If empty, all files of the source are added.
    names: Vec<Path>,
    /// Versions that the target is known to have.
    known: HashMap<Path, Version>,
    runtime: tokio::runtime::Runtime,
}

impl Sync {
    /// Prepares to mirror the files `names`, or to copy all files if there are none.
    ///
    /// # Errors
    /// If the thread cannot be started, or a name is not a relative path.
    pub fn new(from: Place, to: Place, names: &[String]) -> Result<Self, Error> {
        let name = |name: &String| {
            Path::parse(name).map_err(|source| Error::Name { name: name.clone(), source })
        };
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(Error::Threads)?;
        let names = names.iter().map(name).collect::<Result<_, _>>()?;
        Ok(Self { from, to, names, known: HashMap::new(), runtime })
    }

    /// Copies new and changed files. After an error, completed copies remain.
    ///
    /// # Errors
    /// If a place cannot be reached, read or written.
    pub fn run(&mut self) -> Result<Summary, Error> {
        let Self { from, to, names, known, runtime } = self;
        runtime.block_on(async {
            let mut summary = Summary::default();
            let mut files: BTreeMap<Path, ObjectMeta> = BTreeMap::new();
            if names.is_empty() {
                files.extend(
                    from.list().await?.into_iter().map(|meta| (meta.location.clone(), meta)),
                );
            }
            for name in &*names {
                match from.head(name).await? {
                    Some(meta) => _ = files.insert(name.clone(), meta),
                    None => {
                        known.remove(name);
                        summary.removed += usize::from(to.remove(name).await?);
                    }
                }
            }
            known.retain(|path, _| files.contains_key(path));
            summary.files = files.len();
            for (path, meta) in files {
                let version = Version::from(&meta);
                if known.get(&path) == Some(&version) {
                    continue;
                }
                let is_first = !known.contains_key(&path);
                let existing = if is_first { to.head(&path).await? } else { None };
                // A copy is not older than its source. Some stores round times to seconds.
                let is_copy = |existing: &ObjectMeta| {
                    let [copied, changed] =
                        [existing, &meta].map(|meta| meta.last_modified.timestamp());
                    existing.size == meta.size && copied >= changed
                };
                if !existing.as_ref().is_some_and(is_copy) {
                    summary.bytes += copy(from, to, &path, meta.size).await?;
                    summary.copied += 1;
                }
                known.insert(path, version);
            }
            Ok(summary)
        })
    }
}

/// Copies a file atomically. Returns its size in bytes.
async fn copy(from: &Place, to: &Place, path: &Path, size: u64) -> Result<u64, Error> {
    let got = from.store.get(path).await.map_err(|e| from.failed(path, e))?;
    if size <= PART_SIZE {
        let bytes = got.bytes().await.map_err(|e| from.failed(path, e))?;
        let size = bytes.len() as u64;
        to.store.put(path, bytes.into()).await.map_err(|e| to.failed(path, e))?;
        return Ok(size);
    }
    let parts = to.store.put_multipart(path).await.map_err(|e| to.failed(path, e))?;
    let mut upload = WriteMultipart::new_with_chunk_size(parts, PART_SIZE as usize);
    let (mut chunks, mut size) = (got.into_stream(), 0);
    let end = loop {
        match chunks.try_next().await {
            Ok(Some(chunk)) => {
                size += chunk.len() as u64;
                if let Err(e) = upload.wait_for_capacity(MAX_PARTS_IN_FLIGHT).await {
                    break Err(to.failed(path, e));
                }
                upload.write(&chunk);
            }
            Ok(None) => break Ok(()),
            Err(e) => break Err(from.failed(path, e)),
        }
    };
    match end {
        Ok(()) => upload.finish().await.map(|_| size).map_err(|e| to.failed(path, e)),
        Err(e) => {
            // The first error matters more than a failure to discard the uploaded parts.
            let _ = upload.abort().await;
            Err(e)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn sync(from: &std::path::Path, to: &std::path::Path, names: &[&str]) -> Sync {
        let place =
            |path: &std::path::Path| Place::open(&path.to_string_lossy()).expect("a folder");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Sync::new(place(from), place(to), &names).expect("a thread")
    }

    #[test]
    fn new_files_are_copied_once_and_incomplete_files_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let large = vec![7; 3 * PART_SIZE as usize + 1];
        fs::create_dir_all(from.join("edge-1")).expect("created");
        fs::write(from.join("edge-1/a.parquet"), "a").expect("written");
        fs::write(from.join("edge-1/b.parquet"), &large).expect("written");
        fs::write(from.join("edge-1/c.parquet.part"), "c").expect("written");
        let mut all = sync(&from, &to, &[]);
        let first = all.run().expect("copied");
        assert_eq!((first.files, first.copied, first.bytes), (2, 2, large.len() as u64 + 1));
        assert_eq!(fs::read(to.join("edge-1/b.parquet")).expect("there"), large);
        assert_eq!(fs::read_dir(to.join("edge-1")).expect("there").count(), 2);
        assert_eq!(all.run().expect("run").copied, 0);
        // A new process finds the existing copies.
        assert_eq!(sync(&from, &to, &[]).run().expect("run").copied, 0);
        fs::write(from.join("edge-1/a.parquet"), "b").expect("written");
        assert_eq!(all.run().expect("run").copied, 1);
        // Without names, files removed at the source remain at the target.
        fs::remove_file(from.join("edge-1/a.parquet")).expect("there");
        assert_eq!(all.run().expect("run").removed, 0);
        assert_eq!(fs::read(to.join("edge-1/a.parquet")).expect("there"), b"b");
    }

    #[test]
    fn named_files_are_mirrored_including_their_removal() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let mut table = sync(&from, &to, &["table.groups"]);
        let copy = || fs::read_to_string(to.join("table.groups")).ok();
        assert_eq!(table.run().expect("run"), Summary::default());
        fs::write(from.join("other"), "x").expect("written");
        for text in ["one", "two"] {
            fs::write(from.join("table.groups"), text).expect("written");
            assert_eq!(table.run().expect("run").copied, 1);
            assert_eq!(copy().as_deref(), Some(text));
        }
        assert!(!to.join("other").exists());
        fs::remove_file(from.join("table.groups")).expect("there");
        assert_eq!((table.run().expect("run").removed, copy()), (1, None));
        assert_eq!(table.run().expect("run").removed, 0);
    }

    #[test]
    fn only_variables_of_object_stores_become_options() {
        use std::os::unix::ffi::OsStringExt as _;
        let broken = OsString::from_vec(vec![b'A', 0xff]);
        let all = [
            ("AWS_REGION".into(), "x".into()),
            ("TOKEN".into(), "secret".into()),
            ("TIMEOUT".into(), "soon".into()),
            (broken.clone(), "x".into()),
            ("AWS_TOKEN".into(), broken),
        ];
        let options: Vec<_> = store_options(all.into_iter()).collect();
        assert_eq!(options, [("aws_region".to_owned(), "x".to_owned())]);
    }

    #[test]
    fn invalid_places_are_named_in_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        for bad in [file.join("below").to_string_lossy().into_owned(), "ftp://host/path".into()] {
            let e = Place::open(&bad).expect_err("invalid").to_string();
            assert!(e.starts_with(&bad) && e.lines().count() == 1, "{e}");
        }
        let here = || Place::open(&folder.path().to_string_lossy()).expect("a folder");
        assert!(Sync::new(here(), here(), &["../x".into()]).is_err());
    }
}
