//! The product `moq-relay`, built from its crate with this workspace's locked dependencies.

use moq_relay::{Config, Relay};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    moq_tokio::crypto::install_default().map_err(|e| anyhow::anyhow!("no TLS provider: {e:?}"))?;
    Relay::load(Config::load()?).await?.run().await
}
