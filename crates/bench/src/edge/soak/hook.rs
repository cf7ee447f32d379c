//! Server of the `on_play` hook. It answers questions about healthy viewers at once. Questions
//! about unpublished streams are denied after [`SLOW`].

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::Failure;

/// Prefix of stream names with slow answers.
pub(super) const SLOW_NAMES: &str = "waiting/";
/// Delay of a slow answer. The server waits for 3 s by default.
const SLOW: Duration = Duration::from_secs(2);
/// Maximum size of a question in bytes. The server's have some hundred.
const MAX_QUESTION: usize = 64 << 10;

/// The hook's server in its own thread. Stops on drop.
pub(super) struct HookServer {
    /// Listening address.
    pub address: SocketAddr,
    _end: oneshot::Sender<()>,
}

impl HookServer {
    pub(super) fn start() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let (end, ended) = oneshot::channel();
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener) => {}
                    // The sender was dropped: the soak has ended.
                    _ = ended => {}
                }
            });
        });
        Ok(Self { address, _end: end })
    }
}

async fn accept(listener: TcpListener) {
    loop {
        match listener.accept().await {
            // The server reopens failed connections.
            Ok((stream, _)) => drop(tokio::spawn(answer(stream))),
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Answers the questions of a connection until it ends.
async fn answer(stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(question) = question(&mut stream).await? {
        let status = if is_slow(&question) {
            sleep(SLOW).await;
            "403 Forbidden"
        } else {
            "200 OK"
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

/// Reads the content of a POST; `None` at the end of the connection.
async fn question(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Vec<u8>>> {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().unwrap_or(usize::MAX);
            }
            None if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    if length > MAX_QUESTION {
        return Err(std::io::Error::other("a question that is too large"));
    }
    let mut content = vec![0; length];
    stream.read_exact(&mut content).await?;
    Ok(Some(content))
}

fn is_slow(question: &[u8]) -> bool {
    let question: Option<serde_json::Value> = serde_json::from_slice(question).ok();
    let stream = question.as_ref().and_then(|question| question["stream"].as_str());
    stream.is_some_and(|stream| stream.starts_with(SLOW_NAMES))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::time::Instant;

    use super::*;

    fn ask(stream: &mut std::net::TcpStream, name: &str) -> (String, Duration) {
        let content = format!("{{\"event\":\"on_play\",\"stream\":\"{name}\"}}");
        let head = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", content.len());
        let start = Instant::now();
        stream.write_all((head + &content).as_bytes()).expect("the hook reads");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("the hook answers");
            answer.push(byte[0]);
        }
        (String::from_utf8(answer).expect("text"), start.elapsed())
    }

    #[test]
    fn live_streams_are_granted_at_once_and_others_are_refused_slowly() {
        let server = HookServer::start().expect("a port");
        let mut stream = std::net::TcpStream::connect(server.address).expect("it listens");
        stream.set_read_timeout(Some(SLOW * 5)).expect("a valid time");
        let (answer, took) = ask(&mut stream, "live/bench");
        assert!(answer.starts_with("HTTP/1.1 200 ") && took < SLOW, "{answer} after {took:?}");
        let (answer, took) = ask(&mut stream, "waiting/nobody");
        assert!(answer.starts_with("HTTP/1.1 403 ") && took >= SLOW, "{answer} after {took:?}");
    }
}
