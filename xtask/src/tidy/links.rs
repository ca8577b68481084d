//! Links in pages of documentation, to files of the project and to headings.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use super::Violation;

/// Violations of `pages`, whose paths are from `root`.
pub(super) fn check(pages: &[(PathBuf, String)], root: &Path) -> Vec<Violation> {
    let anchors: HashMap<&Path, Vec<String>> =
        pages.iter().map(|(path, text)| (path.as_path(), anchors(text))).collect();
    let mut violations = Vec::new();
    for (path, text) in pages {
        for (number, line) in prose(text) {
            for link in links(line).filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target =
                    if file.is_empty() { path.clone() } else { normal(&path.parent().unwrap_or(path).join(file)) };
                let leads_somewhere = match anchors.get(target.as_path()) {
                    Some(anchors) => anchor.is_empty() || anchors.iter().any(|one| one == anchor),
                    None => root.join(&target).exists(),
                };
                if !leads_somewhere {
                    violations.push(Violation {
                        path: path.clone(),
                        line: number,
                        what: format!("the link `{link}` leads nowhere"),
                    });
                }
            }
        }
    }
    violations
}

/// The lines of a page that aren't code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Where the links of a line lead: `[text](here)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link)
}

/// What the headings of a page are called in links.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let name = line.trim_start_matches('#').trim().to_lowercase();
        let kept = name.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let before = anchors.iter().filter(|one| **one == anchor).count();
        anchors.push(if before == 0 { anchor } else { format!("{anchor}-{before}") });
    }
    anchors
}

fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if normal.pop() => {}
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let page = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
        let pages = [
            page(
                "README.md",
                "# The `first` one\n[a](docs/b.md) [b](docs/c.md)\n[c](#the-first-one) [d](#two)\n```\n[no](link)\n```",
            ),
            page(
                "docs/b.md",
                "## A\n## A\n[a](../README.md#the-first-one) [b](../README.md#a) [c](#a-1) [d](https://e.f)",
            ),
        ];
        let found = check(&pages, Path::new("/nowhere"));
        let found: Vec<_> =
            found.iter().map(|violation| (violation.line, violation.what.split('`').nth(1).unwrap())).collect();
        assert_eq!(found, [(2, "docs/c.md"), (3, "#two"), (3, "../README.md#a")]);
    }
}
