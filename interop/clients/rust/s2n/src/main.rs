//! Raw QUIC client on unmodified s2n-quic. s2n-quic has no HTTP/3, so requests use HTTP/0.9 on bidirectional streams
//! (ALPN `hq-interop`): "GET /path\r\n" and FIN, answered by the body alone.

use futures_util::future::try_join_all;
use interop_task::{Body, Response, Result, Round, Task, print_report};
use s2n_quic::Client;
use s2n_quic::client::Connect;
use s2n_quic::connection::Handle;
use s2n_quic::provider::tls;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let task = Task::from_args()?;
    let mut rounds = Vec::new();
    let outcome = run(&task, &mut rounds).await;
    print_report(rounds, outcome);
    Ok(())
}

async fn run(task: &Task, rounds: &mut Vec<Round>) -> Result<()> {
    let tls = tls::rustls::Client::builder()
        .with_certificate(task.ca.as_path())?
        .with_application_protocols([b"hq-interop"].iter())?
        .build()?;
    let mut client = Client::builder().with_tls(tls)?.with_io(task.local())?.start()?;
    for paths in &task.rounds {
        let connect = Connect::new(task.remote()).with_server_name(task.host.as_str());
        let connection = client.connect(connect).await?;
        let handle = connection.handle();
        let alpn = handle.application_protocol()?;
        let responses = try_join_all(paths.iter().map(|path| fetch(handle.clone(), path))).await?;
        tokio::time::sleep(task.linger()).await;
        handle.close(0u32.into());
        let alpn = Some(String::from_utf8_lossy(&alpn).into_owned());
        rounds.push(Round { alpn, responses, ..Round::default() });
    }
    client.wait_idle().await?;
    Ok(())
}

async fn fetch(mut connection: Handle, path: &str) -> Result<Response> {
    let mut stream = connection.open_bidirectional_stream().await?;
    stream.send(format!("GET {path}\r\n").into()).await?;
    stream.finish()?;
    let mut body = Body::default();
    while let Some(chunk) = stream.receive().await? {
        body.push(&chunk);
    }
    Ok(body.finish(path, 200))
}
