//! Reader of a specification table, key by key. Missing keys, values out of range and unknown keys
//! are errors that name the key.

use core::ops::RangeInclusive;

use toml::{Table, Value};

use super::distribution::{Distribution, not_allowed, number, range_text, within};
use super::unit::NumberUnit;
use crate::error::{Error, NameError, ValueError};

/// A table with keys to be consumed one by one.
pub(super) struct KeyReader {
    /// Prefix of its keys; empty for the whole file.
    name: String,
    table: Table,
}

impl KeyReader {
    pub(super) fn new(name: &str, table: Table) -> Self {
        Self { name: name.to_owned(), table }
    }

    fn key(&self, key: &str) -> String {
        match &*self.name {
            "" => key.to_owned(),
            name => format!("{name}.{key}"),
        }
    }

    fn take(&mut self, key: &str) -> Result<Value, Error> {
        let value = self.table.remove(key);
        value.ok_or_else(|| ValueError::Missing(self.key(key)).into())
    }

    /// Takes a nested table.
    pub(super) fn section(&mut self, key: &str) -> Result<Self, Error> {
        match self.take(key)? {
            Value::Table(table) => Ok(Self { name: self.key(key), table }),
            other => Err(not_allowed(&self.key(key), &other, "a table")),
        }
    }

    /// Takes a nested table, if present.
    pub(super) fn section_if(&mut self, key: &str) -> Result<Option<Self>, Error> {
        self.table.contains_key(key).then(|| self.section(key)).transpose()
    }

    pub(super) fn text(&mut self, key: &str) -> Result<String, Error> {
        match self.take(key)? {
            Value::String(text) => Ok(text),
            other => Err(not_allowed(&self.key(key), &other, "text")),
        }
    }

    /// Takes a number, with this unit.
    pub(super) fn number(
        &mut self,
        key: &str,
        unit: NumberUnit,
        allowed: RangeInclusive<f64>,
    ) -> Result<f64, Error> {
        let (name, value) = (self.key(key), self.take(key)?);
        let value = number(&value, unit).ok_or_else(|| {
            let range = range_text(&allowed, unit);
            not_allowed(&name, &value, &format!("a number from {range}"))
        })?;
        within(&name, value, &allowed, unit)
    }

    /// Takes a distribution, whose values have this unit.
    pub(super) fn distribution(
        &mut self,
        key: &str,
        unit: NumberUnit,
        allowed: RangeInclusive<f64>,
    ) -> Result<Distribution, Error> {
        let value = self.take(key)?;
        Distribution::read(&self.key(key), &value, &allowed, unit)
    }

    /// Takes a list of 24 numbers, one per hour of the day, not all of them 0.
    pub(super) fn hours(&mut self, key: &str) -> Result<[f64; 24], Error> {
        let (name, value) = (self.key(key), self.take(key)?);
        let list: Option<Vec<f64>> = value
            .as_array()
            .and_then(|list| list.iter().map(|n| number(n, NumberUnit::One)).collect());
        let hours: [f64; 24] = list
            .and_then(|list| list.try_into().ok())
            .ok_or_else(|| not_allowed(&name, &value, "a list of 24 numbers"))?;
        for (hour, value) in hours.iter().enumerate() {
            within(&format!("{name}[{hour}]"), *value, &(0.0..=1_000.0), NumberUnit::One)?;
        }
        match hours.iter().sum::<f64>() > 0.0 {
            true => Ok(hours),
            false => Err(ValueError::NoHour(name).into()),
        }
    }

    /// Takes a table of weights, in the order of `names`. Absent names have weight 0.
    pub(super) fn weights(&mut self, key: &str, names: &[&str]) -> Result<Vec<f64>, Error> {
        let mut section = self.section(key)?;
        let mut weights = Vec::new();
        for name in names {
            weights.push(match section.table.contains_key(*name) {
                true => section.number(name, NumberUnit::One, 0.0..=1e9)?,
                false => 0.0,
            });
        }
        let name = section.name.clone();
        if let Some(unknown) = section.table.keys().next() {
            let (key, field, allowed) = (name, unknown.clone(), names.join(", "));
            return Err(ValueError::Field { key, field, allowed }.into());
        }
        match weights.iter().sum::<f64>() > 0.0 {
            true => Ok(weights),
            false => {
                let names = names.iter().map(|name| (*name).to_owned()).collect();
                Err(ValueError::NoWeight { key: name, names }.into())
            }
        }
    }

    /// Checks that all keys were consumed.
    ///
    /// # Errors
    /// An unknown key is left.
    pub(super) fn finish(self) -> Result<(), Error> {
        match self.table.keys().next() {
            Some(key) => Err(NameError::PopulationKey(self.key(key)).into()),
            None => Ok(()),
        }
    }
}
