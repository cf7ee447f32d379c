//! Unknown, ambiguous and repeated names.

use core::fmt;

use recovery::catalog::UnknownScheme;

/// An unknown, ambiguous or repeated name.
#[derive(Clone, Debug)]
pub enum NameError {
    /// There is no such experiment.
    Experiment(String),
    /// There is no such scheme.
    Scheme {
        /// Unknown name, with the known ones.
        unknown: UnknownScheme,
        /// Names of the presets, which are known too.
        presets: Vec<&'static str>,
    },
    /// No scheme of the experiment has this label.
    Label(String),
    /// No scheme of a built-in experiment has this label.
    LabelOf {
        /// Name of the experiment.
        experiment: String,
        /// Unknown label.
        label: String,
        /// Labels of the experiment.
        known: Vec<String>,
    },
    /// A cohort has the name of one of the experiment's schemes.
    Cohort(String),
    /// No sweep of the experiment has this title.
    Sweep(String),
    /// There is no such metric.
    Metric(String),
    /// A term compares a metric in an unknown way.
    Comparison {
        /// The whole term.
        term: String,
        /// Its part before the colon.
        comparison: String,
    },
    /// There is no such policy of caps.
    Policy(String),
    /// A run has no such key.
    Key {
        /// Unknown key.
        key: String,
        /// A known key with a similar name.
        similar: Option<String>,
        /// Sections that were searched.
        sections: Vec<String>,
    },
    /// Several sections have this key.
    AmbiguousKey {
        /// Key without a section.
        key: String,
        /// Full names that it may stand for.
        names: Vec<String>,
    },
    /// A population has no such key.
    PopulationKey(String),
    /// A name is given twice.
    Repeated(String),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Experiment(name) => {
                write!(f, "no experiment `{name}`; `mendcast lab list` shows them")
            }
            Self::Scheme { unknown, presets } => {
                write!(f, "{unknown}; presets: {}", presets.join(", "))
            }
            Self::Label(label) => write!(f, "no scheme has the label `{label}`"),
            Self::LabelOf { experiment, label, known } => {
                write!(f, "{experiment}: no scheme `{label}`; it has {}", known.join(", "))
            }
            Self::Cohort(name) => {
                write!(f, "the experiment has a scheme with the cohort's name `{name}`")
            }
            Self::Sweep(title) => write!(f, "no sweep has the title `{title}`"),
            Self::Metric(name) => write!(f, "there is no metric `{name}`"),
            Self::Comparison { term, comparison } => {
                write!(f, "`{term}`: no `{comparison}:`, only saved:, cut:, gain: and closed:")
            }
            Self::Policy(name) => write!(
                f,
                "`{name}` is not a policy; use bbr, constant-MBPS, demand-TIMES, \
                 safe, safe-SHARE, oracle, paper-retransmission and paper-goodput, with -sending, \
                 -vip or -low, -decide"
            ),
            Self::Key { key, similar: Some(similar), .. } => {
                write!(f, "no key `{key}`; did you mean `{similar}`?")
            }
            Self::Key { key, similar: None, sections } => {
                let headers: Vec<String> =
                    sections.iter().map(|name| format!("[{name}]")).collect();
                write!(f, "no key `{key}` in {}", headers.join(", "))
            }
            Self::AmbiguousKey { key, names } => {
                write!(f, "`{key}` may be {}", names.join(" or "))
            }
            Self::PopulationKey(key) => write!(f, "unknown key `{key}`"),
            Self::Repeated(name) => write!(f, "`{name}` is named twice"),
        }
    }
}

impl core::error::Error for NameError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Scheme { unknown, .. } => Some(unknown),
            _ => None,
        }
    }
}
