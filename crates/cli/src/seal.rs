//! `mendcast seal-speed`: time to protect a packet, to compare builds (`packaging/seal-check`).

use std::hint::black_box;
use std::time::Instant;

use quic::crypto::{PacketKey, initial_keys};

/// Bytes of a packet: header, payload and tag.
const PACKET_BYTES: usize = 1_200;
const HEADER_BYTES: usize = 13;
const PACKETS_PER_ROUND: u32 = 20_000;
const ROUNDS: usize = 25;

/// Prints the fastest round of each step: pauses by other programs only ever add time.
pub(crate) fn run() {
    let keys = initial_keys(&[7; 8]);
    let source = vec![0x5a; PACKET_BYTES];
    let mut packet = source.clone();
    let seal_only = fastest(|number| seal(&keys.local.packet, number, &mut packet));
    let mut packet = source.clone();
    let copy_and_seal = fastest(|number| {
        packet.copy_from_slice(black_box(&source));
        seal(&keys.local.packet, number, &mut packet);
    });
    print_line!("seal {seal_only:.1} ns");
    print_line!("copy and seal {copy_and_seal:.1} ns");
}

fn seal(key: &PacketKey, number: u64, packet: &mut [u8]) {
    let (header, payload) = packet.split_at_mut(HEADER_BYTES);
    key.seal(number, header, payload);
    black_box(packet);
}

/// Returns nanoseconds per packet in the fastest round.
fn fastest(mut step: impl FnMut(u64)) -> f64 {
    let mut round = || {
        let start = Instant::now();
        (0..PACKETS_PER_ROUND).for_each(|number| step(number.into()));
        start.elapsed().as_nanos() as f64 / f64::from(PACKETS_PER_ROUND)
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}
