//! Table of sections and keys. [`sections!`](crate::sections) defines the structs of a
//! configuration; documentation, defaults, ranges and errors derive from the same table.

use core::ops::RangeInclusive;
use std::path::Path;

use recovery::catalog::Takes;
use toml::de::DeValue;

use crate::changes::Changes;
use crate::describe::{KeyText, SectionText};
use crate::value::{Shown, Value, range_text};

/// Reason why a key could not be set.
#[derive(Debug)]
pub enum Problem {
    /// Unknown key. Contains the known ones.
    Key(Vec<&'static str>),
    /// Wrong value. Contains the expectation.
    Value(String),
    /// Wrong value of a secret. Contains the expectation.
    Secret(String),
}

/// Name of a key, and the scheme parameter that it sets, for keys that only some schemes use.
pub type Key = (&'static str, Option<Takes>);

/// The keys of a section.
pub trait Section {
    /// All keys, in the order of the table.
    fn keys(&self) -> &'static [Key];
    /// Returns the value of a key, or `None` if it is unknown.
    fn get(&self, key: &str) -> Option<Shown>;
    /// Sets a key.
    ///
    /// # Errors
    /// The key is unknown or the value invalid.
    fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), Problem>;
    /// Checks required keys.
    ///
    /// # Errors
    /// The missing key and the expectation.
    fn check(&self) -> Result<(), (&'static str, String)>;
    /// Describes all keys, with their values as defaults.
    fn describe(&self) -> Vec<KeyText>;
    /// Makes relative paths start at `base`.
    fn resolve(&mut self, base: &Path);
    /// Adds keys whose values differ from the `running` ones to `changes`.
    fn compare(&mut self, section: &str, running: &Self, changes: &mut Changes)
    where
        Self: Sized;
}

/// A configuration: sections by name.
pub trait Sections {
    /// Returns the section of this name, or a new item of the list of this name.
    fn section(&mut self, name: &str) -> Option<&mut dyn Section>;
    /// Returns the section of this name. Lists have none.
    fn view(&self, name: &str) -> Option<&dyn Section>;
    /// Names of all sections that are not lists.
    fn names(&self) -> Vec<&'static str>;
    /// Names of all lists.
    fn lists(&self) -> Vec<&'static str>;
}

/// Returns the names of all sections and lists, as a file writes them.
pub(crate) fn headers(root: &dyn Sections) -> String {
    let names = root.names().into_iter().map(|name| format!("[{name}]"));
    let lists = root.lists().into_iter().map(|name| format!("[[{name}]]"));
    names.chain(lists).collect::<Vec<_>>().join(", ")
}

/// Sets `slot` to `value`, if that has the right type and is in `range`.
///
/// # Errors
/// The expectation.
pub fn assign<T: Value + PartialOrd>(
    slot: &mut T,
    value: &DeValue<'_>,
    range: Option<RangeInclusive<T>>,
) -> Result<(), Problem> {
    match (T::read(value), &range) {
        (Some(read), None) => *slot = read,
        (Some(read), Some(range)) if range.contains(&read) => *slot = read,
        (_, None) if !T::may_be_quoted() => return Err(Problem::Secret(T::expected())),
        (_, None) => return Err(Problem::Value(T::expected())),
        (_, Some(range)) => return Err(Problem::Value(range_text(range))),
    }
    Ok(())
}

/// Defines the structs of a configuration from a table: one per section, and one with a field per
/// section. After `;` follow lists: sections that a file may have any number of times.
///
/// A key is a line `name: Type = default, in range, example "TOML", required "TOML", effect
/// AtStart, for Deadline;`, all but the first part optional: the allowed range, an example for
/// keys without a default, an example for keys that must be set, when a new value takes effect
/// (by default for new connections), and the [`Takes`] of the schemes that use the key.
#[macro_export]
macro_rules! sections {
    (@optional) => { None };
    (@optional $value:expr) => { Some($value) };
    (@effect) => { $crate::Effect::ForNew };
    (@effect $effect:ident) => { $crate::Effect::$effect };
    (@takes) => { None };
    (@takes $takes:ident) => { Some($crate::Takes::$takes) };
    (@struct $(#[doc = $about:literal])+ $Type:ident {
        $($(#[doc = $doc:literal])+
        $key:ident: $Value:ty = $default:expr
            $(, in $range:expr)? $(, example $example:literal)? $(, required $required:literal)?
            $(, effect $effect:ident)? $(, for $takes:ident)?;)+
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Type {
            $($(#[doc = $doc])+ pub $key: $Value,)+
        }

        impl Default for $Type {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }

        impl $crate::Section for $Type {
            fn keys(&self) -> &'static [$crate::Key] {
                &[$((stringify!($key), $crate::sections!(@takes $($takes)?)),)+]
            }

            fn get(&self, key: &str) -> Option<$crate::Shown> {
                match key {
                    $(stringify!($key) => Some($crate::Value::shown(&self.$key)),)+
                    _ => None,
                }
            }

            fn set(
                &mut self,
                key: &str,
                value: &$crate::DeValue<'_>,
            ) -> Result<(), $crate::Problem> {
                match key {
                    $(stringify!($key) => {
                        let range = $crate::sections!(@optional $($range)?);
                        $crate::assign(&mut self.$key, value, range)
                    })+
                    _ => Err($crate::Problem::Key(vec![$(stringify!($key)),+])),
                }
            }

            fn check(&self) -> Result<(), (&'static str, String)> {
                $($(
                    if self.$key == Self::default().$key {
                        let expected = <$Value as $crate::Value>::expected();
                        let example = $required;
                        let what = format!("expected {expected} such as {example}, got nothing");
                        return Err((stringify!($key), what));
                    }
                )?)+
                Ok(())
            }

            fn describe(&self) -> Vec<$crate::KeyText> {
                vec![$($crate::KeyText::new(
                    stringify!($key),
                    &[$($doc),+],
                    &self.$key,
                    $crate::sections!(@optional $($range)?),
                    $crate::sections!(@effect $($effect)?),
                ).with(
                    $crate::sections!(@optional $($example)?),
                    $crate::sections!(@optional $($required)?),
                ),)+]
            }

            fn resolve(&mut self, base: &std::path::Path) {
                $($crate::Value::resolve(&mut self.$key, base);)+
            }

            fn compare(&mut self, section: &str, running: &Self, changes: &mut $crate::Changes) {
                $(changes.compare(
                    format_args!("{section} {}", stringify!($key)),
                    $crate::sections!(@effect $($effect)?),
                    &mut self.$key,
                    &running.$key,
                );)+
            }
        }
    };
    (
        $(#[doc = $doc:literal])+ $Config:ident;
        $($(#[doc = $about:literal])+ [$section:ident] $Type:ident { $($keys:tt)+ })+
        ; $($(#[doc = $each:literal])+ [[$list:ident]] $Item:ident { $($item_keys:tt)+ })*
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $Config {
            $($(#[doc = $about])+ pub $section: $Type,)+
            $($(#[doc = $each])+ pub $list: Vec<$Item>,)*
        }

        impl $crate::Sections for $Config {
            fn section(&mut self, name: &str) -> Option<&mut dyn $crate::Section> {
                match name {
                    $(stringify!($section) => Some(&mut self.$section),)+
                    $(stringify!($list) => {
                        self.$list.push($Item::default());
                        self.$list.last_mut().map(|item| item as &mut dyn $crate::Section)
                    })*
                    _ => None,
                }
            }

            fn view(&self, name: &str) -> Option<&dyn $crate::Section> {
                match name {
                    $(stringify!($section) => Some(&self.$section),)+
                    _ => None,
                }
            }

            fn names(&self) -> Vec<&'static str> {
                vec![$(stringify!($section)),+]
            }

            fn lists(&self) -> Vec<&'static str> {
                vec![$(stringify!($list)),*]
            }
        }

        impl $crate::Whole for $Config {
            fn resolve(&mut self, base: &std::path::Path) {
                use $crate::Section as _;
                $(self.$section.resolve(base);)+
                $(self.$list.iter_mut().for_each(|item| item.resolve(base));)*
            }

            fn compare(&mut self, running: &Self, changes: &mut $crate::Changes) {
                use $crate::Section as _;
                $(self.$section.compare(
                    concat!("[", stringify!($section), "]"), &running.$section, changes,
                );)+
                $({
                    const NAME: &str = concat!("[[", stringify!($list), "]]");
                    if self.$list.len() == running.$list.len() {
                        let pairs = self.$list.iter_mut().zip(&running.$list);
                        pairs.for_each(|(new, old)| new.compare(NAME, old, changes));
                    } else {
                        // Old and new items cannot be matched.
                        let (new, old) = (&mut self.$list, &running.$list);
                        let effect = $crate::Effect::ForNew;
                        changes.compare(format_args!("{NAME}"), effect, new, old);
                    }
                })*
            }

            fn describe(&self) -> Vec<$crate::SectionText> {
                use $crate::Section as _;
                vec![
                    $($crate::SectionText {
                        header: concat!("[", stringify!($section), "]"),
                        is_list: false,
                        docs: &[$($about),+],
                        keys: self.$section.describe(),
                    },)+
                    $($crate::SectionText {
                        header: concat!("[[", stringify!($list), "]]"),
                        is_list: true,
                        docs: &[$($each),+],
                        keys: $Item::default().describe(),
                    },)*
                ]
            }
        }

        $($crate::sections!(@struct $(#[doc = $about])+ $Type { $($keys)+ });)+
        $($crate::sections!(@struct $(#[doc = $each])+ $Item { $($item_keys)+ });)*
    };
}

/// A whole configuration.
pub trait Whole {
    /// Makes relative paths start at `base`.
    fn resolve(&mut self, base: &Path);
    /// Adds keys whose values differ from the `running` ones to `changes`. Keys that need a restart
    /// keep their running values.
    fn compare(&mut self, running: &Self, changes: &mut Changes)
    where
        Self: Sized;
    /// Describes all sections and lists.
    fn describe(&self) -> Vec<SectionText>;
}
