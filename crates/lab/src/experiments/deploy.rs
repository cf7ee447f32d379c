//! Experiments and deployments: a server's configuration as an arm of an experiment, and an arm as
//! a server's configuration.

use std::fmt::Write as _;
use std::path::Path;

use config::{Cohort, Config, Section, Sections};
use toml::{Table, Value};

use super::figures::built_in;
use super::metrics::Term;
use super::spec::{Spec, entries};
use crate::error::{Error, NameError};
use crate::setup::{SIMULATED, Setup};

/// Experiment that simulates a deployment by default.
pub const DEFAULT: &str = "live-default";
/// Section of knobs that a server does not have.
const LAB: &str = "lab";
/// Keys of that section that say how a run is measured.
const OF_RUN: [&str; 4] = ["lab.cipher", "lab.measure_from", "lab.twice", "lab.warm_up"];
/// Label of a deployment without cohorts.
const DEPLOYMENT: &str = "deployment";

/// Returns the specification of the experiment `name` with the deployment in the file `path` in
/// place of its schemes, beside its baseline and its clairvoyant sender. Each cohort is an arm.
/// Claims and numbers of papers are left out, because they are about other schemes.
///
/// # Errors
/// One line: the experiment is unknown, or the file cannot be read or is invalid.
pub fn with_deployment(name: &str, path: &Path) -> Result<String, Error> {
    let config = Config::load(path)?;
    with_config(built_in(name)?, &config)
}

fn with_config(text: &str, config: &Config) -> Result<String, Error> {
    let spec = Spec::parse(text)?;
    let mut table: Table = text.parse().map_err(|e| Error::Experiment(Box::new(e)))?;
    table.remove("claims");
    table.remove("paper");
    let kept: Vec<&String> =
        [Some(&spec.baseline), spec.clairvoyant.as_ref()].into_iter().flatten().collect();
    if let Some(Value::Array(metrics)) = table.get_mut("metrics") {
        let other = |term: &Value| Term::parse(term.as_str()?).ok()?.other;
        metrics.retain(|term| other(term).is_none_or(|label| kept.contains(&&label)));
    }
    for sweep in table.get_mut("sweeps").and_then(Value::as_array_mut).into_iter().flatten() {
        sweep.as_table_mut().map(|sweep| sweep.remove("schemes"));
    }
    if let Some(Value::Array(schemes)) = table.get_mut("schemes") {
        schemes.retain(|scheme| {
            let label = scheme.get("label").and_then(Value::as_str);
            label.is_some_and(|label| kept.iter().any(|kept| *kept == label))
        });
        for (label, arm) in arms(config) {
            if kept.iter().any(|kept| **kept == label) {
                return Err(NameError::Cohort(label).into());
            }
            let mut scheme = Table::new();
            scheme.insert("label".to_owned(), Value::String(label));
            scheme.insert("set".to_owned(), Value::Table(keys(&spec, &arm)?));
            schemes.push(Value::Table(scheme));
        }
    }
    Ok(table.to_string())
}

/// Returns a set-up per cohort, with its name.
fn arms(config: &Config) -> Vec<(String, Setup)> {
    let arm = |cohort: &Cohort| {
        let mut server = config.clone();
        server.recovery = cohort.recovery(&config.recovery);
        server.startup.mode = cohort.start.unwrap_or(config.startup.mode);
        (cohort.name.clone(), Setup { server, ..Setup::default() })
    };
    match &config.cohort[..] {
        [] => vec![arm(&Cohort { name: DEPLOYMENT.to_owned(), ..Cohort::default() })],
        cohorts => cohorts.iter().map(arm).collect(),
    }
}

/// Returns the keys of a deployment that differ from the defaults or that the experiment sets.
fn keys(spec: &Spec, arm: &Setup) -> Result<Table, Error> {
    let default = Setup::default();
    let swept = spec.sweeps.iter().flat_map(|sweep| {
        let axes = sweep.axes.iter().map(|axis| axis.key.get_ref().clone());
        let ranges = sweep.ranges.iter().map(|range| range.key.get_ref().clone());
        axes.chain(ranges).chain(entries(&sweep.set).map(|(key, _, _)| key))
    });
    let swept: Vec<String> = swept.collect();
    let mut table = Table::new();
    for (section, (name, _)) in arm.keys() {
        let key = format!("{section}.{name}");
        let is_servers = SIMULATED.contains(&section);
        if !is_servers && (section != LAB || OF_RUN.contains(&key.as_str())) {
            continue;
        }
        let text = |setup: &Setup| {
            setup.view(section).and_then(|known| known.get(name)).and_then(|shown| shown.toml)
        };
        let (own, usual) = (text(arm), text(&default));
        let is_set = swept.contains(&key) || text(&spec.base) != usual;
        let Some(value) = own.clone().filter(|_| is_set || own != usual) else { continue };
        let line = format!("value = {value}");
        let mut read: Table = line.parse().map_err(|e| Error::Experiment(Box::new(e)))?;
        let keys = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        if let (Some(keys), Some(value)) = (keys.as_table_mut(), read.remove("value")) {
            keys.insert(name.to_owned(), value);
        }
    }
    Ok(table)
}

