//! Caps on user groups: the active table, which reloads keep, and its application to connections.
//! `mendcast autoplex` computes tables; see docs/operate/autoplex.md.

use std::fs::{self, Metadata};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ::quic::Connection;
use arc_swap::ArcSwapOption;
use aws_lc_rs::digest::{SHA256, digest};
use delivery::{Capping, Playing};
use groups::{Absent, Arm, Limits, MAX_FILE, Mode, Parameters, Shares, Table};
use units::Timestamp;

use crate::clock::unix_now;
use crate::config;
use crate::disk::small;
use crate::sessions::Session;
use crate::sync::lock;
use crate::viewer::Unit;

/// AutoPlex state shared by all event loops.
#[derive(Debug, Default)]
pub struct AutoPlex {
    table: ArcSwapOption<Table>,
    /// Sessions by [`Arm`].
    sessions: [AtomicU64; Arm::ALL.len()],
    /// Treated sessions without parameters, by [`Absent`].
    absent: [AtomicU64; Absent::ALL.len()],
    /// Treated sessions without a table.
    without_table: AtomicU64,
    loads: AtomicU64,
    faults: AtomicU64,
    last_read: Mutex<LastRead>,
}

/// Result of the last look at the table's file.
#[derive(Debug, Default, PartialEq, Eq)]
enum LastRead {
    /// No file.
    #[default]
    Nothing,
    /// A file with this content, valid or not.
    File(FileStamp, FileHash),
    /// An unreadable file, with the reason.
    Unreadable(String),
}

/// SHA-256 of a file.
type FileHash = [u8; 32];

/// Metadata of a file. Any write or change of the modification time changes `changed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// Whether a further change could have the same time.
    is_young: bool,
}

/// Upper bound of the time resolution of file systems, in seconds.
const RESOLUTION: i64 = 3;

impl FileStamp {
    fn of(file: &Metadata) -> Self {
        Self {
            inode: file.ino(),
            length: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
            is_young: (unix_now() as i64).saturating_sub(file.ctime()) < RESOLUTION,
        }
    }
}

impl AutoPlex {
    /// Returns the active table.
    pub fn table(&self) -> Option<Arc<Table>> {
        self.table.load_full()
    }

    /// Returns the parameters for the address; the outer `None` without a table.
    fn parameters(&self, address: IpAddr) -> Option<Result<Parameters, Absent>> {
        let table = self.table.load();
        let found = table.as_ref()?.parameters(address, unix_now());
        Some(found.map(|(_, parameters)| *parameters))
    }

