//! Sockets: the TCP listeners of the HTTP/1.1 and HTTP/2 front and the UDP sockets of QUIC, on the
//! same addresses and ports.

pub(crate) mod descriptors;
pub mod ports;
mod segmentation;
pub mod socket;
mod tcp;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, Type};

use crate::Error;
use crate::config::Config;
use socket::UdpSocket;
pub(crate) use tcp::Measured;
pub use tcp::{SincePath, TcpPath};

/// What listens on one of the configured addresses.
#[derive(Debug)]
pub struct Listener {
    /// The bound address; its port is never 0.
    pub address: SocketAddr,
    /// Non-blocking.
    pub tcp: TcpListener,
    /// One socket per event loop, all bound to `address`: the kernel spreads the viewers.
    pub udp: Vec<UdpSocket>,
}

/// Binds an address of TCP alone.
///
/// # Errors
/// One line: the address is in use or not this machine's.
pub fn listen_tcp(address: SocketAddr) -> Result<TcpListener, Error> {
    tcp(address, false).map_err(|e| Error::new(format!("cannot listen on {address}: {e}")))
}

/// Binds every address of `[server] listen`, for `cores` (at least 1) event loops.
///
/// # Errors
/// One line: an address is in use or not this machine's.
pub fn listen(config: &Config, cores: usize) -> Result<Vec<Listener>, Error> {
    let addresses = &config.server.listen;
    addresses
        .iter()
        .map(|&address| {
            // RFC 3493, section 5.3: an IPv6 wildcard takes IPv4 too, unless the operator gave
            // that an address of its own.
            let split = addresses.iter().any(|a| a.is_ipv4() && a.port() == address.port());
            // Port 0 asks for any port that is free for both protocols.
            let attempts = if address.port() == 0 { 16 } else { 1 };
            let mut result = bind(address, split, cores, config);
            for _ in 1..attempts {
                if result.is_ok() {
                    break;
                }
                result = bind(address, split, cores, config);
            }
            result.map_err(|e| Error::new(format!("cannot listen on {address}: {e}")))
        })
        .collect()
}

fn bind(address: SocketAddr, split: bool, cores: usize, config: &Config) -> io::Result<Listener> {
    let tcp = tcp(address, split)?;
    tcp::configure(&tcp, config);
    let address = tcp.local_addr()?;
    let buffers = socket::Buffers {
        receive: config.quic.receive_buffer.as_usize(),
        send: config.quic.send_buffer.as_usize(),
    };
    let udp = (0..cores)
        .map(|_| UdpSocket::bind(address, split, buffers))
        .collect::<io::Result<Vec<_>>>()?;
    if let Some(first) = udp.first() {
        first.warn_about_buffers(buffers);
    }
    Ok(Listener { address, tcp, udp })
}

/// Bytes that the kernel takes ahead of what a viewer on TCP has room for: what waits there can no
/// longer be skipped.
const UNSENT: u32 = 128 * 1024;

/// Makes a TCP connection fit for live media: nothing waits for more, little waits in the kernel, and that
/// is given up, also after the connection was closed, when for `patience` the peer took nothing (RFC 5482's
/// user timeout). Where the kernel cannot do that, the connection works all the same.
pub(crate) fn prepare(stream: &tokio::net::TcpStream, patience: Duration) {
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    {
        let socket = socket2::SockRef::from(stream);
        let _ = socket.set_tcp_notsent_lowat(UNSENT);
        let _ = socket.set_tcp_user_timeout(Some(patience));
    }
}

/// Ends a connection that is not served, at once: nothing of it stays in the kernel.
pub(crate) fn reset(stream: &tokio::net::TcpStream) {
    // Where the kernel refuses, it closes the connection in the usual way.
    let _ = stream.set_zero_linger();
}

/// A TCP listener; on an IPv6 wildcard it takes IPv4 too, unless `split`.
fn tcp(address: SocketAddr, split: bool) -> io::Result<TcpListener> {
    let tcp =
        socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        tcp.set_only_v6(split)?;
    }
    // A restarted server must not wait for the old connections' TIME-WAIT. Not SO_REUSEPORT: a
    // second server on the same port has to fail here.
    tcp.set_reuse_address(true)?;
    tcp.set_nonblocking(true)?;
    tcp.bind(&address.into())?;
    tcp.listen(1024)?;
    Ok(TcpListener::from(tcp))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(addresses: &[&str]) -> Config {
        let mut config = Config::default();
        config.server.listen = addresses.iter().map(|a| a.parse().expect("an address")).collect();
        config
    }

    #[test]
    fn tcp_and_every_udp_socket_share_the_port() {
        let listeners = listen(&config(&["127.0.0.1:0"]), 2).expect("bound");
        let address = listeners[0].address;
        assert_ne!(address.port(), 0);
        assert_eq!(listeners[0].udp.len(), 2);
        assert!(listeners[0].udp.iter().all(|udp| udp.local_address() == address));
    }

    #[test]
    fn an_ipv6_wildcard_takes_ipv4_unless_that_is_listed() {
        let both = listen(&config(&["[::]:0"]), 1).expect("bound");
        let port = both[0].address.port();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        drop(both);
        let listed = [format!("0.0.0.0:{port}"), format!("[::]:{port}")];
        let listeners = listen(&config(&[&listed[0], &listed[1]]), 1).expect("bound apart");
        assert_eq!(listeners.len(), 2);
    }

    #[test]
    fn a_port_in_use_is_one_line_that_names_the_address() {
        let first = listen(&config(&["127.0.0.1:0"]), 1).expect("bound");
        let address = first[0].address.to_string();
        let error = listen(&config(&[&address]), 1).expect_err("in use").to_string();
        assert!(error.starts_with(&format!("cannot listen on {address}: ")), "{error}");
        assert_eq!(error.lines().count(), 1);
    }

    #[test]
    fn a_udp_port_in_use_is_an_error_too() {
        let other = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
        let address = other.local_addr().expect("bound").to_string();
        assert!(listen(&config(&[&address]), 1).is_err());
    }
}
