//! Keeps what streams hold in memory within `[live] max_memory`.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::Live;
use crate::config;

/// How often at most streams are looked at while too much is held: a look costs time for each of them.
const BREATH: Duration = Duration::from_millis(100);
/// How often they are looked at in any case, since room that is there again is to be used.
const LOOK: Duration = Duration::from_secs(1);

/// What streams may hold in memory, in bytes, on a machine that has this much.
pub(crate) fn limit(config: &config::Live, machine: u64) -> u64 {
    match config.max_memory.0 {
        0 => machine / 2,
        bytes => bytes,
    }
}

/// Has streams give up what is too much, for ever.
pub(crate) async fn keep_within(live: Arc<Live>) {
    let memory = live.streams.memory().clone();
    loop {
        tokio::select! {
            () = poll_fn(|context| memory.poll_pressed(context)) => {}
            () = sleep(LOOK) => {}
        }
        look(&live);
        sleep(BREATH).await;
    }
}

fn look(live: &Live) {
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
                "streams hold {held} of {limit} MiB ([live] max_memory): further ones are refused"
            ),
            true => tracing::info!("streams hold {held} of {limit} MiB: further ones are let in"),
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
