//! Arms of a test: a catalogue scheme with keys of the configuration, and a name. The preset names
//! form the comparison in the report.

use recovery::catalog::Choice;

use crate::error::{Context as _, Error, NameError, Subject, ValueError};
use crate::setup::{SIMULATED, Setup};

/// A scheme with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arm {
    /// Name in tables, and cohort in records.
    pub name: String,
    /// Weight relative to the other arms.
    pub weight: u32,
    /// Keys as `section.key`, including `recovery.scheme`, and their values.
    pub keys: Vec<(String, String)>,
}

/// Name of the baseline.
pub(super) const BASELINE: &str = "arq";
/// Clairvoyant senders: one that reacts to losses only, and one that does not wait for them.
const CLAIRVOYANT: &str = "clairvoyant";
const FROM_START: &str = "clairvoyant-from-start";
/// AutoRec with the parameters of its fleet (journal VII-B), and MM'24 with Θ between the median
/// and the 80th percentile of the smoothed round-trip time, disabled above 10 % loss (MM'24 5.2).
pub(super) const FLEET_AUTOREC: &str = "autorec-fleet";
pub(super) const FLEET_MM24: &str = "autorec-mm24-fleet";

/// Preset arms. No name is a scheme's. The papers' schemes have a limit that does not restrict
/// them; the product's is 20 %.
const PRESETS: &[(&str, &str)] = &[
    (FLEET_AUTOREC, "autorec+latency=200ms+cost=50%+goodput=50%+max_redundancy=50%"),
    (FLEET_MM24, "autorec-mm24+theta=100ms+off_above=10%+max_redundancy=50%"),
    (CLAIRVOYANT, "arq+oracle=after-detection"),
    (FROM_START, "arq+oracle=from-start"),
];

/// Arms compared by default.
pub(super) const COMPARED: &str = "arq,autorec-fleet,autorec-mm24-fleet,\
    art-paper+max_redundancy=50%,or3-copies+when_idle=true+max_redundancy=50%,spare,deadline,\
    deadline+reports=true,clairvoyant,clairvoyant-from-start";
/// Default cohorts.
pub(super) const COHORTS: [&str; 2] = ["control=arq:50", "treatment=deadline:50"];

/// Testbed section with keys that an arm may set.
const LAB: &str = "lab";
/// The only key of the player that an arm may set. A session draws the others, like keys of path
/// and source.
const REPORTS: &str = "player.reports";
const SCHEME: &str = "recovery.scheme";
const ORACLE: &str = "lab.oracle";
/// Maximum number of arms.
const MAX_ARMS: usize = 16;

