//! Uploads to a folder and to a server that speaks S3, which may be away, full or slow.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::recordings::RecordingUpload;
use super::records::RecordUpload;
use super::*;
use crate::config::StoreUrl;
use crate::record::fixture::StoredTake;

const SECRET: &str = "wJalrXUtnFEMI-K7MDENG-secret";
const LIMIT: Duration = Duration::from_secs(20);
/// 2026-11-28, 09:00:00.
const T0: i64 = 1_795_856_400_000;

/// Behaviour of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    Works,
    Full,
    Denies,
    Stuck,
}

/// A server with the part of S3's protocol that uploads need.
#[derive(Default)]
struct S3 {
    mode: AtomicU8,
    objects: Mutex<BTreeMap<String, Bytes>>,
    parts: Mutex<BTreeMap<u32, Bytes>>,
    /// Violations of the protocol or of the order of files.
    faults: Mutex<Vec<String>>,
}

impl S3 {
    async fn start() -> (Arc<Self>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let server = Arc::new(Self::default());
        let own = server.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let own = own.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| own.clone().serve(request));
                    let socket = TokioIo::new(socket);
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(socket, service)
                        .await;
                });
            }
        });
        (server, address)
    }

    fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    fn fault(&self, what: String) {
        lock(&self.faults).push(what);
    }

    async fn serve(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let field = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let signature = field("authorization").unwrap_or_default();
        let is_signed = signature.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
            && signature.contains("/us-test-1/s3/aws4_request")
            && signature.contains("Signature=")
            && field("x-amz-date").is_some()
            && field("x-amz-content-sha256").is_some();
        if !is_signed {
            self.fault(format!("{}: not signed: {signature}", head.uri));
        }
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let mode = self.mode.load(Ordering::Relaxed);
        let answer = |status: u16, text: String| {
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = StatusCode::from_u16(status).expect("a status");
            response.headers_mut().insert("etag", "\"tag\"".parse().expect("a value"));
            Ok(response)
        };
        if mode == Mode::Stuck as u8 {
            sleep(LIMIT * 10).await;
        } else if mode == Mode::Full as u8 {
            return answer(507, format!("<Error><Code>Full</Code><Id>{SECRET}</Id></Error>"));
        } else if mode == Mode::Denies as u8 {
            return answer(403, format!("<Error><StringToSign>{SECRET}</StringToSign></Error>"));
        }
        let query = head.uri.query().unwrap_or_default().to_owned();
        let key = head.uri.path().strip_prefix("/archive/").unwrap_or_default().to_owned();
        match head.method.as_str() {
            "PUT" if query.contains("partNumber") => {
                let number = query.split("partNumber=").nth(1).and_then(|n| n.split('&').next());
                let number = number.and_then(|n| n.parse().ok()).unwrap_or(0);
                lock(&self.parts).insert(number, body);
                answer(200, String::new())
            }
            "PUT" => {
                self.store(key, body);
                answer(200, String::new())
            }
            "POST" if query.starts_with("uploads") => {
                let text = "<InitiateMultipartUploadResult><UploadId>u1</UploadId>\
                            </InitiateMultipartUploadResult>";
                answer(200, text.into())
            }
            "POST" => {
                let whole = std::mem::take(&mut *lock(&self.parts)).into_values();
                self.store(key, whole.flat_map(|part| part.to_vec()).collect::<Vec<u8>>().into());
                let text = "<CompleteMultipartUploadResult><ETag>x</ETag>\
                            </CompleteMultipartUploadResult>";
                answer(200, text.into())
            }
            "GET" => {
                let object = |(key, content): (&String, &Bytes)| {
                    format!(
                        "<Contents><Key>{key}</Key><LastModified>2026-11-28T09:00:00.000Z\
                         </LastModified><Size>{}</Size><ETag>x</ETag></Contents>",
                        content.len()
                    )
                };
                let all: String = lock(&self.objects).iter().map(object).collect();
                answer(200, format!("<ListBucketResult>{all}</ListBucketResult>"))
            }
            other => {
                self.fault(format!("{other} {}", head.uri));
                answer(400, String::new())
            }
        }
    }

    fn store(&self, key: String, content: Bytes) {
        let mut objects = lock(&self.objects);
        if let Some(folder) = key.strip_suffix("/index.m3u8") {
            // A playlist must not name files that are not there yet.
            let text = String::from_utf8_lossy(&content).into_owned();
            for file in named(&text) {
                if !objects.contains_key(&format!("{folder}/{file}")) {
                    self.fault(format!("{key} names {file} too early"));
                }
            }
        }
        objects.insert(key, content);
    }

    fn get(&self, key: &str) -> Option<Bytes> {
        lock(&self.objects).get(key).cloned()
    }
}

