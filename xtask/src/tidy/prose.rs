//! Prose in comments and pages: no line is too wide, and sentences name who or what acts. Nor is a
//! line of code too wide: the formatter leaves long strings and macros as they are.

use std::path::Path;

use super::{Source, Violation};

/// Columns of a line of prose, and of one of code.
const WIDTH: usize = 100;
const CODE_WIDTH: usize = 120;
/// Lines that leave open who or what acts, in all.
const UNNAMED_MAX: usize = 60;

/// What was found.
pub(super) struct Prose {
    pub(super) violations: Vec<Violation>,
    /// Lines that leave open who or what acts.
    pub(super) unnamed: usize,
}

/// Goes through the comments of sources and through pages.
pub(super) fn check(sources: &[Source], pages: &[(std::path::PathBuf, String)]) -> Prose {
    let mut prose = Prose { violations: Vec::new(), unnamed: 0 };
    for source in sources {
        let comments = (1..).zip(source.text.lines()).filter_map(|(number, line)| {
            let text = line.trim_start().strip_prefix("//")?;
            Some((number, line, text.trim_start_matches(['/', '!']).trim()))
        });
        prose.go_through(&source.path, comments);
        let code = (1..).zip(source.text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (number, width) in code.map(|(number, line)| (number, line.chars().count())) {
            if width > CODE_WIDTH {
                let what = format!("{width} columns of code, {CODE_WIDTH} at most");
                prose.violations.push(Violation { path: source.path.clone(), line: number, what });
            }
        }
    }
    for (path, text) in pages.iter().filter(|(path, _)| is_read_for_prose(path)) {
        prose.go_through(path, (1..).zip(text.lines()).map(|(number, line)| (number, line, line.trim())));
    }
    if prose.unnamed > UNNAMED_MAX {
        prose.violations.push(Violation {
            path: "CONTRIBUTING.md".into(),
            line: 1,
            what: format!("{} lines leave open who or what acts, {UNNAMED_MAX} may", prose.unnamed),
        });
    }
    prose
}

/// Returns whether a page is checked: not the log, nor what `cargo bench-virtual results` writes.
fn is_read_for_prose(path: &Path) -> bool {
    !["docs/log", "docs/results"].iter().any(|directory| path.starts_with(directory))
}

impl Prose {
    /// Checks lines: for each, its number, the whole line, and its text without comment marks.
    fn go_through<'a>(&mut self, path: &Path, lines: impl Iterator<Item = (usize, &'a str, &'a str)>) {
        let mut is_code = false;
        for (number, line, text) in lines {
            let is_fence = text.starts_with("```");
            is_code ^= is_fence;
            self.unnamed += usize::from(leaves_open_who_acts(text));
            let width = line.chars().count();
            if width > WIDTH && !is_code && !is_fence && !stands_as_it_is(text) {
                let what = format!("{width} columns of prose, {WIDTH} at most");
                self.violations.push(Violation { path: path.to_owned(), line: number, what });
            }
        }
    }
}

/// Returns whether a line can't be wrapped: tables, drawings, marks that programs read, and lines
/// with a single long word.
fn stands_as_it_is(text: &str) -> bool {
    let is_drawn = text.contains("   ") || text.chars().any(|c| ('\u{2500}'..'\u{25ff}').contains(&c));
    let is_read = ["|", "Sometimes:", "Transition:", "["].iter().any(|start| text.starts_with(start));
    is_drawn || is_read || text.split_whitespace().any(|word| word.chars().count() > WIDTH / 2)
}

/// Whether a sentence has "nobody" or a similar word, or "who" and a verb, instead of naming a
/// reader, a flusher, a caller.
fn leaves_open_who_acts(text: &str) -> bool {
    const VERBS: [&str; 12] =
        ["has", "is", "wants", "comes", "unmaps", "writes", "reads", "uses", "waits", "asks", "looks", "does"];
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.iter().any(|word| ["nobody", "somebody", "whoever"].contains(word))
        || words.windows(2).any(|pair| pair[0] == "who" && VERBS.contains(&pair[1]))
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&[source("a.rs", text)], &[]).violations.into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn prose_has_a_hundred_columns() {
        let words = "word ".repeat(20);
        assert_eq!(lines(&format!("// {words}\n/// {words}\nfn f() {{}} // {words}\n")), [1, 2]);
        assert_eq!(lines(&format!("//! | {words}\n//! ```\n//! {words}\n//! ```\n//! a   b {words}\n")), [0; 0]);
        assert_eq!(lines(&format!("// {}\n", &words[..90])), [0; 0]);
        let page = |path: &str| check(&[], &[(path.into(), words.clone() + &words)]).violations.len();
        let pages = ["docs/reading.md", "docs/results.md", "docs/log/reading.md", "docs/results/exit.md"];
        assert_eq!(pages.map(page), [1, 1, 0, 0]);
    }

    #[test]
    fn code_has_a_hundred_and_twenty_columns() {
        let wide = format!("fn f() {{}}\nconst A: &str = \"{}\";\n", "a".repeat(CODE_WIDTH));
        assert_eq!(lines(&wide), [2]);
        assert_eq!(lines("const A: u8 = 1;\n"), [0; 0]);
    }

    #[test]
    fn sentences_name_who_acts() {
        for (text, count) in [
            ("// The reader waits.", 0),
            ("// Who has the frame isolated", 0),
            ("// for who has the frame", 1),
            ("// nobody is left, and somebody asks", 1),
        ] {
            assert_eq!(check(&[source("a.rs", text)], &[]).unnamed, count, "{text}");
        }
        let many = "// nobody\n".repeat(UNNAMED_MAX + 1);
        assert_eq!(check(&[source("a.rs", &many)], &[]).violations.len(), 1);
    }
}
