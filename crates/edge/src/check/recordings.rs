//! Checks of recordings and uploads: windows that outlast the files, and settings of stores.

use crate::config::{Config, Recording, StoreUrl, Value as _};
use crate::finding::Finding;
use crate::upload::{Store, environment};

/// Finds windows of time shift that are longer than the recordings are kept, and stores without
/// valid settings in the environment.
pub(super) fn check(config: &Config) -> Vec<Finding> {
    let mut findings = windows(config);
    findings.extend(stores(config, &environment()));
    findings
}

/// Finds uploads that the environment has no valid settings for. No store is contacted. The service
/// may have other variables than the check, so this is a warning.
fn stores(config: &Config, variables: &[(String, String)]) -> Vec<Finding> {
    let recordings = config.record.iter().map(|rule| ("[[record]] upload", rule.upload.as_ref()));
    let all = recordings.chain([("[records] upload", config.records.upload.as_ref())]);
    let failed = |(key, url): (&str, Option<&StoreUrl>)| {
        let url = url?;
        let what = Store::build(url, variables).err()?;
        Some(Finding::warning(key, url, what))
    };
    all.filter_map(failed).collect()
}

fn windows(config: &Config) -> Vec<Finding> {
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

    #[test]
    fn settings_of_stores_are_checked_without_contact() {
        let findings = |url: &str, variables: &[(&str, &str)]| {
            let text = format!("[records]\nupload = \"{url}\"");
            let config = Config::parse("edge.toml", &text).expect("valid");
            let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            stores(&config, &variables.collect::<Vec<_>>())
        };
        let keys = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "hidden word")];
        assert_eq!(findings("s3://archive/a", &keys), []);
        assert_eq!(findings("file:///mnt/archive", &[]), []);
        for (url, variables) in [
            ("az://archive/a", &[("AZURE_STORAGE_ACCOUNT_KEY", "hidden word")][..]),
            ("az://archive/a", &[]),
            (
                "gs://archive/a",
                &[("GOOGLE_SERVICE_ACCOUNT_KEY", "{\"private_key\": \"hidden word")],
            ),
            ("s3://archive/a", &[keys[0]]),
        ] {
            let found = findings(url, variables);
            assert!(found.len() == 1 && !found[0].is_error, "{url}: {found:?}");
            let text = found[0].text();
            assert!(text.contains("[records] upload") && !text.contains("hidden"), "{text}");
            println!("{text}");
        }
    }
}
