//! What the process tells its service manager: that it serves, reloads, lives and ends. The protocol is
//! systemd's (sd_notify(3)): datagrams of lines `NAME=VALUE` to the socket that `NOTIFY_SOCKET` names.
//! Without that variable nothing is told.
//!
//! The sign of life (`WATCHDOG=1`, as often as `WATCHDOG_USEC` asks for it) comes from the thread of RTMP,
//! pulls and hooks, and only while every thread that serves viewers has its turns. So all threads stand
//! behind it, that of the supervisor's own excepted.

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

/// How long a manager that reads nothing may hold its caller up.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a service manager may be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// It serves; also after a reload.
    Ready,
    /// It reads its configuration again.
    Reloading,
    /// It drains.
    Stopping,
    /// It lives.
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

/// Tells the service manager, if there is one. If it cannot be told, the log says so, and the server
/// goes on.
pub(crate) fn tell(notice: Notice) {
    if let Some(name) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(e) = send(&name, notice)
    {
        tracing::warn!("service manager: {}: {e}", notice.text());
    }
}

/// Tells the service manager of the process's life from here to the end of its drain. To be started
/// when everything serves.
pub(crate) async fn attend(shared: Arc<Shared>) {
    tell(Notice::Ready);
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
                tell(Notice::Alive);
            }
            sleep(period).await;
        }
    };
    let end = async {
        shared.drained().await;
        tell(Notice::Stopping);
        shared.finished().await;
    };
    let (mut live, mut end) = (pin!(live), pin!(end));
    tokio::select! {
        () = &mut live => {}
        () = &mut end => {}
    }
}

/// How often the manager of the process `id` is to be told that it lives; `None` if it does not ask
/// for it, or asks another process. A third of its patience, so that one look that finds a slow turn
/// is not the end.
fn watchdog(microseconds: Option<&str>, of: Option<&str>, id: u32) -> Option<Duration> {
    let patience = Duration::from_micros(microseconds?.parse().ok().filter(|&us| us > 0)?);
    let is_ours = of.is_none_or(|of| of.parse() == Ok(id));
    is_ours.then_some((patience / 3).max(Duration::from_millis(1)))
}

/// Whether each loop began a turn within this time, or is over.
fn is_alive(pulses: &[Arc<Pulse>], limit: Duration) -> bool {
    pulses.iter().all(|pulse| pulse.silence() < limit)
}

fn send(name: &OsStr, notice: Notice) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.send_to_addr(notice.text().as_bytes(), &address(name)?).map(drop)
}

/// The address of a manager's socket: a path, or `@` and an abstract name (unix(7)).
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
        let length = socket.recv(&mut buffer).expect("told");
        String::from_utf8(buffer[..length].to_vec()).expect("text")
    }

    #[test]
    fn a_manager_is_told_at_a_path_and_at_an_abstract_name() {
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
    fn a_manager_that_reads_nothing_or_is_gone_holds_nobody_up() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        // The kernel keeps a bounded number of datagrams (net.unix.max_dgram_qlen).
        let full = (0..100_000).find_map(|_| send(path.as_os_str(), Notice::Alive).err());
        let kind = full.expect("full at some time").kind();
        assert!(matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{kind}");
        drop(socket);
        assert!(send(path.as_os_str(), Notice::Alive).is_err(), "gone");
        assert!(send(OsStr::new(""), Notice::Alive).is_err(), "no name");
    }

    #[test]
    fn the_watchdog_is_told_three_times_as_often_as_it_asks() {
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
    fn one_silent_loop_is_enough_to_seem_dead() {
        let pulses = ["quic-0", "tcp-0"].map(|name| Arc::new(Pulse::new(name.into())));
        let limit = Duration::from_millis(5);
        std::thread::sleep(limit);
        assert!(!is_alive(&pulses, limit));
        pulses[0].finish();
        assert!(!is_alive(&pulses, limit), "the other one is silent");
        pulses[1].finish();
        assert!(is_alive(&pulses, limit), "those that are over say nothing");
        let turning = [Arc::new(Pulse::new("quic-1".into()))];
        turning[0].begin(turning[0].now());
        assert!(is_alive(&turning, UNHEALTHY_AFTER));
    }
}
