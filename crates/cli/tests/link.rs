//! `mendcast link` as scripts use it: a real process between real sockets on loopback.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Link {
    process: Child,
    address: SocketAddr,
}

impl Link {
    fn start(to: SocketAddr, options: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_mendcast"))
            .args(["link", "--listen", "127.0.0.1:0", "--json", "--to", &to.to_string()])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stderr = process.stderr.take().expect("piped");
        BufReader::new(stderr).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ").expect(&line);
        let address = address.parse().expect("an address");
        Self { process, address }
    }

    /// Ends the relay as an operator would, and gives its counters.
    fn stop(mut self) -> serde_json::Value {
        let id = self.process.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status().expect("kill runs");
        let mut text = String::new();
        let stdout = self.process.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut text).expect("a line");
        assert!(self.process.wait().expect("it ends").success());
        serde_json::from_str(&text).expect("one JSON object")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Already ended, unless a test failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn bound() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
    socket
}

/// Sends `count` datagrams through a relay one by one and echoes them; gives the sources that the
/// server saw and the time of each round trip that came back.
fn ping(options: &[&str], count: u8, gap: Duration) -> (Vec<SocketAddr>, Vec<Duration>, Link) {
    let (server, client) = (bound(), bound());
    let link = Link::start(server.local_addr().expect("bound"), options);
    let mut sources = Vec::new();
    let mut times = Vec::new();
    for number in 0..count {
        let sent = Instant::now();
        client.send_to(&[number; 100], link.address).expect("sent");
        let mut buffer = [0; 200];
        if let Ok((len, from)) = server.recv_from(&mut buffer) {
            assert_eq!(buffer[..len], [number; 100]);
            sources.push(from);
            server.send_to(&buffer[..len], from).expect("sent");
            if let Ok(len) = client.recv(&mut buffer) {
                assert_eq!(buffer[..len], [number; 100]);
                times.push(sent.elapsed());
            }
        }
        std::thread::sleep(gap);
    }
    (sources, times, link)
}

#[test]
fn without_options_everything_passes_at_once() {
    let (sources, times, link) = ping(&[], 20, Duration::ZERO);
    assert_eq!(times.len(), 20);
    assert!(sources.iter().all(|source| *source == sources[0]));
    let report = link.stop();
    assert_eq!(report["up"]["delivered"]["packets"], 20);
    assert_eq!(report["down"]["delivered"]["packets"], 20);
    assert_eq!(report["down"]["delivered"]["bytes"], 20 * 128);
}

#[test]
fn the_round_trip_time_is_what_was_asked_for() {
    let (_, mut times, _link) = ping(&["--rtt", "60ms"], 15, Duration::ZERO);
    assert_eq!(times.len(), 15);
    times.sort();
    // Never less; the lowest show the relay's own delay, the others a busy machine.
    assert!(times[0] >= Duration::from_millis(60), "{times:?}");
    assert!(times[2] < Duration::from_millis(63), "{times:?}");
}

#[test]
fn full_loss_passes_nothing() {
    let (sources, _, link) = ping(&["--loss-up", "100%"], 2, Duration::ZERO);
    assert!(sources.is_empty());
    assert_eq!(link.stop()["up"]["lost"]["packets"], 2);
}

#[test]
fn rebinding_changes_the_source_address() {
    let gap = Duration::from_millis(30);
    let (sources, times, link) = ping(&["--rebind-every", "100ms"], 20, gap);
    assert!(times.len() >= 18, "at most the datagrams under way are lost");
    let mut distinct = sources.clone();
    distinct.dedup();
    assert!(distinct.len() >= 3, "{sources:?}");
    assert!(link.stop()["rebindings"].as_u64() >= Some(2));
}

#[test]
fn a_blackhole_ends() {
    // The window counts from the first datagram.
    let gap = Duration::from_millis(50);
    let (sources, _, link) = ping(&["--blackhole", "100ms,300ms"], 12, gap);
    assert!(sources.len() < 12 && sources.len() >= 4, "{} came through", sources.len());
    assert!(link.stop()["up"]["blackholed"]["packets"].as_u64() >= Some(1));
}

#[test]
fn a_wrong_option_says_what_was_expected() {
    let output = Command::new(env!("CARGO_BIN_EXE_mendcast"))
        .args(["link", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--rate", "12"])
        .output()
        .expect("the program runs");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("12mbps"), "{text}");
}

#[test]
fn a_port_in_use_is_one_line_and_exit_code_1() {
    let taken = bound();
    let address = taken.local_addr().expect("bound").to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_mendcast"))
        .args(["link", "--listen", &address, "--to", "127.0.0.1:1"])
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with(&format!("mendcast: cannot listen on {address}: ")), "{text}");
    assert_eq!(text.lines().count(), 1);
}

/// Equal ones leave the relay in one call, and so does a shorter one after them; a longer one, an empty
/// one and another client's do not belong to such a run.
#[test]
fn a_burst_of_several_sizes_and_clients_arrives_as_it_was_sent() {
    let (server, clients) = (bound(), [bound(), bound()]);
    let link = Link::start(server.local_addr().expect("bound"), &["--rtt", "20ms"]);
    let sizes = [1200usize, 1200, 1200, 700, 1200, 0, 1300, 1300, 1, 1, 1];
    for (number, client) in clients.iter().enumerate() {
        client.send_to(&[number as u8; 9], link.address).expect("sent");
    }
    let mut sources = [None; 2];
    let mut buffer = [0; 2000];
    while let Some(missing) = sources.iter().position(Option::is_none) {
        let (len, from) =
            server.recv_from(&mut buffer).unwrap_or_else(|e| panic!("{missing}: {e}"));
        assert_eq!(len, 9);
        sources[usize::from(buffer[0])] = Some(from);
    }
    for (index, size) in sizes.into_iter().enumerate() {
        for source in sources.into_iter().flatten() {
            server.send_to(&vec![index as u8; size], source).expect("sent");
        }
    }
    for (client, socket) in clients.iter().enumerate() {
        for (index, size) in sizes.into_iter().enumerate() {
            let len = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{client}, {index}: {e}"));
            assert_eq!(buffer[..len], vec![index as u8; size], "client {client}");
        }
    }
    assert_eq!(link.stop()["down"]["delivered"]["packets"], 2 * sizes.len());
}
