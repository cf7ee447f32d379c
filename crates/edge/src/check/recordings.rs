//! Checks of recordings: windows that outlast the files.

use crate::config::{Config, Recording, Value as _};
use crate::finding::Finding;

/// Finds windows of time shift that are longer than the recordings are kept.
pub(super) fn check(config: &Config) -> Vec<Finding> {
    let rules = config.record.iter();
    let short = rules.filter(|rule| !rule.keep.is_zero() && rule.time_shift > rule.keep);
    let finding = |rule: &Recording| {
        let [keep, shift] =
            [rule.keep, rule.time_shift].map(|time| time.toml().unwrap_or_default());
        let what =
            format!("longer than keep, so the oldest part is removed; expected at most {keep}");
        Finding::warning("[[record]] time_shift", shift, what)
    };
    short.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_longer_than_the_recordings_is_reported() {
        let findings = |keys: &str| {
            let text = format!("[[record]]\nstream = \"*\"\ndirectory = \"/x\"\n{keys}");
            check(&Config::parse("edge.toml", &text).expect("valid"))
        };
        let found = findings("keep = \"1h\"\ntime_shift = \"2h\"");
        assert!(found.len() == 1 && !found[0].is_error, "{found:?}");
        assert!(found[0].text().contains("[[record]] time_shift"), "{}", found[0].text());
        for keys in ["", "time_shift = \"2h\"", "keep = \"0s\"\ntime_shift = \"2h\""] {
            assert_eq!(findings(keys), [], "{keys}");
        }
    }
}
