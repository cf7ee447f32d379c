//! The catalogue: every scheme under its one name, which is the same in configurations, records, qlog,
//! experiments and figures. To add a scheme, write its file and add a line to [`ALL`].
//!
//! A [`SchemeSpec`] is an entry with parameters that were checked, so that making a scheme of it for
//! a connection cannot fail.

use crate::arq::Arq;
use crate::art::dqn::Network;
use crate::art::{self, ETA, Penalty, SharedArms, Spread};
use crate::autorec::{
    self, FixedLife, Occasions, Options as UtilityOptions, ReinjectionController, Tolerances,
};
use crate::deadline;
use crate::fixed::{self, Reading};
use crate::range::OutOfRange;
use crate::scheme::Scheme;
use crate::spare;
use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

/// Everything that a scheme can be told. Each scheme looks at what its entry [takes](Entry::takes); the
/// defaults are the papers' values.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameters {
    /// Replicas of each lost round, 0 to [`spare::MAX_COPIES`].
    pub copies: u32,
    /// How far these are apart.
    pub apart: Spread,
    /// What "deadline" goes by.
    pub deadline: deadline::Options,
    /// AutoRec's α, β and γ.
    pub tolerances: Tolerances,
    /// When AutoRec's replicas may leave.
    pub occasions: Occasions,
    /// The level of "autorec-fixed", 0 to 10; R of "fixed", 1 to 10.
    pub level: u32,
    /// The utility of AutoRec's version of MM'24.
    pub utility: UtilityOptions,
    /// ART's L_queue.
    pub queue: usize,
    /// How ART's replicas and fixed ones are spread; `None` for the scheme's own way.
    pub spread: Option<Spread>,
    /// α of the escape space in which "art-paper" spreads replicas.
    pub escape_alpha: f64,
    /// What a lost round costs a bandit.
    pub penalty: Penalty,
    /// What bandits know, and share with others that have the same arms.
    pub arms: SharedArms,
    /// The trained network of "art-dqn".
    pub network: Option<Arc<Network>>,
    /// Whether replicas leave only when nothing else waits ([`Scheme::when_idle()`]), whatever the scheme.
    pub when_idle: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            copies: 1,
            apart: spare::APART,
            deadline: deadline::Options::default(),
            tolerances: Tolerances::default(),
            occasions: Occasions::default(),
            level: 1,
            utility: UtilityOptions::default(),
            queue: 10,
            spread: None,
            escape_alpha: 1.0,
            penalty: Penalty::Quotient(ETA),
            arms: SharedArms::default(),
            network: None,
            when_idle: false,
        }
    }
}

impl Parameters {
    fn spread_over(&self, scheme: Scheme, seed: u64) -> Scheme {
        match self.spread {
            Some(spread) => art::with_schedule(scheme, spread, seed),
            None => scheme,
        }
    }

    fn on_occasion(&self, scheme: Scheme) -> Scheme {
        Scheme { scheduler: Box::new(ReinjectionController::new(self.occasions)), ..scheme }
    }

    fn art(&self, name: &'static str, options: art::Options, own: Spread, seed: u64) -> Scheme {
        let options = art::Options { queue: self.queue, ..options };
        art::with_options(name, options, self.spread.unwrap_or(own), seed)
    }
}

/// A parameter of [`Parameters`], or several that belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// [`Parameters::copies`].
    Copies,
    /// [`Parameters::apart`].
    Apart,
    /// [`Parameters::deadline`].
    Deadline,
    /// [`Parameters::tolerances`].
    Tolerances,
    /// [`Parameters::occasions`].
    Occasions,
    /// [`Parameters::level`].
    Level,
    /// [`Parameters::utility`].
    Utility,
    /// What R counts: the `-copies` in the name.
    Reading,
    /// [`Parameters::queue`].
    Queue,
    /// [`Parameters::spread`] and [`Parameters::escape_alpha`].
    Spread,
    /// [`Parameters::penalty`] and [`Parameters::arms`].
    Arms,
    /// [`Parameters::network`].
    Network,
}

