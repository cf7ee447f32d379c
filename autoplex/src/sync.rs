//! Copies what is new from one place to another, a folder or an object store: closed files of records from edges to where
//! decisions are made, and tables back. Whoever receives sees whole files only.

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

use crate::{Error, about};

/// Larger files go in parts.
const PART: u64 = 8 << 20;
/// Parts of a file that are under way at a time.
const PARTS: usize = 4;
/// What ends the names of files that are being written.
const UNFINISHED: &str = ".part";

/// A place with files.
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
    /// A folder, which is made if it is not there, or the URL of a place in an object store: `s3://`, `gs://`, `az://`,
    /// `http://`, `https://` or `file://`. Keys, regions and endpoints come from the environment, by the names that the
    /// stores' own tools have (`AWS_ACCESS_KEY_ID` and so on).
    ///
    /// # Errors
    /// One line: there is no such store, or the folder cannot be made.
    pub fn open(text: &str) -> Result<Self, Error> {
        let failed = about(text);
        let store: Arc<dyn ObjectStore> = if text.contains("://") {
            let url: Url = text.parse().map_err(|e| failed(&e))?;
            // Who writes http:// means it.
            let plain =
                (url.scheme() == "http").then(|| ("allow_http".to_owned(), "true".to_owned()));
            let options = settings(std::env::vars_os()).chain(plain);
            let (store, path) =
                object_store::parse_url_opts(&url, options).map_err(|e| failed(&e))?;
            Arc::new(PrefixStore::new(store, path))
        } else {
            std::fs::create_dir_all(text).map_err(|e| failed(&e))?;
            Arc::new(LocalFileSystem::new_with_prefix(text).map_err(|e| failed(&e))?)
        };
        Ok(Self { name: text.to_owned(), store })
    }

    fn failed(&self, path: &Path, e: &StoreError) -> Error {
        Error::new(format!("{}: {path}: {e}", self.name))
    }

    /// What is known of a file; `None` if there is none.
    async fn head(&self, path: &Path) -> Result<Option<ObjectMeta>, Error> {
        match self.store.head(path).await {
            Ok(meta) => Ok(Some(meta)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(path, &e)),
        }
    }

    /// All files that are whole.
    async fn list(&self) -> Result<Vec<ObjectMeta>, Error> {
        let all: Result<Vec<ObjectMeta>, StoreError> = self.store.list(None).try_collect().await;
        let mut all = all.map_err(|e| about(&self.name)(&e))?;
        all.retain(|meta| !meta.location.as_ref().ends_with(UNFINISHED));
        Ok(all)
    }

    /// Removes a file; whether there was one.
    async fn remove(&self, path: &Path) -> Result<bool, Error> {
        if self.head(path).await?.is_none() {
            return Ok(false);
        }
        match self.store.delete(path).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(true),
            Err(e) => Err(self.failed(path, &e)),
        }
    }
}

/// The variables of the environment that are meant for stores. Others may have names that settings of a store have as
/// well, such as TOKEN or TIMEOUT.
fn settings(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (String, String)> {
    variables.filter_map(|(key, value)| {
        let (key, value) =
            (key.into_string().ok()?.to_ascii_lowercase(), value.into_string().ok()?);
        let is_meant = ["aws_", "azure_", "google_"].iter().any(|store| key.starts_with(store));
        is_meant.then_some((key, value))
    })
}

/// What tells a version of a file from another one.
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

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Files that were there.
    pub files: usize,
    /// Those that were copied.
    pub copied: usize,
    /// Named files that are gone.
    pub removed: usize,
    /// Bytes that were copied.
    pub bytes: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, copied, removed, bytes } = self;
        write!(f, "{copied} of {files} files copied ({bytes} bytes), {removed} removed")
    }
}

/// Keeps a place like another one.
#[derive(Debug)]
pub struct Sync {
    from: Place,
    to: Place,
    /// Files that are to be there as they are at the source, or not at all; without any, all that the source has is added.
    names: Vec<Path>,
    /// What was copied, or found to be there.
    known: HashMap<Path, Version>,
    runtime: tokio::runtime::Runtime,
}

impl Sync {
    /// From one place to the other: these files, or all.
    ///
    /// # Errors
    /// One line: the system gives no thread, or a name is none.
    pub fn new(from: Place, to: Place, names: &[String]) -> Result<Self, Error> {
        let name = |name: &String| Path::parse(name).map_err(|e| about(name)(&e));
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|e| about("a thread")(&e))?;
        let names = names.iter().map(name).collect::<Result<_, _>>()?;
        Ok(Self { from, to, names, known: HashMap::new(), runtime })
    }

    /// Copies what is new. What was copied before an error stays copied.
    ///
    /// # Errors
    /// One line: a place cannot be reached, read or written.
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
                let there = if is_first { to.head(&path).await? } else { None };
                // A copy is younger than what it was made of; some stores know whole seconds only.
                let is_copy = |there: &ObjectMeta| {
                    let [there_at, at] = [there, &meta].map(|meta| meta.last_modified.timestamp());
                    there.size == meta.size && there_at >= at
                };
                if !there.as_ref().is_some_and(is_copy) {
                    summary.bytes += copy(from, to, &path, meta.size).await?;
                    summary.copied += 1;
                }
                known.insert(path, version);
            }
            Ok(summary)
        })
    }
}

