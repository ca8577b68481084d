//! `cargo xtask tidy`: rules of the house that a machine can check.
//!
//! | rule | decided by |
//! |---|---|
//! | a test is ignored for one of a few reasons, and its name says which; quarantined ones are counted | [`ignored`] |
//! | product code takes its atomics, locks, threads and time from crate `sync` | [`seam`] |
//! | a test sleeps only to look again, to simulate time that something takes, or to let something go wrong | [`sleeps`] |
//! | a link in a page leads somewhere | [`links`] |
//! | a command that a page shows is one that a check tries | [`commands`] |
//! | a label of an invariant is defined once in its crate | [`labels`] |
//! | a file that orders memory accesses says in a comment what pairs with what | [`orderings`] |
//! | a source that a comment or a page names exists | [`file_names`] |
//! | neither files nor folders of a crate import each other in a circle, or one above them in the drawing | [`layers`] |
//! | what users depend on depends on nothing in `lab/`, and only for its tests on `test-disks` | [`lab`] |
//! | each check of the gate has a row in CONTRIBUTING.md | [`rows`] |
//! | prose has 100 columns, and says who or what acts (60 lines may not); code has 120 | [`prose`] |
//!
//! Sources are parsed. Each rule has a test that plants a violation.

mod commands;
mod file_names;
mod ignored;
mod lab;
mod labels;
mod layers;
mod links;
mod orderings;
mod prose;
mod rows;
mod seam;
mod sleeps;

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use syn::{Attribute, Item, ItemFn, ItemMod, ItemUse};

use crate::workspace::root;

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    /// From the root of the workspace.
    path: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}:{}: {}", self.path.display(), self.line, self.what)
    }
}

/// A source that was read.
struct Source {
    path: PathBuf,
    text: String,
    file: syn::File,
    /// The file without what is compiled for tests alone.
    product: syn::File,
}

impl Source {
    fn new(path: PathBuf, text: String) -> syn::Result<Self> {
        let file = syn::parse_file(&text)?;
        let mut product = file.clone();
        leave_out_tests(&mut product.items);
        Ok(Self { path, text, file, product })
    }

    fn violation(&self, span: proc_macro2::Span, what: String) -> Violation {
        Violation { path: self.path.clone(), line: span.start().line, what }
    }
}

/// `tidy`: prints each violation, and how many tests are in quarantine.
pub(crate) fn run(gate: &[&str]) -> ExitCode {
    let read = || Ok((sources()?, files(OsStr::new("md"))?, files(OsStr::new("toml"))?));
    let (sources, pages, manifests) = match read() {
        Ok(read) => read,
        Err::<_, String>(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let page = |name: &str| pages.iter().find(|(path, _)| path == Path::new(name)).map_or("", |(_, text)| text);
    let ignored = ignored::check(&sources);
    let prose = prose::check(&sources, &pages);
    let violations: Vec<Violation> = sources
        .iter()
        .flat_map(seam::check)
        .chain(ignored.violations)
        .chain(sleeps::check(&sources))
        .chain(links::check(&pages, &root()))
        .chain(commands::check(&pages, &sources))
        .chain(labels::check(&sources))
        .chain(rows::check(page("CONTRIBUTING.md"), gate))
        .chain(prose.violations)
        .chain(lab::check(&manifests))
        .chain(sources.iter().filter_map(orderings::check))
        .chain(file_names::check(&sources, &pages))
        .chain(layers::check(&sources, page("ARCHITECTURE.md")))
        .collect();
    violations.iter().for_each(|violation| eprintln!("{violation}"));
    ignored.quarantined.iter().for_each(|test| println!("in quarantine: {test}"));
    println!(
        "{} sources, {} pages, {} violations, {} tests in quarantine, {} lines that leave open who acts",
        sources.len(),
        pages.len(),
        violations.len(),
        ignored.quarantined.len(),
        prose.unnamed
    );
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All sources of the workspace.
fn sources() -> Result<Vec<Source>, String> {
    let parse = |(path, text): (PathBuf, String)| {
        Source::new(path.clone(), text).map_err(|error| format!("{}: {error}", path.display()))
    };
    files(OsStr::new("rs"))?.into_iter().map(parse).collect()
}

/// Returns the files with an extension, and their texts, in the order of their paths.
fn files(extension: &OsStr) -> Result<Vec<(PathBuf, String)>, String> {
    let mut found = Vec::new();
    collect(Path::new(""), extension, &mut found)?;
    found.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root().join(&path)).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok((path, text))
    };
    found.into_iter().map(read).collect()
}

fn collect(folder: &Path, extension: &OsStr, into: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(root().join(folder)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        // What is built, and what belongs to git.
        let is_ours = !["target", "."].iter().any(|start| name.to_string_lossy().starts_with(start));
        let path = folder.join(&name);
        if entry.path().is_dir() && is_ours {
            collect(&path, extension, into)?;
        } else if path.extension() == Some(extension) {
            into.push(path);
        }
    }
    Ok(())
}

/// Whether a source has tests or models, or what they share, and no code of its crate.
pub(crate) fn is_test(path: &Path) -> bool {
    let is_one =
        |name: &str| ["tests", "models", "patience"].iter().any(|of| name == *of || name.ends_with(&format!("_{of}")));
    path.with_extension("").iter().any(|part| is_one(&part.to_string_lossy()))
}

/// Leaves out modules, functions and imports that are compiled for tests alone.
fn leave_out_tests(items: &mut Vec<Item>) {
    items.retain(|item| match item {
        Item::Mod(ItemMod { attrs, .. }) | Item::Fn(ItemFn { attrs, .. }) | Item::Use(ItemUse { attrs, .. }) => {
            !is_for_tests(attrs)
        }
        _ => true,
    });
    for item in items {
        if let Item::Mod(ItemMod { content: Some((_, items)), .. }) = item {
            leave_out_tests(items);
        }
    }
}

/// Whether an item is compiled for tests alone.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition =
            attribute.meta.require_list().map(|list| list.tokens.to_string().replace(' ', "")).unwrap_or_default();
        let has = |word| condition.split(|c: char| !c.is_alphanumeric()).any(|part| part == word);
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg") && has("test") && !condition.contains("not(test)")
    })
}

#[cfg(test)]
fn source(path: &str, text: &str) -> Source {
    Source::new(path.into(), text.to_owned()).unwrap()
}