impl Arm {
    /// Parses `SCHEME` or `SCHEME+KEY=VALUE+…`, where a preset may stand for the scheme. Keys are
    /// those of the configuration; the section may be left out if no other one has the key.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let named = || Subject::Scheme(text.to_owned());
        let mut given = text.split('+');
        let head = given.next().unwrap_or_default();
        let preset = PRESETS.iter().find(|(name, _)| *name == head).map(|(_, spec)| *spec);
        let mut parts = preset.unwrap_or(head).split('+').chain(given);
        let mut setup = Setup::default();
        let scheme = parts.next().unwrap_or_default();
        scheme.parse::<Choice>().map_err(|unknown| {
            let presets = PRESETS.iter().map(|(name, _)| *name).collect();
            NameError::Scheme { unknown, presets }
        })?;
        let mut keys = vec![(SCHEME.to_owned(), scheme.to_owned())];
        let sections: Vec<&str> = SIMULATED.into_iter().chain([LAB]).collect();
        for part in parts {
            let form = || ValueError::SchemeForm(scheme.to_owned());
            let (key, value) = part.split_once('=').ok_or_else(form).of(named)?;
            let full = match key {
                "reports" | REPORTS => REPORTS.to_owned(),
                key => setup.full_name(key, &sections).of(named)?,
            };
            let section = full.split('.').next().unwrap_or_default();
            if !sections.contains(&section) && full != REPORTS {
                return Err(ValueError::SessionKey(full)).of(named);
            }
            setup.set_text(&full, value).of(named)?;
            keys.push((full, value.to_owned()));
        }
        Ok(Self { name: text.to_owned(), weight: 1, keys })
    }

    /// Sets the arm's keys.
    ///
    /// # Errors
    /// One line that names the arm and the key.
    pub(super) fn apply(&self, setup: &mut Setup) -> Result<(), Error> {
        let mut set = self.keys.iter().map(|(key, value)| setup.set_text(key, value));
        set.try_for_each(|set| set.of(|| Subject::Scheme(self.name.clone())))
    }

    /// Returns keys that have no effect, because the scheme does not use them.
    pub(super) fn unused(&self) -> Vec<&str> {
        let mut setup = Setup::default();
        match self.apply(&mut setup) {
            Ok(()) => {
                let keys = self.keys.iter().map(|(key, _)| key.as_str());
                keys.filter(|key| !setup.is_used(key)).collect()
            }
            Err(_) => Vec::new(),
        }
    }

    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.keys.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Parses `NAME=SCHEME:WEIGHT`.
    pub(super) fn parse_cohort(text: &str) -> Result<Self, Error> {
        let bad = || ValueError::CohortForm(text.to_owned());
        let (name, rest) = text.split_once('=').ok_or_else(bad)?;
        let (scheme, weight) = rest.rsplit_once(':').ok_or_else(bad)?;
        let weight = weight.parse().ok().filter(|n| (1..=1_000_000).contains(n)).ok_or_else(bad)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(bad().into());
        }
        Ok(Self { name: name.to_owned(), weight, ..Self::parse(scheme)? })
    }

    /// Parses all arms; names must be unique.
    ///
    /// # Errors
    /// One line that names the invalid arm.
    pub(super) fn all(
        texts: &[String],
        read: impl Fn(&str) -> Result<Self, Error>,
    ) -> Result<Vec<Self>, Error> {
        let mut arms: Vec<Self> = Vec::new();
        for text in texts {
            let arm = read(text)?;
            if arms.iter().any(|known| known.name == arm.name) {
                return Err(NameError::Repeated(arm.name).into());
            }
            arms.push(arm);
        }
        match arms.len() {
            1..=MAX_ARMS => Ok(arms),
            count => Err(ValueError::SchemeCount { count, max: MAX_ARMS }.into()),
        }
    }

    /// Returns the scheme's name in the catalogue.
    pub(super) fn scheme(&self) -> &str {
        self.value(SCHEME).unwrap_or_default()
    }

    /// Returns whether the arm knows packet fates, which no product can.
    pub(super) fn is_oracle(&self) -> bool {
        self.value(ORACLE).is_some_and(|value| value != "none")
    }

    /// Returns the name as a folder name.
    pub(super) fn folder(&self) -> String {
        self.name.replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c), "_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_and_cohorts_are_read_with_their_parameters() {
        let arm = Arm::parse("autorec+latency=50ms+when_idle=true").expect("a scheme");
        assert_eq!(arm.scheme(), "autorec");
        let set = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(arm.keys[1..], [set("recovery.latency", "50ms"), set("lab.when_idle", "true")]);
        let mut setup = Setup::default();
        arm.apply(&mut setup).expect("valid");
        assert_eq!(setup.text_of("recovery.latency"), "50ms");
        assert_eq!(arm.folder(), "autorec_latency_50ms_when_idle_true");
        let cohort = Arm::parse_cohort("more=spare+copies=2:30").expect("a cohort");
        assert_eq!((&*cohort.name, cohort.scheme(), cohort.weight), ("more", "spare", 30));
        assert!(Arm::parse(CLAIRVOYANT).expect("known").is_oracle());
        assert!(!Arm::parse("arq+oracle=none").expect("known").is_oracle());
    }

    #[test]
    fn a_scheme_has_one_name_and_presets_have_others() {
        for (name, spec) in PRESETS {
            assert!(name.parse::<Choice>().is_err(), "{name}");
            assert!(Arm::parse(spec).is_ok(), "{spec}");
        }
        let guard = |name: &str| {
            let mut setup = Setup::default();
            Arm::parse(name).expect("known").apply(&mut setup).expect("valid");
            setup.server.recovery.max_redundancy
        };
        assert_eq!((guard("autorec"), guard(FLEET_AUTOREC)), (0.2, 0.5));
        assert_eq!(guard("autorec-fleet+max_redundancy=30%"), 0.3, "the later value counts");
        let idle = Arm::parse("autorec-fleet+when_idle=true").expect("a preset with a key");
        assert_eq!((idle.scheme(), idle.value("lab.when_idle")), ("autorec", Some("true")));
    }

    #[test]
    fn unknown_schemes_and_keys_of_the_session_are_rejected() {
        let refused = |text: &str| Arm::parse(text).expect_err(text).to_string();
        assert!(refused("fec+copies=1").starts_with("unknown scheme `fec`; known schemes: arq, "));
        assert!(refused("fec").contains("presets: autorec-fleet, "));
        assert!(refused("arq+path.rate=100mbps").contains("`path.rate` is the session's"));
        assert!(refused("arq+rtt=1ms").contains("no key `rtt`"));
        assert!(refused("spare+copis=1").contains("did you mean `copies`"));
        assert!(refused("spare+copies=99").contains("0 to 10"));
        assert!(refused("spare+copies").contains("KEY=VALUE"));
        for text in ["a", "a=arq", "a=arq:0", "=arq:1", "a b=arq:1", "a=fec:1"] {
            assert!(Arm::parse_cohort(text).is_err(), "{text}");
        }
        let twice = ["arq".to_owned(), "arq".to_owned()];
        let error = Arm::all(&twice, Arm::parse).expect_err("twice").to_string();
        assert!(error.contains("named twice"), "{error}");
        assert!(Arm::all(&[], Arm::parse).is_err());
    }
}
