//! Linux: the socket options of tcp(7) and socket(7).

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::time::Duration;

use nix::libc;
use nix::sys::socket::sockopt::{GetStruct, SetStruct, TcpCongestion};
use nix::sys::socket::{getsockopt, setsockopt};

use super::counts::TcpCounts;

/// A pacing rate above any link, in bytes/s. Any value but the kernel's default turns pacing on.
const PACING_RATE: u64 = 100_000_000_000 / 8;
/// First kernel version that fills all of [`Info`].
const MIN_VERSION: (u32, u32) = (4, 19);

#[derive(Clone, Copy, Debug)]
struct MaxPacingRate;
nix::setsockopt_impl!(
    MaxPacingRate,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u64,
    SetStruct<u64>
);

/// The part of `struct tcp_info` that kernels since [`MIN_VERSION`] fill.
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

/// Whether the kernel fills all of [`Info`]; `nix` panics otherwise.
static FILLS_ALL: LazyLock<bool> = LazyLock::new(|| {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= MIN_VERSION
});

pub(super) fn counts(socket: &impl AsFd) -> Option<TcpCounts> {
    let info = FILLS_ALL.then(|| getsockopt(socket, TcpInfo).ok())??;
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
