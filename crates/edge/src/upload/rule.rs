//! Uploads that a configuration asks for.

use std::path::PathBuf;

use crate::config::{Config, StoreUrl};

/// Kind of files in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum UploadKind {
    Recordings,
    Records,
}

/// A directory and the place it is uploaded to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct UploadRule {
    pub kind: UploadKind,
    pub directory: PathBuf,
    pub url: StoreUrl,
}

impl UploadRule {
    /// Returns the uploads of a configuration.
    pub(super) fn all(config: &Config) -> Vec<Self> {
        let recordings = config
            .record
            .iter()
            .map(|rule| (UploadKind::Recordings, rule.directory.clone(), rule.upload.clone()));
        let records = &config.records;
        let records = (UploadKind::Records, records.directory.clone(), records.upload.clone());
        let mut all: Vec<Self> = Vec::new();
        for (kind, directory, url) in recordings.chain([records]) {
            let (Some(directory), Some(url)) = (directory, url) else { continue };
            let rule = Self { kind, directory, url };
            if !all.contains(&rule) {
                all.push(rule);
            }
        }
        all
    }
}
