//! Cohorts: random assignment of viewers to weighted groups, each with its own recovery scheme, to
//! compare schemes in production.
//!
//! The unit of assignment is the viewer, not the connection: a random number that the client
//! returns inside the address token, or, without one, a hash of its network. A salted hash of the
//! unit selects the cohort. So a viewer stays in its cohort, and another salt assigns viewers
//! independently. The number issued to a new viewer belongs to the cohort of its network.

use core::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use recovery::catalog::{Parameters, SchemeSpec, Weights};
use startup::decision::Mode;

use crate::Error;
use crate::config::{self, Config};
use crate::disk::small;
use crate::viewer::Unit;

/// Maximum bytes of a file of network weights.
const MAX_WEIGHTS: usize = 64 << 20;
/// Maximum draws to find a unit in a cohort.
const MAX_DRAWS: u64 = 500;

/// A cohort.
#[derive(Clone, PartialEq, Debug)]
pub struct Cohort {
    /// Its name in metrics and records.
    pub name: String,
    /// Its share of viewers, relative to the other weights.
    pub weight: u32,
    /// The recovery scheme.
    pub scheme: SchemeSpec,
    /// The startup mode of connections.
    pub start: Mode,
}

/// Returns the scheme of a cohort. Unset keys inherit from `[recovery]`. All connections of the
/// cohort share the state of a bandit, since the start or the last reload.
fn scheme_of(
    all: &config::Recovery,
    own: &config::Cohort,
    weights: Option<&Weights>,
) -> Result<SchemeSpec, Error> {
    let recovery = own.recovery(all);
    let choice = recovery.scheme;
    let parameters = Parameters { weights: weights.cloned(), ..recovery.parameters() };
    SchemeSpec::new(choice, parameters).map_err(|e| match e.key {
        "network" => Error::new(format!(
            "scheme {:?} needs [recovery] dqn, a file of network weights",
            choice.name()
        )),
        _ => Error::new(format!("scheme {:?}: {e}", choice.name())),
    })
}

/// Loads a file of weights.
fn load(path: &Path) -> Result<Weights, Error> {
    let bad =
        |why: &dyn fmt::Display| Error::new(format!("[recovery] dqn: {}: {why}", path.display()));
    let bytes = small::read(path, MAX_WEIGHTS).map_err(|e| bad(&e))?;
    Weights::from_bytes(&bytes).map_err(|e| bad(&e))
}

/// Properties of a client at the start of its connection.
#[derive(Clone, Copy, Debug)]
pub struct ClientFacts {
    /// The unit in the client's token or ticket, if it has one.
    pub unit: Option<Unit>,
    /// The client's address.
    pub remote: IpAddr,
}

/// The assignment of a viewer to a cohort.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The unit that selected the cohort.
    pub unit: Unit,
    /// Whether the client sent its own unit, rather than being assigned by its network.
    pub is_known: bool,
    /// The cohort.
    pub cohort: Arc<Cohort>,
}

/// The cohorts of a configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Cohorts {
    salt: String,
    cohorts: Vec<Arc<Cohort>>,
}

