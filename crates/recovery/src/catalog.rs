//! Catalogue of schemes. Each has one name, used in configurations, records, qlog, experiments and
//! figures. A new scheme needs its file and a line in [`entries()`]'s list, `SERVER`.
//!
//! Schemes that learn and AutoRec's first version are only in builds with the feature `testbed`,
//! which the testbed enables: `catalog/testbed.rs`. Servers alone are built without them.
//!
//! A [`SchemeSpec`] is an entry with checked parameters, so building the scheme for a connection
//! cannot fail.

use crate::arq::Arq;
use crate::deadline;
use crate::level::fixed::{self, Reading};
use crate::papers::art;
use crate::papers::autorec::{self, FixedLife};
use crate::range::OutOfRange;
use crate::schedule::Spread;
use crate::scheme::Scheme;
use crate::spare;
use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;

mod entry;
#[cfg(feature = "testbed")]
mod testbed;
mod weights;

pub use entry::{Entry, Parameters, Takes};
#[cfg(feature = "testbed")]
pub use testbed::parameters::TestbedParameters;
pub use weights::{BadWeights, Weights};

use entry::{counting, plain};

use Takes::{Apart, Copies, Level, Queue};

const ART: &[Takes] = &[Takes::Reading, Queue, Takes::Spread];
const FIXED: &[Takes] = &[Takes::Reading, Takes::Spread];

/// Schemes of every build.
const SERVER: &[Entry] = &[
    plain("arq", &[], |_, _, _| Ok(Arq::scheme())),
    plain("spare", &[Copies, Apart], |p, _, _| spare::scheme(p.copies, p.apart)),
    plain("deadline", &[Takes::Deadline], |p, _, _| deadline::scheme(p.deadline)),
    plain("autorec", &[Takes::Tolerances, Takes::Occasions], |p, _, _| {
        Ok(p.on_occasion(autorec::scheme(p.tolerances.checked()?)))
    }),
    plain("autorec-fixed", &[Level, Takes::Occasions], |p, _, _| {
        Ok(p.on_occasion(autorec::fixed(FixedLife::new(p.level)?)))
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
];

#[cfg(feature = "testbed")]
use testbed::SCHEMES as TESTBED;
#[cfg(not(feature = "testbed"))]
const TESTBED: &[Entry] = &[];

/// Names of the schemes that need the feature `testbed`.
const TESTBED_NAMES: [&str; 4] = ["autorec-mm24", "art-egreedy", "art-ucb", "art-dqn"];

/// Returns all schemes of this build.
pub fn entries() -> impl Iterator<Item = &'static Entry> + Clone {
    SERVER.iter().chain(TESTBED)
}

/// An unknown scheme name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownScheme(String);

impl fmt::Display for UnknownScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if TESTBED_NAMES
            .iter()
            .any(|name| self.0.strip_suffix("-copies").unwrap_or(&self.0) == *name)
        {
            return write!(f, "scheme `{}` is only in builds with the testbed", self.0);
        }
        write!(f, "unknown scheme `{}`; known schemes: {}", self.0, names().join(", "))
    }
}

impl core::error::Error for UnknownScheme {}

/// Returns the names of all schemes.
pub fn names() -> Vec<&'static str> {
    entries().map(|entry| entry.name).collect()
}

/// A scheme by name: an entry and the meaning of R.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The entry.
    pub entry: &'static Entry,
    /// Meaning of R.
    pub reading: Reading,
}

impl Choice {
    /// Returns the name in configurations, records, qlog and figures.
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
        let plain = entries().find(|entry| entry.name == name).map(choice(Reading::Extra));
        let copies = entries().find(|entry| entry.copies_name == name);
        plain
            .or_else(|| copies.map(choice(Reading::Copies)))
            .ok_or_else(|| UnknownScheme(name.to_owned()))
    }
}

/// A scheme with checked parameters. Each connection builds its own instance.
#[derive(Clone, PartialEq, Debug)]
pub struct SchemeSpec {
    choice: Choice,
    parameters: Parameters,
}

impl SchemeSpec {
    /// Creates the specification.
    ///
    /// # Errors
    /// If a parameter that the scheme uses is out of range or missing.
    pub fn new(choice: Choice, parameters: Parameters) -> Result<Self, OutOfRange> {
        (choice.entry.build)(&parameters, choice.reading, 0)?;
        Ok(Self { choice, parameters })
    }

    /// Returns the name in configurations, records, qlog and figures.
    pub fn name(&self) -> &'static str {
        self.choice.name()
    }

    /// Returns the parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Builds the scheme for a connection. `seed` determines its random choices.
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
    use crate::papers::autorec::Tolerances;

    #[test]
    fn every_scheme_is_built_under_its_name() {
        for entry in entries().filter(|entry| !entry.takes.contains(&Takes::Weights)) {
            for name in [entry.name, entry.copies_name] {
                let spec = SchemeSpec::new(name.parse().expect("known"), Parameters::default());
                let spec = spec.expect("the defaults are in range");
                assert_eq!((spec.name(), spec.build(7).name), (name, name));
            }
        }
        assert!(
            "fec"
                .parse::<Choice>()
                .unwrap_err()
                .to_string()
                .contains(&format!("known schemes: {}", names().join(", ")))
        );
    }

    #[test]
    fn bad_parameters_are_rejected_by_the_schemes_that_use_them() {
        let tolerances = Tolerances { goodput: 2.0, ..Tolerances::default() };
        for (name, bad) in [
            ("spare", Parameters { copies: 11, ..Parameters::default() }),
            ("autorec", Parameters { tolerances, ..Parameters::default() }),
            ("fixed", Parameters { level: 0, ..Parameters::default() }),
        ] {
            for entry in SERVER {
                let choice = Choice { entry, reading: Reading::Extra };
                let refused = SchemeSpec::new(choice, bad.clone()).is_err();
                assert_eq!(refused, entry.name == name, "{name}: {}", entry.name);
            }
        }
    }

    #[test]
    fn schemes_of_the_testbed_are_named_as_such() {
        let of_testbed: Vec<_> = TESTBED.iter().map(|entry| entry.name).collect();
        assert_eq!(of_testbed, TESTBED_NAMES);
        for name in ["art-dqn", "art-ucb-copies"] {
            let text = UnknownScheme(name.to_owned()).to_string();
            assert_eq!(text, format!("scheme `{name}` is only in builds with the testbed"));
        }
    }
}
