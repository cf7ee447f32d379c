//! Key sets that change, disappear or answer slowly.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::*;
use crate::tokens::tests::Ec;

const LIMIT: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);

fn config(source: &str) -> Config {
    let text = format!("[[play]]\nstream = \"a\"\njwks = \"{source}\"\n");
    Config::parse("edge.toml", &text).expect("valid")
}

/// An origin whose answers can be changed. `None`: it never answers.
struct Origin {
    answer: Arc<Mutex<Option<String>>>,
    asked: Arc<AtomicU64>,
    url: String,
}

impl Origin {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let url = format!("http://{}/jwks?k=secret", listener.local_addr().expect("bound"));
        let answer = Arc::new(Mutex::new(None::<String>));
        let asked = Arc::new(AtomicU64::new(0));
        let (answers, count) = (answer.clone(), asked.clone());
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (answers, count) = (answers.clone(), count.clone());
                tokio::spawn(async move {
                    let mut request = [0; 4_096];
                    let _ = socket.read(&mut request).await;
                    count.fetch_add(1, Ordering::Relaxed);
                    let answer = lock(&answers).clone();
                    match answer {
                        Some(answer) => {
                            let _ = socket.write_all(answer.as_bytes()).await;
                        }
                        None => sleep(HOUR).await,
                    }
                });
            }
        });
        Self { answer, asked, url }
    }

    fn answers(&self, status: u16, body: &str) {
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}");
        *lock(&self.answer) = Some(format!("{head}\r\n\r\n{body}"));
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"));
}

fn set(keys: &[&Ec]) -> String {
    let keys: Vec<_> = keys.iter().zip(0..).map(|(key, at)| key.jwk(&format!("k{at}"))).collect();
    json!({ "keys": keys }).to_string()
}

#[tokio::test]
async fn a_url_is_fetched_in_the_background_and_the_last_good_set_stays() {
    let (one, two) = (Ec::new(), Ec::new());
    let origin = Origin::start().await;
    let config = config(&origin.url);
    let source = config.play[0].jwks.clone().expect("a source");
    let sets = KeySets::load(&config, None).expect("nothing to read");
    let count = || sets.get(&source).map(|set| set.keys.len());
    let start = Instant::now();
    assert_eq!(count(), None);
    // An origin that does not answer blocks nobody.
    sets.tick(HOUR, start);
    assert!(start.elapsed() < Duration::from_secs(1));
    until("asked", || origin.asked.load(Ordering::Relaxed) == 1).await;
    assert_eq!(count(), None);
    let state = &sets.sets[&source];
    state.finish(&source, Err("no answer".into()), &sets.counts);
    // It answers after a while.
    origin.answers(200, &set(&[&one]));
    sets.tick(HOUR, start + FIRST_RETRY);
    until("loaded", || count() == Some(1)).await;
    for (status, body) in [
        (500, set(&[&one, &two])),
        (301, set(&[&one, &two])),
        (200, "<html>".into()),
        (200, "{}".into()),
        (200, json!({ "keys": [] }).to_string()),
        (200, json!({ "keys": [{ "kty": "oct", "k": "AAAA" }, { "kty": "OKP" }] }).to_string()),
        (200, set(&[&one; 101])),
        (200, " ".repeat(MAX_SET + 1)),
    ] {
        origin.answers(status, &body);
        let failed = sets.loads()[1].1;
        // Beyond any back-off.
        lock(&state.schedule).last = None;
        sets.tick(HOUR, start);
        until("failed", || sets.loads()[1].1 > failed).await;
        assert_eq!(count(), Some(1), "{status} {body:.60}");
    }
    origin.answers(200, &set(&[&one, &two]));
    lock(&state.schedule).last = None;
    sets.tick(HOUR, start);
    until("both keys", || count() == Some(2)).await;
    // A reload keeps it.
    let reloaded = KeySets::load(&config, Some(&sets)).expect("nothing to read");
    assert_eq!(reloaded.get(&source).map(|set| set.keys.len()), Some(2));
}

#[tokio::test]
async fn an_unknown_key_id_causes_one_fetch_after_a_while() {
    let one = Ec::new();
    let origin = Origin::start().await;
    origin.answers(200, &set(&[&one]));
    let config = config(&origin.url);
    let source = config.play[0].jwks.clone().expect("a source");
    let sets = KeySets::load(&config, None).expect("nothing to read");
    let start = Instant::now();
    sets.tick(HOUR, start);
    until("loaded", || sets.get(&source).is_some()).await;
    until("idle", || !lock(&sets.sets[&source].schedule).is_running).await;
    let asked = || origin.asked.load(Ordering::Relaxed);
    let look_up = |id| sets.get(&source).expect("loaded").find(Algorithm::ES256, Some(id)).is_ok();
    assert!(look_up("k0"));
    sets.tick(HOUR, start + MIN_INTERVAL);
    assert_eq!(asked(), 1, "no reason");
    assert!(!look_up("k1"));
    sets.tick(HOUR, start + MIN_INTERVAL / 2);
    assert_eq!(asked(), 1, "too soon");
    sets.tick(HOUR, start + MIN_INTERVAL);
    until("asked again", || asked() == 2).await;
}

#[tokio::test]
async fn files_are_read_at_once_and_again_when_they_change() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jwks.json");
    let (one, two) = (Ec::new(), Ec::new());
    let config = config(path.to_str().expect("text"));
    let error = KeySets::load(&config, None).expect_err("missing").to_string();
    assert!(error.starts_with("jwks ") && error.contains("No such file"), "{error}");
    std::fs::write(&path, "{\"keys\":[{\"kty\":\"RSA\"}]}").expect("written");
    let error = KeySets::load(&config, None).expect_err("unusable").to_string();
    assert!(error.contains("none of 1 keys is usable"), "{error}");
    std::fs::write(&path, set(&[&one])).expect("written");
    let sets = KeySets::load(&config, None).expect("loaded");
    let source = config.play[0].jwks.clone().expect("a source");
    let count = || sets.get(&source).map(|set| set.keys.len());
    assert_eq!(count(), Some(1));
    std::fs::write(&path, "{\"keys\":[").expect("written");
    let start = Instant::now();
    sets.tick(HOUR, start);
    until("failed", || sets.loads()[1].1 == 1).await;
    assert_eq!(count(), Some(1));
    std::fs::write(&path, set(&[&one, &two])).expect("written");
    sets.tick(HOUR, start + FILE_INTERVAL);
    until("loaded", || count() == Some(2)).await;
}

#[test]
fn failures_delay_the_next_attempt_up_to_the_interval() {
    let start = Instant::now();
    let due = |failures, after: Duration, is_wanted| {
        let schedule = Schedule { failures, last: Some(start), ..Schedule::default() };
        schedule.is_due(HOUR, is_wanted, start + after)
    };
    assert!(Schedule::default().is_due(HOUR, false, start), "at first");
    assert!(!Schedule { is_running: true, ..Schedule::default() }.is_due(HOUR, true, start));
    for (failures, seconds) in [(0, 3600), (1, 5), (2, 10), (3, 20), (10, 2560), (1_000, 3600)] {
        let wait = Duration::from_secs(seconds);
        assert!(due(failures, wait, false), "{failures}");
        assert!(!due(failures, wait - Duration::from_secs(1), false), "{failures}");
    }
    assert!(due(0, MIN_INTERVAL, true) && !due(0, MIN_INTERVAL / 2, true));
    assert!(!due(3, Duration::from_secs(1), true), "unknown IDs do not defeat the back-off");
}
