//! `mendcast link` as scripts use it: a real process between real sockets on loopback.

use std::io::{BufRead, BufReader, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};

struct Link {
    process: Child,
    address: SocketAddr,
}

impl Link {
    fn start(to: SocketAddr, options: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_mendcast"))
            .args(["link", "--listen", &SocketAddr::new(to.ip(), 0).to_string(), "--json"])
            .args(["--to", &to.to_string()])
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
fn the_round_trip_time_is_as_configured() {
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
fn a_wrong_option_names_the_expected_values() {
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

/// Equal ones leave the relay in one call, and so does a shorter one after them; a longer one, an
/// empty one and another client's do not belong to such a run.
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

/// A socket on loopback that hears of the ECN field.
fn hearing_ecn(ip: &str) -> UdpSocket {
    let socket =
        UdpSocket::bind(SocketAddr::new(ip.parse().expect("an address"), 0)).expect("bound");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
    match socket.local_addr().expect("bound") {
        SocketAddr::V4(_) => setsockopt(&socket, sockopt::IpRecvTos, &true).expect("set"),
        SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvTClass, &true).expect("set"),
    }
    socket
}

/// Sends one byte of data with this ECN field.
fn send_ecn(socket: &UdpSocket, to: SocketAddr, ecn: u8, data: u8) {
    match to {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4Tos, &i32::from(ecn)).expect("set"),
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6TClass, &i32::from(ecn)).expect("set"),
    }
    socket.send_to(&[data], to).expect("sent");
}

/// The ECN field and the data of the next datagram, and its source.
fn receive_ecn(socket: &UdpSocket) -> Option<(u8, u8, SocketAddr)> {
    let mut data = [0];
    let mut control = nix::cmsg_space!(i32);
    let mut slices = [IoSliceMut::new(&mut data)];
    let flags = MsgFlags::empty();
    let fd = socket.as_raw_fd();
    let message = recvmsg::<SockaddrStorage>(fd, &mut slices, Some(&mut control), flags).ok()?;
    let ecn = message.cmsgs().expect("room").find_map(|control| match control {
        ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
        ControlMessageOwned::Ipv6TClass(class) => u8::try_from(class).ok(),
        _ => None,
    });
    let from = message.address.expect("a source");
    let v4 = from.as_sockaddr_in().map(|v4| std::net::SocketAddrV4::from(*v4).into());
    let from = v4.or(from.as_sockaddr_in6().map(|v6| std::net::SocketAddrV6::from(*v6).into()));
    Some((ecn.expect("it was asked for"), data[0], from.expect("an IP address")))
}

/// Sends a burst of these ECN fields each way; gives those that arrive at the server and at the
/// client.
fn ecn_both_ways(ip: &str, options: &[&str], fields: &[u8]) -> [Vec<u8>; 2] {
    let (server, client) = (hearing_ecn(ip), hearing_ecn(ip));
    let link = Link::start(server.local_addr().expect("bound"), options);
    // The first datagram opens the return path; the rest is due at once and may be sent in one
    // call.
    send_ecn(&client, link.address, 0, 255);
    let (_, first, source) = receive_ecn(&server).expect("a datagram");
    assert_eq!(first, 255);
    let burst = |from: &UdpSocket, to: SocketAddr, at: &UdpSocket| {
        for (number, ecn) in (0..).zip(fields) {
            send_ecn(from, to, *ecn, number);
        }
        let arrived: Vec<_> = core::iter::from_fn(|| receive_ecn(at)).collect();
        assert!(arrived.is_sorted_by_key(|(_, number, _)| *number), "{arrived:?}");
        arrived.into_iter().map(|(ecn, ..)| ecn).collect()
    };
    [burst(&client, link.address, &server), burst(&server, source, &client)]
}

#[test]
fn the_ecn_field_crosses_the_relay_both_ways() {
    let fields = [2, 2, 2, 0, 1, 1, 3, 3, 0, 2];
    assert_eq!(ecn_both_ways("127.0.0.1", &["--rtt", "40ms"], &fields), [fields, fields]);
    // Without IPv6 on this machine there is nothing to see.
    if UdpSocket::bind("[::1]:0").is_ok() {
        assert_eq!(ecn_both_ways("::1", &["--rtt", "40ms"], &fields), [fields, fields]);
    }
}

#[test]
fn ecn_policies_apply_to_their_direction() {
    let fields = [2, 0, 1, 3];
    let both = |options: &[&str]| ecn_both_ways("127.0.0.1", options, &fields);
    let [up, down] = both(&["--ecn", "bleach", "--ecn-up", "drop"]);
    assert_eq!((up, down), (vec![0], vec![0; 4]));
    let [up, down] = both(&["--ecn", "remark", "--ecn-up", "mark:100%"]);
    assert_eq!((up, down), (vec![3, 0, 3, 3], vec![1, 0, 1, 3]));
}

#[test]
fn a_client_told_to_acknowledge_rarely_sends_the_newest_of_sixteen() {
    let (server, client) = (bound(), bound());
    let options = ["--acks", "each=32,within=250ms"];
    let link = Link::start(server.local_addr().expect("bound"), &options);
    let mut buffer = [0; 200];
    let mut next = || {
        let (len, _) = server.recv_from(&mut buffer).expect("a datagram");
        (buffer[1], len)
    };
    // Short headers: the first bit is 0.
    for number in 0..40 {
        client.send_to(&[[0x40, number], [0; 2]].concat(), link.address).expect("sent");
    }
    assert_eq!([next(), next()], [(15, 4), (31, 4)]);
    // A larger datagram pushes the newest one out; a lone one waits.
    client.send_to(&[[0x40, 40].to_vec(), vec![0; 118]].concat(), link.address).expect("sent");
    assert_eq!([next(), next()], [(39, 4), (40, 120)]);
    let sent = Instant::now();
    client.send_to(&[0x40, 41], link.address).expect("sent");
    assert_eq!(next(), (41, 2));
    assert!(sent.elapsed() >= Duration::from_millis(250), "{:?}", sent.elapsed());
}

/// The addresses of the client that the server sees after address changes, and the number of
/// answers that arrive.
fn flapping(options: &[&str]) -> (Vec<SocketAddr>, usize) {
    let (server, client) = (bound(), bound());
    let options = [&["--flap-every", "50ms"], options].concat();
    let link = Link::start(server.local_addr().expect("bound"), &options);
    let mut sources = Vec::new();
    let mut buffer = [0; 10];
    let end = Instant::now() + Duration::from_secs(10);
    // Each of two exits twice: it is not a rebinding.
    while sources.len() < 4 && Instant::now() < end {
        client.send_to(b"ping", link.address).expect("sent");
        let (_, from) = server.recv_from(&mut buffer).expect("a datagram");
        sources.push(from);
        sources.dedup();
        std::thread::sleep(Duration::from_millis(5));
    }
    let distinct: std::collections::BTreeSet<SocketAddr> = sources.iter().copied().collect();
    for source in &distinct {
        server.send_to(b"pong", *source).expect("sent");
    }
    let answers = distinct.iter().filter(|_| client.recv(&mut buffer).is_ok()).count();
    assert_eq!(link.stop()["rebindings"], 0);
    assert_eq!(distinct.len(), 2, "{sources:?}");
    (sources, answers)
}

#[test]
fn packets_flap_between_two_ports_or_two_addresses_and_both_stay_open() {
    let (sources, answers) = flapping(&[]);
    assert!(sources.iter().all(|source| source.ip() == sources[0].ip()));
    assert_eq!(answers, 2);
    let (sources, answers) = flapping(&["--from", "127.0.0.1,127.0.0.2"]);
    let mut ips: Vec<IpAddr> = sources[..2].iter().map(SocketAddr::ip).collect();
    ips.sort();
    assert_eq!(ips, ["127.0.0.1".parse::<IpAddr>().unwrap(), "127.0.0.2".parse().unwrap()]);
    assert_eq!(answers, 2);
}

#[test]
fn two_addresses_need_a_period_of_flapping() {
    let output = Command::new(env!("CARGO_BIN_EXE_mendcast"))
        .args(["link", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1"])
        .args(["--from", "127.0.0.1,127.0.0.2"])
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--from: 2 addresses") && text.contains("--flap-every"), "{text}");
}
