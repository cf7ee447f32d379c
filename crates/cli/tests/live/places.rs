//! Floods of connections from few addresses, and encoders beside them.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::support::edge::Edge;
use crate::support::publishing::Publishing;

/// Sockets that the flood keeps open. More than the places of newcomers.
const KEPT: usize = 600;
/// Time between two connections of the flood: about 500 a second.
const INTERVAL: Duration = Duration::from_millis(2);

/// Silent connections from these addresses, in turn, until dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    opened: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn start(server: SocketAddr, addresses: Vec<Ipv4Addr>) -> Self {
        let (stop, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, count) = (stop.clone(), opened.clone());
        let thread = spawn(move || {
            let mut held = VecDeque::new();
            for address in addresses.iter().cycle() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                held.extend(connect(server, *address));
                count.fetch_add(1, Ordering::Relaxed);
                if held.len() > KEPT {
                    held.pop_front();
                }
                sleep(INTERVAL);
            }
        });
        Self { stop, opened, thread: Some(thread) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A connection from this address of the loopback network; `None` if the server refused it at once.
fn connect(server: SocketAddr, own: Ipv4Addr) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::new(IpAddr::V4(own), 0).into()).expect("a loopback address");
    socket.connect(&server.into()).ok()?;
    Some(socket.into())
}

/// How many of 20 encoders, which come at 127.0.0.1 one after the other, may publish beside a
/// flood.
fn encoders_let_in(addresses: Vec<Ipv4Addr>) -> usize {
    let edge = Edge::start("");
    let flood = Flood::start(edge.rtmp, addresses);
    while flood.opened.load(Ordering::Relaxed) < 1_000 {
        sleep(Duration::from_millis(20));
    }
    let publish = |n: &usize| {
        sleep(Duration::from_millis(50));
        Publishing::open(edge.rtmp, &format!("live/{n}")).is_ok()
    };
    (0..20).filter(publish).count()
}

#[test]
fn a_flood_of_two_addresses_keeps_no_encoder_of_another_network_out() {
    let attackers = vec![Ipv4Addr::new(127, 0, 1, 1), Ipv4Addr::new(127, 0, 1, 2)];
    assert!(encoders_let_in(attackers) >= 19);
}

#[test]
fn a_flood_of_two_addresses_keeps_no_encoder_of_the_same_network_out() {
    let attackers = vec![Ipv4Addr::new(127, 0, 0, 8), Ipv4Addr::new(127, 0, 0, 9)];
    assert!(encoders_let_in(attackers) >= 19);
}
