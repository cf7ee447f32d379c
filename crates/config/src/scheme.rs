//! The recovery scheme of a configuration, and keys that it does not use.

use recovery::autorec::Tolerances;
use recovery::catalog::{Choice, Parameters, Takes};
use recovery::deadline;

use crate::keys::{Cohort, Config, Recovery};
use crate::sections::Section;

impl Recovery {
    /// Parameters of the scheme, without the weights of "art-dqn", which are in the file `dqn`.
    pub fn parameters(&self) -> Parameters {
        Parameters {
            copies: self.copies,
            deadline: deadline::Options {
                price: self.price,
                patience: self.patience,
                patient_above: self.patient_above,
                ..deadline::Options::default()
            },
            tolerances: Tolerances {
                latency: self.latency,
                cost: self.cost,
                goodput: self.goodput,
            },
            ..Parameters::default()
        }
    }
}

impl Cohort {
    /// Returns the keys of `[recovery]` that apply to the cohort: its own, or else those of `all`.
    pub fn recovery(&self, all: &Recovery) -> Recovery {
        Recovery {
            scheme: self.scheme.unwrap_or(all.scheme),
            price: self.price.unwrap_or(all.price),
            patience: self.patience.unwrap_or(all.patience),
            patient_above: self.patient_above.unwrap_or(all.patient_above),
            copies: self.copies.unwrap_or(all.copies),
            latency: self.latency.unwrap_or(all.latency),
            cost: self.cost.unwrap_or(all.cost),
            goodput: self.goodput.unwrap_or(all.goodput),
            ..all.clone()
        }
    }
}

/// Returns whether a scheme uses a parameter.
pub fn takes(choice: Choice, parameter: Takes) -> bool {
    let own = choice.entry.takes;
    // "art-dqn" in training shares the bandits' options.
    own.contains(&parameter) || (parameter == Takes::Arms && own.contains(&Takes::Weights))
}

/// Returns the keys of a section whose values differ from the default and that none of the schemes
/// uses.
pub fn unused<S: Section + Default>(section: &S, schemes: &[Choice]) -> Vec<&'static str> {
    let default = S::default();
    let is_unused = |(key, parameter): &&(&'static str, Option<Takes>)| {
        parameter.is_some_and(|parameter| !schemes.iter().any(|scheme| takes(*scheme, parameter)))
            && section.get(key) != default.get(key)
    };
    section.keys().iter().filter(is_unused).map(|(key, _)| *key).collect()
}

impl Config {
    /// Returns keys that have no effect, because no scheme of the configuration uses them: the key
    /// as `[section] key`, and the reason.
    pub fn unused(&self) -> Vec<(String, String)> {
        let scheme = |cohort: &Cohort| cohort.scheme.unwrap_or(self.recovery.scheme);
        let mut schemes: Vec<Choice> = self.cohort.iter().map(scheme).collect();
        if schemes.is_empty() {
            schemes.push(self.recovery.scheme);
        }
        let reason = |schemes: &[Choice]| {
            let mut names: Vec<_> =
                schemes.iter().map(|scheme| format!("{:?}", scheme.name())).collect();
            names.dedup();
            match &names[..] {
                [name] => format!("the scheme {name} does not use it"),
                _ => format!("none of the schemes {} uses it", names.join(", ")),
            }
        };
        let keys = unused(&self.recovery, &schemes).into_iter();
        let mut all: Vec<_> =
            keys.map(|key| (format!("[recovery] {key}"), reason(&schemes))).collect();
        for cohort in &self.cohort {
            let own = [scheme(cohort)];
            let keys = unused(cohort, &own).into_iter();
            let told = |key| (format!("[[cohort]] {key} of {:?}", cohort.name), reason(&own));
            all.extend(keys.map(told));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_the_scheme_does_not_use_are_listed() {
        let unused = |text: &str| -> Vec<String> {
            let config = Config::parse("edge.toml", text).expect("valid");
            config.unused().into_iter().map(|(key, why)| format!("{key}: {why}")).collect()
        };
        assert!(unused("").is_empty());
        assert!(unused("recovery.price = \"5ms\"").is_empty());
        assert_eq!(
            unused("recovery.scheme = \"arq\"\nrecovery.price = \"5ms\"\nrecovery.copies = 2"),
            [
                "[recovery] price: the scheme \"arq\" does not use it",
                "[recovery] copies: the scheme \"arq\" does not use it"
            ]
        );
        let cohorts = "recovery.price = \"5ms\"\n[[cohort]]\nname = \"a\"\nscheme = \"arq\"\n\
                       [[cohort]]\nname = \"b\"\nscheme = \"spare\"\ncost = 0.5";
        assert_eq!(
            unused(cohorts),
            [
                "[recovery] price: none of the schemes \"arq\", \"spare\" uses it",
                "[[cohort]] cost of \"b\": the scheme \"spare\" does not use it"
            ]
        );
        let one = cohorts.replace("arq", "deadline");
        assert!(!unused(&one).iter().any(|line| line.contains("price")));
    }
}
