//! A file server over HTTP/3 with one UDP socket and one thread, based on the crates `quic` and
//! `http3`.
//!
//! Run `cargo run -p mendcast-http3 --example serve_files -- DIRECTORY 127.0.0.1:4433`, then
//! `mendcast watch https://127.0.0.1:4433/FILE --insecure`, or `curl --http3-only -k` with the same
//! URL.
//!
//! The crates do no I/O: this loop supplies datagrams and the time, and sends the endpoint's
//! output. The product's loop (`edge::loops::event_loop`) adds batches, several cores and streamed
//! bodies. This example reads each file into memory.

use std::collections::HashSet;
use std::error::Error;
use std::net::UdpSocket;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use bytes::Bytes;
use mendcast_http3::{Config, Event as HttpEvent, OverQuic, Server};
use quic::crypto::{KeyRing, OneRttProtection, SingleUseLog, SystemTime, TlsConfig, TlsSettings};
use quic::{
    Addresses, Datagram, Endpoint, EndpointConfig, Event, Handle, Outcome, RetryPolicy,
    TransportConfig,
};
use units::{Ecn, StreamId, Timestamp};

/// Maximum wait for the socket.
const IDLE: Duration = Duration::from_secs(1);

fn endpoint(unix_origin: u64) -> Result<Endpoint, Box<dyn Error>> {
    let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    // Keys for connection IDs, tokens and tickets; a real server generates them randomly.
    let keys = Arc::new(KeyRing::new(&[7; 32], &[(unix_origin, [8; 32])]));
    let tls = TlsConfig::new(TlsSettings {
        certificate_chain: vec![identity.cert.der().to_vec()],
        private_key: identity.signing_key.serialize_der(),
        alpn: vec![b"h3".to_vec()],
        keys: keys.clone(),
        single_use: Arc::new(SingleUseLog::new(unix_origin, SingleUseLog::REPLAY_WINDOW, 1_024)),
        time: Arc::new(SystemTime),
        early_data: false,
        early_data_context: 0,
        tickets: 1,
        ticket_lifetime: 86_400,
        ciphers: Vec::new(),
        one_rtt: OneRttProtection::Real,
    })?;
    let config = EndpointConfig {
        transport: Arc::new(TransportConfig::default()),
        tls: Arc::new(tls),
        keys,
        retry: RetryPolicy::Never,
        token_lifetime: Duration::from_secs(3_600),
        max_connections: 1_000,
        server_id: 0,
        core: 0,
        cores: 1,
        unix_origin,
    };
    Ok(Endpoint::new(config, [9; 32]))
}

/// Reads the requested file, if it is below `root`.
fn read(root: &Path, target: &[u8]) -> Option<Bytes> {
    let path = core::str::from_utf8(target).ok()?.split('?').next()?.trim_start_matches('/');
    let is_below = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    is_below.then(|| std::fs::read(root.join(path)).ok().map(Bytes::from))?
}

fn answer(http: &mut Server, t: &mut OverQuic<'_>, root: &Path, id: StreamId, target: &[u8]) {
    let file = read(root, target);
    let (status, body) = match file {
        Some(body) => (200, body),
        None => (404, Bytes::from_static(b"404 Not Found\n")),
    };
    let length = body.len().to_string();
    println!("{status} {length:>9} {}", String::from_utf8_lossy(target));
    // Clients may cancel a request at any time; errors are then expected.
    let _ = http
        .respond(t, id, status, &[("content-length", &length)], false)
        .and_then(|()| http.send_data(t, id, body))
        .and_then(|()| http.finish(t, id));
}

/// HTTP/3 state of connections, indexed by the slot of their handle.
type Connections = Vec<Option<Server>>;

/// Handles a connection's events, and sends its output.
fn serve(
    endpoint: &mut Endpoint,
    https: &mut Connections,
    handle: Handle,
    now: Timestamp,
    root: &Path,
    socket: &UdpSocket,
) {
    let index = handle.0 as usize;
    while let Some(event) = endpoint.poll_event(handle) {
        if event == Event::Connected {
            endpoint.release_ticket(handle, now, &[]);
        }
        let Some(connection) = endpoint.connection(handle) else { continue };
        let t = &mut OverQuic::new(connection, now);
        if event == Event::Ready {
            let mut http = Server::new(Config::default());
            http.start(t);
            https.resize_with(https.len().max(index + 1), || None);
            https[index] = Some(http);
        }
        let Some(Some(http)) = https.get_mut(index) else { continue };
        if let Event::Stream(event) = event {
            http.on_stream_event(t, event);
        }
        while let Some(event) = http.poll_event() {
            if let HttpEvent::Request { id, head, .. } = event {
                http.discard_body(t, id);
                answer(http, t, root, id, &head.path);
            }
        }
    }
    let mut batch = vec![0; 65_507];
    while let Some(transmit) = endpoint.poll_transmit(handle, now, &mut batch, 10) {
        for datagram in batch[..transmit.len].chunks(transmit.segment) {
            // Unsent datagrams are lost, and recovered like other losses.
            let _ = socket.send_to(datagram, transmit.addresses.remote);
        }
    }
    if endpoint.connection(handle).is_some_and(|connection| connection.is_drained()) {
        endpoint.remove(handle);
        if let Some(http) = https.get_mut(index) {
            *http = None;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(root), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve_files DIRECTORY ADDRESS".into());
    };
    let socket = UdpSocket::bind(&address)?;
    println!("https://{}", socket.local_addr()?);
    let (origin, root) = (Instant::now(), Path::new(&root));
    let mut endpoint = endpoint(UNIX_EPOCH.elapsed()?.as_secs())?;
    let mut https = Connections::new();
    let (mut datagram, mut reply) = (vec![0; 65_535], vec![0; 1_500]);
    loop {
        let now = Timestamp::ZERO + origin.elapsed();
        let handles: Vec<Handle> = endpoint.handles().collect();
        let deadlines =
            handles.iter().filter_map(|&handle| endpoint.connection(handle)?.deadline());
        let wait = deadlines.map(|at| at.since(now)).min().unwrap_or(IDLE).min(IDLE);
        socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let received = socket.recv_from(&mut datagram);
        let now = Timestamp::ZERO + origin.elapsed();
        let mut busy = HashSet::new();
        if let Ok((len, remote)) = received {
            let (addresses, payload) = (Addresses::of(remote), &mut datagram[..len]);
            let received = Datagram { addresses, ecn: Ecn::NotEct, payload };
            match endpoint.handle_datagram(now, received, &mut reply) {
                Outcome::Connection(handle) | Outcome::Accepted(handle) => {
                    busy.insert(handle);
                }
                Outcome::Reply(len) => drop(socket.send_to(&reply[..len], remote)),
                Outcome::Foreign(_) | Outcome::Dropped(_) => {}
            }
        }
        for handle in handles {
            let deadline = endpoint.connection(handle).and_then(|connection| connection.deadline());
            if deadline.is_some_and(|at| at <= now) {
                endpoint.handle_timeout(handle, now);
                busy.insert(handle);
            }
        }
        for handle in busy {
            serve(&mut endpoint, &mut https, handle, now, root, &socket);
        }
    }
}
