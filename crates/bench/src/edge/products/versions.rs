//! Versions of the products.

use std::path::Path;
use std::process::Command;

use super::super::servers;
use super::product::{Product, ProductPrograms};

/// Versions of the crates in this program.
const LOCK: &str = include_str!("../../../../../Cargo.lock");

/// Returns the version of an installed product, `unknown` if it does not tell.
pub(super) fn version(product: Product, programs: &ProductPrograms) -> String {
    let installed = |name: &str| programs.installed.join(name);
    let version = match product {
        Product::Mendcast
        | Product::MendcastHttp2
        | Product::MendcastRtmp
        | Product::MendcastRtmps => number(&output(&programs.common.mendcast, &["--version"])),
        Product::Quinn => {
            let [quinn, h3] = ["quinn", "h3"].map(|name| locked(LOCK, name).unwrap_or("unknown"));
            Some(format!("quinn {quinn}, h3 {h3}"))
        }
        Product::Moq => number(&output(&installed("moq-relay"), &["--version"])),
        Product::MediaMtxRtmp | Product::MediaMtxRtmps => {
            number(&output(&installed("mediamtx"), &["--version"]))
        }
        Product::NginxRtmp => nginx(),
    };
    version.unwrap_or_else(|| "unknown".to_owned())
}

/// Returns the versions of nginx, and of Debian's package of the module, whose version begins with
/// the module's.
fn nginx() -> Option<String> {
    let nginx = number(&output(servers::nginx_program()?, &["-v"]))?;
    let words = ["-W", "-f", "${Version}", "libnginx-mod-rtmp"];
    let module = number(&output(Path::new("dpkg-query"), &words));
    Some(match module {
        Some(module) => format!("nginx {nginx}, module {module}"),
        None => format!("nginx {nginx}"),
    })
}

/// Returns standard output and error of a command that ends by itself.
fn output(program: &Path, words: &[&str]) -> String {
    // A program that does not start has no version.
    let done = Command::new(program).args(words).output();
    done.map(|done| [done.stdout, done.stderr].concat())
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .unwrap_or_default()
}

/// Returns the first version number in a text: digits and dots, without an epoch and without the
/// rest of its word.
fn number(text: &str) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '/' | ':' | ','));
    let numbers = words.map(|word| word.trim_start_matches('v'));
    let mut numbers = numbers.map(|word| {
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.');
        word[..end.unwrap_or(word.len())].trim_end_matches('.')
    });
    numbers.find(|number| number.contains('.')).map(str::to_owned)
}

/// Returns a crate's version in the text of a `Cargo.lock`, the last one of several.
fn locked<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let packages = lock.split("[[package]]").filter_map(|package| {
        let field =
            |key: &str| package.lines().find_map(|line| line.strip_prefix(key)?.strip_suffix('"'));
        (field("name = \"")? == name).then(|| field("version = \""))?
    });
    packages.last()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_numbers_are_found_in_the_products_words() {
        let cases = [
            ("v1.20.1\n", Some("1.20.1")),
            ("nginx version: nginx/1.22.1\n", Some("1.22.1")),
            ("1:1.2.2+dfsg-3", Some("1.2.2")),
            ("moq-relay 0.17.10\n", Some("0.17.10")),
            ("mendcast 0.2.0-dev (QUIC edge)", Some("0.2.0")),
            ("no such file", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(number(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn crates_of_this_program_have_a_version() {
        for name in ["quinn", "h3"] {
            assert!(locked(LOCK, name).is_some_and(|version| version.starts_with("0.")), "{name}");
        }
        assert_eq!(locked(LOCK, "no-such-crate"), None);
    }

    #[test]
    fn a_program_that_does_not_exist_has_no_output() {
        assert_eq!(output(Path::new("/nonexistent"), &["--version"]), "");
    }
}
