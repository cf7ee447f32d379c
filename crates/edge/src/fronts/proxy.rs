//! The PROXY protocol, versions 1 and 2 (HAProxy, "The PROXY protocol", 2020/03/05), with which a
//! load balancer announces the client's address.
//!
//! Receiver only; everything but the client's address is ignored. Reads exactly the header.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

/// Timeout for the header, which balancers send at once.
const LIMIT: Duration = Duration::from_secs(3);
/// Section 2.1: maximum line length of version 1, including CRLF.
const MAX_LINE: usize = 107;
/// Section 2.2: signature of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Maximum bytes of addresses and extensions (TLVs); balancers send a few hundred.
const MAX_EXTENSIONS: usize = 2_048;
/// Stands for a client unknown to the balancer. Never a local address.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Reads the header from a balancer's connection and returns the client's address: `balancer`
/// itself for its health checks (LOCAL), and 0.0.0.0 if unknown.
///
/// # Errors
/// The header is missing, malformed or late.
pub(super) async fn client<S: AsyncRead + Unpin>(
    stream: &mut S,
    balancer: SocketAddr,
) -> Result<SocketAddr> {
    timeout(LIMIT, header(stream, balancer)).await.unwrap_or_else(|_| Err(invalid("timeout")))
}

async fn header<S: AsyncRead + Unpin>(stream: &mut S, balancer: SocketAddr) -> Result<SocketAddr> {
    // Headers of both versions have at least this length.
    let mut start = [0; SIGNATURE.len()];
    stream.read_exact(&mut start).await?;
    if start == SIGNATURE {
        return binary(stream, balancer).await;
    }
    if !start.starts_with(b"PROXY ") {
        return Err(invalid("missing"));
    }
    let mut line = start.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() == MAX_LINE {
            return Err(invalid("too long"));
        }
        line.push(stream.read_u8().await?);
    }
    let line = core::str::from_utf8(&line[..line.len() - 2]);
    line.ok().and_then(text).ok_or_else(|| invalid("malformed"))
}

/// Section 2.1: parses a line of version 1.
fn text(line: &str) -> Option<SocketAddr> {
    let mut fields = line.split(' ').skip(1);
    let family = fields.next()?;
    if family == "UNKNOWN" {
        return Some(UNKNOWN);
    }
    let fields: Vec<&str> = fields.collect();
    let [source, destination, source_port, destination_port] = fields[..] else { return None };
    let address = |text: &str| -> Option<IpAddr> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let port = |text: &str| -> Option<u16> {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    };
    address(destination)?;
    port(destination_port)?;
    Some(SocketAddr::new(address(source)?, port(source_port)?))
}

/// Section 2.2: reads a header of version 2 after its signature.
async fn binary<S: AsyncRead + Unpin>(stream: &mut S, balancer: SocketAddr) -> Result<SocketAddr> {
    let mut fixed = [0; 4];
    stream.read_exact(&mut fixed).await?;
    let [command, family, l0, l1] = fixed;
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    if length > MAX_EXTENSIONS {
        return Err(invalid("too long"));
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    match (command, family) {
        (0x20, _) => Ok(balancer),
        (0x21, 0x11) => addresses(&rest).ok_or_else(|| invalid("too short")),
        (0x21, 0x21) => addresses6(&rest).ok_or_else(|| invalid("too short")),
        // Unspecified family and protocol, or a UNIX socket.
        (0x21, 0x00 | 0x31) => Ok(UNKNOWN),
        _ => Err(invalid("malformed")),
    }
}

/// Parses IPv4 source, destination and both ports.
fn addresses(bytes: &[u8]) -> Option<SocketAddr> {
    let source: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    let [.., p0, p1, _, _] = *bytes.get(..12)? else { return None };
    Some(SocketAddr::from((source, u16::from_be_bytes([p0, p1]))))
}

/// The same for IPv6.
fn addresses6(bytes: &[u8]) -> Option<SocketAddr> {
    let source: [u8; 16] = bytes.get(..16)?.try_into().ok()?;
    let [.., p0, p1, _, _] = *bytes.get(..36)? else { return None };
    Some(SocketAddr::from((source, u16::from_be_bytes([p0, p1]))))
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("PROXY header: {why}"))
}

#[cfg(test)]
mod tests;
