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
pub(crate) use tcp::MeasuredStream;
pub use tcp::{SincePath, TcpPath};

/// Sockets on one of the configured addresses.
#[derive(Debug)]
pub struct Listener {
    /// The bound address; its port is never 0.
    pub address: SocketAddr,
    /// Non-blocking.
    pub tcp: TcpListener,
    /// One socket per event loop, all bound to `address`: the kernel spreads the viewers.
    pub udp: Vec<UdpSocket>,
}

/// Binds a TCP-only address.
///
/// # Errors
/// The address is in use or does not belong to this machine.
pub fn listen_tcp(address: SocketAddr) -> Result<TcpListener, Error> {
    tcp(address, false).map_err(|e| Error::new(format!("cannot listen on {address}: {e}")))
}

/// Binds every address of `[server] listen`, for `cores` (at least 1) event loops.
///
/// # Errors
/// An address is in use or does not belong to this machine.
pub fn listen(config: &Config, cores: usize) -> Result<Vec<Listener>, Error> {
    let addresses = &config.server.listen;
    addresses
        .iter()
        .map(|&address| {
            // RFC 3493, section 5.3: an IPv6 wildcard socket also accepts IPv4, unless IPv4 is
            // configured separately on the same port.
            let split = addresses.iter().any(|a| a.is_ipv4() && a.port() == address.port());
            // For port 0, retry until a port is free for both TCP and UDP.
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

/// Maximum unsent bytes in the kernel per TCP connection. Data queued there can no longer be
/// skipped.
const MAX_UNSENT_BYTES: u32 = 128 * 1024;

/// Configures a TCP connection for live media: no Nagle delay, little unsent data in the kernel,
/// and a user timeout (RFC 5482) of `patience`, which also applies after close. Unsupported options
/// are ignored.
pub(crate) fn prepare(stream: &tokio::net::TcpStream, patience: Duration) {
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    {
        let socket = socket2::SockRef::from(stream);
        let _ = socket.set_tcp_notsent_lowat(MAX_UNSENT_BYTES);
        let _ = socket.set_tcp_user_timeout(Some(patience));
    }
}

/// Makes the connection end with a reset on drop, leaving no state in the kernel.
pub(crate) fn reset(stream: &tokio::net::TcpStream) {
    // If the kernel refuses, the connection closes normally.
    let _ = stream.set_zero_linger();
}

/// Binds a TCP listener. An IPv6 wildcard also accepts IPv4 unless `split`.
fn tcp(address: SocketAddr, split: bool) -> io::Result<TcpListener> {
    let tcp =
        socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        tcp.set_only_v6(split)?;
    }
    // Do not wait for TIME-WAIT after a restart. Not SO_REUSEPORT: a second server on the same
    // port must fail.
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
    fn ipv6_wildcard_accepts_ipv4_unless_it_is_listed() {
        let both = listen(&config(&["[::]:0"]), 1).expect("bound");
        let port = both[0].address.port();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        drop(both);
        let listed = [format!("0.0.0.0:{port}"), format!("[::]:{port}")];
        let listeners = listen(&config(&[&listed[0], &listed[1]]), 1).expect("bound apart");
        assert_eq!(listeners.len(), 2);
    }

    #[test]
    fn error_of_a_port_in_use_is_one_line_with_the_address() {
        let first = listen(&config(&["127.0.0.1:0"]), 1).expect("bound");
        let address = first[0].address.to_string();
        let error = listen(&config(&[&address]), 1).expect_err("in use").to_string();
        assert!(error.starts_with(&format!("cannot listen on {address}: ")), "{error}");
        assert_eq!(error.lines().count(), 1);
    }

    #[test]
    fn udp_port_in_use_is_an_error() {
        let other = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
        let address = other.local_addr().expect("bound").to_string();
        assert!(listen(&config(&[&address]), 1).is_err());
    }
}