/// Returns the files that a playlist names, without gaps.
fn named(text: &str) -> Vec<String> {
    let (mut all, mut is_gap) = (vec![], false);
    for line in text.lines() {
        is_gap |= line == "#EXT-X-GAP";
        if let Some(map) = line.strip_prefix("#EXT-X-MAP:URI=\"") {
            all.push(map.trim_end_matches('"').to_owned());
        } else if !line.starts_with('#') && !std::mem::take(&mut is_gap) {
            all.push(line.to_owned());
        }
    }
    all
}

fn url(text: &str) -> StoreUrl {
    let text = format!("[[record]]\nstream = \"a\"\ndirectory = \"/x\"\nupload = \"{text}\"");
    let config = Config::parse("edge.toml", &text).expect("valid");
    config.record[0].upload.clone().expect("set")
}

fn store(address: SocketAddr) -> Store {
    let variables = [
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_REGION", "us-test-1".to_owned()),
        ("AWS_ENDPOINT", format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("TOKEN", "of another program".to_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    Store::build(&url("s3://archive/edge-1"), &variables).expect("a store")
}

/// A directory with a finished and a running recording.
fn recordings(directory: &Path) -> [StoredTake; 2] {
    let folder = directory.join("live/a");
    let mut first = StoredTake::new(&folder, T0, (0, 0));
    first.add(40);
    first.add_gap();
    first.add(4);
    first.write(true);
    let mut second = StoredTake::new(&folder, first.end_ms(), first.end());
    second.add(3);
    [first, second]
}

fn key(take: &StoredTake, file: &str) -> String {
    let name = take.path.file_name().and_then(|name| name.to_str()).expect("a name");
    format!("edge-1/live/a/{name}/{file}")
}

/// Runs passes until there is nothing more.
async fn finish(upload: &mut RecordingUpload) {
    while upload.pass().await.expect("uploaded") {}
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

#[tokio::test]
async fn recordings_are_uploaded_in_order_and_a_restart_continues() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (server, address) = S3::start().await;
    let [first, mut second] = recordings(scratch.path());
    let new = || {
        let counts = Arc::<UploadCounts>::default();
        let directory = scratch.path().to_owned();
        (RecordingUpload::new(directory, store(address), counts.clone()), counts)
    };
    let (mut upload, counts) = new();
    finish(&mut upload).await;
    assert_eq!(*lock(&server.faults), Vec::<String>::new());
    for take in [&first, &second] {
        let local = fs::read(take.path.join("index.m3u8")).expect("read");
        assert_eq!(server.get(&key(take, "index.m3u8")).expect("uploaded"), local);
    }
    let content = server.get(&key(&first, "00000044.m4s")).expect("uploaded");
    assert_eq!(content, "00000044.m4s");
    assert_eq!((load(&counts.files), load(&counts.lost)), (44 + 1 + 3 + 1, 0));
    assert!(is_complete(&first.path) && !is_complete(&second.path));
    // Nothing is new, also for the next process.
    let objects = std::mem::take(&mut *lock(&server.objects));
    finish(&mut upload).await;
    let (mut again, again_counts) = new();
    finish(&mut again).await;
    assert_eq!((load(&again_counts.files), lock(&server.objects).len()), (0, 0));
    // Only the new segment, and the playlist.
    lock(&server.objects).extend(objects);
    second.add(1);
    finish(&mut again).await;
    assert_eq!(load(&again_counts.files), 1);
    assert!(server.get(&key(&second, "00000003.m4s")).is_some());
    let local = fs::read(second.path.join("index.m3u8")).expect("read");
    assert_eq!(server.get(&key(&second, "index.m3u8")).expect("uploaded"), local);
    assert_eq!(*lock(&server.faults), Vec::<String>::new());
    assert_eq!(load(&again_counts.pending), 0);
}

#[tokio::test]
async fn segments_removed_before_their_upload_are_gaps() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (server, address) = S3::start().await;
    let [first, second] = recordings(scratch.path());
    let counts = Arc::<UploadCounts>::default();
    let mut upload =
        RecordingUpload::new(scratch.path().to_owned(), store(address), counts.clone());
    // Away, full, or without permission: nothing is lost, and no error has a secret.
    for mode in [Mode::Full, Mode::Denies] {
        server.set(mode);
        let error = upload.pass().await.expect_err("fails").to_string();
        assert!(!error.contains("secret") && !error.contains('<'), "{error}");
        println!("{error}");
    }
    assert_eq!((load(&counts.lost), lock(&server.objects).len()), (0, 0));
    // Meanwhile the disk was needed.
    for number in [0, 1, 2, 39] {
        fs::remove_file(first.path.join(format!("{number:08}.m4s"))).expect("removed");
    }
    server.set(Mode::Works);
    finish(&mut upload).await;
    assert_eq!(*lock(&server.faults), Vec::<String>::new());
    assert_eq!(load(&counts.lost), 4);
    let text = server.get(&key(&first, "index.m3u8")).expect("uploaded");
    let text = String::from_utf8(text.to_vec()).expect("text");
    assert_eq!(text.matches("#EXT-X-GAP\n").count(), 5, "{text}");
    assert!(text.ends_with("#EXT-X-ENDLIST\n") && is_complete(&first.path));
    // Removed after their upload, segments are no gaps.
    fs::remove_file(second.path.join("00000000.m4s")).expect("removed");
    finish(&mut upload).await;
    assert_eq!(load(&counts.lost), 4);
    // A recording that vanishes is no failure.
    fs::remove_dir_all(&second.path).expect("removed");
    finish(&mut upload).await;
}

#[tokio::test]
async fn a_store_that_is_away_is_an_error_without_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let scratch = tempfile::tempdir().expect("a directory");
    let _takes = recordings(scratch.path());
    let counts = Arc::<UploadCounts>::default();
    let mut upload = RecordingUpload::new(scratch.path().to_owned(), store(address), counts);
    let error = upload.pass().await.expect_err("away").to_string();
    assert!(error.contains("refused") && !error.contains("://"), "{error}");
}

#[tokio::test]
async fn large_files_are_uploaded_in_parts() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (server, address) = S3::start().await;
    let content: Vec<u8> = (0..(20_u32 << 20)).map(|n| (n % 251) as u8).collect();
    let file = scratch.path().join("large");
    fs::write(&file, &content).expect("written");
    let size = store(address).upload("a/large", &file).await.expect("uploaded");
    assert_eq!(size, Some(content.len() as u64));
    assert!(server.get("edge-1/a/large").is_some_and(|stored| stored == content));
    assert_eq!(*lock(&server.faults), Vec::<String>::new());
    let none = store(address).upload("a/none", &scratch.path().join("none")).await;
    assert_eq!(none.expect("no failure"), None);
}

