//! Checks of the paths that a server writes to, by the permissions of the current user. Nothing is
//! created.

use core::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use groups::{FileError, MAX_FILE, Table};
use nix::unistd::{AccessFlags, Uid, access};

use crate::config::{Config, StoreScheme, StoreUrl};
use crate::disk::small;
use crate::finding::Finding;

/// Locations of the service's unit file.
const UNITS: [&str; 4] = [
    "/etc/systemd/system/mendcast.service",
    "/run/systemd/system/mendcast.service",
    "/usr/local/lib/systemd/system/mendcast.service",
    "/usr/lib/systemd/system/mendcast.service",
];

/// Reason why a path cannot be used.
#[derive(Debug)]
enum PathFault {
    /// The path is of the wrong kind. Contains the message, such as "a directory; expected a file".
    Kind(&'static str),
    /// A directory cannot be used.
    Directory(io::Error),
    /// A file cannot be opened.
    File(io::Error),
    /// The path does not exist, and its parent does not allow to create it.
    Create(Box<Self>),
    /// A parent is not a directory.
    NotADirectory(PathBuf),
    /// A parent cannot be used.
    Parent(PathBuf, io::Error),
    /// The current user may not write.
    Permission(PathBuf, io::Error),
    /// The table of user groups cannot be read.
    Unreadable(io::Error),
    /// The table of user groups is invalid.
    Table(FileError),
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(what) => f.write_str(what),
            Self::Directory(why) => write!(f, "cannot be used: {why}"),
            Self::File(why) => write!(f, "cannot be opened: {why}"),
            Self::Create(why) => write!(f, "cannot be created: {why}"),
            Self::NotADirectory(parent) => write!(f, "{} is not a directory", parent.display()),
            Self::Parent(parent, why) => write!(f, "{}: {why}", parent.display()),
            Self::Permission(path, why) => {
                write!(f, "user {} cannot write to {}: {why}", Uid::effective(), path.display())
            }
            Self::Unreadable(why) => why.fmt(f),
            Self::Table(why) => why.fmt(f),
        }
    }
}

impl PathFault {
    /// Turns the fault of a parent into the fault of a path to create.
    fn create(parent: Self) -> Self {
        Self::Create(Box::new(parent))
    }
}

/// Finds paths that the server could not write to, and an invalid table of user groups.
pub(super) fn check(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut output_paths = 0;
    let qlog = config.quic.qlog_dir.as_ref().filter(|_| config.quic.qlog_sample > 0.0);
    let acme = config.acme.domains.as_ref().map(|_| &config.acme.directory);
    let directories = [
        ("[records] directory", config.records.directory.as_ref()),
        ("[quic] qlog_dir", qlog),
        ("[acme] directory", acme),
    ];
    let recordings =
        config.record.iter().map(|rule| ("[[record]] directory", rule.directory.as_ref()));
    let shared = shared_folders(config);
    let shared = shared.iter().map(|(key, path)| (*key, Some(path)));
    for (key, path) in directories.into_iter().chain(recordings).chain(shared) {
        let Some(path) = path else { continue };
        output_paths += 1;
        let fault = directory(path).err();
        findings.extend(fault.map(|what| Finding::error(key, path.display(), what)));
    }
    let files = [
        ("[log] connections", config.log.connections.as_ref()),
        ("[quic] key_log", config.quic.key_log.as_ref()),
    ];
    for (key, path) in files {
        let Some(path) = path else { continue };
        output_paths += 1;
        let fault = file(path).err();
        findings.extend(fault.map(|what| Finding::error(key, path.display(), what)));
    }
    let user = UNITS.iter().find_map(|unit| user_of(&fs::read_to_string(unit).ok()?));
    if output_paths > 0
        && Uid::effective().is_root()
        && let Some(user) = user.filter(|user| user != "root" && user != "0")
    {
        let what = "the check runs as root, who may write anywhere; run it as this user";
        findings.push(Finding::warning("User of mendcast.service", user, what));
    }
    if let Some(path) = &config.autoplex.table
        && let Err(what) = table(path)
    {
        let what = format!("{what}; without a table, user groups have no caps");
        findings.push(Finding::warning("[autoplex] table", path.display(), what));
    }
    findings
}

/// Returns the directories that recordings and session records are uploaded to.
fn shared_folders(config: &Config) -> Vec<(&'static str, PathBuf)> {
    let recordings = config.record.iter().map(|rule| ("[[record]] upload", rule.upload.as_ref()));
    let all = recordings.chain([("[records] upload", config.records.upload.as_ref())]);
    let folder = |(key, url): (&'static str, Option<&StoreUrl>)| {
        let url = url.filter(|url| url.scheme() == StoreScheme::File)?;
        Some((key, PathBuf::from(url.path())))
    };
    all.filter_map(folder).collect()
}

