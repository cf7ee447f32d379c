//! Examples of the specification, truncated headers, and invalid input.

use super::*;

const BALANCER: &str = "10.0.0.9:40000";

/// Returns the client's address and the bytes after the header.
fn read(bytes: &[u8]) -> Result<(String, Vec<u8>)> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("made");
    runtime.block_on(async {
        let mut rest = bytes;
        let client = client(&mut rest, BALANCER.parse().expect("an address")).await?;
        Ok((client.to_string(), rest.to_vec()))
    })
}

/// Returns a header of version 2.
fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = (rest.len() as u16).to_be_bytes();
    [&SIGNATURE[..], &[command, family], &length, rest].concat()
}

fn ipv4() -> Vec<u8> {
    vec![192, 168, 0, 1, 192, 168, 0, 11, 0xdc, 0x04, 0x01, 0xbb]
}

fn ipv6() -> Vec<u8> {
    let mut bytes = vec![0x20, 0x01, 0x0d, 0xb8];
    bytes.resize(15, 0);
    bytes.push(1);
    bytes.resize(32, 0xff);
    bytes.extend([0xdc, 0x04, 0x01, 0xbb]);
    bytes
}

#[test]
fn version_1_examples_are_read_exactly() {
    let longest = "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                   ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
    let longest_client = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535";
    let worst = "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
    assert_eq!(worst.len(), MAX_LINE);
    for (header, expected) in [
        ("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", "192.168.0.1:56324"),
        ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535"),
        ("PROXY TCP6 2001:db8::1 ::1 1 2\r\n", "[2001:db8::1]:1"),
        (longest, longest_client),
        ("PROXY UNKNOWN\r\n", "0.0.0.0:0"),
        (worst, "0.0.0.0:0"),
    ] {
        let (client, rest) = read(format!("{header}GET /").as_bytes()).expect(header);
        assert_eq!((client.as_str(), &rest[..]), (expected, &b"GET /"[..]), "{header}");
    }
}

#[test]
fn version_2_headers_are_read_with_extensions() {
    let with_extensions = [ipv4(), vec![0x04, 0, 3, 1, 2, 3]].concat();
    for (header, expected) in [
        (version_2(0x21, 0x11, &ipv4()), "192.168.0.1:56324"),
        (version_2(0x21, 0x11, &with_extensions), "192.168.0.1:56324"),
        (version_2(0x21, 0x21, &ipv6()), "[2001:db8::1]:56324"),
        (version_2(0x20, 0x00, &[]), BALANCER),
        (version_2(0x20, 0x11, &ipv4()), BALANCER),
        (version_2(0x21, 0x00, &[7; 20]), "0.0.0.0:0"),
        (version_2(0x21, 0x31, &[7; 216]), "0.0.0.0:0"),
    ] {
        let (client, rest) = read(&[&header[..], b"rest"].concat()).expect("a header");
        assert_eq!((client.as_str(), &rest[..]), (expected, &b"rest"[..]), "{header:?}");
    }
}

#[test]
fn invalid_and_truncated_headers_are_rejected() {
    let line = b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n".to_vec();
    let binary = version_2(0x21, 0x21, &ipv6());
    for header in [line, binary] {
        for end in 0..header.len() {
            assert!(read(&header[..end]).is_err(), "{end} of {header:?}");
        }
    }
    for line in [
        "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "PROXY TCP4 192.168.0.1 192.168.0.11 56324\r\n",
        "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443 1\r\n",
        "PROXY TCP4 192.168.0.1 192.168.0.11 65536 443\r\n",
        "PROXY TCP4 192.168.0.1 192.168.0.11 +1 443\r\n",
        "PROXY TCP4 192.168.0.1  192.168.0.11 1 443\r\n",
        "PROXY TCP4 ::1 ::1 1 443\r\n",
        "PROXY TCP6 192.168.0.1 192.168.0.11 1 443\r\n",
        "PROXY TCP5 192.168.0.1 192.168.0.11 1 443\r\n",
        "proxy TCP4 192.168.0.1 192.168.0.11 1 443\r\n",
    ] {
        assert!(read(line.as_bytes()).is_err(), "{line}");
    }
    let endless = [b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 1_000_000]].concat();
    assert!(read(&endless).is_err());
    for header in [
        version_2(0x21, 0x11, &ipv4()[..11]),
        version_2(0x21, 0x21, &ipv6()[..35]),
        version_2(0x21, 0x12, &ipv4()),
        version_2(0x11, 0x11, &ipv4()),
        version_2(0x22, 0x11, &ipv4()),
        version_2(0x21, 0x11, &vec![0; MAX_EXTENSIONS + 1]),
    ] {
        assert!(read(&header).is_err(), "{header:?}");
    }
}

#[tokio::test]
async fn slow_header_times_out() {
    let (mut near, mut far) = tokio::io::duplex(64);
    let drip = tokio::spawn(async move {
        for byte in b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n" {
            if tokio::io::AsyncWriteExt::write_u8(&mut far, *byte).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let start = tokio::time::Instant::now();
    assert!(client(&mut near, BALANCER.parse().expect("an address")).await.is_err());
    assert!(start.elapsed() < 2 * LIMIT);
    drip.abort();
}
