//! Process statistics of the operating system: CPU time, memory, and datagrams dropped at full
//! socket buffers. Zero on systems other than Linux, or if `/proc` is hidden.

use std::time::Duration;

/// Resource usage since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// CPU time of all threads.
    pub cpu: Duration,
    /// Resident memory, in bytes.
    pub resident: u64,
}

/// Clock ticks per second in `/proc`, constant on all architectures of Linux.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn usage() -> Usage {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_usage(&stat, &status).unwrap_or_default()
}

fn parse_usage(stat: &str, status: &str) -> Option<Usage> {
    // proc(5): the name, in parentheses, is arbitrary; utime and stime are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    let cpu = Duration::from_secs_f64((ticks()? + ticks()?) / TICKS_PER_SECOND);
    // In kB, independent of the page size.
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let resident = resident.split_whitespace().next()?.parse::<u64>().ok()? << 10;
    Some(Usage { cpu, resident })
}

/// Returns the datagrams for our UDP ports that were dropped at full socket buffers.
pub(super) fn udp_drops(ports: &[u16]) -> u64 {
    ["/proc/self/net/udp", "/proc/self/net/udp6"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .map(|table| parse_drops(&table, ports))
        .sum()
}

fn parse_drops(table: &str, ports: &[u16]) -> u64 {
    let drops = |line: &str| -> Option<u64> {
        let mut fields = line.split_whitespace();
        let (_, port) = fields.nth(1)?.rsplit_once(':')?;
        let ours = ports.contains(&u16::from_str_radix(port, 16).ok()?);
        let dropped = fields.next_back()?.parse().ok()?;
        ours.then_some(dropped)
    };
    table.lines().skip(1).filter_map(drops).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_tables_are_parsed() {
        let stat = "77 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 5 0 1 2 3";
        let usage = parse_usage(stat, "VmHWM:\t 9 kB\nVmRSS:\t    100 kB\n");
        let expected = Usage { cpu: Duration::from_secs(3), resident: 102_400 };
        assert_eq!(usage, Some(expected));
        assert_eq!(parse_usage("", ""), None);
        let table = "  sl  local_address rem_address   st drops\n\
            1: 00000000:1151 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 1 2 f 12\n\
            2: 0100007F:1152 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 1 2 f 7\n";
        assert_eq!(parse_drops(table, &[0x1151]), 12);
        assert_eq!(parse_drops(table, &[0x1151, 0x1152]), 19);
        assert!(super::usage().resident > 0);
    }
}