#[tokio::test]
async fn session_records_are_uploaded_once() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (server, address) = S3::start().await;
    let write = |name: &str| fs::write(scratch.path().join(name), name).expect("written");
    let name = |n: u32| format!("sessions-20261128T0{n}0000Z.parquet");
    (0..3).for_each(|n| write(&name(n)));
    for other in ["sessions-20261128T080000Z.jsonl", "sessions-1.parquet.part", "notes.txt"] {
        write(other);
    }
    let new = |counts: &Arc<UploadCounts>| {
        RecordUpload::new(scratch.path().to_owned(), store(address), counts.clone())
    };
    let counts = Arc::<UploadCounts>::default();
    let mut upload = new(&counts);
    while upload.pass().await.expect("uploaded") {}
    let keys: Vec<String> = lock(&server.objects).keys().cloned().collect();
    assert_eq!(keys, [0, 1, 2].map(|n| format!("edge-1/{}", name(n))));
    // The next process asks the store.
    let counts = Arc::<UploadCounts>::default();
    let mut upload = new(&counts);
    write(&name(3));
    while upload.pass().await.expect("uploaded") {}
    assert_eq!(load(&counts.files), 1);
    // Removed while the store was full.
    server.set(Mode::Full);
    write(&name(4));
    upload.pass().await.expect_err("full");
    assert_eq!(load(&counts.pending), 1);
    fs::remove_file(scratch.path().join(name(4))).expect("removed");
    server.set(Mode::Works);
    while upload.pass().await.expect("uploaded") {}
    assert_eq!((load(&counts.lost), load(&counts.pending)), (1, 0));
    assert_eq!(*lock(&server.faults), Vec::<String>::new());
}

#[tokio::test]
async fn a_stuck_store_does_not_delay_the_end() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (server, address) = S3::start().await;
    server.set(Mode::Stuck);
    let _takes = recordings(scratch.path());
    let counts = Arc::<UploadCounts>::default();
    let mut upload = RecordingUpload::new(scratch.path().to_owned(), store(address), counts);
    let pass = tokio::time::timeout(Duration::from_millis(300), upload.pass()).await;
    assert!(pass.is_err(), "waits, and can be dropped");
}

#[tokio::test]
async fn the_configuration_starts_and_ends_uploads() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (directory, target) = (scratch.path().join("recordings"), scratch.path().join("a/b"));
    let [first, _second] = recordings(&directory);
    let text = format!(
        "[[record]]\nstream = \"live/*\"\ndirectory = \"{}\"\nupload = \"file://{}\"",
        directory.display(),
        target.display()
    );
    let config = Config::parse("edge.toml", &text).expect("valid");
    let uploads = Uploads::default();
    uploads.tend(&config);
    uploads.tend(&config);
    let name = first.path.file_name().expect("a name");
    let copy = target.join("live/a").join(name).join("index.m3u8");
    let own = fs::read_to_string(first.path.join("index.m3u8")).expect("read");
    let until = Instant::now() + LIMIT;
    while fs::read_to_string(&copy).ok().as_ref() != Some(&own) {
        assert!(Instant::now() < until, "{:?}", uploads.counts());
        sleep(Duration::from_millis(20)).await;
    }
    let counts = uploads.counts();
    assert_eq!(counts.len(), 1, "one upload of a rule");
    assert!(load(&counts[0].1.files) >= 45, "{counts:?}");
    uploads.tend(&Config::default());
    assert_eq!(uploads.counts().len(), 0);
}
