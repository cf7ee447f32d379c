//! Commands and configurations in the pages.

use core::fmt;
use std::path::{Path, PathBuf};

/// A call of the program, without its name.
#[derive(Clone)]
pub struct Call {
    pub place: String,
    pub words: Vec<String>,
    /// Whether it stands within a sentence.
    pub is_inline: bool,
}

impl Call {
    /// Words that a reader replaces.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str).filter(|word| is_placeholder(word))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: mendcast {}", self.place, self.words.join(" "))
    }
}

/// A configuration.
pub struct Block {
    pub place: String,
    pub text: String,
}

/// `FILE`, `$k`.
pub fn is_placeholder(word: &str) -> bool {
    let is_name = word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    word.contains('$') || (is_name && !word.is_empty())
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names and texts of README.md and all pages below docs/.
fn pages() -> Vec<(String, String)> {
    let (mut paths, mut open) = (vec![root().join("README.md")], vec![root().join("docs")]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let name = |path: &Path| {
        path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned()
    };
    let read = |path: PathBuf| (name(&path), std::fs::read_to_string(&path).expect("a page"));
    paths.into_iter().map(read).collect()
}

/// A part of a page.
enum Part {
    /// A code block, with the language of a fence.
    Code { line: usize, language: String, text: String },
    /// The paragraphs between two code blocks.
    Text { line: usize, text: String },
}

/// Divides a page into code blocks and text.
fn parts(page: &str) -> Vec<Part> {
    let (mut parts, mut fence) = (vec![], None::<(usize, String, String)>);
    let (mut text, mut code, mut is_blank) = (String::new(), String::new(), true);
    let (mut text_line, mut code_line) = (1, 1);
    for (index, line) in page.lines().chain(["end"]).enumerate() {
        if let Some((start, language, mut block)) = fence.take() {
            if line.trim_start().starts_with("```") {
                parts.push(Part::Code { line: start, language, text: block });
                text_line = index + 2;
            } else {
                block.push_str(line);
                block.push('\n');
                fence = Some((start, language, block));
            }
            continue;
        }
        let indented = line.strip_prefix("    ").filter(|_| is_blank || !code.is_empty());
        if indented.is_some() || (!code.is_empty() && line.is_empty()) {
            if code.is_empty() {
                let text = core::mem::take(&mut text);
                parts.push(Part::Text { line: text_line, text });
                code_line = index + 1;
            }
            code.push_str(indented.unwrap_or(""));
            code.push('\n');
        } else {
            if !code.is_empty() {
                let (text, language) = (core::mem::take(&mut code), String::new());
                parts.push(Part::Code { line: code_line, language, text });
                text_line = index + 1;
            }
            if let Some(language) = line.trim_start().strip_prefix("```") {
                let text = core::mem::take(&mut text);
                parts.push(Part::Text { line: text_line, text });
                fence = Some((index + 2, language.to_owned(), String::new()));
            } else {
                text.push_str(line);
                text.push('\n');
            }
        }
        is_blank = line.is_empty();
    }
    parts.push(Part::Text { line: text_line, text });
    parts
}

/// Code spans of a text, with the number of newlines before each.
fn spans(text: &str) -> Vec<(usize, String)> {
    let (mut spans, mut start) = (vec![], 0);
    for paragraph in text.split_inclusive("\n\n") {
        let mut position = start;
        for (index, piece) in paragraph.split('`').enumerate() {
            if index % 2 == 1 {
                let line = text[..position].matches('\n').count();
                spans.push((line, piece.replace('\n', " ")));
            }
            position += piece.len() + 1;
        }
        start += paragraph.len();
    }
    spans
}

/// Lines of a shell, joined at a backslash.
fn shell_lines(text: &str) -> Vec<(usize, String)> {
    let (mut all, mut open) = (vec![], None::<(usize, String)>);
    for (index, line) in text.lines().enumerate() {
        let (start, mut whole) = open.take().unwrap_or((index, String::new()));
        match line.strip_suffix('\\') {
            Some(part) => {
                whole.push_str(part);
                open = Some((start, whole));
            }
            None => all.push((start, whole + line)),
        }
    }
    all.extend(open);
    all
}

/// Words of the commands of a line, divided at pipes, lists and redirections. Quotes group words.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut word) = (vec![], vec![], None::<String>);
    let mut quote = None;
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        let starts_call = c == '$' && characters.peek() == Some(&'(');
        if starts_call {
            characters.next();
            quote = None;
        }
        match c {
            _ if Some(c) == quote => quote = None,
            _ if quote.is_some() && !starts_call => word.get_or_insert_default().push(c),
            '\'' | '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            '#' if word.is_none() => break,
            _ if starts_call || "|;&()<>{}".contains(c) && !is_within(c, word.as_deref()) => {
                words.extend(word.take());
                all.push(core::mem::take(&mut words));
            }
            _ if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    all.push(words);
    all
}

/// Whether a brace or parenthesis belongs to a word.
fn is_within(c: char, word: Option<&str>) -> bool {
    "{}()".contains(c) && word.is_some_and(|word| word.contains(['{', '/', '=']))
}

/// The words after a program's name, if a command calls it, itself or through another program.
fn call_of(program: &str, command: &[String]) -> Option<Vec<String>> {
    let is_it = |word: &String| word == program || word.ends_with(&format!("/{program}"));
    let place = command.iter().position(is_it)?;
    let (before, after) = (&command[..place], &command[place + 1..]);
    let is_prefix = |word: &String| {
        word.contains('=') || ["do", "then", "time", "nice", "$"].contains(&word.as_str())
    };
    let is_called = before.iter().all(is_prefix) || before.last().is_some_and(|word| word == "--");
    is_called.then(|| after.to_vec())
}

/// All calls of a program, with their places, and whether each is within a sentence.
fn calls_of(program: &str) -> Vec<(String, Vec<String>, bool)> {
    let mut calls = vec![];
    for (name, page) in pages() {
        for part in parts(&page) {
            let (start, lines, is_inline) = match part {
                Part::Text { line, text } => (line, spans(&text), true),
                // Other languages call no programs.
                Part::Code { language, .. } if !["", "sh"].contains(&language.as_str()) => continue,
                Part::Code { line, text, .. } => (line, shell_lines(&text), false),
            };
            for (offset, line) in lines {
                // `mendcast lab run [OPTIONS] <NAME>...` is a pattern.
                if line.contains("[OPTIONS]") || line.contains(" <") {
                    continue;
                }
                for command in commands(&line) {
                    if let Some(words) = call_of(program, &command) {
                        calls.push((format!("{name}:{}", start + offset), words, is_inline));
                    }
                }
            }
        }
    }
    calls
}

/// All calls of `mendcast`. Ellipses are left out.
pub fn calls() -> Vec<Call> {
    let clean = |word: String| {
        let optional = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
        let word = optional.unwrap_or(&word).trim_end_matches('…').trim_end_matches(',');
        (!word.is_empty()).then(|| word.to_owned())
    };
    let all = calls_of("mendcast").into_iter().filter(|(_, words, _)| !words.is_empty());
    let call = |(place, words, is_inline): (String, Vec<String>, bool)| Call {
        place,
        words: words.into_iter().filter_map(clean).collect(),
        is_inline,
    };
    all.map(call).collect()
}

/// All calls of another program.
pub fn programs(name: &str) -> Vec<(String, Vec<String>)> {
    calls_of(name).into_iter().map(|(place, words, _)| (place, words)).collect()
}

/// Code blocks that begin with a section, as in a configuration file.
pub fn configurations() -> Vec<Block> {
    let mut blocks = vec![];
    for (name, page) in pages() {
        for part in parts(&page) {
            let Part::Code { line, language, text } = part else { continue };
            let header = text.trim_start_matches('[').split(']').next().unwrap_or_default();
            let is_section = text.starts_with('[')
                && !header.is_empty()
                && header.chars().all(|c| c.is_ascii_lowercase());
            if language == "toml" || is_section {
                blocks.push(Block { place: format!("{name}:{line}"), text });
            }
        }
    }
    blocks
}

/// Keys in code spans such as `[live] max_lag`: place, section, key.
pub fn named_keys() -> Vec<(String, String, String)> {
    let mut keys = vec![];
    for (name, page) in pages() {
        for part in parts(&page) {
            let Part::Text { line, text } = part else { continue };
            for (offset, span) in spans(&text) {
                let Some((section, rest)) = span.strip_prefix('[').and_then(|s| s.split_once("] "))
                else {
                    continue;
                };
                let section = section.trim_matches(['[', ']']).to_owned();
                let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
                let key = &rest[..end.unwrap_or(rest.len())];
                if !key.is_empty() {
                    keys.push((format!("{name}:{}", line + offset), section, key.to_owned()));
                }
            }
        }
    }
    keys
}
