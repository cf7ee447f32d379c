//! Cohorts: viewers are divided by chance into weighted groups, each with its own recovery scheme, so
//! that schemes can be compared in production.
//!
//! The unit is the viewer, not the connection: a random number that the client carries back to us
//! inside our address token, or, before it has one, a hash of its network. A keyed hash of the unit
//! picks the cohort, so a viewer stays in it, and another experiment (another salt) divides
//! viewers anew. The number that a new viewer is given is one of the cohort that it is in already.

use core::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use recovery::art::dqn::Network;
use recovery::catalog::{Parameters, SchemeSpec};
use startup::decision::Mode;

use crate::Error;
use crate::config::{self, Config};
use crate::disk::small;
use crate::viewer::Unit;

/// The most bytes of a file of weights.
const MAX_WEIGHTS: usize = 64 << 20;
/// Draws of a unit in the cohort of a network.
const MAX_TRIES: u64 = 500;

/// One cohort.
#[derive(Clone, PartialEq, Debug)]
pub struct Cohort {
    /// Its name in metrics and records.
    pub name: String,
    /// Its share of the viewers, against the other weights.
    pub weight: u32,
    /// How its viewers' lost data is repaired.
    pub scheme: SchemeSpec,
    /// How its viewers' connections start.
    pub start: Mode,
}

/// The scheme of one cohort; what that does not say is as for all. What bandits learn, all connections
/// of the cohort learn, from the start or the last reload on.
fn scheme_of(
    all: &config::Recovery,
    own: &config::Cohort,
    network: Option<&Arc<Network>>,
) -> Result<SchemeSpec, Error> {
    let recovery = own.recovery(all);
    let choice = recovery.scheme;
    let parameters = Parameters { network: network.cloned(), ..recovery.parameters() };
    SchemeSpec::new(choice, parameters).map_err(|e| match e.key {
        "network" => Error::new(format!(
            "the scheme {:?} needs [recovery] dqn, a file of weights",
            choice.name()
        )),
        _ => Error::new(format!("the scheme {:?}: {e}", choice.name())),
    })
}

/// The network in a file of weights.
fn load(path: &Path) -> Result<Arc<Network>, Error> {
    let bad =
        |why: &dyn fmt::Display| Error::new(format!("[recovery] dqn: {}: {why}", path.display()));
    let bytes = small::read(path, MAX_WEIGHTS).map_err(|e| bad(&e))?;
    Network::from_bytes(&bytes).map(Arc::new).map_err(|e| bad(&e))
}

/// What is known of a viewer when its connection begins.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// What our token or ticket says it is, if the client brought one.
    pub unit: Option<Unit>,
    /// The client's address.
    pub remote: IpAddr,
}

/// How a viewer is served.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// What divided the viewer into its cohort.
    pub unit: Unit,
    /// Whether the viewer brought its own unit; else it has that of its network.
    pub is_known: bool,
    /// The cohort, whose scheme repairs what the viewer loses.
    pub cohort: Cohort,
}

/// The cohorts of a configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Cohorts {
    salt: String,
    cohorts: Vec<Cohort>,
}

