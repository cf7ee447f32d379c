//! Files that are read as a whole: certificates, keys, tables.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::libc::O_NONBLOCK;

/// Maximum size in bytes of a file with certificates, keys or a token.
pub(crate) const MAX_SECRET: usize = 1 << 20;

/// Opens a regular file. Reading a pipe can block, and a device can be endless.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let regular = |is_file: bool| {
        is_file.then_some(()).ok_or_else(|| io::Error::other("expected a regular file"))
    };
    // Checked first, since opening a pipe or device can have side effects.
    regular(std::fs::metadata(path)?.is_file())?;
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    regular(file.metadata()?.is_file())?;
    Ok(file)
}

/// Reads a regular file of at most `max` bytes.
pub(crate) fn read(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open(path)?.take(max as u64 + 1).read_to_end(&mut content)?;
    if content.len() > max {
        return Err(io::Error::other(format!("larger than {max} bytes")));
    }
    Ok(content)
}

/// Reads a regular text file of at most [`MAX_SECRET`] bytes.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let content = read(path, MAX_SECRET)?;
    String::from_utf8(content).map_err(|_| io::Error::other("expected UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_large_files_and_pipes_without_blocking() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("run");
        assert!(made.success());
        for path in [&pipe, dir.path(), Path::new("/dev/zero")] {
            let error = read(path, 10).expect_err("not a regular file").to_string();
            assert_eq!(error, "expected a regular file", "{}", path.display());
        }
        let file = dir.path().join("file");
        std::fs::write(&file, "0123456789").expect("written");
        assert_eq!(text(&file).expect("read"), "0123456789");
        assert_eq!(read(&file, 10).expect("read").len(), 10);
        assert_eq!(read(&file, 9).expect_err("too large").to_string(), "larger than 9 bytes");
    }
}
