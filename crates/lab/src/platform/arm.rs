//! Arms of a test: a catalogue scheme with parameters, and a name. The preset names form the
//! comparison in the report.

use toml::Value;

/// A scheme with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arm {
    /// Name in tables, and cohort in records.
    pub name: String,
    /// Weight relative to the other arms.
    pub weight: u32,
    /// Keys of `experiments::settings` and their values, including `scheme`.
    pub set: toml::Table,
}

/// Name of the baseline.
pub(super) const BASELINE: &str = "arq";
/// Clairvoyant senders: one that reacts to losses only, and one that does not wait for them.
const CLAIRVOYANT: &str = "clairvoyant";
const FROM_START: &str = "clairvoyant-from-start";
/// AutoRec with the parameters of its fleet (journal VII-B), and MM'24 with Θ between the median
/// and the 80th percentile of the smoothed round-trip time (MM'24 5.2).
pub(super) const FLEET_AUTOREC: &str = "autorec-fleet";
pub(super) const FLEET_MM24: &str = "mm24";

/// Preset arms. The papers' schemes have no guard; the product's guard is 20 %.
const PRESETS: &[(&str, &str)] = &[
    (FLEET_AUTOREC, "autorec+alpha_ms=200+beta_percent=50+gamma_percent=50+guard_percent=50"),
    ("autorec", "autorec+guard_percent=50"),
    ("autorec-idle", "autorec+when_idle=true+guard_percent=50"),
    (FLEET_MM24, "autorec-mm24+theta_ms=100+guard_percent=50"),
    ("art", "art-paper+guard_percent=50"),
    ("or3", "or3+reading=copies+guard_percent=50"),
    ("or3-idle", "or3+reading=copies+when_idle=true+guard_percent=50"),
    (CLAIRVOYANT, "arq+oracle=after-detection"),
    (FROM_START, "arq+oracle=from-start"),
];

/// Arms compared by default.
pub(super) const COMPARED: &str = "arq,autorec-fleet,mm24,art,or3-idle,spare,deadline,deadline+reports=true,clairvoyant,clairvoyant-from-start";
/// Default cohorts.
pub(super) const COHORTS: [&str; 2] = ["control=arq:50", "treatment=deadline:50"];

/// Keys that an arm may set. Keys of the path or the stream are excluded.
const KEYS: [&str; 33] = [
    "start",
    "detection",
    "congestion",
    "tail",
    "copies",
    "apart_ms",
    "apart_rtts",
    "longest_probe_ms",
    "price_ms",
    "patience_ms",
    "overdue",
    "together",
    "patient_above_percent",
    "thin_lag_ms",
    "reports",
    "alpha_ms",
    "beta_percent",
    "gamma_percent",
    "level",
    "off_mode",
    "opportunistic",
    "sigmoid",
    "theta_ms",
    "r_nor_percent",
    "max_level",
    "gate",
    "interval_rtts",
    "reading",
    "queue_length",
    "spread",
    "escape_alpha",
    "when_idle",
    "guard_percent",
];
/// The same, for presets only.
const ORACLE: &str = "oracle";
/// Maximum number of arms.
const MAX_ARMS: usize = 16;

