//! Third-party servers of the loopback benchmark. `mendcast-peers NAME DIR` uses the certificate in
//! DIR, prints `listening ADDRESS`, and answers every request on ALPN `hq-interop` with 1 MiB from
//! memory, in datagrams of 1,200 bytes, until it is killed. `quiche-paced` paces, with BBRv2.

#![forbid(unsafe_code)]

mod quiche_server;
mod s2n_server;

use std::path::Path;
use std::process::ExitCode;

/// Mendcast's allocator, so that all servers use the same one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// UDP payload of full datagrams.
const MTU: u16 = 1_200;
/// Length of a response in bytes.
const ANSWER: usize = 1 << 20;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (name, dir) = (arguments.next(), arguments.next());
    let result = match (name.as_deref(), dir) {
        (Some("quiche"), Some(dir)) => quiche_server::run(Path::new(&dir), false),
        (Some("quiche-paced"), Some(dir)) => quiche_server::run(Path::new(&dir), true),
        (Some("s2n-quic"), Some(dir)) => s2n_server::run(Path::new(&dir)),
        _ => Err("usage: mendcast-peers quiche|quiche-paced|s2n-quic DIR".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mendcast-peers: {error}");
            ExitCode::FAILURE
        }
    }
}