/// Copies a file, which is seen when all of it is there; how large it was.
async fn copy(from: &Place, to: &Place, path: &Path, size: u64) -> Result<u64, Error> {
    let got = from.store.get(path).await.map_err(|e| from.failed(path, &e))?;
    if size <= PART {
        let bytes = got.bytes().await.map_err(|e| from.failed(path, &e))?;
        let size = bytes.len() as u64;
        to.store.put(path, bytes.into()).await.map_err(|e| to.failed(path, &e))?;
        return Ok(size);
    }
    let parts = to.store.put_multipart(path).await.map_err(|e| to.failed(path, &e))?;
    let mut upload = WriteMultipart::new_with_chunk_size(parts, PART as usize);
    let (mut chunks, mut size) = (got.into_stream(), 0);
    let end = loop {
        match chunks.try_next().await {
            Ok(Some(chunk)) => {
                size += chunk.len() as u64;
                if let Err(e) = upload.wait_for_capacity(PARTS).await {
                    break Err(to.failed(path, &e));
                }
                upload.write(&chunk);
            }
            Ok(None) => break Ok(()),
            Err(e) => break Err(from.failed(path, &e)),
        }
    };
    match end {
        Ok(()) => upload.finish().await.map(|_| size).map_err(|e| to.failed(path, &e)),
        Err(e) => {
            // What has come of it is of no use; that it stays would be the lesser fault.
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
    fn what_is_new_is_copied_once_and_nothing_that_is_being_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let large = vec![7; 3 * PART as usize + 1];
        fs::create_dir_all(from.join("edge-1")).expect("made");
        fs::write(from.join("edge-1/a.parquet"), "a").expect("written");
        fs::write(from.join("edge-1/b.parquet"), &large).expect("written");
        fs::write(from.join("edge-1/c.parquet.part"), "c").expect("written");
        let mut all = sync(&from, &to, &[]);
        let first = all.run().expect("copied");
        assert_eq!((first.files, first.copied, first.bytes), (2, 2, large.len() as u64 + 1));
        assert_eq!(fs::read(to.join("edge-1/b.parquet")).expect("there"), large);
        assert_eq!(fs::read_dir(to.join("edge-1")).expect("there").count(), 2);
        assert_eq!(all.run().expect("run").copied, 0);
        // Another process knows nothing and finds it all there.
        assert_eq!(sync(&from, &to, &[]).run().expect("run").copied, 0);
        fs::write(from.join("edge-1/a.parquet"), "b").expect("written");
        assert_eq!(all.run().expect("run").copied, 1);
        // What a source without names lacks stays where it was copied to.
        fs::remove_file(from.join("edge-1/a.parquet")).expect("there");
        assert_eq!(all.run().expect("run").removed, 0);
        assert_eq!(fs::read(to.join("edge-1/a.parquet")).expect("there"), b"b");
    }

    #[test]
    fn a_named_file_is_as_it_is_at_its_source_or_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let mut table = sync(&from, &to, &["table.groups"]);
        let there = || fs::read_to_string(to.join("table.groups")).ok();
        assert_eq!(table.run().expect("run"), Summary::default());
        fs::write(from.join("other"), "x").expect("written");
        for text in ["one", "two"] {
            fs::write(from.join("table.groups"), text).expect("written");
            assert_eq!(table.run().expect("run").copied, 1);
            assert_eq!(there().as_deref(), Some(text));
        }
        assert!(!to.join("other").exists());
        fs::remove_file(from.join("table.groups")).expect("there");
        assert_eq!((table.run().expect("run").removed, there()), (1, None));
        assert_eq!(table.run().expect("run").removed, 0);
    }

    #[test]
    fn stores_are_told_what_is_meant_for_them_alone() {
        use std::os::unix::ffi::OsStringExt as _;
        let broken = OsString::from_vec(vec![b'A', 0xff]);
        let all = [
            ("AWS_REGION".into(), "x".into()),
            ("TOKEN".into(), "secret".into()),
            ("TIMEOUT".into(), "soon".into()),
            (broken.clone(), "x".into()),
            ("AWS_TOKEN".into(), broken),
        ];
        let told: Vec<_> = settings(all.into_iter()).collect();
        assert_eq!(told, [("aws_region".to_owned(), "x".to_owned())]);
    }

    #[test]
    fn places_that_cannot_be_are_said_in_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        for bad in [file.join("below").to_string_lossy().into_owned(), "ftp://host/path".into()] {
            let e = Place::open(&bad).expect_err("it is none").to_string();
            assert!(e.starts_with(&bad) && e.lines().count() == 1, "{e}");
        }
        let here = || Place::open(&folder.path().to_string_lossy()).expect("a folder");
        assert!(Sync::new(here(), here(), &["../x".into()]).is_err());
    }
}