    /// Returns the number of sessions by arm.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.sessions.iter().map(|count| count.load(Ordering::Relaxed));
        Arm::ALL.into_iter().map(Arm::name).zip(counts)
    }

    /// Returns the number of treated sessions without a cap, by reason.
    pub(crate) fn absent(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.absent.iter().map(|count| count.load(Ordering::Relaxed));
        let none = ("no table", self.without_table.load(Ordering::Relaxed));
        Absent::ALL.into_iter().map(Absent::name).zip(counts).chain([none])
    }

    /// Returns the number of activated tables, and of invalid files.
    pub(crate) fn tables(&self) -> [(&'static str, u64); 2] {
        [("loaded", &self.loads), ("refused", &self.faults)]
            .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    /// Activates the table if its file has changed. An invalid file changes nothing; a missing file
    /// deactivates the table.
    pub(crate) fn poll_file(&self, path: &Path) {
        let mut last = lock(&self.last_read);
        let found = fs::metadata(path).map(|file| FileStamp::of(&file));
        if let (Ok(stamp), LastRead::File(known, _)) = (&found, &*last)
            && stamp == known
            && !stamp.is_young
        {
            return;
        }
        let read = found.and_then(|stamp| Ok((stamp, small::read(path, MAX_FILE)?)));
        let current = match &read {
            Ok((stamp, bytes)) => {
                let mut content = FileHash::default();
                content.copy_from_slice(digest(&SHA256, bytes).as_ref());
                LastRead::File(*stamp, content)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => LastRead::Nothing,
            Err(e) => LastRead::Unreadable(e.to_string()),
        };
        let is_known = match (&current, &*last) {
            (LastRead::File(_, content), LastRead::File(_, known)) => content == known,
            (current, last) => current == last,
        };
        if !is_known {
            match (&current, read) {
                (LastRead::Nothing, _) => {
                    self.table.store(None);
                    tracing::warn!("{}: removed; no user group has parameters", path.display());
                }
                (LastRead::Unreadable(why), _) => self.refuse(path, why),
                (LastRead::File(..), Ok((_, bytes))) => self.replace(path, &bytes),
                (LastRead::File(..), Err(_)) => {}
            }
        }
        *last = current;
    }

    fn replace(&self, path: &Path, bytes: &[u8]) {
        match Table::decode(bytes) {
            Err(e) => self.refuse(path, &e.to_string()),
            Ok(table) => {
                let (groups, ranges) = (table.groups().len(), table.ranges());
                self.table.store(Some(Arc::new(table)));
                self.loads.fetch_add(1, Ordering::Relaxed);
                tracing::info!("{}: {groups} user groups, {ranges} ranges", path.display());
            }
        }
    }

    fn refuse(&self, path: &Path, why: &str) {
        self.faults.fetch_add(1, Ordering::Relaxed);
        tracing::warn!("{}: {why}; the active table stays", path.display());
    }

    /// Deactivates the table, if none is configured.
    pub(crate) fn drop_table(&self) {
        let mut last = lock(&self.last_read);
        if *last != LastRead::Nothing {
            (*last, _) = (LastRead::Nothing, self.table.store(None));
        }
    }
}

/// The cap on one connection, from its first session on.
#[derive(Debug)]
pub(crate) struct ConnectionCap {
    arm: Arm,
    capping: Capping,
    session: Weak<Session>,
}

impl ConnectionCap {
    /// Assigns the first session of a connection with a validated address to an arm; `None` if
    /// AutoPlex is off.
    pub(crate) fn begin(
        all: &AutoPlex,
        config: &config::AutoPlex,
        address: IpAddr,
        unit: Unit,
        session: &Arc<Session>,
    ) -> Option<Self> {
        if config.mode == Mode::Off {
            return None;
        }
        let table = all.table.load();
        let group = table.as_ref().and_then(|table| {
            let id = table.group_of(address)?;
            Some(&*table.group(id)?.name)
        });
        let shares = Shares {
            explorers: config.explorers,
            holdout: config.holdout,
            control: config.control,
        };
        let period = unix_now() / config.period.as_secs().max(1);
        let arm = shares.arm(&config.salt, unit.0, group.unwrap_or_default(), period);
        all.sessions[arm as usize].fetch_add(1, Ordering::Relaxed);
        session.on_autoplex(|columns| columns.arm = Some(arm));
        let found = all.parameters(address);
        if arm == Arm::Treated && config.mode != Mode::Demand {
            match &found {
                None => _ = all.without_table.fetch_add(1, Ordering::Relaxed),
                Some(Err(why)) => {
                    _ = all.absent[*why as usize].fetch_add(1, Ordering::Relaxed);
                }
                Some(Ok(_)) => {}
            }
        }
        let (floor, ceiling, behind) = (config.floor, config.ceiling, config.behind);
        let limits = Limits { floor, ceiling, behind };
        let capping = Capping::new(config.mode, limits);
        Some(Self { arm, capping, session: Arc::downgrade(session) })
    }

    /// Returns true if [`ConnectionCap::update`] is due.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.arm == Arm::Treated && self.capping.is_due(now)
    }

    /// Updates the cap from the table, the client's address, and the stream's demand.
    pub(crate) fn update(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        all: &AutoPlex,
        playing: Playing,
    ) {
        let address = connection.addresses().remote.ip();
        let found = all.parameters(address).and_then(Result::ok);
        self.capping.update(now, connection, found, playing);
        if let (Some(session), Some(rate)) = (self.session.upgrade(), self.capping.min_rate()) {
            session.on_autoplex(|columns| columns.cap = Some(rate));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use groups::{Group, TableBuilder, Times};
    use units::Rate;

    fn table(issued: u64, mbps: u64) -> Table {
        let times = Times { issued, lifetime: Duration::from_secs(7_200) };
        let mut building = TableBuilder::new(times);
        let parameters = Parameters {
            rate: Rate::from_mbps(mbps),
            in_flight: 50_000,
            sessions: 300,
            decided: issued,
        };
        let (name, parent) = ("BR/AS1".into(), None);
        let parameters = Some(parameters);
        let group = building.group(Group { name, parent, parameters, is_off: false });
        building.v4([192, 0, 2, 0].into(), [192, 0, 2, 255].into(), group);
        building.finish().expect("one range")
    }

    fn rate(all: &AutoPlex, last: u8) -> Option<Result<Rate, Absent>> {
        let found = all.parameters([192, 0, last, 1].into())?;
        Some(found.map(|parameters| parameters.rate))
    }

    #[test]
    fn a_table_is_active_until_replaced_expired_or_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("table.groups");
        let all = AutoPlex::default();
        let put = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("written");
            all.poll_file(&path);
        };
        all.poll_file(&path);
        assert_eq!(rate(&all, 2), None);
        put(&table(unix_now(), 3).encode());
        assert_eq!(rate(&all, 2), Some(Ok(Rate::from_mbps(3))));
        assert_eq!(rate(&all, 3), Some(Err(Absent::Unknown)));
        // Truncated, header only, empty, and a few bytes: all are rejected.
        let good = table(unix_now(), 4).encode();
        for bad in [&good[..good.len() - 1], b"MCGROUPS", b"", &good[..5]] {
            put(bad);
            assert_eq!(rate(&all, 2), Some(Ok(Rate::from_mbps(3))), "{} bytes", bad.len());
        }
        assert_eq!(all.tables(), [("loaded", 1), ("refused", 4)]);
        put(&good);
        assert_eq!(rate(&all, 2), Some(Ok(Rate::from_mbps(4))));
        put(&table(unix_now() + 600, 5).encode());
        assert_eq!(rate(&all, 2), Some(Err(Absent::Future)));
        put(&table(unix_now() - 7_300, 5).encode());
        assert_eq!(rate(&all, 2), Some(Err(Absent::Expired)));
        fs::remove_file(&path).expect("there");
        all.poll_file(&path);
        assert_eq!(rate(&all, 2), None);
    }

    #[test]
    fn a_new_table_of_equal_length_and_time_is_detected() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("table.groups");
        let all = AutoPlex::default();
        let issued = unix_now();
        for mbps in [3, 4, 5] {
            fs::write(&path, table(issued, mbps).encode()).expect("written");
            let file = fs::File::options().write(true).open(&path).expect("opened");
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("set");
            all.poll_file(&path);
            assert_eq!(rate(&all, 2), Some(Ok(Rate::from_mbps(mbps))));
            all.poll_file(&path);
        }
        assert_eq!(all.tables(), [("loaded", 3), ("refused", 0)], "each loaded once");
    }

    #[test]
    fn pipes_and_directories_do_not_block() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("table.groups");
        let all = AutoPlex::default();
        fs::write(&path, table(unix_now(), 3).encode()).expect("written");
        all.poll_file(&path);
        fs::remove_file(&path).expect("removed");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("run");
        assert!(made.success());
        all.poll_file(&path);
        all.poll_file(&path);
        all.poll_file(dir.path());
        assert_eq!(rate(&all, 2), Some(Ok(Rate::from_mbps(3))), "the active table stays");
        // Both have the same reason, which is reported once.
        assert_eq!(all.tables(), [("loaded", 1), ("refused", 1)]);
    }
}
