//! Finds files of a crate that import each other in a circle, and folders that do. Also finds
//! folders of `pagefold` that import a folder above them in the drawing of ARCHITECTURE.md.
//!
//! A module is a file. A module imports another one if it names the other in a `use`, or in a path
//! that begins with `crate`, `self` or `super`. A path that begins with the name of a child doesn't
//! count, so a module and its own children may name each other. An item that the crate's root
//! exports counts as an item of the module that defines it. Calls of methods don't count as
//! imports, because the blocks of `impl Manager` stand in the folders of their subjects. Tests and
//! models are excluded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Item, ItemUse, UseTree};

use super::{Source, Violation, is_test};

/// The names that lead from a crate's root to a module.
type Module = Vec<String>;

/// Looks at each crate, and at the drawing in `architecture`.
pub(super) fn check(sources: &[Source], architecture: &str) -> Vec<Violation> {
    let mut crates: BTreeMap<PathBuf, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !is_test(&source.path)) {
        let mut parts = source.path.iter();
        let folder: PathBuf = parts.by_ref().take_while(|part| *part != "src").collect();
        if parts.next().is_some() {
            crates.entry(folder).or_default().push(source);
        }
    }
    let mut violations = Vec::new();
    for (path, sources) in crates {
        let files = imports(&sources);
        let folders = of_folders(&files);
        if path.ends_with("pagefold") {
            let up = arrows_up(&folders, &rows(architecture)).into_iter();
            violations.extend(up.map(|what| Violation { path: path.clone(), line: 1, what }));
        }
        // Usually, a circle of files is one of their folders, too.
        let in_files = circles(&files);
        let (kind, found) = if in_files.is_empty() { ("folders", circles(&folders)) } else { ("files", in_files) };
        for circle in found {
            let names: Vec<_> = circle.iter().map(|name| name.join("::")).collect();
            let what = format!("{} {kind} import each other in a circle: {}", circle.len(), names.join(" "));
            violations.push(Violation { path: path.clone(), line: 1, what });
        }
    }
    violations
}

/// Returns the names of folders that stand in each row of the drawing below `pagefold`, from the
/// top. `a · b` are two in one row.
fn rows(architecture: &str) -> Vec<Vec<&str>> {
    let below = architecture.lines().skip_while(|line| !line.starts_with(" pagefold ")).skip(1);
    let rows = below.take_while(|line| line.starts_with("   "));
    rows.map(|row| row.trim_start().split("  ").next().unwrap_or_default().split(" · ").collect()).collect()
}

/// Describes each import of a folder that stands higher in the drawing than the importing folder,
/// and each folder of the drawing that doesn't exist.
fn arrows_up(folders: &Imports, rows: &[Vec<&str>]) -> Vec<String> {
    let height = |folder: &Module| rows.iter().position(|row| row.contains(&&*folder[0]));
    let is_up = |from: &Module, to: &Module| height(from).zip(height(to)).is_some_and(|(from, to)| to < from);
    let up = folders.iter().flat_map(|(from, imported)| imported.iter().map(move |to| (from, to)));
    let up = up.filter(|(from, to)| is_up(from, to));
    let missing = rows.iter().flatten().filter(|name| !folders.contains_key(&vec![(**name).to_owned()]));
    let up = up.map(|(from, to)| format!("`{}` imports `{}`, which is above it in ARCHITECTURE.md", from[0], to[0]));
    let missing = missing.map(|name| format!("`{name}` is in the drawing of ARCHITECTURE.md, and isn't a folder"));
    up.chain(missing).collect()
}

/// Which modules each module imports.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// The imports of a crate's files.
fn imports(sources: &[&Source]) -> Imports {
    let modules: BTreeMap<Module, &Source> = sources.iter().map(|source| (module_of(&source.path), *source)).collect();
    let exports = modules.get(&Vec::new()).map_or_else(BTreeMap::new, |root| exports(&root.file));
    let of = |(me, source): (&Module, &&Source)| {
        let mut search = Search { me, paths: Vec::new() };
        search.visit_file(&source.product);
        let found = search.paths.iter().filter_map(|path| target(path, &modules, &exports));
        // The crate's root has no code of its own, so an import of the root isn't part of a circle.
        (me.clone(), found.filter(|found| found != me && !found.is_empty()).collect())
    };
    modules.iter().map(of).collect()
}

/// Returns the imports of folders, and of files that are in no folder. A file beside a folder of
/// the same name counts as part of the folder.
fn of_folders(imports: &Imports) -> Imports {
    let folder = |module: &Module| module[..1].to_vec();
    let mut folders = Imports::new();
    for (module, imported) in imports.iter().filter(|(module, _)| !module.is_empty()) {
        let others = imported.iter().map(folder).filter(|other| *other != folder(module));
        folders.entry(folder(module)).or_default().extend(others);
    }
    folders
}

/// Returns the modules that import each other in a circle, one list for each circle.
fn circles(imports: &Imports) -> BTreeSet<Vec<&Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|from| (from, reachable(from, imports))).collect();
    let of = |from: &Module| {
        imports.keys().filter(|to| reach[from].contains(to) && reach[to].contains(from)).collect::<Vec<_>>()
    };
    imports.keys().map(of).filter(|circle| circle.len() > 1).collect()
}

fn reachable<'a>(from: &'a Module, imports: &'a Imports) -> BTreeSet<&'a Module> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![from]);
    while let Some(next) = waiting.pop() {
        let imported = imports.get(next).into_iter().flatten();
        waiting.extend(imported.filter(|to| found.insert(*to)));
    }
    found
}

