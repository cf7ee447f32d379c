//! HTTP-01 (RFC 8555, section 8.3): a plain HTTP listener that exists during an order only.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::failure::Failure;
use crate::sync::lock;

const PATH: &str = "/.well-known/acme-challenge/";
/// Maximum size of a request head in bytes.
const MAX_HEAD: usize = 4_096;
/// Timeout of a connection.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum concurrent connections.
const MAX_CONNECTIONS: usize = 64;

type Answers = Arc<Mutex<HashMap<String, String>>>;

/// Answers challenges until it is dropped.
#[derive(Debug)]
pub(super) struct Responder {
    answers: Answers,
    task: JoinHandle<()>,
}

impl Responder {
    /// Listens on `address`.
    pub(super) async fn start(address: SocketAddr) -> Result<Self, Failure> {
        let failed = |e| Failure::Local(format!("[acme] http_listen {address}: {e}"));
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let answers = Answers::default();
        let task = tokio::spawn(serve(listener, answers.clone()));
        Ok(Self { answers, task })
    }

    /// Answers the challenge of this token.
    pub(super) fn add(&self, token: &str, answer: &str) {
        lock(&self.answers).insert(token.to_owned(), answer.to_owned());
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, answers: Answers) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let answers = answers.clone();
        tokio::spawn(async move {
            let _place = place;
            // Errors concern this client alone.
            let _ = timeout(TIMEOUT, answer(stream, &answers)).await;
        });
    }
}

async fn answer(mut stream: TcpStream, answers: &Answers) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = MAX_HEAD - head.len();
        let mut taken = (&mut stream).take(left as u64);
        if left == 0 || taken.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let found = token(&head).and_then(|token| lock(answers).get(token).cloned());
    let (status, text) = match found {
        Some(answer) => ("200 OK", answer),
        None => ("404 Not Found", "404 Not Found\n".into()),
    };
    let length = text.len();
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/octet-stream\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{text}"
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

/// Returns the token of a request for a challenge.
fn token(head: &[u8]) -> Option<&str> {
    let line = core::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
    let mut words = line.split(' ');
    let (Some("GET"), Some(path), Some(version)) = (words.next(), words.next(), words.next())
    else {
        return None;
    };
    version.starts_with("HTTP/1.").then_some(path)?.strip_prefix(PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_for_challenges_have_a_token() {
        let of = |line: &str| {
            token(format!("{line}\r\nhost: a.test\r\n\r\n").as_bytes()).map(str::to_owned)
        };
        assert_eq!(of("GET /.well-known/acme-challenge/abc HTTP/1.1").as_deref(), Some("abc"));
        for line in [
            "",
            "GET",
            "GET / HTTP/1.1",
            "POST /.well-known/acme-challenge/abc HTTP/1.1",
            "GET /.well-known/acme-challenge/abc",
            "GET /.well-known/acme-challenge/abc SMTP",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[tokio::test]
    async fn challenges_are_answered_until_the_end() {
        let responder = Responder::start(([127, 0, 0, 1], 0).into()).await;
        assert!(responder.is_ok());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let answers = Answers::default();
        lock(&answers).insert("abc".into(), "abc.key".into());
        let task = tokio::spawn(serve(listener, answers));
        let ask = async |request: &str| {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            stream.write_all(request.as_bytes()).await.expect("sent");
            let mut text = String::new();
            let _ = timeout(TIMEOUT * 2, stream.read_to_string(&mut text)).await.expect("in time");
            text
        };
        let known = ask("GET /.well-known/acme-challenge/abc HTTP/1.1\r\n\r\n").await;
        assert!(known.starts_with("HTTP/1.1 200 OK") && known.ends_with("\r\n\r\nabc.key"));
        let unknown = ask("GET /.well-known/acme-challenge/abd HTTP/1.1\r\n\r\n").await;
        assert!(unknown.starts_with("HTTP/1.1 404"), "{unknown}");
        assert_eq!(ask(&"x".repeat(MAX_HEAD + 1)).await, "");
        task.abort();
    }
}
