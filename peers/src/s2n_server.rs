//! A server on `s2n-quic`, on one thread.

use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;
use s2n_quic::Server;
use s2n_quic::provider::{io, tls};

use crate::{ANSWER, MTU};

pub(crate) fn run(dir: &Path) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    runtime.block_on(serve(dir))
}

async fn serve(dir: &Path) -> Result<(), String> {
    let tls = tls::rustls::Server::builder()
        .with_certificate(dir.join("chain.pem").as_path(), dir.join("key.pem").as_path())
        .and_then(|builder| builder.with_application_protocols(["hq-interop"].into_iter()))
        .and_then(|builder| builder.build())
        .map_err(|e| e.to_string())?;
    let io = io::Default::builder()
        .with_receive_address(SocketAddr::from(([127, 0, 0, 1], 0)))
        .and_then(|builder| builder.with_initial_mtu(MTU + 28))
        .and_then(|builder| builder.with_max_mtu(MTU + 28))
        .and_then(|builder| builder.build())
        .map_err(|e| e.to_string())?;
    let mut server = Server::builder()
        .with_tls(tls)
        .map_err(|e| e.to_string())?
        .with_io(io)
        .map_err(|e| e.to_string())?
        .start()
        .map_err(|e| e.to_string())?;
    println!("listening {}", server.local_addr().map_err(|e| e.to_string())?);
    let answer = Bytes::from(vec![0x5a; ANSWER]);
    while let Some(mut connection) = server.accept().await {
        let answer = answer.clone();
        tokio::spawn(async move {
            while let Ok(Some(mut stream)) = connection.accept_bidirectional_stream().await {
                let answer = answer.clone();
                tokio::spawn(async move {
                    // The client counts bytes and detects failures.
                    while let Ok(Some(_)) = stream.receive().await {}
                    let _ = stream.send(answer).await;
                    let _ = stream.finish();
                });
            }
        });
    }
    Ok(())
}