impl Cohorts {
    /// Without cohorts in the configuration there is one, of everybody.
    ///
    /// # Errors
    /// One line: a scheme wants a network and there is none, or its file cannot be read.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let all = &config.recovery;
        let network = all.dqn.as_deref().map(load).transpose()?;
        let cohort = |own: &config::Cohort| {
            let scheme = scheme_of(all, own, network.as_ref())?;
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
            // The same for everybody, so that the difference between cohorts is chance alone.
            let (scheme, start) = (cohorts[0].scheme.clone(), cohorts[0].start);
            for cohort in &mut cohorts {
                (cohort.scheme, cohort.start) = (scheme.clone(), start);
            }
        }
        Ok(Self { salt: config.experiment.salt.clone(), cohorts })
    }

    /// How a viewer is served, from what is known of it when its connection begins. This is the one
    /// place that decides about a new connection's parameters.
    pub fn choose(&self, facts: &Facts) -> Chosen {
        let known = facts.unit;
        let unit = known.unwrap_or_else(|| Unit::of_network(facts.remote));
        Chosen { unit, is_known: known.is_some(), cohort: self.of(unit).clone() }
    }

    /// The unit that the viewer has from its next connection on. `random` makes that of one who is new unique.
    pub fn next_unit(&self, viewer: &Chosen, random: u64) -> Unit {
        match viewer.is_known {
            true => viewer.unit,
            false => self.own_unit(viewer.unit, random),
        }
    }

    /// The cohort of a viewer.
    pub fn of(&self, unit: Unit) -> &Cohort {
        let weights = self.cohorts.iter().map(|cohort| cohort.weight);
        &self.cohorts[unit.cohort(&self.salt, weights)]
    }

    /// A unit of its own for a viewer who was known by its network, in the same cohort; `random`
    /// makes it unique.
    pub fn own_unit(&self, network: Unit, random: u64) -> Unit {
        let cohort = &self.of(network).name;
        // A cohort with a small weight takes some tries. One with hardly any may not be found, and
        // then the network goes on standing for the viewer.
        (0..MAX_TRIES)
            .map(|n| Unit::numbered(random, n))
            .find(|&unit| &self.of(unit).name == cohort)
            .unwrap_or(network)
    }

    /// All cohorts.
    pub fn all(&self) -> &[Cohort] {
        &self.cohorts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::units::{Mark, Timestamp};
    use core::time::Duration;
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
    fn viewers_are_divided_by_weight_and_stay() {
        let cohorts = cohorts(TWO);
        let units = (0..10_000).map(|n| Unit(n * 0x9e37_79b9));
        let treated = units.clone().filter(|&unit| cohorts.of(unit).name == "treatment").count();
        assert!((2_350..2_650).contains(&treated), "{treated}");
        assert!(units.clone().all(|unit| cohorts.of(unit) == cohorts.clone().of(unit)));
    }

    #[test]
    fn a_unit_of_ones_own_is_in_the_cohort_of_the_network() {
        let cohorts = cohorts(TWO);
        for n in 0..200 {
            let own = cohorts.own_unit(Unit(n), n);
            assert_eq!(cohorts.of(own), cohorts.of(Unit(n)));
            assert!(own != Unit(n) && own != cohorts.own_unit(Unit(n), n + 1));
        }
    }

    #[test]
    fn another_salt_divides_viewers_anew() {
        let (one, two) = (cohorts(TWO), cohorts(&format!("experiment.salt = \"2\"\n{TWO}")));
        let same = (0..1_000).filter(|&n| one.of(Unit(n)).name == two.of(Unit(n)).name).count();
        // By chance: 0.75² + 0.25² = 0.625.
        assert!((560..690).contains(&same), "{same}");
    }

    #[test]
    fn what_a_cohort_does_not_say_is_as_for_all() {
        let cohorts = cohorts(&format!(
            "recovery.latency = \"50ms\"\nrecovery.scheme = \"arq\"\n{TWO}cost = 0.1"
        ));
        let [control, treatment] = cohorts.all() else { panic!("two") };
        assert_eq!((control.scheme.name(), treatment.scheme.name()), ("arq", "autorec"));
        let tolerances = Tolerances { latency: Duration::from_millis(50), cost: 0.1, goodput: 0.2 };
        assert_eq!(treatment.scheme.parameters().tolerances, tolerances);
    }

    #[test]
    fn without_a_word_in_the_file_everybody_gets_what_the_deadline_asks_for() {
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
    fn every_scheme_of_the_configuration_is_made() {
        for entry in recovery::catalog::ALL.iter().filter(|entry| entry.name != "art-dqn") {
            let cohorts = cohorts(&format!("recovery.scheme = \"{}\"", entry.name));
            assert_eq!(cohorts.all()[0].scheme.build(1).name, entry.name);
        }
        let line = Config::parse("edge.toml", "recovery.scheme = \"fec\"").expect_err("refused");
        assert!(line.to_string().contains("\"autorec-mm24\""), "{line}");
    }

    #[test]
    fn a_trained_network_comes_from_a_file_that_has_to_be_right() {
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

    /// One byte, lost or not.
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
    fn the_bandits_of_a_cohort_learn_together() {
        let cohorts = cohorts("recovery.scheme = \"art-ucb\"");
        let now = Timestamp::from_millis(1);
        let connection =
            |seed| Recovery::new(cohorts.all()[0].scheme.build(seed), None, Timestamp::ZERO);
        let (mut one, other) = (connection(1), connection(2));
        let (mut data, kind) = (Data { is_acked: false }, CopyKind::Retransmission);
        let lost = Packet { number: 1, sent: now, bytes: 1_200, copy: None, unit: None };
        let unit = one.lost(now, &lost, [()], &mut data).opened.expect("it is missing");
        one.copy(now, unit, kind, &data, |()| Fit::Whole);
        data.is_acked = true;
        let copy = Packet { copy: Some(kind), unit: Some(unit), ..lost };
        one.acked(now, &copy, Acked::InTime, &data);
        let mut told = None;
        other.explain(&mut |name, value| told = told.or((name == "mean_1").then_some(value)));
        assert_eq!(told, Some(1.0));
    }

    #[test]
    fn a_cohort_starts_as_it_says_or_as_all_do() {
        let cohorts = cohorts(&format!("startup.mode = \"careful\"\n{TWO}start = \"wira\""));
        let starts: Vec<_> = cohorts.all().iter().map(|cohort| cohort.start).collect();
        assert_eq!(starts, [Mode::Careful, Mode::Wira]);
    }

    #[test]
    fn in_an_a_a_experiment_cohorts_differ_in_name_only() {
        let cohorts = cohorts(&format!("experiment.aa = true\n{TWO}start = \"wira\""));
        assert_eq!(cohorts.all()[1].scheme, cohorts.all()[0].scheme);
        assert_eq!(cohorts.all()[1].start, cohorts.all()[0].start);
        assert_eq!(cohorts.all()[1].name, "treatment");
    }

    #[test]
    fn a_viewer_who_brings_its_unit_keeps_it_and_another_is_its_network() {
        let (cohorts, own) = (cohorts(TWO), Unit(0x0123_4567_89ab_cdef));
        let remote = [192, 0, 2, 1].into();
        let known = cohorts.choose(&Facts { unit: Some(own), remote });
        assert_eq!((known.unit, cohorts.next_unit(&known, 1)), (own, own));
        let new = cohorts.choose(&Facts { unit: None, remote });
        assert_eq!(new.unit, Unit::of_network(remote));
        assert_ne!(cohorts.next_unit(&new, 1), cohorts.next_unit(&new, 2));
        let (a, b) = ([192, 0, 2, 1].into(), [192, 0, 2, 200].into());
        assert_eq!(Unit::of_network(a), Unit::of_network(b));
    }
}
