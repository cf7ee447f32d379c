//! Values of keys that other crates parse from text.

use core::str::FromStr;

use config::{DeValue, Value};
use congestion::Algorithm;
use links::{Bunches, EcnPolicy, Jitter, Loss, Policer, Probability, Queue, RareAcks};
use links::{Reorder, Steps};
use qoe::Policy;
use recovery::catalog::{Choice, names};
use startup::decision::Mode;
use units::Rate;

use crate::dash::Ladder;

/// A type with a text form.
pub trait Text: FromStr {
    /// Describes valid texts, to follow the word "expected".
    fn expected() -> String;
}

macro_rules! texts {
    ($($type:ty: $expected:expr;)+) => {
        $(impl Text for $type {
            fn expected() -> String {
                $expected.into()
            }
        })+
    };
}

texts! {
    Loss: "a loss model such as \"5%\", \"calls:rate=5%\" or \"outages:rate=5%,length=20ms\"";
    Queue: "a queue such as \"500kB,mark=100kB\" or \"codel:limit=500kB,target=5ms\"";
    Reorder: "a share and a delay such as \"1%,20ms\"";
    Jitter: "a variation such as \"5ms\", \"gauss:5ms\" or \"5ms,reorder\"";
    Probability: "a share such as \"0.1%\"";
    Bunches: "wake-ups such as \"200ms\" or \"300ms,awake=30ms\"";
    Steps: "times with round-trip times such as \"8s:200ms,20s:20ms\"";
    EcnPolicy: "\"bleach\", \"drop\", \"drop:50%\", \"remark\" or \"mark:5%\", also with \
                \",from=5s\"";
    Policer: "a token bucket such as \"2mbps,burst=20kB\"";
    RareAcks: "\"chromium\", or a frequency such as \"each=32,within=250ms\", also with \
               \",after=100\"";
    Choice: format!("a scheme: {}", names().join(", "));
    Algorithm: format!("a controller: {}", Self::ALL.map(Self::name).join(", "));
    Mode: format!("a startup mode: {}", Self::ALL.map(Self::name).join(", "));
}

/// A value that may be absent, written as an empty text.
#[derive(Clone, Debug)]
pub struct Maybe<T> {
    text: String,
    value: Option<T>,
}

impl<T> Default for Maybe<T> {
    fn default() -> Self {
        Self { text: String::new(), value: None }
    }
}

/// Values are equal if their texts are.
impl<T> PartialEq for Maybe<T> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<T> PartialOrd for Maybe<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        self.text.partial_cmp(&other.text)
    }
}

impl<T: Text> Maybe<T> {
    /// Parses a text; `None` if it is invalid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let value = if text.is_empty() { None } else { Some(text.parse().ok()?) };
        Some(Self { text: text.to_owned(), value })
    }
}

impl<T: Clone> Maybe<T> {
    /// Returns the value, if present.
    pub(crate) fn get(&self) -> Option<T> {
        self.value.clone()
    }
}

impl<T: Text> Value for Maybe<T> {
    fn expected() -> String {
        format!("{}; \"\" for none", T::expected())
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
    fn toml(&self) -> Option<String> {
        config::quoted(&self.text)
    }
}

/// A player model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlayerModel(pub Policy);

impl Default for PlayerModel {
    fn default() -> Self {
        Self(Policy::LOW_LATENCY)
    }
}

impl PartialOrd for PlayerModel {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        self.0.buffer().partial_cmp(&other.0.buffer())
    }
}

impl Value for PlayerModel {
    fn expected() -> String {
        let presets: Vec<String> =
            Policy::PRESETS.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        format!(
            "{}, or a target buffer such as \"buffer:300ms\" (100ms to 10s)",
            presets.join(", ")
        )
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        value.as_str()?.parse().ok().map(Self)
    }
    fn toml(&self) -> Option<String> {
        config::quoted(&self.0.to_string())
    }
}

impl Value for Ladder {
    fn expected() -> String {
        format!(
            "1 to {} rising rates from \"1bps\" to \"{}\", such as [\"400kbps\", \"1mbps\"]",
            Self::MAX_RUNGS,
            Self::MAX_RATE
        )
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::new(Vec::<Rate>::read(value)?)
    }
    fn toml(&self) -> Option<String> {
        self.rates().to_vec().toml()
    }
}
