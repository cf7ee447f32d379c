//! User groups and what their sessions may send: the table in force, which outlives every configuration, and how one
//! viewer's connection follows it. `mendcast autoplex` makes tables; docs/autoplex.md says when to use them.

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

/// What all event loops share.
#[derive(Debug, Default)]
pub struct AutoPlex {
    table: ArcSwapOption<Table>,
    /// By [`Arm`].
    sessions: [AtomicU64; Arm::ALL.len()],
    /// By [`Absent`]: sessions that should have had parameters when they began.
    absent: [AtomicU64; Absent::ALL.len()],
    /// Sessions that had no parameters because there is no table at all.
    without: AtomicU64,
    loads: AtomicU64,
    faults: AtomicU64,
    seen: Mutex<Seen>,
}

/// What was found where the table should be.
#[derive(Debug, Default, PartialEq, Eq)]
enum Seen {
    /// Nothing yet, or no file.
    #[default]
    Nothing,
    /// A file with this content, whatever it means.
    File(Stamp, Content),
    /// It cannot be read, for this reason.
    Unreadable(String),
}

/// SHA-256 of a file.
type Content = [u8; 32];

/// The state of a file by its directory entry. A write, or a changed time of modification, changes
/// `changed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// Whether the file changed so recently that a further change could have the same time.
    is_young: bool,
}

/// File systems tell times that are further apart.
const RESOLUTION: i64 = 3;

impl Stamp {
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
    /// The table in force.
    pub fn table(&self) -> Option<Arc<Table>> {
        self.table.load_full()
    }

    /// What the sessions of this address may send at most.
    fn parameters(&self, address: IpAddr) -> Option<Result<Parameters, Absent>> {
        let table = self.table.load();
        let found = table.as_ref()?.parameters(address, unix_now());
        Some(found.map(|(_, parameters)| *parameters))
    }

    /// Sessions by part.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.sessions.iter().map(|count| count.load(Ordering::Relaxed));
        Arm::ALL.into_iter().map(Arm::name).zip(counts)
    }

    /// Sessions that were to be held and were not, by the reason.
    pub(crate) fn absent(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.absent.iter().map(|count| count.load(Ordering::Relaxed));
        let none = ("no table", self.without.load(Ordering::Relaxed));
        Absent::ALL.into_iter().map(Absent::name).zip(counts).chain([none])
    }

    /// Tables that were put in force, and files that were none.
    pub(crate) fn tables(&self) -> [(&'static str, u64); 2] {
        [("loaded", &self.loads), ("refused", &self.faults)]
            .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    /// Looks whether the file is another one, and puts it in force then. One that is damaged changes nothing; without a
    /// file there is no table.
    pub(crate) fn look(&self, path: &Path) {
        let mut last = lock(&self.seen);
        let found = fs::metadata(path).map(|file| Stamp::of(&file));
        if let (Ok(stamp), Seen::File(known, _)) = (&found, &*last)
            && stamp == known
            && !stamp.is_young
        {
            return;
        }
        let read = found.and_then(|stamp| Ok((stamp, small::read(path, MAX_FILE)?)));
        let seen = match &read {
            Ok((stamp, bytes)) => {
                let mut content = Content::default();
                content.copy_from_slice(digest(&SHA256, bytes).as_ref());
                Seen::File(*stamp, content)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Seen::Nothing,
            Err(e) => Seen::Unreadable(e.to_string()),
        };
        let is_known = match (&seen, &*last) {
            (Seen::File(_, content), Seen::File(_, known)) => content == known,
            (seen, last) => seen == last,
        };
        if !is_known {
            match (&seen, read) {
                (Seen::Nothing, _) => {
                    self.table.store(None);
                    tracing::warn!("{}: gone; no user group has parameters", path.display());
                }
                (Seen::Unreadable(why), _) => self.refuse(path, why),
                (Seen::File(..), Ok((_, bytes))) => self.replace(path, &bytes),
                (Seen::File(..), Err(_)) => {}
            }
        }
        *last = seen;
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
        tracing::warn!("{}: {why}; the table in force stays", path.display());
    }

    /// There is no table to follow.
    pub(crate) fn drop_table(&self) {
        let mut last = lock(&self.seen);
        if *last != Seen::Nothing {
            (*last, _) = (Seen::Nothing, self.table.store(None));
        }
    }
}

/// How AutoPlex holds one connection, from its first session on.
#[derive(Debug)]
pub(crate) struct Hold {
    arm: Arm,
    capping: Capping,
    session: Weak<Session>,
}

impl Hold {
    /// The first session of a connection begins; `None` where AutoPlex is off. The address is validated.
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
        session.on_held(|held| held.arm = Some(arm));
        let found = all.parameters(address);
        if arm == Arm::Treated && config.mode != Mode::Demand {
            match &found {
                None => _ = all.without.fetch_add(1, Ordering::Relaxed),
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

    /// Whether [`Hold::look`] would do something now.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.arm == Arm::Treated && self.capping.is_due(now)
    }

    /// Follows the table, the viewer's address, and what the stream needs.
    pub(crate) fn look(
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
            session.on_held(|held| held.cap = Some(rate));
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
    fn a_table_is_in_force_until_another_one_or_its_time_or_its_files_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("table.groups");
        let all = AutoPlex::default();
        let put = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("written");
            all.look(&path);
        };
        all.look(&path);
        assert_eq!(rate(&all, 2), None);
        put(&table(unix_now(), 3).encode());
        assert_eq!(rate(&all, 2), Some(Ok(Rate::from_mbps(3))));
        assert_eq!(rate(&all, 3), Some(Err(Absent::Unknown)));
        // Cut off, no table, empty, of the future: none of them is taken for one.
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
        all.look(&path);
        assert_eq!(rate(&all, 2), None);
    }

    #[test]
    fn another_table_of_the_same_length_and_time_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("table.groups");
        let all = AutoPlex::default();
        let issued = unix_now();
        for mbps in [3, 4, 5] {
            fs::write(&path, table(issued, mbps).encode()).expect("written");
            let file = fs::File::options().write(true).open(&path).expect("opened");
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("set");
            all.look(&path);
            assert_eq!(rate(&all, 2), Some(Ok(Rate::from_mbps(mbps))));
            all.look(&path);
        }
        assert_eq!(all.tables(), [("loaded", 3), ("refused", 0)], "each once");
    }

    #[test]
    fn what_is_no_file_holds_nobody_up() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("table.groups");
        let all = AutoPlex::default();
        fs::write(&path, table(unix_now(), 3).encode()).expect("written");
        all.look(&path);
        fs::remove_file(&path).expect("removed");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("run");
        assert!(made.success());
        all.look(&path);
        all.look(&path);
        all.look(dir.path());
        assert_eq!(rate(&all, 2), Some(Ok(Rate::from_mbps(3))), "the table in force stays");
        // Both are refused for the same reason, which is told once.
        assert_eq!(all.tables(), [("loaded", 1), ("refused", 1)]);
    }
}
