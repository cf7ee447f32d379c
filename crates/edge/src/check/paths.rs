//! The paths that a server writes to: whether the user who checks has the rights. Nothing is made
//! to find that out.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use groups::{MAX_FILE, Table};
use nix::unistd::{AccessFlags, Uid, access};

use crate::config::Config;
use crate::disk::small;
use crate::finding::Finding;

/// Where the service's unit file may be.
const UNITS: [&str; 4] = [
    "/etc/systemd/system/mendcast.service",
    "/run/systemd/system/mendcast.service",
    "/usr/local/lib/systemd/system/mendcast.service",
    "/usr/lib/systemd/system/mendcast.service",
];

/// Finds paths that the server could not write to, and a table that it could not follow.
pub(super) fn look(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut written = 0;
    let qlog = config.quic.qlog_dir.as_ref().filter(|_| config.quic.qlog_sample > 0.0);
    let directories =
        [("[records] directory", config.records.directory.as_ref()), ("[quic] qlog_dir", qlog)];
    for (key, path) in directories {
        let Some(path) = path else { continue };
        written += 1;
        let fault = directory(path).err();
        findings.extend(fault.map(|what| Finding::error(key, path.display(), what)));
    }
    let files = [
        ("[log] connections", config.log.connections.as_ref()),
        ("[quic] key_log", config.quic.key_log.as_ref()),
    ];
    for (key, path) in files {
        let Some(path) = path else { continue };
        written += 1;
        let fault = file(path).err();
        findings.extend(fault.map(|what| Finding::error(key, path.display(), what)));
    }
    let user = UNITS.iter().find_map(|unit| user_of(&fs::read_to_string(unit).ok()?));
    if written > 0
        && Uid::effective().is_root()
        && let Some(user) = user.filter(|user| user != "root" && user != "0")
    {
        let what = "the check runs as root, which may write anywhere; check as this user";
        findings.push(Finding::warning("User of mendcast.service", user, what));
    }
    if let Some(path) = &config.autoplex.table
        && let Err(what) = table(path)
    {
        let what = format!("{what}; without a table no user group has parameters");
        findings.push(Finding::warning("[autoplex] table", path.display(), what));
    }
    findings
}

/// Whether files can be made in a directory, which itself may have to be made.
fn directory(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => enter(path),
        Ok(_) => Err("no directory; expected one, or a path where one can be made".to_owned()),
        Err(e) if e.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
            // The nearest parent that exists decides.
            let parents = path.ancestors().skip(1);
            let parent = parents.map(here).find(|parent| fs::symlink_metadata(parent).is_ok());
            let parent = parent.unwrap_or_else(|| PathBuf::from("."));
            match fs::metadata(&parent) {
                Ok(found) if found.is_dir() => {}
                _ => return Err(format!("cannot be made: {} is no directory", parent.display())),
            }
            enter(&parent).map_err(|why| format!("cannot be made: {why}"))
        }
        Err(e) => Err(format!("cannot be used: {e}")),
    }
}

/// Whether a file can be appended to, or made in a directory that is there.
fn file(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err("a directory; expected a file".to_owned()),
        // Opening a pipe waits for a reader.
        Ok(_) if is_pipe(path) => Err("a pipe or socket; expected a file".to_owned()),
        Ok(_) => may(path, AccessFlags::W_OK),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // Behind a link that leads nowhere the file is made where that leads.
            let target = fs::read_link(path).map_or_else(
                |_| path.to_owned(),
                |target| here(path.parent().unwrap_or(Path::new(""))).join(target),
            );
            let parent = here(target.parent().unwrap_or(Path::new("")));
            match fs::metadata(&parent) {
                Ok(found) if found.is_dir() => {
                    enter(&parent).map_err(|why| format!("cannot be made: {why}"))
                }
                Ok(_) => Err(format!("cannot be made: {} is no directory", parent.display())),
                Err(e) => Err(format!("cannot be made: {}: {e}", parent.display())),
            }
        }
        Err(e) => Err(format!("cannot be opened: {e}")),
    }
}

fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    fs::metadata(path)
        .is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
}

/// A relative path starts in the current directory.
fn here(path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() }
}

/// Whether files can be made in a directory.
fn enter(path: &Path) -> Result<(), String> {
    may(path, AccessFlags::W_OK | AccessFlags::X_OK)
}

fn may(path: &Path, what: AccessFlags) -> Result<(), String> {
    access(path, what).map_err(|why| {
        let (user, why) = (Uid::effective(), io::Error::from(why));
        format!("user {user} cannot write to {}: {why}", path.display())
    })
}

/// Whether the table could be put in force. None is no fault: `mendcast autoplex decide` has not
/// written one yet.
fn table(path: &Path) -> Result<(), String> {
    match small::read(path, MAX_FILE) {
        Ok(content) => Table::decode(&content).map(drop).map_err(|e| e.to_string()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

/// The user of a unit file, if it names one.
fn user_of(unit: &str) -> Option<String> {
    let mut users = unit.lines().filter_map(|line| line.trim().strip_prefix("User="));
    users.next_back().map(|user| user.trim().to_owned()).filter(|user| !user.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_path_is_judged_by_what_is_there() {
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
            ("new/and/below", "", "cannot be made"),
            ("file", "no directory", ""),
            ("file/below", "Not a directory", "Not a directory"),
            ("dangling", "cannot be used", "cannot be made"),
            ("link", "cannot be used", ""),
            ("pipe", "no directory", "a pipe"),
        ] {
            for (result, part) in [(directory(&at(name)), as_directory), (file(&at(name)), as_file)]
            {
                let what = result.err().unwrap_or_default();
                let is_right = if part.is_empty() { what.is_empty() } else { what.contains(part) };
                assert!(is_right, "{name}: {what:?} has no {part:?}");
            }
        }
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 4, "nothing was made");
        assert!(file(Path::new("/proc/version")).is_err() || Uid::effective().is_root());
        assert!(directory(Path::new("/proc/new")).is_err() || Uid::effective().is_root());
    }

    #[test]
    fn a_directory_without_rights_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500)).expect("set");
        for result in
            [directory(dir.path()), directory(&dir.path().join("x")), file(&dir.path().join("x"))]
        {
            match result {
                Err(what) => assert!(what.contains("cannot write to"), "{what}"),
                Ok(()) => assert!(Uid::effective().is_root(), "only root may"),
            }
        }
    }

    #[test]
    fn the_user_of_a_unit_is_read() {
        assert_eq!(user_of("[Service]\nUser=mendcast\n").as_deref(), Some("mendcast"));
        assert_eq!(user_of("User=a\nUser=\n"), None);
        assert_eq!(user_of("[Unit]\n# User=x"), None);
    }
}