impl Cohorts {
    /// Creates the cohorts of a configuration. Without any, one cohort `all` has all viewers.
    ///
    /// # Errors
    /// One line: a scheme requires a network and there is none, or its file is unreadable.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let all = &config.recovery;
        let weights = all.dqn.as_deref().map(load).transpose()?;
        let cohort = |own: &config::Cohort| {
            let scheme = scheme_of(all, own, weights.as_ref())?;
            let start = own.start.unwrap_or(config.startup.mode);
            Ok(Cohort { name: own.name.clone(), weight: own.weight, scheme, start })
        };
        let mut cohorts: Vec<Cohort> =
            config.cohort.iter().map(cohort).collect::<Result<_, Error>>()?;
        if cohorts.is_empty() {
            let everybody = config::Cohort { name: "all".to_owned(), ..<_>::default() };
            cohorts.push(cohort(&everybody)?);
        }
        if config.experiment.aa {
            // Equal cohorts, so that differences between them are due to chance.
            let (scheme, start) = (cohorts[0].scheme.clone(), cohorts[0].start);
            for cohort in &mut cohorts {
                (cohort.scheme, cohort.start) = (scheme.clone(), start);
            }
        }
        let cohorts = cohorts.into_iter().map(Arc::new).collect();
        Ok(Self { salt: config.experiment.salt.clone(), cohorts })
    }

    /// Assigns a client to a cohort at the start of its connection.
    pub fn choose(&self, facts: &ClientFacts) -> Assignment {
        let known = facts.unit;
        let unit = known.unwrap_or_else(|| Unit::of_network(facts.remote));
        Assignment { unit, is_known: known.is_some(), cohort: self.of(unit).clone() }
    }

    /// Returns the viewer's unit for its next connection. `random` makes a new unit unique.
    pub fn next_unit(&self, viewer: &Assignment, random: u64) -> Unit {
        match viewer.is_known {
            true => viewer.unit,
            false => self.own_unit(viewer.unit, random),
        }
    }

    /// Returns the cohort of a unit.
    pub fn of(&self, unit: Unit) -> &Arc<Cohort> {
        let weights = self.cohorts.iter().map(|cohort| cohort.weight);
        &self.cohorts[unit.cohort(&self.salt, weights)]
    }

    /// Returns an own unit for a viewer assigned by its network, in the same cohort. `random` makes
    /// it unique.
    pub fn own_unit(&self, network: Unit, random: u64) -> Unit {
        let cohort = &self.of(network).name;
        // With a tiny weight no draw may succeed. Then the viewer keeps the unit of its network.
        (0..MAX_DRAWS)
            .map(|n| Unit::numbered(random, n))
            .find(|&unit| &self.of(unit).name == cohort)
            .unwrap_or(network)
    }

    /// Returns all cohorts.
    pub fn all(&self) -> &[Arc<Cohort>] {
        &self.cohorts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::units::{Mark, Timestamp};
    use core::time::Duration;
    use recovery::art::dqn::Network;
    use recovery::autorec::Tolerances;
    use recovery::deadline;
    use recovery::{Acked, Content, CopyKind, Fit, Packet, Recovery};

    fn cohorts(text: &str) -> Cohorts {
        Cohorts::new(&Config::parse("edge.toml", text).expect("valid")).expect("complete")
    }

    const TWO: &str = r#"
        [[cohort]]
        name = "control"
        weight = 30
        [[cohort]]
        name = "treatment"
        weight = 10
        scheme = "autorec"
    "#;

    #[test]
    fn viewers_are_assigned_by_weight_and_stay() {
        let cohorts = cohorts(TWO);
        let units = (0..10_000).map(|n| Unit(n * 0x9e37_79b9));
        let treated = units.clone().filter(|&unit| cohorts.of(unit).name == "treatment").count();
        assert!((2_350..2_650).contains(&treated), "{treated}");
        assert!(units.clone().all(|unit| cohorts.of(unit) == cohorts.clone().of(unit)));
    }

    #[test]
    fn an_own_unit_is_in_the_cohort_of_the_network() {
        let cohorts = cohorts(TWO);
        for n in 0..200 {
            let own = cohorts.own_unit(Unit(n), n);
            assert_eq!(cohorts.of(own), cohorts.of(Unit(n)));
            assert!(own != Unit(n) && own != cohorts.own_unit(Unit(n), n + 1));
        }
    }

    #[test]
    fn another_salt_assigns_viewers_independently() {
        let (one, two) = (cohorts(TWO), cohorts(&format!("experiment.salt = \"2\"\n{TWO}")));
        let same = (0..1_000).filter(|&n| one.of(Unit(n)).name == two.of(Unit(n)).name).count();
        // Expected by chance: 0.75² + 0.25² = 0.625.
        assert!((560..690).contains(&same), "{same}");
    }

    #[test]
    fn unset_keys_of_a_cohort_inherit_from_recovery() {
        let cohorts = cohorts(&format!(
            "recovery.latency = \"50ms\"\nrecovery.scheme = \"arq\"\n{TWO}cost = 0.1"
        ));
        let [control, treatment] = cohorts.all() else { panic!("two") };
        assert_eq!((control.scheme.name(), treatment.scheme.name()), ("arq", "autorec"));
        let tolerances = Tolerances { latency: Duration::from_millis(50), cost: 0.1, goodput: 0.2 };
        assert_eq!(treatment.scheme.parameters().tolerances, tolerances);
    }

    #[test]
    fn the_default_scheme_is_deadline_and_its_options_inherit() {
        let scheme = |text: &str| cohorts(text).all()[0].scheme.clone();
        assert_eq!((scheme("").name(), scheme("").build(1).name), ("deadline", "deadline"));
        let options = |text: &str| scheme(text).parameters().deadline;
        assert_eq!(options(""), deadline::Options::default());
        let ms = Duration::from_millis;
        assert_eq!(options("recovery.price = \"5ms\"").price, ms(5));
        let own = options("recovery.patience = \"1s\"\n[[cohort]]\nname = \"a\"\nprice = \"0s\"");
        assert_eq!((own.price, own.patience), (ms(0), ms(1_000)));
        let patient = "recovery.patient_above = 0.1\n[[cohort]]\nname = \"a\"\n";
        assert_eq!(options(patient).patient_above, 0.1);
        assert_eq!(options(&format!("{patient}patient_above = 1.0")).patient_above, 1.0);
        let copies = |text: &str| scheme(text).parameters().copies;
        assert_eq!((copies(""), copies("recovery.copies = 2")), (1, 2));
        assert_eq!(copies("[[cohort]]\nname = \"more\"\ncopies = 3"), 3);
        for bad in [
            "copies = 11",
            "copies = -1",
            "price = \"2s\"",
            "patience = \"0s\"",
            "patient_above = 0.0",
        ] {
            let line = Config::parse("edge.toml", &format!("recovery.{bad}"))
                .expect_err("refused")
                .to_string();
            assert!(line.contains(bad.split(' ').next().expect("a key")), "{line}");
        }
    }

    #[test]
    fn every_configurable_scheme_can_be_built() {
        for entry in recovery::catalog::entries().filter(|entry| entry.name != "art-dqn") {
            let cohorts = cohorts(&format!("recovery.scheme = \"{}\"", entry.name));
            assert_eq!(cohorts.all()[0].scheme.build(1).name, entry.name);
        }
        let line = Config::parse("edge.toml", "recovery.scheme = \"fec\"").expect_err("refused");
        assert!(line.to_string().contains("\"autorec-mm24\""), "{line}");
    }

    #[test]
    fn a_trained_network_is_loaded_and_validated() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let refused = |text: &str| {
            let config = Config::parse("edge.toml", text).expect("valid");
            Cohorts::new(&config).expect_err("refused").to_string()
        };
        let dqn = "recovery.scheme = \"art-dqn\"";
        assert!(refused(dqn).contains("needs [recovery] dqn"), "{}", refused(dqn));
        let text = format!("{dqn}\nrecovery.dqn = {:?}", file.path());
        let network = Network::untrained(&[8], 1).expect("small").to_bytes("");
        let mut infinite = network.clone();
        infinite.splice(network.len() - 4.., f32::NAN.to_le_bytes());
        let mut wide = network.clone();
        wide[9] = 33;
        for bad in [&[][..], &infinite, &wide, &network[1..]] {
            std::fs::write(file.path(), bad).expect("written");
            let line = refused(&text);
            assert!(line.starts_with("[recovery] dqn: ") && !line.contains('\n'), "{line}");
        }
        std::fs::write(file.path(), network).expect("written");
        let scheme = cohorts(&text).all()[0].scheme.build(1);
        assert_eq!(scheme.name, "art-dqn");
    }

    /// Content of one byte.
    struct Data {
        is_acked: bool,
    }

    impl Content for Data {
        type Piece = ();
        fn len((): &()) -> u32 {
            1
        }
        fn missing(&self, (): &(), out: &mut Vec<()>) {
            out.extend((!self.is_acked).then_some(()));
        }
        fn is_abandoned(&self, (): &()) -> bool {
            false
        }
        fn mark(&self, (): &()) -> Option<Mark> {
            None
        }
        fn detach(&mut self, (): &()) {}
    }

    #[test]
    fn connections_of_a_cohort_share_bandit_state() {
        let cohorts = cohorts("recovery.scheme = \"art-ucb\"");
        let now = Timestamp::from_millis(1);
        let connection =
            |seed| Recovery::new(cohorts.all()[0].scheme.build(seed), None, Timestamp::ZERO);
        let (mut one, other) = (connection(1), connection(2));
        let (mut data, kind) = (Data { is_acked: false }, CopyKind::Retransmission);
        let lost = Packet { number: 1, sent: now, bytes: 1_200, copy: None, unit: None };
        let unit = one.lost(now, &lost, [()], &mut data).opened.expect("a lost unit");
        one.copy(now, unit, kind, &data, |()| Fit::Whole);
        data.is_acked = true;
        let copy = Packet { copy: Some(kind), unit: Some(unit), ..lost };
        one.acked(now, &copy, Acked::InTime, &data);
        let mut mean = None;
        other.explain(&mut |name, value| mean = mean.or((name == "mean_1").then_some(value)));
        assert_eq!(mean, Some(1.0));
    }

    #[test]
    fn the_startup_mode_of_a_cohort_defaults_to_the_global_one() {
        let cohorts = cohorts(&format!("startup.mode = \"careful\"\n{TWO}start = \"wira\""));
        let starts: Vec<_> = cohorts.all().iter().map(|cohort| cohort.start).collect();
        assert_eq!(starts, [Mode::Careful, Mode::Wira]);
    }

    #[test]
    fn cohorts_of_an_a_a_experiment_differ_only_in_name() {
        let cohorts = cohorts(&format!("experiment.aa = true\n{TWO}start = \"wira\""));
        assert_eq!(cohorts.all()[1].scheme, cohorts.all()[0].scheme);
        assert_eq!(cohorts.all()[1].start, cohorts.all()[0].start);
        assert_eq!(cohorts.all()[1].name, "treatment");
    }

    #[test]
    fn viewers_keep_their_unit_and_new_ones_are_assigned_by_network() {
        let (cohorts, own) = (cohorts(TWO), Unit(0x0123_4567_89ab_cdef));
        let remote = [192, 0, 2, 1].into();
        let known = cohorts.choose(&ClientFacts { unit: Some(own), remote });
        assert_eq!((known.unit, cohorts.next_unit(&known, 1)), (own, own));
        let new = cohorts.choose(&ClientFacts { unit: None, remote });
        assert_eq!(new.unit, Unit::of_network(remote));
        assert_ne!(cohorts.next_unit(&new, 1), cohorts.next_unit(&new, 2));
        let (a, b) = ([192, 0, 2, 1].into(), [192, 0, 2, 200].into());
        assert_eq!(Unit::of_network(a), Unit::of_network(b));
    }
}