/// A scheme of the catalogue.
#[derive(Debug)]
pub struct Entry {
    /// Its name. With [`Reading::Copies`], `-copies` follows.
    pub name: &'static str,
    copies_name: &'static str,
    /// The parameters that mean something to it.
    pub takes: &'static [Takes],
    build: Build,
}

use Takes::{Apart, Arms, Copies, Level, Network as Weights, Queue, Utility};

const ART: &[Takes] = &[Takes::Reading, Queue, Takes::Spread];
const BANDIT: &[Takes] = &[Takes::Reading, Takes::Spread, Arms];
const FIXED: &[Takes] = &[Takes::Reading, Takes::Spread];
const DQN: &[Takes] = &[Takes::Reading, Takes::Spread, Weights];

type Build = fn(&Parameters, Reading, u64) -> Result<Scheme, OutOfRange>;

/// The entry of a scheme in which R counts nothing.
const fn plain(name: &'static str, takes: &'static [Takes], build: Build) -> Entry {
    Entry { name, copies_name: name, takes, build }
}

/// The entry of a scheme whose R counts extra copies, or, under its second name, all copies.
const fn counting(names: [&'static str; 2], takes: &'static [Takes], build: Build) -> Entry {
    Entry { name: names[0], copies_name: names[1], takes, build }
}

/// All schemes.
pub const ALL: &[Entry] = &[
    plain("arq", &[], |_, _, _| Ok(Arq::scheme())),
    plain("spare", &[Copies, Apart], |p, _, _| spare::scheme(p.copies, p.apart)),
    plain("deadline", &[Takes::Deadline], |p, _, _| deadline::scheme(p.deadline)),
    plain("autorec", &[Takes::Tolerances, Takes::Occasions], |p, _, _| {
        Ok(p.on_occasion(autorec::scheme(p.tolerances.checked()?)))
    }),
    plain("autorec-fixed", &[Level, Takes::Occasions], |p, _, _| {
        Ok(p.on_occasion(autorec::fixed(FixedLife::new(p.level)?)))
    }),
    plain("autorec-mm24", &[Utility, Takes::Occasions], |p, _, seed| {
        Ok(p.on_occasion(autorec::scheme_mm24(p.utility.checked()?, seed)))
    }),
    counting(["fixed", "fixed-copies"], &[Level, Takes::Reading, Takes::Spread], |p, r, seed| {
        Ok(p.spread_over(fixed::fixed(p.level, r)?, seed))
    }),
    counting(["or3", "or3-copies"], FIXED, |p, r, seed| Ok(p.spread_over(fixed::or3(r), seed))),
    counting(["or3-code", "or3-code-copies"], FIXED, |p, r, seed| {
        Ok(p.spread_over(fixed::or3_code(r), seed))
    }),
    counting(["2n+1", "2n+1-copies"], FIXED, |p, r, seed| Ok(p.spread_over(fixed::odd(r), seed))),
    counting(["art-paper", "art-paper-copies"], ART, |p, r, seed| {
        let own = Spread::EscapeSpace { alpha: p.escape_alpha };
        Ok(p.art("art-paper", art::Options::paper(r), own, seed))
    }),
    counting(["art-code", "art-code-copies"], ART, |p, r, seed| {
        Ok(p.art("art-code", art::Options::code(r), Spread::RoundTrip, seed))
    }),
    counting(["art-egreedy", "art-egreedy-copies"], BANDIT, |p, r, seed| {
        Ok(p.spread_over(art::egreedy(r, p.arms.clone(), p.penalty, seed), seed))
    }),
    counting(["art-ucb", "art-ucb-copies"], BANDIT, |p, r, seed| {
        Ok(p.spread_over(art::ucb(r, p.arms.clone(), p.penalty, seed), seed))
    }),
    counting(["art-dqn", "art-dqn-copies"], DQN, |p, r, seed| {
        let missing = OutOfRange { key: "network", allowed: "a trained network" };
        Ok(p.spread_over(art::dqn(p.network.clone().ok_or(missing)?, r, seed), seed))
    }),
];

/// A name that no scheme has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownScheme(String);

impl fmt::Display for UnknownScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no scheme `{}`; there are {}", self.0, names().join(", "))
    }
}

