//! A map from lost units to values, indexed by slot of the unit table.

use crate::UnitKey;

/// A value per unit. Values of earlier units in the same slot are never returned.
#[derive(Clone, Debug)]
pub(crate) struct ByUnit<T>(Vec<Option<(UnitKey, T)>>);

impl<T> Default for ByUnit<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ByUnit<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn set(&mut self, key: UnitKey, value: T) {
        if self.0.len() <= key.index() {
            self.0.resize_with(key.index() + 1, || None);
        }
        self.0[key.index()] = Some((key, value));
    }

    pub(crate) fn get(&self, key: UnitKey) -> Option<&T> {
        let (owner, value) = self.0.get(key.index())?.as_ref()?;
        (*owner == key).then_some(value)
    }

    pub(crate) fn get_mut(&mut self, key: UnitKey) -> Option<&mut T> {
        let (owner, value) = self.0.get_mut(key.index())?.as_mut()?;
        (*owner == key).then_some(value)
    }

    /// Removes and returns the unit's value.
    pub(crate) fn take(&mut self, key: UnitKey) -> Option<T> {
        self.get(key)?;
        self.0[key.index()].take().map(|(_, value)| value)
    }
}
