//! Validates a specification before any run: keys exist, labels and titles resolve, and every run's
//! scenario can be built.

use std::ops::Range;

use toml::{Spanned, Value};

use super::metrics::{How, Term};
use super::settings::Settings;
use super::spec::{AxisRange, Bound, Comparison, Point, Spec, plain};

impl Spec {
    /// Overrides base settings. Each is a `key` and a TOML value or plain text.
    ///
    /// # Errors
    /// The key is unknown or the value invalid.
    pub(crate) fn set(&mut self, settings: &[(String, String)]) -> Result<(), String> {
        for (key, text) in settings {
            if !Settings::keys().contains(key) {
                return Err(format!("no setting `{key}`"));
            }
            let line = format!("value = {text}");
            let value = toml::from_str::<toml::Table>(&line).ok();
            let value = value.and_then(|mut table| table.remove("value"));
            let value = value.unwrap_or_else(|| Value::String(text.clone()));
            self.base.retain(|known, _| known.get_ref() != key);
            self.base.insert(Spanned::new(0..0, key.clone()), value);
        }
        self.check()
    }

    pub(super) fn check_keys(&self, text: &str) -> Result<(), String> {
        let known = Settings::keys();
        let check = |key: &str, span: Range<usize>| {
            if known.iter().any(|name| name == key) {
                return Ok(());
            }
            let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
            Err(format!("{}:{line}: no setting `{key}`", self.name))
        };
        let tables = [&self.base].into_iter();
        let tables = tables.chain(self.schemes.iter().map(|scheme| &scheme.set));
        for table in tables.chain(self.sweeps.iter().map(|sweep| &sweep.set)) {
            table.keys().try_for_each(|key| check(key.get_ref(), key.span()))?;
        }
        for sweep in &self.sweeps {
            let axes = sweep.axes.iter().map(|axis| &axis.key);
            let ranges = sweep.ranges.iter().map(|range| &range.key);
            axes.chain(ranges).try_for_each(|key| check(key.get_ref(), key.span()))?;
        }
        Ok(())
    }

    /// Checks that the schemes a term refers to exist.
    fn check_term(&self, term: &Term) -> Result<(), String> {
        let is_known = |name: &String| self.schemes.iter().any(|scheme| scheme.label == *name);
        match &term.other {
            Some(name) if !is_known(name) => {
                Err(format!("{}: no scheme has the label `{name}`", self.name))
            }
            None if term.how == How::Closed && self.clairvoyant.is_none() => Err(format!(
                "{}: `{}` needs a `clairvoyant` scheme, or `@LABEL`",
                self.name, term.text
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let at = |what: String| format!("{}: {what}", self.name);
        let label = |name: &str| {
            if self.schemes.iter().any(|scheme| scheme.label == name) {
                Ok(())
            } else {
                Err(at(format!("no scheme has the label `{name}`")))
            }
        };
        if let Some(scheme) = self.schemes.iter().find(|s| s.label.contains([',', '"', '\n'])) {
            return Err(at(format!("no commas, quotes and new lines in `{}`", scheme.label)));
        }
        label(&self.baseline)?;
        self.clairvoyant.as_deref().map_or(Ok(()), label)?;
        let claims = self.claims.iter().map(|claim| (&claim.on, &claim.metric));
        let paper = self.paper.iter().map(|paper| (&paper.on, &paper.metric));
        for (place, metric) in claims.chain(paper) {
            place.scheme.as_deref().map_or(Ok(()), label)?;
            self.check_term(metric)?;
            if let Some(title) = &place.sweep
                && !self.sweeps.iter().any(|sweep| sweep.title == *title)
            {
                return Err(at(format!("no sweep has the title `{title}`")));
            }
        }
        self.metrics.iter().try_for_each(|term| self.check_term(term))?;
        for claim in &self.claims {
            if let Comparison::Below { scheme } | Comparison::Crosses { scheme } = &claim.is {
                label(scheme)?;
            }
            if let Comparison::AtMost { bound, .. }
            | Comparison::AtLeast { bound, .. }
            | Comparison::Near { bound, .. } = &claim.is
            {
                match bound {
                    Bound::Key { key, .. } if !Settings::keys().contains(key) => {
                        return Err(at(format!("no setting `{key}` to compare with")));
                    }
                    Bound::Metric { of: Some(name), .. } => label(name)?,
                    _ => {}
                }
            }
        }
        for sweep in &self.sweeps {
            if (sweep.draws > 0) == sweep.ranges.is_empty() {
                return Err(at(format!("sweep `{}`: draws need ranges", sweep.title)));
            }
            sweep.schemes.iter().try_for_each(|name| label(name))?;
            // Points are one field of results.csv.
            let values = sweep.axes.iter().flat_map(|axis| &axis.values).map(plain);
            if let Some(value) = values.into_iter().find(|v| v.contains([',', ';', '"', '\n'])) {
                return Err(at(format!(
                    "commas, semicolons and quotes are not allowed in the value \
                                       `{value}`"
                )));
            }
            for range in &sweep.ranges {
                if range.low.partial_cmp(&range.high) != Some(core::cmp::Ordering::Less) {
                    return Err(at(format!("`{}`: low must be below high", range.key.get_ref())));
                }
            }
            let ends = |pick: fn(&AxisRange) -> f64| {
                let value =
                    |range: &AxisRange| (range.key.get_ref().clone(), Value::Float(pick(range)));
                sweep.ranges.iter().map(value).collect::<Point>()
            };
            for scheme in self.schemes_of(sweep) {
                for point in sweep.points() {
                    for drawn in [ends(|range| range.low), ends(|range| range.high)] {
                        let settings = self.settings(sweep, &point, &drawn, scheme).map_err(at)?;
                        settings.scenario(1).map_err(|e| at(format!("{}: {e}", scheme.label)))?;
                    }
                }
            }
        }
        Ok(())
    }
}