/// Returns the module of a file: `tidy::layers` for `src/tidy/layers.rs`, `tidy` for
/// `src/tidy/mod.rs`, and the root for `src/lib.rs`.
fn module_of(path: &Path) -> Module {
    let inner: PathBuf = path.iter().skip_while(|part| *part != "src").skip(1).collect();
    let mut names: Module = inner.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        names.pop();
    }
    names
}

/// What the root exports again, and from which path.
fn exports(root: &syn::File) -> BTreeMap<String, Module> {
    let mut found = Vec::new();
    for item in &root.items {
        if let Item::Use(ItemUse { tree, .. }) = item {
            flatten(tree, &mut Vec::new(), &mut found);
        }
    }
    let strip = |path: Module| path.into_iter().filter(|name| name != "crate" && name != "self").collect();
    found.into_iter().filter_map(|(name, path)| Some((name?, strip(path)))).collect()
}

/// The file that a path from the root leads to; none if that is the root.
fn target(path: &Module, modules: &BTreeMap<Module, &Source>, exports: &BTreeMap<String, Module>) -> Option<Module> {
    let is_one = |path: &[String]| modules.contains_key(path).then(|| path.to_vec());
    let longest = |path: &Module| (1..=path.len()).rev().find_map(|len| is_one(&path[..len]));
    longest(path).or_else(|| longest(exports.get(path.first()?)?))
}

/// Paths that begin in this crate.
struct Search<'a> {
    me: &'a Module,
    paths: Vec<Module>,
}

impl Search<'_> {
    fn add(&mut self, path: &[String]) {
        let mut at = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self") => self.me.clone(),
            Some("super") => self.me[..self.me.len().saturating_sub(1)].to_vec(),
            _ => return,
        };
        for name in &path[1..] {
            if name == "super" {
                at.pop();
            } else {
                at.push(name.clone());
            }
        }
        self.paths.push(at);
    }
}

impl<'ast> Visit<'ast> for Search<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut found = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut found);
        found.iter().for_each(|(_, path)| self.add(path));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.add(&names);
        }
        visit::visit_path(self, path);
    }
}

/// The paths of a `use`, each with the name that it gives.
fn flatten(tree: &UseTree, before: &mut Module, into: &mut Vec<(Option<String>, Module)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, into);
            before.pop();
        }
        UseTree::Name(name) => {
            let path = before.iter().cloned().chain([name.ident.to_string()]).collect();
            into.push((Some(name.ident.to_string()), path));
        }
        UseTree::Rename(rename) => {
            let path = before.iter().cloned().chain([rename.ident.to_string()]).collect();
            into.push((Some(rename.rename.to_string()), path));
        }
        UseTree::Glob(_) => into.push((None, before.clone())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, into)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    fn found(files: &[(&str, &str)]) -> usize {
        let sources: Vec<_> = files.iter().map(|(path, text)| source(&format!("crates/a/src/{path}"), text)).collect();
        check(&sources, "").len()
    }

    #[test]
    fn a_circle_of_imports_is_found() {
        let down = [("lib.rs", "mod low; mod high; pub use low::L;"), ("low.rs", "pub struct L;")];
        assert_eq!(found(&[down[0], down[1], ("high.rs", "use crate::low::L;")]), 0);
        let circle = [down[0], ("low.rs", "pub struct L; fn f() { crate::high::g() }"), ("high.rs", "use crate::L;")];
        assert_eq!(found(&circle), 1);
        let of_a_test = "pub struct L; #[cfg(test)] mod tests { use crate::high::H; }";
        assert_eq!(found(&[down[0], ("low.rs", of_a_test), ("high.rs", "use super::low::L; pub struct H;")]), 0);
        let folders = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; mod c;"),
            ("a/b.rs", "use super::c::C; pub struct B;"),
            ("a/c.rs", "use crate::a::b::B; pub struct C;"),
        ];
        assert_eq!(found(&folders), 1);
    }

    #[test]
    fn an_import_of_a_higher_folder_is_found() {
        let drawing = "```\n cli  x\n pagefold   policy:\n   high      one\n   low · lower   two\n ────\n frames  x\n";
        assert_eq!(rows(drawing), [vec!["high"], vec!["low", "lower"]]);
        let found = |low| {
            let files = [("high.rs", "pub struct H;"), ("low.rs", low), ("lower.rs", "")];
            let of = |(path, text): &(&str, &str)| source(&format!("crates/pagefold/src/{path}"), text);
            check(&files.iter().map(of).collect::<Vec<_>>(), drawing).len()
        };
        assert_eq!(found("use crate::lower::L;"), 0);
        assert_eq!(found("use crate::high::H;"), 1);
        assert_eq!(check(&[source("crates/pagefold/src/low.rs", "")], drawing).len(), 2, "two are missing");
    }

    #[test]
    fn a_circle_of_folders_is_found() {
        let files = |low| {
            [
                ("lib.rs", "mod a; mod b;"),
                ("a/mod.rs", "mod low; mod high;"),
                ("a/low.rs", low),
                ("a/high.rs", "use crate::b::B;"),
                ("b.rs", "use crate::a::low::L; pub struct B;"),
            ]
        };
        assert_eq!(found(&files("pub struct L;")), 1, "a folder imports what imports it");
        let apart = files("").map(|(path, text)| (path, if path == "b.rs" { "pub struct B;" } else { text }));
        assert_eq!(found(&apart), 0);
    }
}
