//! The process that uses a port, if `/proc` shows it to this user.

use std::fs;
use std::path::Path;

/// Returns the inodes of sockets with the local port `port`, from a table in `/proc/net`.
fn inodes<'a>(table: &'a str, port: u16, is_udp: bool) -> impl Iterator<Item = &'a str> + 'a {
    let lines = table.lines().skip(1);
    lines.filter_map(move |line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
        let [_, local, _, state, _, _, _, _, _, inode] = fields[..] else { return None };
        let (_, found) = local.rsplit_once(':')?;
        let is_open = is_udp || state == LISTEN;
        (u16::from_str_radix(found, 16) == Ok(port) && is_open).then_some(inode)
    })
}

/// State of a listening socket in these tables.
const LISTEN: &str = "0A";

/// Process that uses a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    /// Another process of this program, so a running server.
    Server(u32),
    /// Name and process ID of another program.
    Other(String, u32),
    /// Not visible to this user.
    Unknown,
}

/// Finds the process that uses `port`.
pub(super) fn of(port: u16, is_udp: bool) -> Holder {
    let names = if is_udp { ["udp", "udp6"] } else { ["tcp", "tcp6"] };
    let tables = names.map(|name| fs::read_to_string(format!("/proc/net/{name}")));
    let tables: Vec<String> = tables.into_iter().filter_map(Result::ok).collect();
    let sockets: Vec<String> = tables
        .iter()
        .flat_map(|table| inodes(table, port, is_udp))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let Ok(processes) = fs::read_dir("/proc") else { return Holder::Unknown };
    for process in processes.filter_map(Result::ok) {
        let id = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        if let Some(id) = id.filter(|_| has_any(&process.path(), &sockets)) {
            let name = |path: &Path| fs::read_to_string(path.join("comm")).unwrap_or_default();
            let (own, name) = (name(Path::new("/proc/self")), name(&process.path()));
            return if name == own {
                Holder::Server(id)
            } else {
                Holder::Other(name.trim_end().to_owned(), id)
            };
        }
    }
    Holder::Unknown
}

/// Whether a process has one of these sockets open.
fn has_any(process: &Path, sockets: &[String]) -> bool {
    let open = fs::read_dir(process.join("fd"));
    open.into_iter().flatten().filter_map(Result::ok).any(|entry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        target.to_str().is_some_and(|target| sockets.iter().any(|socket| socket == target))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn finds_listening_processes_only() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        let client = std::net::TcpStream::connect(address).expect("connected");
        let own = Holder::Server(std::process::id());
        assert_eq!(of(address.port(), false), own);
        let port = client.local_addr().expect("bound").port();
        assert_eq!(of(port, false), Holder::Unknown, "connected");
        let udp = UdpSocket::bind("[::1]:0").expect("bound");
        assert_eq!(of(udp.local_addr().expect("bound").port(), true), own);
    }

    #[test]
    fn malformed_tables_have_no_inodes() {
        for table in ["", "head\n", "head\n 0: 0100007F:1F90", "head\n0: x 1 0A 2 3 4 5 6 7"] {
            assert_eq!(inodes(table, 8080, false).count(), 0, "{table}");
        }
        let line = "head\n0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 77 1";
        assert_eq!(inodes(line, 8080, false).collect::<Vec<_>>(), ["77"]);
    }
}