/// Returns the scheme `label` of the experiment `name` as the configuration of a server: the keys
/// that differ from the defaults. Comments name knobs of the testbed that a server does not have.
///
/// # Errors
/// One line: the experiment or the scheme is unknown.
pub fn deployment(name: &str, label: &str) -> Result<String, Error> {
    let spec = Spec::parse(built_in(name)?)?;
    let scheme = spec.schemes.iter().find(|scheme| scheme.label == label).ok_or_else(|| {
        let known = spec.schemes.iter().map(|scheme| scheme.label.clone()).collect();
        let (experiment, label) = (name.to_owned(), label.to_owned());
        NameError::LabelOf { experiment, label, known }
    })?;
    let mut setup = spec.base.clone();
    for (key, _, value) in entries(&scheme.set) {
        setup.set(&key, value)?;
    }
    let default = Setup::default();
    let mut out = format!("# {label} of {name}.\n");
    for section in SIMULATED.into_iter().chain([LAB]) {
        let view = |setup: &Setup, key: &str| setup.view(section)?.get(key)?.toml;
        let keys = setup.view(section).map_or(&[][..], Section::keys).iter();
        let changed = keys.filter_map(|(key, _)| {
            let value =
                view(&setup, key).filter(|value| Some(value) != view(&default, key).as_ref());
            let is_used = setup.is_used(&format!("{section}.{key}"));
            Some((*key, value?)).filter(|_| is_used)
        });
        let changed: Vec<(&str, String)> = changed.collect();
        if section == LAB {
            for (key, value) in changed {
                if !OF_RUN.contains(&format!("{LAB}.{key}").as_str()) {
                    let _ = writeln!(out, "# A server has no [lab] {key} = {value}.");
                }
            }
        } else if !changed.is_empty() {
            let _ = writeln!(out, "\n[{section}]");
            for (key, value) in changed {
                let _ = writeln!(out, "{key} = {value}");
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_takes_part_in_an_experiment_with_all_of_its_keys() {
        let text = "recovery.scheme = \"spare\"\nrecovery.copies = 2\nserver.cores = 2\n\
                    quic.congestion = \"cubic-live\"\nlive.thin_lag = \"800ms\"";
        let config = Config::parse("edge.toml", text).expect("valid");
        let spec = built_in(DEFAULT).expect("built in");
        let spec = Spec::parse(&with_config(spec, &config).expect("valid")).expect("valid");
        let labels: Vec<&str> = spec.schemes.iter().map(|scheme| scheme.label.as_str()).collect();
        assert_eq!(labels, [spec.baseline.as_str(), DEPLOYMENT]);
        let sweep = &spec.sweeps[0];
        let point = sweep.points().remove(0);
        let setup = spec.setup(sweep, &point, &[], &spec.schemes[1]).expect("valid");
        // The experiment's own limit on copies does not apply to the deployment.
        assert_ne!(spec.base.server.recovery.max_redundancy, config.recovery.max_redundancy);
        for section in SIMULATED {
            for (key, _) in config.view(section).expect("known").keys() {
                let of = |root: &dyn Sections| root.view(section).and_then(|known| known.get(key));
                assert_eq!(of(&setup.server), of(&config), "{section}.{key}");
            }
        }
        assert!(spec.claims.is_empty());
    }

    #[test]
    fn each_cohort_of_a_deployment_is_an_arm() {
        let text = "[[cohort]]\nname = \"a\"\nscheme = \"arq\"\n\
                    [[cohort]]\nname = \"b\"\nstart = \"wira\"";
        let config = Config::parse("edge.toml", text).expect("valid");
        for (name, _) in super::super::figures::list() {
            let spec = with_config(built_in(name).expect("built in"), &config).expect(name);
            let spec = Spec::parse(&spec).unwrap_or_else(|e| panic!("{name}: {e}"));
            let labels = spec.schemes.iter().map(|scheme| scheme.label.as_str());
            assert_eq!(labels.filter(|label| ["a", "b"].contains(label)).count(), 2, "{name}");
        }
    }

    #[test]
    fn every_arm_of_every_experiment_is_a_configuration() {
        for (name, _) in super::super::figures::list() {
            let spec = Spec::parse(built_in(name).expect("built in")).expect(name);
            for scheme in &spec.schemes {
                let text = deployment(name, &scheme.label).expect(name);
                let config = Config::parse(name, &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
                let mut setup = spec.base.clone();
                for (key, _, value) in entries(&scheme.set) {
                    setup.set(&key, value).expect(&key);
                }
                assert_eq!(config.recovery.scheme, setup.server.recovery.scheme);
                assert_eq!(config.quic, setup.server.quic, "{name}, {}", scheme.label);
                assert_eq!(config.startup, setup.server.startup, "{name}, {}", scheme.label);
            }
        }
        let text = deployment("live-default", "AutoRec when idle").expect("known");
        assert!(text.contains("# A server has no [lab] when_idle = true."), "{text}");
        let error = deployment("live-default", "x").unwrap_err().to_string();
        assert!(error.contains("it has ARQ, "), "{error}");
    }
}
