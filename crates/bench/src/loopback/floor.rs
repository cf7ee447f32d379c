//! Lower bound for any server: copy a payload, seal it, send it with GSO. The receiver uses GRO and
//! decrypts nothing. It reports the received bytes after each batch, so that no socket overflows.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

use crate::Failure;
use crate::client::{self, MTU};

/// Datagrams per batch.
const SEGMENTS: usize = 40;
/// Bytes before the payload, as in QUIC's short header and STREAM frame.
const HEADER: usize = 20;
const TAG: usize = 16;
const PAYLOAD: usize = MTU as usize - HEADER - TAG;
/// Maximum number of batches in flight.
const WINDOW: u64 = 8;

/// Answers each request for a number of bytes with `content`, repeated.
pub(super) fn serve(content: &[u8]) -> Result<(), Failure> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let state = UdpSocketState::new((&socket).into())?;
    socket.set_nonblocking(false)?;
    println!("listening {}", socket.local_addr()?);
    let key = UnboundKey::new(&AES_128_GCM, &[7; 16])?;
    let key = LessSafeKey::new(key);
    let mut batch = vec![0; SEGMENTS * usize::from(MTU)];
    let mut request = [0; 64];
    let mut client = SocketAddr::from(([0, 0, 0, 0], 0));
    let (mut wanted, mut sent, mut arrived, mut number) = (0, 0, 0, 0u64);
    loop {
        if sent < wanted && sent < arrived + WINDOW * (SEGMENTS * PAYLOAD) as u64 {
            for packet in batch.chunks_mut(usize::from(MTU)) {
                let at = sent as usize % (content.len() - PAYLOAD);
                let (header, rest) = packet.split_at_mut(HEADER);
                let (payload, tag) = rest.split_at_mut(PAYLOAD);
                header[..8].copy_from_slice(&number.to_le_bytes());
                payload.copy_from_slice(&content[at..at + PAYLOAD]);
                let mut nonce = [0; 12];
                nonce[4..].copy_from_slice(&number.to_le_bytes());
                let sealed = key.seal_in_place_separate_tag(
                    Nonce::assume_unique_for_key(nonce),
                    Aad::from(&*header),
                    payload,
                )?;
                tag.copy_from_slice(sealed.as_ref());
                number += 1;
                sent += PAYLOAD as u64;
            }
            let transmit = Transmit {
                destination: client,
                ecn: None,
                contents: &batch,
                segment_size: Some(usize::from(MTU)),
                src_ip: None,
            };
            state.try_send((&socket).into(), &transmit)?;
            continue;
        }
        let (length, from) = socket.recv_from(&mut request)?;
        match (&request[..length], request.first_chunk::<8>()) {
            ([b'G', ..], _) => {
                let text = String::from_utf8_lossy(&request[1..length]);
                wanted = text.trim().parse().map_err(|e| format!("a bad request: {e}"))?;
                (sent, arrived) = (0, 0);
                client = from;
            }
            (_, Some(total)) => arrived = u64::from_le_bytes(*total),
            _ => {}
        }
    }
}

/// Receives `bytes`. Returns the mean size of the datagrams.
pub(super) fn fetch(server: SocketAddr, bytes: u64) -> Result<f64, Failure> {
    let socket = client::socket()?;
    let state = UdpSocketState::new((&socket).into())?;
    // A lost batch is never retransmitted; the timeout then ends the benchmark.
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.send_to(format!("G{bytes}").as_bytes(), server)?;
    let mut buffer = vec![0; 1 << 16];
    let (mut arrived, mut size, mut datagrams) = (0u64, 0u64, 0u64);
    let start = Instant::now();
    while arrived < bytes {
        let mut metas = [RecvMeta::default()];
        let mut slices = [io::IoSliceMut::new(&mut buffer)];
        state.recv((&socket).into(), &mut slices, &mut metas).map_err(|e| {
            format!("{e} after {arrived} of {bytes} bytes and {:?}", start.elapsed())
        })?;
        let [meta] = metas;
        let count = meta.len.div_ceil(meta.stride.max(1)) as u64;
        size += meta.len as u64;
        datagrams += count;
        arrived += count * PAYLOAD as u64;
        socket.send_to(&arrived.to_le_bytes(), server)?;
    }
    Ok(size as f64 / datagrams as f64)
}
