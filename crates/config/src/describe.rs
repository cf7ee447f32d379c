//! Descriptions of all keys, as the text of `--print-defaults` and as the page
//! docs/reference/configuration.md.

use core::fmt::Write as _;
use core::ops::RangeInclusive;

use crate::changes::Effect;
use crate::value::{Value, range_text};

/// Description of a key.
#[derive(Debug)]
pub struct KeyText {
    /// Name of the key.
    pub name: &'static str,
    /// Lines of its documentation, each with a leading space.
    pub docs: &'static [&'static str],
    /// Default as TOML. `None` for keys without one.
    pub default: Option<String>,
    /// Example of a key without a default, as TOML.
    pub example: Option<&'static str>,
    /// Whether a file must set the key.
    pub is_required: bool,
    /// Valid values, to follow the word "expected".
    pub expected: String,
    /// When a new value takes effect.
    pub effect: Effect,
}

impl KeyText {
    /// Describes a key of type `T`.
    pub fn new<T: Value>(
        name: &'static str,
        docs: &'static [&'static str],
        value: &T,
        range: Option<RangeInclusive<T>>,
        effect: Effect,
    ) -> Self {
        let expected = range.map_or_else(T::expected, |range| range_text(&range));
        let default = value.toml();
        Self { name, docs, default, example: None, is_required: false, expected, effect }
    }

    /// Replaces the default by an example.
    #[must_use]
    pub fn with(mut self, example: Option<&'static str>, required: Option<&'static str>) -> Self {
        self.example = example.or(required);
        self.is_required = required.is_some();
        self
    }

    fn write_toml(&self, out: &mut String, is_comment: bool) {
        let name = self.name;
        out.push('\n');
        write_comment(out, self.docs);
        let _ = writeln!(out, "# Expected: {}.", self.expected);
        match self.effect {
            Effect::ForNew => {}
            Effect::AtOnce => out.push_str("# A reload applies new values immediately.\n"),
            Effect::AtStart => out.push_str("# New values require a restart.\n"),
        }
        let _ = match (self.example, &self.default) {
            (Some(example), _) => writeln!(out, "# {name} = {example}"),
            (None, Some(value)) if is_comment => writeln!(out, "# {name} = {value}"),
            (None, Some(value)) => writeln!(out, "{name} = {value}"),
            (None, None) => writeln!(out, "# {name} ="),
        };
    }

    fn write_row(&self, out: &mut String) {
        let default = match (self.example, &self.default) {
            (Some(example), _) if self.is_required => format!("required, such as `{example}`"),
            (Some(example), _) => format!("unset; example `{example}`"),
            (None, Some(value)) => format!("`{value}`"),
            (None, None) => "unset".to_owned(),
        };
        let effect = match self.effect {
            Effect::ForNew => "new",
            Effect::AtOnce => "at once",
            Effect::AtStart => "start",
        };
        let meaning = with_links(&joined(self.docs));
        let cells =
            [&default, &self.expected, effect, &meaning].map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(out, "| `{}` | {} |", self.name, cells.join(" | "));
    }
}

/// Description of a section or list.
#[derive(Debug)]
pub struct SectionText {
    /// Name as a file writes it: `[server]` or `[[pull]]`.
    pub header: &'static str,
    /// Whether a file may have any number of these sections.
    pub is_list: bool,
    /// Lines of its documentation, each with a leading space.
    pub docs: &'static [&'static str],
    /// Its keys, in the order of the table.
    pub keys: Vec<KeyText>,
}

impl SectionText {
    /// Returns a file with the documentation and default of every key. Keys without a default, and
    /// lists, are comments.
    pub(crate) fn toml(sections: &[Self]) -> String {
        let mut out = String::from(
            "# Every key of mendcast edge, with its default value.\n\
             # Durations: us, ms, s, m, h, d. Sizes: B, kB, MB, GB, KiB, MiB, GiB.\n\
             # Relative paths start at the directory of this file.\n\
             # After a reload (SIGHUP), new values apply to new connections and streams, unless a\n\
             # key says otherwise.\n",
        );
        for section in sections {
            out.push('\n');
            write_comment(&mut out, section.docs);
            let _ = writeln!(out, "{}{}", if section.is_list { "# " } else { "" }, section.header);
            section.keys.iter().for_each(|key| key.write_toml(&mut out, section.is_list));
        }
        out
    }

    /// Returns the page docs/reference/configuration.md.
    pub(crate) fn page(sections: &[Self]) -> String {
        let mut out = String::from(
            "# Configuration\n\n\
             Written by `mendcast reference configuration`; do not edit. \
             `mendcast edge --print-defaults`\n\
             prints the same as a configuration file.\n\n\
             - The file is TOML. An unknown key or a value out of range is an error.\n\
             - Durations have a unit: us, ms, s, m, h, d. Sizes: B, kB, MB, GB, KiB, MiB, GiB.\n\
             - Relative paths start at the directory of the file.\n\
             - A file may have any number of sections in double brackets.\n\
             - Effect of a reload (SIGHUP): *new* values apply to connections, \
              streams and pulls that\n  \
               begin later; *at once*: immediately; *start*: after a restart.\n\n\
             | section | purpose |\n|---|---|\n",
        );
        for Self { header, docs, .. } in sections {
            let anchor = header.trim_matches(['[', ']']);
            let _ = writeln!(out, "| [`{header}`](#{anchor}) | {} |", with_links(&joined(docs)));
        }
        for Self { header, keys, .. } in sections {
            let _ = writeln!(out, "\n## `{header}`\n");
            out.push_str("| key | default | values | effect | meaning |\n|---|---|---|---|---|\n");
            keys.iter().for_each(|key| key.write_row(&mut out));
        }
        out
    }
}

fn write_comment(out: &mut String, docs: &[&str]) {
    for line in docs {
        // Writing to a string does not fail.
        let _ = writeln!(out, "#{line}");
    }
}

fn joined(docs: &[&str]) -> String {
    docs.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Makes links of names of pages, such as docs/operate/autoplex.md.
fn with_links(text: &str) -> String {
    let mut parts = text.split("docs/");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let _ = match part.split_once(".md") {
            Some((name, rest)) => write!(out, "[{name}.md](../{name}.md){rest}"),
            None => write!(out, "docs/{part}"),
        };
    }
    out
}
