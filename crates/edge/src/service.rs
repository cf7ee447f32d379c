//! Notifications to the service manager: ready, reloading, stopping, watchdog. The protocol is
//! systemd's (sd_notify(3)): datagrams with lines `NAME=VALUE` to the socket in `NOTIFY_SOCKET`.
//! Without that variable, nothing is sent.
//!
//! The main thread sends `WATCHDOG=1` as often as `WATCHDOG_USEC` requires, while no serving thread
//! is stuck. So the watchdog covers all threads except the supervisor.

use core::pin::pin;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::loops::pulse::Pulse;
use crate::loops::supervisor::UNHEALTHY_AFTER;
use crate::state::Shared;

/// Timeout for a manager that does not read its socket.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// A notification to the service manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// Serving, after the start or a reload.
    Ready,
    /// Reloading the configuration.
    Reloading,
    /// Draining.
    Stopping,
    /// Watchdog ping.
    Alive,
}

impl Notice {
    const fn text(self) -> &'static str {
        match self {
            Self::Ready => "READY=1",
            Self::Reloading => "RELOADING=1",
            Self::Stopping => "STOPPING=1",
            Self::Alive => "WATCHDOG=1",
        }
    }
}

/// Notifies the service manager, if there is one. Logs failures.
pub(crate) fn notify(notice: Notice) {
    if let Some(name) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(e) = send(&name, notice)
    {
        tracing::warn!("service manager: {}: {e}", notice.text());
    }
}

/// Notifies the service manager from readiness to the end of the drain. Start it once all fronts
/// serve.
pub(crate) async fn run(shared: Arc<Shared>) {
    notify(Notice::Ready);
    let variable = |name| std::env::var(name).ok();
    let period = watchdog(
        variable("WATCHDOG_USEC").as_deref(),
        variable("WATCHDOG_PID").as_deref(),
        std::process::id(),
    );
    let live = async {
        let Some(period) = period else { return core::future::pending::<()>().await };
        loop {
            if is_alive(shared.pulses(), UNHEALTHY_AFTER) {
                notify(Notice::Alive);
            }
            sleep(period).await;
        }
    };
    let end = async {
        shared.drained().await;
        notify(Notice::Stopping);
        shared.finished().await;
    };
    let (mut live, mut end) = (pin!(live), pin!(end));
    tokio::select! {
        () = &mut live => {}
        () = &mut end => {}
    }
}

/// Returns the interval of watchdog pings for process `id`; `None` if disabled, or meant for
/// another process. A third of the manager's timeout, so that one missed ping is not fatal.
fn watchdog(microseconds: Option<&str>, of: Option<&str>, id: u32) -> Option<Duration> {
    let timeout = Duration::from_micros(microseconds?.parse().ok().filter(|&us| us > 0)?);
    let is_ours = of.is_none_or(|of| of.parse() == Ok(id));
    is_ours.then_some((timeout / 3).max(Duration::from_millis(1)))
}

/// Returns true if no running loop has been stuck for `limit`.
fn is_alive(pulses: &[Arc<Pulse>], limit: Duration) -> bool {
    pulses.iter().all(|pulse| pulse.silence() < limit)
}

fn send(name: &OsStr, notice: Notice) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    socket.send_to_addr(notice.text().as_bytes(), &address(name)?).map(drop)
}

/// Parses the address of the manager's socket: a path, or `@` and an abstract name (unix(7)).
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => {
            use std::os::linux::net::SocketAddrExt as _;
            SocketAddr::from_abstract_name(name)
        }
        _ => SocketAddr::from_pathname(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt as _;

    fn receive(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).expect("a notification");
        String::from_utf8(buffer[..length].to_vec()).expect("text")
    }

    #[test]
    fn sockets_have_a_path_or_an_abstract_name() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        send(path.as_os_str(), Notice::Ready).expect("sent");
        assert_eq!(receive(&socket), "READY=1");

        let name = format!("mendcast-test-{}", path.display());
        let own = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&own).expect("bound");
        send(OsStr::new(&format!("@{name}")), Notice::Stopping).expect("sent");
        assert_eq!(receive(&socket), "STOPPING=1");
    }

    #[test]
    fn an_unresponsive_or_missing_manager_does_not_block() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        // The kernel queues a bounded number of datagrams (net.unix.max_dgram_qlen).
        let full = (0..100_000).find_map(|_| send(path.as_os_str(), Notice::Alive).err());
        let kind = full.expect("a full queue").kind();
        assert!(matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{kind}");
        drop(socket);
        assert!(send(path.as_os_str(), Notice::Alive).is_err(), "closed");
        assert!(send(OsStr::new(""), Notice::Alive).is_err(), "no name");
    }

    #[test]
    fn the_ping_interval_is_a_third_of_the_watchdog_timeout() {
        let period = |us, of| watchdog(us, of, 77);
        let third = Some(Duration::from_secs(10));
        assert_eq!(period(Some("30000000"), None), third);
        assert_eq!(period(Some("30000000"), Some("77")), third);
        assert_eq!(period(Some("30000000"), Some("78")), None, "another process");
        for none in [None, Some(""), Some("0"), Some("-1"), Some("soon")] {
            assert_eq!(period(none, None), None, "{none:?}");
        }
        assert_eq!(period(Some("1"), None), Some(Duration::from_millis(1)), "no busy loop");
    }

    #[test]
    fn one_stuck_loop_stops_the_watchdog_pings() {
        let pulses = ["quic-0", "tcp-0"].map(|name| Arc::new(Pulse::new(name.into())));
        let limit = Duration::from_millis(5);
        std::thread::sleep(limit);
        assert!(!is_alive(&pulses, limit));
        pulses[0].finish();
        assert!(!is_alive(&pulses, limit), "the other one is stuck");
        pulses[1].finish();
        assert!(is_alive(&pulses, limit), "finished loops do not count");
        let turning = [Arc::new(Pulse::new("quic-1".into()))];
        turning[0].begin(turning[0].now());
        assert!(is_alive(&turning, UNHEALTHY_AFTER));
    }
}
