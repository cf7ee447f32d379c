//! Commands and configurations in the pages.

use core::fmt;
use std::path::{Path, PathBuf};

/// Language of blocks with commands of other programs, which no test runs. mdbook and GitHub show
/// them as `sh`.
const MARK: &str = "sh,not-run";
/// Languages of blocks without commands. Blocks without a language are commands or configurations.
const NO_COMMANDS: [&str; 6] = ["html", "ini", "promql", "text", "toml", "yaml"];
/// Help texts with examples. The commands of this program in them are checked as in other pages.
const HELP: &str = "docs/reference/commands.md";

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

/// Names and texts of README.md, CONTRIBUTING.md and all pages below docs/.
fn pages() -> Vec<(String, String)> {
    let mut paths = ["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)).to_vec();
    let mut open = vec![root().join("docs")];
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

/// Whether a block is a configuration: one that begins with a section, as a file does.
fn is_configuration(language: &str, text: &str) -> bool {
    let header = text.trim_start_matches('[').split(']').next().unwrap_or_default();
    let is_section = text.starts_with('[')
        && !header.is_empty()
        && header.chars().all(|c| c.is_ascii_lowercase());
    language == "toml" || is_section
}

/// Words of all commands, with their places, and whether each is within a sentence.
fn all_commands() -> Vec<(String, Vec<String>, bool)> {
    let mut all = vec![];
    for (name, page) in pages() {
        for part in parts(&page) {
            let (start, lines, is_inline) = match part {
                Part::Text { line, text } => (line, spans(&text), true),
                Part::Code { language, .. } if NO_COMMANDS.contains(&language.as_str()) => continue,
                Part::Code { line, text, .. } => (line, shell_lines(&text), false),
            };
            for (offset, line) in lines {
                // `mendcast lab run [OPTIONS] <NAME>...` is a pattern.
                if line.contains("[OPTIONS]") || line.contains(" <") {
                    continue;
                }
                for command in commands(&line) {
                    all.push((format!("{name}:{}", start + offset), command, is_inline));
                }
            }
        }
    }
    all
}

/// All calls of a program, with their places, and whether each is within a sentence.
fn calls_of(program: &str) -> Vec<(String, Vec<String>, bool)> {
    let call = |(place, words, is_inline): (String, Vec<String>, bool)| {
        Some((place, call_of(program, &words)?, is_inline))
    };
    all_commands().into_iter().filter_map(call).collect()
}

/// Whether a line of a shell begins with this program, `make` or a file of the repository.
fn is_checked(line: &str) -> bool {
    let is_ours = |command: &Vec<String>| {
        call_of("mendcast", command).is_some()
            || call_of("make", command).is_some()
            || root().join(&command[0]).is_file()
    };
    commands(line).iter().find(|command| !command.is_empty()).is_none_or(is_ours)
}

/// Blocks with a wrong language: commands of other programs without the mark, a mark without such
/// commands, and languages that are not listed above.
pub fn unmarked_blocks() -> Vec<String> {
    let mut wrong = vec![];
    for (name, page) in pages().into_iter().filter(|(name, _)| name != HELP) {
        for part in parts(&page) {
            let Part::Code { line, language, text } = part else { continue };
            let place = format!("{name}:{line}");
            let other = shell_lines(&text).into_iter().find(|(_, line)| !is_checked(line));
            match (language.as_str(), other) {
                (language, _) if is_configuration(language, &text) => {}
                ("" | "sh", Some((_, other))) => {
                    wrong.push(format!("{place}: not checked, mark it with ```{MARK}: {other}"));
                }
                (MARK, None) => wrong.push(format!("{place}: all checked, needs no mark")),
                ("" | "sh" | MARK, _) => {}
                (language, _) if NO_COMMANDS.contains(&language) => {}
                (language, _) => wrong.push(format!("{place}: unknown language {language}")),
            }
        }
    }
    wrong
}

/// Words of commands and code spans that name a file below a directory of the repository.
pub fn paths() -> Vec<(String, String)> {
    let is_path = |word: &String| {
        let is_pattern = word.contains(['*', '$', '…', '<', ':']);
        let first = word.split_once('/').map_or("", |(first, _)| first);
        let is_ours = !["", ".", "..", "target", "out"].contains(&first);
        !is_pattern && is_ours && root().join(first).is_dir()
    };
    let words = |(place, words, _): (String, Vec<String>, bool)| {
        let paths = words.into_iter().filter(is_path).collect::<Vec<_>>();
        paths.into_iter().map(move |path| (place.clone(), path))
    };
    all_commands().into_iter().flat_map(words).collect()
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
            if is_configuration(&language, &text) {
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
