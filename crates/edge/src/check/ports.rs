//! Checks of listen addresses: local to this machine, free, and listed once.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::holder::{self, Holder};
use crate::config::{AcmeChallenge, Config};
use crate::finding::Finding;

/// A listen address.
#[derive(Clone, Copy)]
struct Listener {
    key: &'static str,
    address: SocketAddr,
    /// Whether it serves UDP besides TCP.
    has_udp: bool,
    /// Whether it leaves IPv4 to another address on the same port.
    is_split: bool,
}

impl Listener {
    /// Whether the kernel would let only one of both bind.
    fn collides(&self, other: &Self) -> bool {
        let covers = |one: &Self, other: &Self| match (one.address.ip(), other.address.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => a == b || a.is_unspecified(),
            (IpAddr::V6(a), IpAddr::V6(b)) => a == b || a.is_unspecified(),
            (IpAddr::V6(a), IpAddr::V4(_)) => a.is_unspecified() && !one.is_split,
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
        };
        let port = self.address.port();
        let is_same_port = port != 0 && port == other.address.port();
        is_same_port && (covers(self, other) || covers(other, self))
    }

    /// Binds the address briefly.
    fn try_bind(&self, kind: Type, protocol: Protocol) -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(self.address), kind, Some(protocol))?;
        if self.address.is_ipv6() {
            socket.set_only_v6(self.is_split)?;
        }
        if kind == Type::STREAM {
            // As the server does. Another process that listens is still an error. Unlike a
            // server's, the UDP socket does not share its port.
            socket.set_reuse_address(true)?;
        }
        socket.bind(&self.address.into())
    }
}

/// Finds addresses that cannot be bound.
pub(super) fn check(config: &Config) -> Vec<Finding> {
    let all = listeners(config);
    let mut findings = Vec::new();
    for (index, one) in all.iter().enumerate() {
        if let Some(other) = all[..index].iter().find(|other| one.collides(other)) {
            let what = format!(
                "{} = {} has this address already; expected another port",
                other.key, other.address
            );
            findings.push(Finding::error(one.key, one.address, what));
        } else {
            findings.extend(bind(one));
        }
    }
    findings
}

fn listeners(config: &Config) -> Vec<Listener> {
    let listen = &config.server.listen;
    let server = listen.iter().map(|&address| {
        let is_split = listen.iter().any(|a| a.is_ipv4() && a.port() == address.port());
        Listener { key: "[server] listen", address, has_udp: true, is_split }
    });
    let tcp = |key, address| Listener { key, address, has_udp: false, is_split: false };
    let rtmp = config.rtmp.listen.iter().flatten().map(|&address| tcp("[rtmp] listen", address));
    let rtmps = config.rtmp.tls_listen.iter().flatten();
    let rtmps = rtmps.map(|&address| tcp("[rtmp] tls_listen", address));
    let admin = config.admin.listen.iter().map(|&address| tcp("[admin] listen", address));
    let acme = config.acme.domains.iter().map(|_| config.acme.http_listen);
    let acme = acme.filter(|_| config.acme.challenge == AcmeChallenge::Http01);
    let acme = acme.map(|address| tcp("[acme] http_listen", address));
    server.chain(rtmp).chain(rtmps).chain(admin).chain(acme).collect()
}

fn bind(one: &Listener) -> Option<Finding> {
    let tcp = one.try_bind(Type::STREAM, Protocol::TCP);
    let udp = if one.has_udp { one.try_bind(Type::DGRAM, Protocol::UDP) } else { Ok(()) };
    let (name, is_udp, why) = match (tcp, udp) {
        (Err(why), _) => ("TCP", false, why),
        (Ok(()), Err(why)) => ("UDP", true, why),
        (Ok(()), Ok(())) => return None,
    };
    let (key, address) = (one.key, one.address);
    Some(match why.kind() {
        io::ErrorKind::AddrInUse => match holder::of(address.port(), is_udp) {
            Holder::Server(process) => {
                let what = format!(
                    "{name} port in use by the server with process ID {process}; stop it before \
                     another one starts"
                );
                Finding::warning(key, address, what)
            }
            Holder::Other(name_of, process) => {
                let what = format!(
                    "{name} port in use by {name_of:?} with process ID {process}; expected a free \
                     port"
                );
                Finding::error(key, address, what)
            }
            Holder::Unknown => {
                let what = format!(
                    "{name} port in use by a process that this user cannot see; it must be free \
                     when the server starts"
                );
                Finding::warning(key, address, what)
            }
        },
        io::ErrorKind::PermissionDenied => {
            let what = format!(
                "this user may not bind the {name} port; a port below 1024 needs \
                 CAP_NET_BIND_SERVICE, which the service may have"
            );
            Finding::warning(key, address, what)
        }
        io::ErrorKind::AddrNotAvailable => {
            Finding::error(key, address, "not an address of this machine; expected a local one")
        }
        _ => Finding::error(key, address, format!("cannot be bound over {name}: {why}")),
    })
}
