//! Client process: the same downloads from every server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cpu_time::ProcessTime;
use tokio::task::JoinSet;

use super::{ANSWER, PARALLEL, floor};
use crate::Failure;
use crate::client;
use crate::identity::NAME;

/// Download, then print the own CPU time in seconds and the mean size of received datagrams
#[derive(Debug, clap::Args)]
pub(crate) struct Fetch {
    /// Protocol: `quic` or `floor`
    what: String,
    address: SocketAddr,
    /// Directory with `chain.pem`
    dir: PathBuf,
    /// Number of 1 MiB answers
    answers: usize,
}

impl Fetch {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let datagram = if self.what == "floor" {
            floor::fetch(self.address, (self.answers * ANSWER) as u64)?
        } else {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(self.download())?
        };
        println!("{} {datagram}", ProcessTime::try_now()?.as_duration().as_secs_f64());
        Ok(())
    }

    async fn download(&self) -> Result<f64, Failure> {
        let connection = self.connect().await?;
        let (mut left, mut fetches) = (self.answers, JoinSet::new());
        loop {
            while left > 0 && fetches.len() < PARALLEL {
                fetches.spawn(get(connection.clone()));
                left -= 1;
            }
            let Some(fetched) = fetches.join_next().await else { break };
            fetched??;
        }
        let received = connection.stats().udp_rx;
        connection.close(0u32.into(), b"");
        Ok(received.bytes as f64 / received.datagrams as f64)
    }

    /// Connects, with retries: a server may still be starting.
    async fn connect(&self) -> Result<quinn::Connection, Failure> {
        let endpoint = client::endpoint(client::tls(&self.dir, "hq-interop")?)?;
        let mut error = String::new();
        for _ in 0..20 {
            let connecting = endpoint.connect(self.address, NAME)?;
            match tokio::time::timeout(Duration::from_secs(2), connecting).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(e)) => error = e.to_string(),
                Err(_) => error = "no answer".to_owned(),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err(format!("{}: {error}", self.address).into())
    }
}

async fn get(connection: quinn::Connection) -> Result<(), Failure> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(b"GET /chunk\r\n").await?;
    send.finish()?;
    let mut received = 0;
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
        received += chunk.bytes.len();
    }
    if received == ANSWER { Ok(()) } else { Err(format!("{received} of {ANSWER} bytes").into()) }
}
