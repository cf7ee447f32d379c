//! Progress of a recording's upload, in a file of its directory, so that a restart continues it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::record::write_file;

/// Name of the file.
pub(crate) const PROGRESS: &str = "upload.state";
/// Maximum size of the file, in bytes.
const MAX_LEN: u64 = 4 << 20;

/// Progress of a recording's upload.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Progress {
    /// Number of entries of the playlist whose segments are uploaded or lost.
    pub next: u64,
    /// Start of the last of them in ms since 1970. After a power failure the recording may
    /// continue with other segments of the same number.
    pub last_ms: i64,
    /// Number of entries of the uploaded playlist.
    pub listed: u64,
    /// Whether the finished playlist is uploaded.
    pub is_complete: bool,
    /// Entries whose segments were removed before they were uploaded.
    pub lost: BTreeSet<u64>,
    /// Names of uploaded initialisation segments.
    pub inits: BTreeSet<String>,
}

impl Progress {
    /// Reads the progress of the recording in `path`. A damaged file starts the upload again.
    pub(super) fn read(path: &Path) -> Self {
        let file = path.join(PROGRESS);
        let is_sane = fs::symlink_metadata(&file).is_ok_and(|m| m.is_file() && m.len() <= MAX_LEN);
        let text = is_sane.then(|| fs::read_to_string(file).ok()).flatten();
        text.and_then(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// Writes the progress.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        write_file(&path.join(PROGRESS), &[self.render().as_bytes()])
    }

    fn render(&self) -> String {
        let Self { next, last_ms, listed, is_complete, lost, inits } = self;
        let lost: Vec<String> = lost.iter().map(u64::to_string).collect();
        let inits: Vec<&str> = inits.iter().map(String::as_str).collect();
        let (lost, inits) = (lost.join(" "), inits.join(" "));
        format!(
            "next {next}\nlast_ms {last_ms}\nlisted {listed}\ncomplete {is_complete}\n\
             lost {lost}\ninits {inits}\n"
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let progress = Self {
            next: value("next")?.parse().ok()?,
            last_ms: value("last_ms")?.parse().ok()?,
            listed: value("listed")?.parse().ok()?,
            is_complete: value("complete")?.parse().ok()?,
            lost: value("lost")?
                .split_whitespace()
                .map(str::parse)
                .collect::<Result<_, _>>()
                .ok()?,
            inits: value("inits")?.split_whitespace().map(str::to_owned).collect(),
        };
        (progress.listed <= progress.next).then_some(progress)
    }
}

/// Returns whether the recording in `path` is completely uploaded.
pub(crate) fn is_complete(path: &Path) -> bool {
    Progress::read(path).is_complete
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_survives_a_restart_and_damage_starts_again() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path();
        assert_eq!(Progress::read(path), Progress::default());
        let (lost, inits) = ([3, 17].into(), ["init-0000000000000001.mp4".to_owned()].into());
        let progress =
            Progress { next: 20, last_ms: -5, listed: 19, is_complete: false, lost, inits };
        progress.write(path).expect("written");
        assert_eq!(Progress::read(path), progress);
        assert!(!is_complete(path));
        Progress { is_complete: true, ..progress.clone() }.write(path).expect("written");
        assert!(is_complete(path));
        let text = progress.render();
        for cut in 0..text.len() - 1 {
            assert_ne!(Progress::parse(&text[..cut]), Some(progress.clone()), "{cut}");
        }
        for text in ["", "next x", "next 1\nlast_ms 0\nlisted 2\ncomplete true\nlost \ninits \n"] {
            assert_eq!(Progress::parse(text), None, "{text}");
        }
        fs::write(path.join(PROGRESS), [0xff; 10]).expect("written");
        assert_eq!(Progress::read(path), Progress::default());
    }
}
