//! Keys of a run by name.

use core::time::Duration;

use config::{Config, DeValue, Key, Section, Sections, Shown, Takes, takes};
use toml::Value;
use units::Rate;

use super::keys::Laboratory;
use crate::error::{Error, NameError, ValueError};

/// Sections of a server's configuration that the testbed simulates.
pub(crate) const SIMULATED: [&str; 4] = ["recovery", "quic", "startup", "live"];

/// Keys of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Setup {
    /// Of these, the testbed reads the sections in [`SIMULATED`].
    pub server: Config,
    /// Sections of the testbed.
    pub lab: Laboratory,
}

/// Returns a round-trip time with an even number of nanoseconds: each direction gets half of it.
pub(crate) fn round_trip(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 2e3) * 2
}

/// Returns a rate in whole kbps.
pub(crate) fn mbps(mbps: f64) -> Rate {
    Rate::from_kbps((mbps * 1e3).round() as u64)
}

impl Sections for Setup {
    fn section(&mut self, name: &str) -> Option<&mut dyn Section> {
        match SIMULATED.contains(&name) {
            true => self.server.section(name),
            false => self.lab.section(name),
        }
    }

    fn view(&self, name: &str) -> Option<&dyn Section> {
        match SIMULATED.contains(&name) {
            true => self.server.view(name),
            false => self.lab.view(name),
        }
    }

    fn names(&self) -> Vec<&'static str> {
        SIMULATED.into_iter().chain(self.lab.names()).collect()
    }

    fn lists(&self) -> Vec<&'static str> {
        Vec::new()
    }
}

/// Splits `section.key`.
fn parts(key: &str) -> (&str, &str) {
    key.split_once('.').unwrap_or(("", key))
}

