//! Limits on connections, handshakes and thread time.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use super::*;

#[tokio::test]
async fn silent_client_is_dropped_before_and_after_the_handshake() {
    let server = start(|config| config.tcp.header_timeout = Duration::from_millis(100));
    let mut plain = TcpStream::connect(server.address).await.expect("connected");
    let mut tls = server.tls(b"http/1.1").await;
    let mut byte = [0];
    let ended = timeout(LIMIT, plain.read(&mut byte)).await.expect("in time");
    assert!(matches!(ended, Ok(0) | Err(_)));
    let mut rest = Vec::new();
    timeout(LIMIT, tls.read_to_end(&mut rest)).await.expect("in time").ok();
}

/// Checks that the server closes a new connection, perhaps before `connect` returns.
async fn assert_refused(server: &Server, from: &str) {
    let connected = timeout(LIMIT, server.try_connect(from)).await.expect("in time");
    if let Ok(mut stream) = connected {
        closed(&mut stream).await;
    }
}

/// Waits until the server has closed the connection.
async fn closed(stream: &mut TcpStream) {
    let mut byte = [0];
    let ended = timeout(LIMIT, stream.read(&mut byte)).await.expect("closed in time");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn full_front_keeps_accepting_and_evicts_idle_connections() {
    let server = start(|config| config.tcp.max_connections = 1);
    let mut first = server.client(false).await;
    first.ask("GET", "/small.txt", &[]).await.expect("a reply");
    // The first client was served a moment ago, so the newcomer is rejected.
    assert_refused(&server, "127.0.0.2").await;
    assert_eq!((server.limited("tcp_full"), server.limited("tcp_evicted")), (1, 0));
    drop(first);
    let silent = async {
        loop {
            // The previous connection's place becomes free soon.
            let Ok(mut stream) = server.try_connect("127.0.0.1").await else { continue };
            if timeout(Duration::from_millis(100), stream.read(&mut [0])).await.is_err() {
                return stream;
            }
        }
    };
    let mut silent = timeout(LIMIT, silent).await.expect("a place");
    sleep(Duration::from_millis(3_100)).await;
    let newcomer = server.connect("127.0.0.2").await;
    let mut newcomer = server.tls_on(newcomer, b"http/1.1").await.expect("room is made");
    closed(&mut silent).await;
    assert_eq!(server.limited("tcp_evicted"), 1);
    newcomer.write_all(b"GET /small.txt HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    let mut reply = [0; 12];
    newcomer.read_exact(&mut reply).await.expect("a reply");
    assert_eq!(&reply, b"HTTP/1.1 200");
}

#[tokio::test]
async fn address_limit_protects_other_addresses() {
    let server = start(|config| {
        config.tcp.max_connections = 4;
        config.tcp.max_connections_per_address = 2;
    });
    let _held = [server.connect("127.0.0.1").await, server.connect("127.0.0.1").await];
    server.holds(Place::Tcp, 2).await;
    assert_refused(&server, "127.0.0.1").await;
    assert_eq!(server.limited("tcp_address"), 1);
    let other = server.connect("127.0.0.2").await;
    assert!(server.tls_on(other, b"h2").await.is_ok());
}

#[tokio::test]
async fn stalled_handshakes_are_limited_per_address_and_in_total() {
    let server = start(|config| {
        config.tcp.max_handshakes = 3;
        config.tcp.max_handshakes_per_address = 2;
    });
    let [_held, second] = [server.connect("127.0.0.1").await, server.connect("127.0.0.1").await];
    server.holds(Place::Handshake, 2).await;
    assert_refused(&server, "127.0.0.1").await;
    assert_eq!(server.limited("tls_handshake_address"), 1);
    let other = server.connect("127.0.0.2").await;
    let established = server.tls_on(other, b"h2").await;
    assert!(established.is_ok(), "a place is given back with the end of the handshake");
    server.holds(Place::Handshake, 2).await;
    drop(second);
    server.holds(Place::Handshake, 1).await;
    let _held = [server.connect("127.0.0.2").await, server.connect("127.0.0.3").await];
    server.holds(Place::Handshake, 3).await;
    assert_refused(&server, "127.0.0.4").await;
    assert_eq!(server.limited("tls_handshake_full"), 1);
    sleep(Duration::from_millis(3_100)).await;
    let late = server.connect("127.0.0.4").await;
    assert!(server.tls_on(late, b"h2").await.is_ok(), "the oldest makes room");
    assert_eq!(server.limited("tls_handshake_evicted"), 1);
}

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("known");
    let times = [usage.user_time(), usage.system_time()];
    times.iter().map(|time| Duration::from_micros(time.num_microseconds() as u64)).sum()
}

#[tokio::test]
async fn handshakes_leave_half_of_the_thread_time_to_others() {
    // All ClientHellos are sent in advance; only server work remains.
    const CLIENTS: usize = 200;
    let server = start(|_| ());
    let (config, turns) = (server.shared.state().tcp_tls.clone(), Arc::new(Turns::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    let mut accepting = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(address).await.expect("connected");
        let name = ServerName::try_from("mendcast.test").expect("a name");
        let mut said = Vec::new();
        let tls = Arc::new(server.client_tls(b"h2"));
        let mut hello = rustls::ClientConnection::new(tls, name).expect("a client");
        hello.write_tls(&mut said).expect("a ClientHello");
        client.write_all(&said).await.expect("sent");
        clients.push(client);
        accepting.push(listener.accept().await.expect("accepted").0);
    }
    let (began, cpu_before) = (Instant::now(), cpu());
    let mut handshakes = JoinSet::new();
    for stream in accepting {
        let (turns, config) = (turns.clone(), config.clone());
        // Not continued: it ends when the client leaves.
        handshakes
            .spawn(async move { turns.accept(MeasuredStream::new(stream), config).await.is_err() });
    }
    for client in &mut clients {
        timeout(4 * LIMIT, client.read_exact(&mut [0])).await.expect("in time").expect("answered");
    }
    let (wall, busy) = (began.elapsed(), cpu() - cpu_before);
    assert!(busy > Duration::from_millis(10), "{busy:?}: too little to judge by");
    // Up to 4 ms of credit for idle time.
    let credit = Duration::from_millis(5);
    assert!(wall + credit > busy * 8 / 5, "{wall:?} for {busy:?} of work");
    drop(clients);
    while let Some(failed) = handshakes.join_next().await {
        assert!(failed.expect("no panic"));
    }
}

#[tokio::test]
async fn newcomers_are_served_by_idle_threads() {
    let server = start(|config| config.server.cores = 1);
    let shared = server.shared.clone();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    listener.set_nonblocking(true).expect("set");
    let address = listener.local_addr().expect("bound");
    let (busy, is_busy) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let mut released = Some(released);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (own, shared) = (listener.try_clone().expect("cloned"), shared.clone());
            let (busy, released) = (busy.clone(), released.take());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("made").block_on(async {
                    let own = TcpListener::from_std(own).expect("a listener");
                    let serving = tokio::spawn(serve(own, shared));
                    if let Some(released) = released {
                        sleep(Duration::from_millis(50)).await;
                        busy.send(()).expect("received");
                        // Blocks until the test ends or fails.
                        let _ = released.recv();
                    }
                    serving.await.expect("no panic");
                });
            })
        })
        .collect();
    is_busy.recv_timeout(LIMIT).expect("busy");
    for _ in 0..20 {
        let stream = TcpStream::connect(address).await.expect("connected");
        server.tls_on(stream, b"h2").await.expect("the other thread serves");
    }
    drop(release);
    shared.drain();
    for thread in threads {
        tokio::task::spawn_blocking(|| thread.join()).await.expect("run").expect("no panic");
    }
}
