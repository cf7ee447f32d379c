//! Effects of a reload. Each key defines when a new value takes effect.

use core::fmt;
use std::collections::BTreeMap;

/// Key of the only file with immediate effect.
const TOKEN_FILE: &str = "[admin] token_file";

/// When a new value of a key takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// For connections, streams and pulls that begin after the reload.
    ForNew,
    /// Immediately.
    AtOnce,
    /// After a restart.
    AtStart,
}

/// Keys with new values, as `[section] key`. The values are left out, since some are secrets.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Changes {
    /// Keys that apply to connections, streams and pulls that begin after the reload.
    pub for_new: Vec<String>,
    /// Keys that take effect immediately.
    pub at_once: Vec<String>,
    /// Keys that need a restart.
    pub at_start: Vec<String>,
}

impl Changes {
    /// Compares the values of a key. If a new value needs a restart, the running one is kept.
    pub fn compare<T: Clone + PartialEq>(
        &mut self,
        key: fmt::Arguments<'_>,
        effect: Effect,
        new: &mut T,
        running: &T,
    ) {
        if new == running {
            return;
        }
        let keys = match effect {
            Effect::ForNew => &mut self.for_new,
            Effect::AtOnce => &mut self.at_once,
            Effect::AtStart => {
                new.clone_from(running);
                &mut self.at_start
            }
        };
        let key = key.to_string();
        // Several items of a list can differ in the same key.
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
}

impl Changes {
    /// Compares the contents of the configured files, by key.
    pub fn compare_files<T: PartialEq>(
        &mut self,
        new: &BTreeMap<&'static str, T>,
        running: &BTreeMap<&'static str, T>,
    ) {
        let mut keys: Vec<_> = new.keys().chain(running.keys()).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys.into_iter().filter(|key| new.get(key) != running.get(key)) {
            let all = if key == TOKEN_FILE { &mut self.at_once } else { &mut self.for_new };
            // A key with a new path is listed already.
            if !all.iter().any(|named| named == key) {
                all.push(format!("the file of {key}"));
            }
        }
    }
}

/// Lists the changes that have taken effect.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.for_new[..], &self.at_once[..]) {
            ([], []) => f.write_str("no new values take effect"),
            (new, []) => write!(f, "for new connections and streams: {}", new.join(", ")),
            ([], now) => write!(f, "at once: {}", now.join(", ")),
            (new, now) => {
                let (new, now) = (new.join(", "), now.join(", "));
                write!(f, "for new connections and streams: {new}; at once: {now}")
            }
        }
    }
}