impl Setup {
    /// Returns all keys, with the scheme parameter that each sets.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&'static str, Key)> {
        self.names().into_iter().flat_map(|section| {
            let keys = self.view(section).map_or(&[][..], Section::keys);
            keys.iter().map(move |key| (section, *key))
        })
    }

    /// Returns the full name, `section.key`, of a key that is written in full, or alone if only one
    /// of the sections `among` has it.
    ///
    /// # Errors
    /// One line: no or several sections have the key.
    pub(crate) fn full_name(&self, key: &str, among: &[&str]) -> Result<String, NameError> {
        let is_it = |section: &str, name: &str| match key.split_once('.') {
            Some(parts) => parts == (section, name),
            None => name == key && among.contains(&section),
        };
        let found: Vec<String> = self
            .keys()
            .filter(|(section, (name, _))| is_it(section, name))
            .map(|(section, (name, _))| format!("{section}.{name}"))
            .collect();
        match &found[..] {
            [one] => Ok(one.clone()),
            [] => Err(self.unknown(key, among)),
            _ => Err(NameError::AmbiguousKey { key: key.to_owned(), names: found }),
        }
    }

    fn unknown(&self, key: &str, among: &[&str]) -> NameError {
        let all: Vec<String> = self
            .keys()
            .filter(|(section, _)| among.contains(section))
            .flat_map(|(section, (name, _))| [format!("{section}.{name}"), name.to_owned()])
            .collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        NameError::Key {
            key: key.to_owned(),
            similar: config::nearest(key, &all).map(str::to_owned),
            sections: among.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    /// Sets `section.key` to a value of a specification.
    ///
    /// # Errors
    /// One line: the key is unknown or the value invalid.
    pub(crate) fn set(&mut self, key: &str, value: &Value) -> Result<(), Error> {
        self.set_text(key, &value.to_string())
    }

    /// Sets `section.key` to a value in TOML, or to plain text.
    ///
    /// # Errors
    /// One line: the key is unknown or the value invalid.
    pub(crate) fn set_text(&mut self, key: &str, text: &str) -> Result<(), Error> {
        match DeValue::parse(text) {
            Ok(value) => self.assign(key, text, value.get_ref()),
            Err(_) => self.assign(key, text, &DeValue::String(text.into())),
        }
    }

    fn assign(&mut self, key: &str, text: &str, value: &DeValue<'_>) -> Result<(), Error> {
        let (section, name) = parts(key);
        let names = self.names();
        match self.section(section) {
            Some(known) => known.set(name, value).map_err(|problem| {
                let (key, value) = (key.to_owned(), text.to_owned());
                ValueError::Key { key, value, problem }.into()
            }),
            None => Err(self.unknown(key, &names).into()),
        }
    }

    fn shown(&self, key: &str) -> Option<Shown> {
        let (section, name) = parts(key);
        self.view(section)?.get(name)
    }

    /// Returns the value of `section.key` as text without quotes; empty if unset or unknown.
    pub(crate) fn text_of(&self, key: &str) -> String {
        let toml = self.shown(key).and_then(|shown| shown.toml).unwrap_or_default();
        toml.trim_matches('"').to_owned()
    }

    /// Returns the value of `section.key` as a number: milliseconds, bytes, Mbps, or itself.
    pub(crate) fn number_of(&self, key: &str) -> Option<f64> {
        self.shown(key)?.number
    }

    /// Returns whether the scheme of the first sender or of its rival uses a parameter.
    fn uses(&self, parameter: Takes) -> bool {
        let schemes = [Some(self.server.recovery.scheme), self.lab.rival.scheme.get()];
        schemes.into_iter().flatten().any(|scheme| takes(scheme, parameter))
    }

    /// Returns the keys that affect the run, with their values. Two runs with the same text and
    /// seed are the same.
    pub(crate) fn text(&self) -> String {
        let used = self
            .keys()
            .filter(|(_, (_, parameter))| parameter.is_none_or(|parameter| self.uses(parameter)));
        let lines = used.map(|(section, (name, _))| {
            let shown = self.view(section).and_then(|known| known.get(name));
            let value = shown.and_then(|shown| shown.toml).unwrap_or_default();
            format!("{section}.{name} = {value}\n")
        });
        lines.collect()
    }

    /// Returns whether the run's schemes use a key.
    pub(crate) fn is_used(&self, key: &str) -> bool {
        let (section, name) = parts(key);
        let keys = self.view(section).map_or(&[][..], Section::keys);
        let found = keys.iter().find(|(known, _)| *known == name);
        found.is_none_or(|(_, takes)| takes.is_none_or(|parameter| self.uses(parameter)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_no_scheme_uses_do_not_change_a_run() {
        let with = |keys: &[(&str, &str)]| {
            let mut setup = Setup::default();
            for (key, text) in keys {
                setup.set_text(key, text).expect(key);
            }
            setup.text()
        };
        let arq = ("recovery.scheme", "arq");
        let other = [arq, ("recovery.latency", "7ms"), ("lab.level", "3")];
        assert_eq!(with(&other), with(&[arq]));
        let autorec = with(&[("recovery.scheme", "autorec"), other[1], other[2]]);
        assert!(autorec.contains("recovery.latency = \"7ms\"") && !autorec.contains("lab.level"));
        assert!(
            with(&[arq, ("rival.scheme", "autorec-fixed"), other[2]]).contains("lab.level = 3")
        );
    }

    #[test]
    fn short_names_stand_for_one_key_and_errors_name_similar_ones() {
        let setup = Setup::default();
        let all = setup.names();
        let full = |key: &str| setup.full_name(key, &all);
        let refused = |key: &str| full(key).expect_err(key).to_string();
        assert_eq!(full("price").expect("known"), "recovery.price");
        assert_eq!(full("path.rate").expect("known"), "path.rate");
        assert_eq!(refused("rate"), "`rate` may be path.rate or source.rate");
        assert_eq!(refused("pryce"), "no key `pryce`; did you mean `price`?");
        let error = setup.full_name("rtt", &["recovery"]).expect_err("unknown").to_string();
        assert_eq!(error, "no key `rtt` in [recovery]");
    }

    #[test]
    fn wrong_values_are_rejected_with_the_expectation() {
        let mut setup = Setup::default();
        for (key, text, part) in [
            ("source.fps", "0", "`source.fps`: expected 0.1 to 10000.0, got 0"),
            ("lab.level", "11", "0 to 10"),
            ("recovery.scheme", "x", "\"autorec\""),
            ("player.model", "buffer:20ms", "buffer:300ms"),
            ("quic.congestion", "x", "\"bbr\""),
            ("lab.oracle", "x", "\"from-start\""),
            ("path.bunches", "200", "300ms,awake=30ms"),
            ("path.rtt_steps", "8s", "8s:200ms,20s:20ms"),
            ("path.ecn_up", "x", "mark:5%"),
            ("path.policer", "2mbps", "burst=20kB"),
            ("player.acks", "each=1", "each=32,within=250ms"),
            ("path.rate_up", "2", "12mbps"),
            ("path.mtu", "70000", "0 to 65535"),
            ("path.flap", "-1ms", "0s"),
            ("source.segment", "0s", "`source.segment`: expected \"100ms\" to \"1m\", got 0s"),
            ("source.segment", "61s", "\"1m\", got 61s"),
            ("source.segment", "nan", "\"100ms\""),
            ("source.ladder", "[]", "`source.ladder`: expected 1 to 32 rising rates"),
            ("source.ladder", "[\"2mbps\", \"1mbps\"]", "got [\"2mbps\", \"1mbps\"]"),
            ("source.ladder", "[\"1mbps\", \"1mbps\"]", "rising"),
            ("source.ladder", "[\"0bps\", \"1mbps\"]", "from \"1bps\""),
            ("source.ladder", "[\"nanmbps\"]", "got [\"nanmbps\"]"),
            ("source.ladder", "[\"2gbps\"]", "to \"1000mbps\""),
            ("source.ladder", "[1000]", "such as [\"400kbps\", \"1mbps\"]"),
            ("source.size_variation", "nan", "0.0 to 2.0, got nan"),
            ("source.size_variation", "inf", "0.0 to 2.0, got inf"),
            ("player.max_buffer", "0s", "\"100ms\""),
            ("player.max_buffer", "601s", "\"10m\", got 601s"),
            ("player.start_after", "0s", "\"1ms\""),
            ("player.resume_after", "1e9s", "\"10m\", got 1e9s"),
            ("player.adaptation", "x", "\"bba\""),
            ("path.loss_up", "x:1%", "calls:rate=5%"),
            ("paht.loss", "1%", "did you mean `path.loss`"),
        ] {
            let line = setup.set_text(key, text).expect_err(key).to_string();
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(setup, Setup::default());
    }
}