impl core::error::Error for UnknownScheme {}

/// The names of all schemes.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|entry| entry.name).collect()
}

/// A scheme by its name: an entry, and what R counts.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The entry.
    pub entry: &'static Entry,
    /// What R counts.
    pub reading: Reading,
}

impl Choice {
    /// The scheme's name in configurations, records, qlog and figures.
    pub fn name(self) -> &'static str {
        match self.reading {
            Reading::Extra => self.entry.name,
            Reading::Copies => self.entry.copies_name,
        }
    }
}

impl PartialEq for Choice {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl PartialOrd for Choice {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.name().partial_cmp(other.name())
    }
}

impl FromStr for Choice {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<Self, UnknownScheme> {
        let choice = |reading| move |entry| Self { entry, reading };
        let plain = ALL.iter().find(|entry| entry.name == name).map(choice(Reading::Extra));
        let copies = ALL.iter().find(|entry| entry.copies_name == name);
        plain
            .or_else(|| copies.map(choice(Reading::Copies)))
            .ok_or_else(|| UnknownScheme(name.to_owned()))
    }
}

/// A scheme with its parameters, from which one is made for each connection.
#[derive(Clone, PartialEq, Debug)]
pub struct SchemeSpec {
    choice: Choice,
    parameters: Parameters,
}

impl SchemeSpec {
    /// The scheme with these parameters.
    ///
    /// # Errors
    /// When a parameter that the scheme takes is out of range or missing.
    pub fn new(choice: Choice, parameters: Parameters) -> Result<Self, OutOfRange> {
        (choice.entry.build)(&parameters, choice.reading, 0)?;
        Ok(Self { choice, parameters })
    }

    /// The scheme's name in configurations, records, qlog and figures.
    pub fn name(&self) -> &'static str {
        self.choice.name()
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The scheme for a new connection. `seed` decides what it leaves to chance.
    pub fn build(&self, seed: u64) -> Scheme {
        let Choice { entry, reading } = self.choice;
        let built = (entry.build)(&self.parameters, reading, seed);
        let scheme = built.expect("`new` has checked the parameters, which do not change");
        let scheme = Scheme { name: self.name(), ..scheme };
        if self.parameters.when_idle { scheme.when_idle() } else { scheme }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        let network = Network::untrained(&[8], 1).expect("small");
        Parameters { network: Some(Arc::new(network)), ..Parameters::default() }
    }

    #[test]
    fn every_scheme_is_made_under_its_one_name() {
        for entry in ALL {
            for name in [entry.name, entry.copies_name] {
                let spec = SchemeSpec::new(name.parse().expect("known"), parameters());
                let spec = spec.expect("the defaults are in range");
                assert_eq!((spec.name(), spec.build(7).name), (name, name));
            }
        }
        assert!(
            "fec"
                .parse::<Choice>()
                .unwrap_err()
                .to_string()
                .contains("there are arq, spare, deadline, autorec")
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_schemes_that_take_it() {
        let tolerances = Tolerances { goodput: 2.0, ..Tolerances::default() };
        let utility = UtilityOptions { a: 0.0, ..UtilityOptions::default() };
        for (name, bad) in [
            ("spare", Parameters { copies: 11, ..parameters() }),
            ("autorec", Parameters { tolerances, ..parameters() }),
            ("autorec-mm24", Parameters { utility, ..parameters() }),
            ("fixed", Parameters { level: 0, ..parameters() }),
            ("art-dqn", Parameters { network: None, ..parameters() }),
        ] {
            for entry in ALL {
                let choice = Choice { entry, reading: Reading::Extra };
                let refused = SchemeSpec::new(choice, bad.clone()).is_err();
                assert_eq!(refused, entry.name == name, "{name}: {}", entry.name);
            }
        }
    }
}
