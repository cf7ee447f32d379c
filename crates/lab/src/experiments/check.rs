//! Validates a specification before any run: keys exist, labels and titles resolve, and every run's
//! scenario can be built.

use config::{File, Sections};

use super::engine::between;
use super::falsifiable;
use super::metrics::{How, Term};
use super::spec::{AxisRange, Bound, Comparison, Point, Spec, Sweep, entries, plain, quantity};
use crate::error::{Context as _, Error, NameError, SpecificationError, Subject};
use crate::setup::Setup;

impl Spec {
    /// Sets keys of all runs. Each is a key and a TOML value or plain text. The key's section may
    /// be left out if no other section has the key.
    ///
    /// # Errors
    /// The key is unknown or the value invalid.
    pub(crate) fn set(&mut self, keys: &[(String, String)]) -> Result<(), Error> {
        let all = self.base.names();
        for (key, text) in keys {
            let key = self.base.full_name(key, &all)?;
            self.base.set_text(&key, text)?;
        }
        self.check()
    }

    pub(super) fn check_keys(&self, file: &File<'_>) -> Result<(), Error> {
        let mut setup = Setup::default();
        let tables = self.schemes.iter().map(|scheme| &scheme.set);
        for table in tables.chain(self.sweeps.iter().map(|sweep| &sweep.set)) {
            for (key, span, value) in entries(table) {
                setup.set(&key, value).map_err(|e| file.error(span, &e.to_string()))?;
            }
        }
        for sweep in &self.sweeps {
            for axis in &sweep.axes {
                for value in &axis.values {
                    let set = setup.set(axis.key.get_ref(), value);
                    set.map_err(|e| file.error(axis.key.span(), &e.to_string()))?;
                }
            }
        }
        Ok(())
    }

    /// Returns keys of schemes that have no effect, because the scheme does not use them.
    pub(crate) fn unused(&self) -> Vec<String> {
        let mut all = Vec::new();
        for scheme in &self.schemes {
            let mut setup = self.base.clone();
            for (key, _, value) in entries(&scheme.set) {
                let _ = setup.set(&key, value);
            }
            for (key, _, _) in entries(&scheme.set).filter(|(key, _, _)| !setup.is_used(key)) {
                let (label, name) = (&scheme.label, setup.scheme_name());
                all.push(format!(
                    "{}: {label}: the scheme \"{name}\" does not use `{key}`",
                    self.name
                ));
            }
        }
        all
    }

    fn check_label(&self, label: &str) -> Result<(), NameError> {
        match self.schemes.iter().any(|scheme| scheme.label == label) {
            true => Ok(()),
            false => Err(NameError::Label(label.to_owned())),
        }
    }

    /// Checks that the schemes a term refers to exist.
    fn check_term(&self, term: &Term) -> Result<(), Error> {
        match &term.other {
            Some(label) => Ok(self.check_label(label)?),
            None if term.how == How::Closed && self.clairvoyant.is_none() => {
                Err(SpecificationError::NoClairvoyant(term.text.clone()).into())
            }
            None => Ok(()),
        }
    }

    /// Checks labels, titles and keys, and all runs.
    ///
    /// # Errors
    /// One line that begins with the name of the experiment.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.check_parts().of(|| Subject::Part(self.name.clone()))
    }

    fn check_parts(&self) -> Result<(), Error> {
        let label = |label: &str| self.check_label(label);
        if let Some(scheme) = self.schemes.iter().find(|s| s.label.contains([',', '"', '\n'])) {
            return Err(SpecificationError::Label(scheme.label.clone()).into());
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
                return Err(NameError::Sweep(title.clone()).into());
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
                    Bound::Key { key, .. } if self.base.number_of(key).is_none() => {
                        return Err(SpecificationError::NoNumber(key.clone()).into());
                    }
                    Bound::Metric { of: Some(name), .. } => label(name)?,
                    _ => {}
                }
            }
        }
        self.sweeps.iter().try_for_each(|sweep| self.check_sweep(sweep))?;
        Ok(falsifiable::check(self)?)
    }

    /// Checks a sweep and all of its runs.
    fn check_sweep(&self, sweep: &Sweep) -> Result<(), Error> {
        if (sweep.draws > 0) == sweep.ranges.is_empty() {
            return Err(SpecificationError::NoRanges(sweep.title.clone()).into());
        }
        sweep.schemes.iter().try_for_each(|label| self.check_label(label))?;
        // Points are one field of results.csv.
        let values = sweep.axes.iter().flat_map(|axis| &axis.values).map(plain);
        if let Some(value) = values.into_iter().find(|v| v.contains([',', ';', '"', '\n'])) {
            return Err(SpecificationError::Value(value).into());
        }
        for range in &sweep.ranges {
            let is_rising = match (quantity(&range.low), quantity(&range.high)) {
                (Some((low, unit)), Some((high, other))) => low < high && unit == other,
                _ => false,
            };
            if !is_rising {
                let key = range.key.get_ref().clone();
                return Err(SpecificationError::FallingRange(key).into());
            }
        }
        let ends = |share: f64| {
            let value = |range: &AxisRange| (range.key.get_ref().clone(), between(range, share));
            sweep.ranges.iter().map(value).collect::<Point>()
        };
        for scheme in self.schemes_of(sweep) {
            for point in sweep.points() {
                for drawn in [ends(0.0), ends(1.0)] {
                    let setup = self.setup(sweep, &point, &drawn, scheme)?;
                    setup.scenario(1).of(|| Subject::Part(scheme.label.clone()))?;
                }
            }
        }
        Ok(())
    }
}
