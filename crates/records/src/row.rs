//! A record as read: values by column.

use serde_json::{Map, Value};

use crate::schema::Column;

/// A record as read. It may come from another version, or be damaged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row(Map<String, Value>);

impl From<Map<String, Value>> for Row {
    fn from(values: Map<String, Value>) -> Self {
        Self(values)
    }
}

impl Row {
    /// Returns a value of any type; `None` if absent.
    pub fn value(&self, column: Column) -> Option<&Value> {
        self.0.get(column.name()).filter(|value| !value.is_null())
    }

    /// Returns a number; `None` if absent or no number. Its range is not checked.
    pub fn number(&self, column: Column) -> Option<f64> {
        self.value(column)?.as_f64()
    }

    /// Returns a text; `None` if absent, no text, or empty.
    pub fn text(&self, column: Column) -> Option<&str> {
        self.value(column)?.as_str().filter(|text| !text.is_empty())
    }

    /// Returns true if the player's report was out of bounds. Averages must exclude its claims,
    /// which contradict the server's clock.
    pub fn is_clamped(&self) -> bool {
        self.number(Column::report_clamped).is_some_and(|mark| mark > 0.0)
    }

    pub(crate) fn set(&mut self, column: Column, value: Value) {
        self.0.insert(column.name().to_owned(), value);
    }
}