impl Arm {
    /// Parses `SCHEME`, `SCHEME+KEY=VALUE+…`, or a preset name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let preset = PRESETS.iter().find(|(name, _)| *name == text).map(|(_, spec)| *spec);
        let mut parts = preset.unwrap_or(text).split('+');
        let mut set = toml::Table::new();
        let scheme = parts.next().unwrap_or_default();
        scheme.parse::<recovery::catalog::Choice>().map_err(|e| {
            let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
            format!("{e}; presets: {}", names.join(", "))
        })?;
        set.insert("scheme".to_owned(), Value::String(scheme.to_owned()));
        for part in parts {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("scheme `{text}`: write {scheme}+KEY=VALUE"))?;
            let is_known = KEYS.contains(&key) || (preset.is_some() && key == ORACLE);
            if !is_known {
                let all = KEYS.join(", ");
                return Err(format!("scheme `{text}`: unknown key `{key}`; known keys: {all}"));
            }
            set.insert(key.to_owned(), typed(value));
        }
        Ok(Self { name: text.to_owned(), weight: 1, set })
    }

    /// Parses `NAME=SCHEME:WEIGHT`.
    pub(super) fn parse_cohort(text: &str) -> Result<Self, String> {
        let bad =
            || format!("cohort `{text}`: write NAME=SCHEME:WEIGHT, with a weight of 1 to 1000000");
        let (name, rest) = text.split_once('=').ok_or_else(bad)?;
        let (scheme, weight) = rest.rsplit_once(':').ok_or_else(bad)?;
        let weight = weight.parse().ok().filter(|n| (1..=1_000_000).contains(n)).ok_or_else(bad)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(bad());
        }
        Ok(Self { name: name.to_owned(), weight, ..Self::parse(scheme)? })
    }

    /// Parses all arms; names must be unique.
    ///
    /// # Errors
    /// One line that names the invalid arm.
    pub(super) fn all(
        texts: &[String],
        read: impl Fn(&str) -> Result<Self, String>,
    ) -> Result<Vec<Self>, String> {
        let mut arms: Vec<Self> = Vec::new();
        for text in texts {
            let arm = read(text)?;
            if arms.iter().any(|known| known.name == arm.name) {
                return Err(format!("`{}` is named twice", arm.name));
            }
            arms.push(arm);
        }
        match arms.len() {
            1..=MAX_ARMS => Ok(arms),
            n => Err(format!("{n} schemes; there may be 1 to {MAX_ARMS}")),
        }
    }

    /// Returns the scheme's name in the catalogue.
    pub(super) fn scheme(&self) -> &str {
        self.set.get("scheme").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns whether the arm knows packet fates, which no product can.
    pub(super) fn is_oracle(&self) -> bool {
        self.set.contains_key(ORACLE)
    }

    /// Returns the name as a folder name.
    pub(super) fn folder(&self) -> String {
        self.name.replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c), "_")
    }
}

/// Converts the value as a specification would.
fn typed(value: &str) -> Value {
    if let Ok(whole) = value.parse() {
        return Value::Integer(whole);
    }
    if let Ok(number) = value.parse() {
        return Value::Float(number);
    }
    match value {
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        text => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_and_cohorts_are_read_with_their_parameters() {
        let arm = Arm::parse("autorec+alpha_ms=50+when_idle=true").expect("a scheme");
        assert_eq!((arm.scheme(), &arm.set["alpha_ms"]), ("autorec", &Value::Integer(50)));
        assert_eq!(arm.set["when_idle"], Value::Boolean(true));
        assert_eq!(arm.folder(), "autorec_alpha_ms_50_when_idle_true");
        let cohort = Arm::parse_cohort("more=spare+copies=2:30").expect("a cohort");
        assert_eq!((&*cohort.name, cohort.scheme(), cohort.weight), ("more", "spare", 30));
        assert!(Arm::parse(CLAIRVOYANT).expect("known").is_oracle());
    }

    #[test]
    fn unknown_schemes_and_path_keys_are_rejected() {
        let refused = |text: &str| Arm::parse(text).expect_err(text);
        assert!(refused("fec+copies=1").starts_with("unknown scheme `fec`; known schemes: arq, "));
        assert!(refused("fec").contains("presets: autorec-fleet, "));
        assert!(refused("arq+rate_mbps=100").contains("unknown key `rate_mbps`"));
        assert!(refused("arq+oracle=from-start").contains("unknown key `oracle`"));
        assert!(refused("spare+copies").contains("KEY=VALUE"));
        for text in ["a", "a=arq", "a=arq:0", "=arq:1", "a b=arq:1", "a=fec:1"] {
            assert!(Arm::parse_cohort(text).is_err(), "{text}");
        }
        let twice = ["arq".to_owned(), "arq".to_owned()];
        assert!(Arm::all(&twice, Arm::parse).expect_err("twice").contains("named twice"));
        assert!(Arm::all(&[], Arm::parse).is_err());
    }
}
