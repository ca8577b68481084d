//! Labels of invariants, such as `L5`. Each label is defined once in its crate, so a comment in any
//! file of the crate can name an invariant by its label alone. A comment in another crate names the
//! module, too.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{Source, Violation};

/// Finds labels that an earlier file of the same crate has defined, or an earlier line.
pub(super) fn check(sources: &[Source]) -> Vec<Violation> {
    let mut first: HashMap<(PathBuf, &str), (&Path, usize)> = HashMap::new();
    let mut violations = Vec::new();
    for source in sources {
        for (line, label) in (1..).zip(source.text.lines()).filter_map(|(line, text)| Some((line, defined(text)?))) {
            let here = (&*source.path, line);
            let (path, number) = *first.entry((crate_of(&source.path), label)).or_insert(here);
            if (path, number) != here {
                let what = format!("{label} is defined already, in {}:{number}", path.display());
                violations.push(Violation { path: source.path.clone(), line, what });
            }
        }
    }
    violations
}

/// Returns the folder of a source's crate: `crates/frames`, `xtask`.
fn crate_of(path: &Path) -> PathBuf {
    path.iter().take_while(|part| !["src", "tests", "benches", "examples"].map(OsStr::new).contains(part)).collect()
}

/// Returns the label that a line of a module's documentation defines: one or two capital letters
/// and a number, at the start of the line or of a list item.
fn defined(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//!")?.trim_start();
    let (label, _) = text.strip_prefix("- ").unwrap_or(text).split_once(". ")?;
    let number = label.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let is_label = (1..=2).contains(&(label.len() - number.len()))
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit());
    is_label.then_some(label)
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    #[test]
    fn a_label_that_two_modules_of_a_crate_define_is_found() {
        let text = "//! - L1. One thread at a time.\n//! - L2. As in L1.\n";
        let of = |paths: &[&str]| {
            let sources: Vec<_> = paths.iter().map(|path| source(path, text)).collect();
            check(&sources).into_iter().map(|violation| (violation.path, violation.line)).collect::<Vec<_>>()
        };
        assert_eq!(of(&["crates/a/src/b.rs", "crates/b/src/b.rs", "lab/a/src/b.rs"]), []);
        let again = || PathBuf::from("crates/a/tests/c.rs");
        assert_eq!(of(&["crates/a/src/b.rs", "crates/a/tests/c.rs"]), [(again(), 1), (again(), 2)]);
    }

    #[test]
    fn only_definitions_count() {
        for (line, label) in [
            ("//! - ST1. Only a mapping", Some("ST1")),
            ("//! U2. `max` and `goal`", Some("U2")),
            ("//!   L1. A continued line", Some("L1")),
            ("/// - L1. Of an item", None),
            ("// L1. In code", None),
            ("//! as in L1. So", None),
            ("//! - ABC1. A name", None),
            ("//! - L. No number", None),
            ("//! - 1. No letter", None),
            ("//! A. B", None),
        ] {
            assert_eq!(defined(line), label, "{line}");
        }
    }
}
