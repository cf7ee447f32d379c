//! Linux: the socket options of tcp(7) and socket(7).

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::Duration;

use nix::libc;
use nix::sys::socket::sockopt::{GetStruct, SetStruct, TcpCongestion};
use nix::sys::socket::{GetSockOpt, getsockopt, setsockopt};
use tracing::subscriber::{NoSubscriber, with_default};

use super::counts::TcpCounts;

/// A pacing rate above any link, in bytes/s. Any value but the kernel's default turns pacing on.
const PACING_RATE: u64 = 100_000_000_000 / 8;

#[derive(Clone, Copy, Debug)]
struct MaxPacingRate;
nix::setsockopt_impl!(
    MaxPacingRate,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u64,
    SetStruct<u64>
);

/// The part of `struct tcp_info` that Linux 4.19 and later fill.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Info {
    states: [u8; 8],
    /// From `tcpi_rto` to `tcpi_rcv_ssthresh`.
    timers: [u32; 15],
    rtt: u32,
    rtt_variation: u32,
    windows: [u32; 4],
    receiver: [u32; 2],
    total_retransmitted: u32,
    pacing: [u64; 2],
    acked_and_received: [u64; 2],
    segments: [u32; 2],
    unsent: u32,
    min_rtt: u32,
    data_in: u32,
    data_out: u32,
    delivery_rate: u64,
    busy: [u64; 3],
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retransmitted: u64,
    dsack: u32,
    reordered: u32,
}

#[derive(Clone, Copy, Debug)]
struct TcpInfo;
nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, Info, GetStruct<Info>);

pub(super) fn set_congestion(socket: &impl AsFd, name: &str) -> io::Result<()> {
    Ok(setsockopt(socket, TcpCongestion, &OsString::from(name))?)
}

pub(super) fn congestion(socket: &impl AsFd) -> String {
    let name = getsockopt(socket, TcpCongestion).unwrap_or_default();
    name.to_string_lossy().trim_end_matches('\0').to_owned()
}

pub(super) fn pace(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, MaxPacingRate, &PACING_RATE)?)
}

/// Returns whether the kernel has `option` and fills all of its value. Otherwise `nix` panics:
/// older kernels, gVisor and emulators fill less.
fn is_filled<O: GetSockOpt + Copy>(socket: &impl AsFd, option: O) -> bool {
    let read = AssertUnwindSafe(|| getsockopt(socket, option).is_ok());
    // The panic is an answer here, not a fault to be logged.
    with_default(NoSubscriber::new(), || catch_unwind(read)).unwrap_or(false)
}

pub(super) fn counts(socket: &impl AsFd) -> Option<TcpCounts> {
    static HAS_COUNTS: OnceLock<bool> = OnceLock::new();
    let has_counts = *HAS_COUNTS.get_or_init(|| {
        let has_counts = is_filled(socket, TcpInfo);
        if !has_counts {
            tracing::warn!("no statistics of viewers on TCP: the kernel's TCP_INFO lacks some");
        }
        has_counts
    });
    let info = has_counts.then(|| getsockopt(socket, TcpInfo).ok())??;
    let micros = |micros: u32| Duration::from_micros(micros.into());
    Some(TcpCounts {
        rtt: micros(info.rtt),
        // Without a sample the kernel reports the largest number.
        rtt_min: micros(info.min_rtt.min(info.rtt)),
        sent: info.data_out.into(),
        sent_bytes: info.bytes_sent,
        retransmitted: info.total_retransmitted.into(),
        retransmitted_bytes: info.bytes_retransmitted,
        spurious: info.dsack.into(),
        delivered: info.delivered.into(),
        delivery_rate: info.delivery_rate.saturating_mul(8),
        latest_rate: info.delivery_rate.saturating_mul(8),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A value that is larger than any kernel's.
    #[derive(Clone, Copy, Debug)]
    struct LargerInfo;
    nix::getsockopt_impl!(
        LargerInfo,
        libc::IPPROTO_TCP,
        libc::TCP_INFO,
        [u64; 1 << 10],
        GetStruct<[u64; 1 << 10]>
    );

    /// An option that no kernel has.
    #[derive(Clone, Copy, Debug)]
    struct Unknown;
    nix::getsockopt_impl!(Unknown, libc::IPPROTO_TCP, i32::MAX, Info, GetStruct<Info>);

    #[test]
    fn statistics_that_a_kernel_lacks_are_no_fault() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_filled(&socket, TcpInfo), "these tests need Linux 4.19");
        assert!(!is_filled(&socket, LargerInfo));
        assert!(!is_filled(&socket, Unknown));
    }

    #[test]
    fn field_offsets_match_the_kernel() {
        assert_eq!(
            core::mem::offset_of!(Info, rtt),
            core::mem::offset_of!(libc::tcp_info, tcpi_rtt)
        );
        assert_eq!(
            core::mem::offset_of!(Info, total_retransmitted),
            core::mem::offset_of!(libc::tcp_info, tcpi_total_retrans)
        );
        assert_eq!(
            core::mem::offset_of!(Info, min_rtt),
            core::mem::offset_of!(libc::tcp_info, tcpi_min_rtt)
        );
        assert_eq!(
            core::mem::offset_of!(Info, delivery_rate),
            core::mem::offset_of!(libc::tcp_info, tcpi_delivery_rate)
        );
        assert_eq!(
            core::mem::offset_of!(Info, bytes_retransmitted),
            core::mem::offset_of!(libc::tcp_info, tcpi_bytes_retrans)
        );
        assert_eq!(
            core::mem::offset_of!(Info, reordered),
            core::mem::offset_of!(libc::tcp_info, tcpi_reord_seen)
        );
    }
}