/// Whether files can be created in a directory, which may have to be created itself.
fn directory(path: &Path) -> Result<(), PathFault> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => writable(path),
        Ok(_) => Err(PathFault::Kind("not a directory; expected one, or an unused path")),
        Err(e) if e.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
            // The nearest parent that exists decides.
            let parents = path.ancestors().skip(1);
            let parent =
                parents.map(or_current).find(|parent| fs::symlink_metadata(parent).is_ok());
            let parent = parent.unwrap_or_else(|| PathBuf::from("."));
            match fs::metadata(&parent) {
                Ok(found) if found.is_dir() => writable(&parent).map_err(PathFault::create),
                _ => Err(PathFault::create(PathFault::NotADirectory(parent))),
            }
        }
        Err(e) => Err(PathFault::Directory(e)),
    }
}

/// Whether a file can be appended to, or created in an existing directory.
fn file(path: &Path) -> Result<(), PathFault> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(PathFault::Kind("a directory; expected a file")),
        // Opening a pipe would block until it has a reader.
        Ok(_) if is_pipe(path) => Err(PathFault::Kind("a pipe or socket; expected a file")),
        Ok(_) => may(path, AccessFlags::W_OK),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // Opening a dangling link creates its target.
            let target = fs::read_link(path).map_or_else(
                |_| path.to_owned(),
                |target| or_current(path.parent().unwrap_or(Path::new(""))).join(target),
            );
            let parent = or_current(target.parent().unwrap_or(Path::new("")));
            let created = match fs::metadata(&parent) {
                Ok(found) if found.is_dir() => writable(&parent),
                Ok(_) => Err(PathFault::NotADirectory(parent)),
                Err(e) => Err(PathFault::Parent(parent, e)),
            };
            created.map_err(PathFault::create)
        }
        Err(e) => Err(PathFault::File(e)),
    }
}

fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    fs::metadata(path)
        .is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
}

/// Returns the path, or `.` for an empty one.
fn or_current(path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() }
}

/// Whether files can be created in a directory.
fn writable(path: &Path) -> Result<(), PathFault> {
    may(path, AccessFlags::W_OK | AccessFlags::X_OK)
}

fn may(path: &Path, what: AccessFlags) -> Result<(), PathFault> {
    access(path, what).map_err(|why| PathFault::Permission(path.to_owned(), why.into()))
}

/// Whether the table is valid. A missing one is not a fault: `mendcast autoplex decide` has not
/// written it yet.
fn table(path: &Path) -> Result<(), PathFault> {
    match small::read(path, MAX_FILE) {
        Ok(content) => Table::decode(&content).map(drop).map_err(PathFault::Table),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(PathFault::Unreadable(e)),
    }
}

/// Returns the user of a unit file.
fn user_of(unit: &str) -> Option<String> {
    let mut users = unit.lines().filter_map(|line| line.trim().strip_prefix("User="));
    users.next_back().map(|user| user.trim().to_owned()).filter(|user| !user.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn paths_are_checked_by_their_kind() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "").expect("written");
        symlink(at("nowhere/x"), at("dangling")).expect("linked");
        symlink("new", at("link")).expect("linked");
        let pipe = std::process::Command::new("mkfifo").arg(at("pipe")).status().expect("run");
        assert!(pipe.success());
        for (name, as_directory, as_file) in [
            ("", "", "a directory"),
            ("new", "", ""),
            ("new/and/below", "", "cannot be created"),
            ("file", "not a directory", ""),
            ("file/below", "Not a directory", "Not a directory"),
            ("dangling", "cannot be used", "cannot be created"),
            ("link", "cannot be used", ""),
            ("pipe", "not a directory", "a pipe"),
        ] {
            for (result, part) in [(directory(&at(name)), as_directory), (file(&at(name)), as_file)]
            {
                let what = result.err().map_or(String::new(), |what| what.to_string());
                let is_right = if part.is_empty() { what.is_empty() } else { what.contains(part) };
                assert!(is_right, "{name}: {what:?} has no {part:?}");
            }
        }
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 4, "nothing was created");
        assert!(file(Path::new("/proc/version")).is_err() || Uid::effective().is_root());
        assert!(directory(Path::new("/proc/new")).is_err() || Uid::effective().is_root());
    }

    #[test]
    fn directories_without_write_permission_are_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500)).expect("set");
        for result in
            [directory(dir.path()), directory(&dir.path().join("x")), file(&dir.path().join("x"))]
        {
            match result {
                Err(what) => assert!(what.to_string().contains("cannot write to"), "{what}"),
                Ok(()) => assert!(Uid::effective().is_root(), "not root"),
            }
        }
    }

    #[test]
    fn parses_the_user_of_a_unit() {
        assert_eq!(user_of("[Service]\nUser=mendcast\n").as_deref(), Some("mendcast"));
        assert_eq!(user_of("User=a\nUser=\n"), None);
        assert_eq!(user_of("[Unit]\n# User=x"), None);
    }
}
