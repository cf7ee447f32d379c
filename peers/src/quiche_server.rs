//! A server on `quiche` with its own event loop and GSO. A call sends all datagrams that `quiche`
//! releases at once. With pacing, datagrams wait for their release time
//! ([`quiche::SendInfo::at`]); only BBRv2 has one, the CUBIC of `quiche` does not pace.

use std::collections::HashMap;
use std::io::{ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};

use crate::{ANSWER, MTU};

/// Maximum datagrams per batch.
const SEGMENTS: usize = 40;
const SLOT: usize = 1 << 16;

struct Client {
    connection: quiche::Connection,
    /// Responses in progress: written bytes by stream.
    answers: HashMap<u64, usize>,
    /// A datagram that waits for its release time.
    held: Option<Held>,
}

struct Held {
    datagram: Vec<u8>,
    to: SocketAddr,
    at: Instant,
}

fn config(dir: &Path, paced: bool) -> Result<quiche::Config, quiche::Error> {
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION)?;
    config.load_cert_chain_from_pem_file(&path("chain.pem"))?;
    config.load_priv_key_from_pem_file(&path("key.pem"))?;
    config.set_application_protos(&[b"hq-interop"])?;
    config.set_max_idle_timeout(30_000);
    config.set_max_recv_udp_payload_size(1_500);
    config.set_max_send_udp_payload_size(MTU.into());
    config.set_initial_max_data(1 << 20);
    config.set_initial_max_stream_data_bidi_remote(1 << 16);
    config.set_initial_max_streams_bidi(1_000);
    config.set_cc_algorithm(if paced {
        quiche::CongestionControlAlgorithm::Bbr2Gcongestion
    } else {
        quiche::CongestionControlAlgorithm::CUBIC
    });
    config.enable_pacing(paced);
    Ok(config)
}

pub(crate) fn run(dir: &Path, paced: bool) -> Result<(), String> {
    let mut config = config(dir, paced).map_err(|e| e.to_string())?;
    let error = |e: std::io::Error| e.to_string();
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(error)?;
    let state = UdpSocketState::new((&socket).into()).map_err(error)?;
    let local = socket.local_addr().map_err(error)?;
    println!("listening {local}");
    let answer = vec![0x5a; ANSWER];
    let mut clients: HashMap<Vec<u8>, Client> = HashMap::new();
    let mut memory = vec![0; BATCH_SIZE * SLOT];
    let mut out = vec![0; SEGMENTS * usize::from(MTU)];
    let mut next_id = 0u64;
    loop {
        let now = Instant::now();
        let timers = clients.values().filter_map(|client| client.connection.timeout());
        let releases = clients.values().filter_map(|client| client.held.as_ref());
        let releases = releases.map(|held| held.at.saturating_duration_since(now));
        let sleep = timers.chain(releases).min();
        let timeout = TimeSpec::from_duration(sleep.unwrap_or(Duration::from_secs(60)));
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        // An interrupted wait only ends early.
        let _ = ppoll(&mut fds, Some(timeout), None);
        loop {
            let mut slots = memory.chunks_exact_mut(SLOT);
            let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
                std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
            let mut metas = [RecvMeta::default(); BATCH_SIZE];
            let filled = match state.recv((&socket).into(), &mut slices, &mut metas) {
                Ok(filled) => filled,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e.to_string()),
            };
            for (slice, meta) in slices.iter_mut().zip(&metas).take(filled) {
                for datagram in slice[..meta.len].chunks_mut(meta.stride.max(1)) {
                    let header = quiche::Header::from_slice(datagram, 16);
                    let Ok(header) = header else { continue };
                    if !clients.contains_key(header.dcid.as_ref()) {
                        if header.ty != quiche::Type::Initial {
                            continue;
                        }
                        next_id += 1;
                        let mut id = vec![0; 16];
                        id[..8].copy_from_slice(&next_id.to_le_bytes());
                        let scid = quiche::ConnectionId::from_ref(&id);
                        let accepted = quiche::accept(&scid, None, local, meta.addr, &mut config);
                        let Ok(connection) = accepted else { continue };
                        let mut client = Client { connection, answers: HashMap::new(), held: None };
                        // The connection ID chosen by the client is not registered, because the
                        // first flight of the benchmark's client is one datagram.
                        let info = quiche::RecvInfo { from: meta.addr, to: local };
                        let _ = client.connection.recv(datagram, info);
                        clients.insert(id, client);
                        continue;
                    }
                    let info = quiche::RecvInfo { from: meta.addr, to: local };
                    if let Some(client) = clients.get_mut(header.dcid.as_ref()) {
                        // A rejected packet does not end the connection.
                        let _ = client.connection.recv(datagram, info);
                    }
                }
            }
        }
        for client in clients.values_mut() {
            client.connection.on_timeout();
            serve(client, &answer);
            send(client, &answer, &socket, &state, &mut out)?;
        }
        clients.retain(|_, client| !client.connection.is_closed());
    }
}

/// Reads requests, and writes responses within flow control limits.
fn serve(client: &mut Client, answer: &[u8]) {
    let Client { connection, answers, .. } = client;
    let mut request = [0; 1_000];
    for id in connection.readable() {
        while let Ok((_, fin)) = connection.stream_recv(id, &mut request) {
            if fin {
                answers.insert(id, 0);
            }
        }
    }
    answers.retain(|&id, at| match connection.stream_send(id, &answer[*at..], true) {
        Ok(written) => {
            *at += written;
            *at < answer.len()
        }
        Err(quiche::Error::Done) => true,
        Err(_) => false,
    });
}

fn send(
    client: &mut Client,
    answer: &[u8],
    socket: &UdpSocket,
    state: &UdpSocketState,
    out: &mut [u8],
) -> Result<(), String> {
    loop {
        let (mut len, mut to, now) = (0, None, Instant::now());
        if client.held.as_ref().is_some_and(|held| held.at > now) {
            return Ok(());
        }
        if let Some(held) = client.held.take() {
            len = held.datagram.len();
            out[..len].copy_from_slice(&held.datagram);
            to = Some(held.to);
        }
        while len % usize::from(MTU) == 0 && len + usize::from(MTU) <= out.len() {
            let end = len + usize::from(MTU);
            let Ok((written, info)) = client.connection.send(&mut out[len..end]) else { break };
            if info.at > now {
                let datagram = out[len..len + written].to_vec();
                client.held = Some(Held { datagram, to: info.to, at: info.at });
                break;
            }
            len += written;
            to = Some(info.to);
        }
        let Some(destination) = to else { return Ok(()) };
        let segment_size = Some(usize::from(MTU)).filter(|&size| size < len);
        let transmit =
            Transmit { destination, ecn: None, contents: &out[..len], segment_size, src_ip: None };
        while let Err(e) = state.try_send(socket.into(), &transmit) {
            if e.kind() != ErrorKind::WouldBlock {
                return Err(e.to_string());
            }
            let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
            let _ = ppoll(&mut fds, None, None);
        }
        serve(client, answer);
    }
}
