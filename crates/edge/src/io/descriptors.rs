//! File descriptor limits: raises the soft limit and warns if the configuration may need more.
//!
//! The usual soft limit of 1,024 exists for programs that use `select`. A server without free
//! descriptors can neither accept connections nor open files.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::{self, Config};

/// Descriptors for logs, admin connections, open files, resolvers and libraries.
const MISCELLANEOUS: u64 = 512;
/// Descriptors per core: UDP and TCP sockets and their pollers.
const PER_CORE: u64 = 8;

/// Lowest descriptor number that is reserved, i.e. unavailable to viewer and publisher connections.
static FIRST_RESERVED: AtomicI32 = AtomicI32::new(i32::MAX);

/// Returns true if the connection has one of the descriptors reserved for the admin listener,
/// hooks, pulls and files. The kernel assigns the lowest free number (POSIX.1-2017, section 2.14).
pub(crate) fn is_reserved(stream: &impl AsRawFd) -> bool {
    stream.as_raw_fd() >= FIRST_RESERVED.load(Ordering::Relaxed)
}

/// Returns the lowest reserved number: the last [`MISCELLANEOUS`] descriptors, at most a quarter of
/// all.
fn ceiling(granted: u64) -> i32 {
    i32::try_from(granted - MISCELLANEOUS.min(granted / 4)).unwrap_or(i32::MAX)
}

/// Raises the soft limit to the hard limit, and logs a warning if the configuration may need more.
pub(crate) fn raise(config: &Config, cores: usize) {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    let granted = if raised.is_ok() { hard } else { soft };
    FIRST_RESERVED.store(ceiling(granted), Ordering::Relaxed);
    if let Some(warning) = shortage(needed(config, cores), granted) {
        tracing::warn!("{warning}");
    }
}

/// Returns the maximum number of descriptors under this configuration.
fn needed(config: &Config, cores: usize) -> u64 {
    let addresses = config.server.listen.len() as u64;
    let rtmp = config
        .rtmp
        .listen
        .as_ref()
        .or(config.rtmp.tls_listen.as_ref())
        .map_or(0, |_| config.rtmp.max_connections);
    // An HLS upstream may serve a playlist and a segment at the same time.
    let pulls = if config.pull.is_empty() { 0 } else { 2 * u64::from(config.live.max_streams) };
    let streams = |rule: &config::Push| match rule.stream.ends_with('*') {
        true => u64::from(config.live.max_streams),
        false => 1,
    };
    let pushes: u64 = config.push.iter().map(streams).sum();
    let threads = cores as u64 * (PER_CORE + 2 * addresses);
    u64::from(config.tcp.max_connections)
        + u64::from(rtmp)
        + pulls
        + pushes
        + threads
        + MISCELLANEOUS
}

fn shortage(needed: u64, granted: u64) -> Option<String> {
    (granted < needed).then(|| {
        format!(
            "{granted} file descriptors are too few: [tcp] max_connections, [rtmp] \
             max_connections and [live] max_streams allow for {needed}; raise the hard limit \
             (ulimit -Hn, LimitNOFILE=)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_descriptors_follow_the_connection_limits() {
        let mut config = Config::default();
        config.tcp.max_connections = 1_000;
        let least = needed(&config, 1);
        assert!(least > 1_000 && least < 2_000, "{least}");
        config.rtmp.listen = Some(vec![([127, 0, 0, 1], 1935).into()]);
        config.rtmp.max_connections = 700;
        assert_eq!(needed(&config, 1), least + 700);
        config.pull.push(config::Pull::default());
        config.live.max_streams = 10;
        assert_eq!(needed(&config, 1), least + 720);
        assert!(needed(&config, 64) > needed(&config, 1));
    }

    #[test]
    fn last_descriptors_are_reserved() {
        for (granted, expected) in [(1_024, 768), (4_096, 3_584), (u64::MAX, i32::MAX), (0, 0)] {
            assert_eq!(ceiling(granted), expected, "{granted}");
        }
    }

    #[test]
    fn shortage_warning_states_both_numbers() {
        assert_eq!(shortage(1_024, 1_024), None);
        let warning = shortage(17_000, 1_024).expect("too few");
        assert!(warning.contains("1024") && warning.contains("17000"), "{warning}");
    }
}
