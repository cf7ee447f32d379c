//! What a reload changes: the table says of each key when another value takes effect.

use core::fmt;
use std::collections::BTreeMap;

/// The key of the only named file whose content holds at once.
const AT_ONCE: &str = "[admin] token_file";

/// When another value of a key takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// For connections, streams and pulls that begin after the reload; running ones keep theirs.
    ForNew,
    /// At once, whatever runs.
    AtOnce,
    /// At the next start of the process.
    AtStart,
}

/// The keys, as `[section] key`, that have another value in a new configuration than in the one in
/// force. Values are not in here: some are secrets.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Changes {
    /// Keys whose new values hold for connections, streams and pulls that begin from here on.
    pub for_new: Vec<String>,
    /// Keys whose new values hold at once.
    pub at_once: Vec<String>,
    /// Keys whose new values wait for the next start of the process.
    pub at_start: Vec<String>,
}

impl Changes {
    /// Compares the values of one key. One that takes effect at the next start only stays as it is.
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
        // Several items of a list may differ in the same key.
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
}

impl Changes {
    /// Compares what stands in the files that the configuration names, by key.
    pub fn compare_files<T: PartialEq>(
        &mut self,
        new: &BTreeMap<&'static str, T>,
        running: &BTreeMap<&'static str, T>,
    ) {
        let mut keys: Vec<_> = new.keys().chain(running.keys()).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys.into_iter().filter(|key| new.get(key) != running.get(key)) {
            let all = if key == AT_ONCE { &mut self.at_once } else { &mut self.for_new };
            // With another path the key is named already.
            if !all.iter().any(|named| named == key) {
                all.push(format!("the file of {key}"));
            }
        }
    }
}

/// The changes that are in force.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.for_new[..], &self.at_once[..]) {
            ([], []) => f.write_str("no other values take effect"),
            (new, []) => write!(f, "for new connections and streams: {}", new.join(", ")),
            ([], now) => write!(f, "at once: {}", now.join(", ")),
            (new, now) => {
                let (new, now) = (new.join(", "), now.join(", "));
                write!(f, "for new connections and streams: {new}; at once: {now}")
            }
        }
    }
}
