//! The client against small local servers.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).expect("a URL")
}

fn certificate() -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("names");
    names.self_signed(&key).expect("signed").pem()
}

async fn get(client: &Client, reach: Reach, at: &Url) -> Result<String, Failure> {
    let sent = client.send(reach, Method::GET, at, HeaderMap::new(), Bytes::new());
    let body = sent.await?.into_body().collect().await.expect("a whole body").to_bytes();
    Ok(String::from_utf8(body.to_vec()).expect("text"))
}

/// Starts a server that echoes request heads, `each` per connection. Returns its address and the
/// number of connections.
async fn echo(each: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let (address, connections) = (listener.local_addr().expect("bound"), Arc::default());
    let count: Arc<AtomicUsize> = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let (input, mut output) = socket.split();
                let mut input = BufReader::new(input);
                for _ in 0..each {
                    let (mut head, mut length) = (String::new(), 0);
                    while !head.ends_with("\r\n\r\n") {
                        let mut line = String::new();
                        if input.read_line(&mut line).await.unwrap_or(0) == 0 {
                            return;
                        }
                        if let Some(text) = line.strip_prefix("content-length: ") {
                            length = text.trim().parse().expect("a length");
                        }
                        head += &line;
                    }
                    let mut body = vec![0; length];
                    input.read_exact(&mut body).await.expect("a body");
                    let answer =
                        format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\n\r\n", head.len());
                    let _ = output.write_all((answer + &head).as_bytes()).await;
                }
                // Close only after the next request has arrived.
                let _ = input.read_u8().await;
            });
        }
    });
    (address, connections)
}

#[tokio::test]
async fn consecutive_requests_reuse_the_connection() {
    let (address, connections) = echo(usize::MAX).await;
    let client = Client::of_pem(certificate().as_bytes()).expect("trusted");
    for _ in 0..5 {
        get(&client, Reach::Anywhere, &url(&format!("http://{address}/a"))).await.expect("a body");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_request_is_resent_if_the_server_closes_the_idle_connection() {
    let (address, connections) = echo(1).await;
    let client = Client::of_pem(certificate().as_bytes()).expect("trusted");
    for count in 1..=3 {
        let at = url(&format!("http://{address}/hook"));
        let limit = Duration::from_secs(5);
        let posted = client.post_json(&at, HeaderMap::new(), "{}".into(), 1_000, limit).await;
        assert_eq!(posted, Ok(200), "{count}");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn the_body_of_a_hook_response_is_ignored() {
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(100_000));
    let endless = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", "x".repeat(5_000));
    let answers = [
        long.as_str(),
        endless.as_str(),
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ncut",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nraw",
    ];
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = url(&format!("http://{}/hook", listener.local_addr().expect("bound")));
        let text = answer.to_owned();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut head = [0; 1_024];
            let _ = stream.read(&mut head).await;
            // The client may have closed. Otherwise the connection stays open and silent.
            let _ = stream.write_all(text.as_bytes()).await;
            tokio::time::sleep(Duration::from_secs(20)).await;
        });
        let limit = Duration::from_secs(5);
        let status = Client::system().post_json(&at, HeaderMap::new(), "{}".into(), 4_096, limit);
        let status = status.await.expect("answered");
        assert!((200..300).contains(&status), "{answer:.60}: {status}");
        server.abort();
    }
}

#[tokio::test]
async fn credentials_appear_neither_in_the_request_line_nor_in_errors() {
    let (address, _) = echo(usize::MAX).await;
    let at = url(&format!("http://us%40er:pass@{address}/a?k=1#x"));
    let client = Client::system();
    let head = get(client, Reach::Anywhere, &at).await.expect("a body").to_ascii_lowercase();
    assert!(head.starts_with("get /a?k=1 http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: {address}\r\n")), "{head}");
    assert!(!head.contains("authorization"), "{head}");
    let headers = authorization(&at);
    // "us@er:pass"
    assert_eq!(headers.get("authorization").expect("set"), "Basic dXNAZXI6cGFzcw==");
    assert!(!format!("{headers:?}").contains("dXNA"), "{headers:?}");
    let dead = url("http://user:pass@127.0.0.1:1/hook?key=secret");
    let limit = Duration::from_secs(5);
    let error = client.post_json(&dead, HeaderMap::new(), String::new(), 9, limit).await;
    let error = error.expect_err("no listener").to_string();
    assert!(error.starts_with("http://127.0.0.1:1/hook?…: "), "{error}");
    assert!(error.contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn addresses_beyond_the_reach_are_rejected_in_every_notation() {
    let (address, connections) = echo(usize::MAX).await;
    let port = address.port();
    let client = Client::system();
    for host in
        ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0x7f.1", "2130706433", "0.0.0.0", "[::]"]
    {
        let at = url(&format!("http://{host}:{port}/"));
        for reach in [Reach::Public, Reach::Private] {
            let error = get(client, reach, &at).await.expect_err(host).to_string();
            assert!(error.contains("may not lead there"), "{host}: {error}");
        }
    }
    assert_eq!(connections.load(Ordering::Relaxed), 0);
    for reach in [Reach::Loopback, Reach::Anywhere] {
        let at = url(&format!("http://localhost:{port}/"));
        get(client, reach, &at).await.expect("within reach");
    }
}

#[test]
fn addresses_are_classified_by_reach() {
    let all: [(Reach, &[&str]); 4] = [
        (
            Reach::Public,
            &["192.0.2.1", "100.128.0.1", "172.32.0.1", "2001:db8::1", "::ffff:8.8.8.8"],
        ),
        (
            Reach::Private,
            &[
                "10.0.0.1",
                "172.16.0.1",
                "192.168.1.1",
                "100.64.0.1",
                "fd00::1",
                "::ffff:10.0.0.1",
                "64:ff9b::a00:1",
                "::a00:1",
            ],
        ),
        (Reach::Loopback, &["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"]),
        (
            Reach::Anywhere,
            &[
                "169.254.169.254",
                "fe80::1",
                "224.0.0.1",
                "255.255.255.255",
                "ff02::1",
                "0.1.2.3",
                "::ffff:169.254.169.254",
                "64:ff9b::a9fe:a9fe",
            ],
        ),
    ];
    for (reach, addresses) in all {
        for address in addresses {
            let parsed = address.parse().expect("an address");
            assert_eq!(Reach::to(parsed), reach, "{address}");
        }
    }
}

#[test]
fn certificate_authorities_are_read_from_pem() {
    assert!(Client::of_pem(certificate().as_bytes()).is_ok());
    assert!(matches!(Client::of_pem(b"nothing"), Err(PemError::Empty)));
    let broken = certificate().replace("MII", "AAA");
    let broken = Client::of_pem(broken.as_bytes()).expect_err("a certificate without a head");
    assert!(matches!(broken, PemError::Certificate(_)), "{broken}");
}
