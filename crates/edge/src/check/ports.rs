//! The addresses of a configuration: whether they are this machine's, free, and named once.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::holder::{self, Holder};
use crate::config::Config;
use crate::finding::Finding;

/// An address of the configuration.
#[derive(Clone, Copy)]
struct Wanted {
    key: &'static str,
    address: SocketAddr,
    /// Besides TCP.
    has_udp: bool,
    /// An IPv6 wildcard that leaves IPv4 to another address.
    is_split: bool,
}

impl Wanted {
    /// Whether the kernel would give only one of both their address.
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

    /// Binds the address for a moment.
    fn try_bind(&self, kind: Type, protocol: Protocol) -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(self.address), kind, Some(protocol))?;
        if self.address.is_ipv6() {
            socket.set_only_v6(self.is_split)?;
        }
        if kind == Type::STREAM {
            // As the listener does. Nobody connects, as this socket never listens; a listener of
            // another process is an error all the same. Unlike a server's, the UDP socket does not
            // share its port.
            socket.set_reuse_address(true)?;
        }
        socket.bind(&self.address.into())
    }
}

/// Finds addresses that cannot be bound.
pub(super) fn look(config: &Config) -> Vec<Finding> {
    let all = wanted(config);
    let mut findings = Vec::new();
    for (place, one) in all.iter().enumerate() {
        if let Some(other) = all[..place].iter().find(|other| one.collides(other)) {
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

fn wanted(config: &Config) -> Vec<Wanted> {
    let listen = &config.server.listen;
    let server = listen.iter().map(|&address| {
        let is_split = listen.iter().any(|a| a.is_ipv4() && a.port() == address.port());
        Wanted { key: "[server] listen", address, has_udp: true, is_split }
    });
    let tcp = |key, address| Wanted { key, address, has_udp: false, is_split: false };
    let rtmp = config.rtmp.listen.iter().flatten().map(|&address| tcp("[rtmp] listen", address));
    let admin = config.admin.listen.iter().map(|&address| tcp("[admin] listen", address));
    server.chain(rtmp).chain(admin).collect()
}

fn bind(one: &Wanted) -> Option<Finding> {
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
                    "{name} port in use by the server with process ID {process}; it has to end \
                     before another one starts"
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
                    "{name} port in use; whose it is cannot be seen by this user; it has to be \
                     free when the server starts"
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
            Finding::error(key, address, "no address of this machine; expected one of its own")
        }
        _ => Finding::error(key, address, format!("cannot be bound over {name}: {why}")),
    })
}
