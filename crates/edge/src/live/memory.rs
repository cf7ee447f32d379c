//! Keeps the memory of live streams within `[live] max_memory`.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::Live;
use crate::config;

/// Minimum interval of checks above the limit. A check visits every stream.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of checks without memory pressure, to notice freed memory.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the limit in bytes on a machine with this much memory.
pub(crate) fn limit(config: &config::Live, machine: u64) -> u64 {
    match config.max_memory.0 {
        0 => machine / 2,
        bytes => bytes,
    }
}

/// Evicts data beyond the limit. Never returns.
pub(crate) async fn keep_within(live: Arc<Live>) {
    let memory = live.streams.memory().clone();
    loop {
        tokio::select! {
            () = poll_fn(|context| memory.poll_pressed(context)) => {}
            () = sleep(CHECK_INTERVAL) => {}
        }
        check(&live);
        sleep(MIN_CHECK_INTERVAL).await;
    }
}

fn check(live: &Live) {
    let memory = live.streams.memory();
    let was_full = memory.is_full();
    if memory.is_pressed() {
        live.outlets.drop_unwatched();
    }
    live.streams.enforce_memory_limit(|| live.outlets.trim());
    if memory.is_full() != was_full {
        let (held, limit) = (memory.held() >> 20, memory.limit() >> 20);
        match was_full {
            false => tracing::warn!(
                "streams use {held} of {limit} MiB ([live] max_memory): new streams rejected"
            ),
            true => tracing::info!("streams use {held} of {limit} MiB: new streams accepted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn half_of_the_memory_is_the_default() {
        assert_eq!(limit(&Config::default().live, 16 << 30), 8 << 30);
        let config = Config::parse("edge.toml", "[live]\nmax_memory = \"3MiB\"").expect("valid");
        assert_eq!(limit(&config.live, 16 << 30), 3 << 20);
    }
}
