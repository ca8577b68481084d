//! Names of sources in comments and pages: each is the end of the path of a source that exists.

use std::path::{Path, PathBuf};

use super::{Source, Violation};

/// Sites on the web whose names look like those of sources.
const SITES: [&str; 2] = ["docs.rs", "rustup.rs"];

/// Goes through the comments of sources and through pages, except those that tell of the past.
pub(super) fn check(sources: &[Source], pages: &[(PathBuf, String)]) -> Vec<Violation> {
    let of_source = |source: &'_ Source| {
        let is_comment = |line: &&str| line.trim_start().starts_with("//");
        let lines = source.text.lines().map(|line| Some(line).filter(is_comment).unwrap_or_default().to_owned());
        (source.path.clone(), lines.collect::<Vec<_>>())
    };
    let of_page = |(path, text): &(PathBuf, String)| (path.clone(), text.lines().map(str::to_owned).collect());
    let is_read = |(path, _): &&(PathBuf, String)| !path.ends_with("CHANGELOG.md") && !path.starts_with("docs/log");
    let texts = sources.iter().map(of_source).chain(pages.iter().filter(is_read).map(of_page));
    let exists = |name: &str| sources.iter().any(|source| source.path.ends_with(name));
    texts
        .flat_map(|(path, lines)| {
            let stale = |line: &String| names(line).find(|name| !exists(name)).map(str::to_owned);
            let found = (1..).zip(&lines).filter_map(|(number, line)| Some((number, stale(line)?)));
            found.map(|(line, name)| violation(&path, line, &name)).collect::<Vec<_>>()
        })
        .collect()
}

fn violation(path: &Path, line: usize, name: &str) -> Violation {
    Violation { path: path.to_owned(), line, what: format!("there is no source `{name}`") }
}

/// The words of a line that name a source, alone or with folders.
fn names(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || "_-/.".contains(c)))
        .map(|word| word.trim_end_matches('.').trim_start_matches(['.', '/']))
        .filter(|word| word.ends_with(".rs") && *word != ".rs" && !SITES.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    #[test]
    fn a_source_that_is_gone_is_found() {
        let text = "//! See `low.rs`, a/low.rs and ../a/low.rs.\n// `b/low.rs`, below.rs\nconst A: &str = \"gone.rs\";";
        let sources = [source("crates/a/low.rs", "// docs.rs"), source("crates/a/high.rs", text)];
        let page = |path: &str| (PathBuf::from(path), "`low.rs`\n(`lowest.rs`)\n".to_owned());
        let pages = [page("docs/a.md"), page("docs/log/a.md"), page("CHANGELOG.md")];
        let found: Vec<_> = check(&sources, &pages).into_iter().map(|it| (it.path, it.line)).collect();
        assert_eq!(found, [("crates/a/high.rs".into(), 2), ("docs/a.md".into(), 2)]);
    }
}
