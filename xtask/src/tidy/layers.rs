//! Modules of a crate that import each other in a circle.
//!
//! A module is a file. It imports another one if it names it: in a `use`, or in a path that begins
//! with `crate`, `self` or `super`. What a crate's root exports again counts as the module that it
//! comes from. Tests and models aren't looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemFn, ItemMod, ItemUse, UseTree};

use super::{Source, Violation, is_test};

/// The names that lead from a crate's root to a module.
type Module = Vec<String>;

/// Looks at each crate of the product.
pub(super) fn check(sources: &[Source]) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !is_test(&source.path)) {
        let mut parts = source.path.iter().filter_map(|part| part.to_str());
        if let (Some("crates"), Some(name), Some("src")) = (parts.next(), parts.next(), parts.next()) {
            crates.entry(name).or_default().push(source);
        }
    }
    let mut violations = Vec::new();
    for (name, sources) in crates {
        for circle in circles(&sources) {
            let what = format!("{} files import each other in a circle: {}", circle.len(), circle.join(" "));
            violations.push(Violation { path: Path::new("crates").join(name), line: 1, what });
        }
    }
    violations
}

/// The files of a crate that are in circles, one list for each circle.
fn circles(sources: &[&Source]) -> Vec<Vec<String>> {
    let modules: BTreeMap<Module, usize> =
        sources.iter().enumerate().map(|(number, source)| (module_of(&source.path), number)).collect();
    let exports = modules.get(&Vec::new()).map_or_else(BTreeMap::new, |&root| exports(&sources[root].file));
    let edges: Vec<BTreeSet<usize>> = sources
        .iter()
        .map(|source| {
            let me = module_of(&source.path);
            let mut search = Search { me: &me, paths: Vec::new() };
            search.visit_file(&source.file);
            let target = |path: &Module| target(path, &modules, &exports);
            // The root has no code of its own, so what only it has makes no circle.
            search.paths.iter().filter_map(target).filter(|found| *found != modules[&me]).collect()
        })
        .collect();
    let reach: Vec<BTreeSet<usize>> = (0..sources.len()).map(|from| reachable(from, &edges)).collect();
    let mut circles: BTreeSet<Vec<usize>> = BTreeSet::new();
    for from in 0..sources.len() {
        let circle: Vec<usize> =
            (0..sources.len()).filter(|&to| reach[from].contains(&to) && reach[to].contains(&from)).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    let name = |&number: &usize| module_of(&sources[number].path).join("::");
    circles.iter().map(|circle| circle.iter().map(name).collect()).collect()
}

fn reachable(from: usize, edges: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![from]);
    while let Some(next) = waiting.pop() {
        waiting.extend(edges[next].iter().copied().filter(|&to| found.insert(to)));
    }
    found
}

/// The module that a file is: `src/a/b.rs` and `src/a/b/mod.rs` are `a::b`, `src/lib.rs` is the
/// root.
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
fn target(path: &Module, modules: &BTreeMap<Module, usize>, exports: &BTreeMap<String, Module>) -> Option<usize> {
    let longest = |path: &Module| (1..=path.len()).rev().find_map(|len| modules.get(&path[..len]).copied());
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

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|list| {
                    let condition = list.tokens.to_string();
                    condition.contains("test") && !condition.contains("not (test")
                })
    })
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

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
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
        check(&sources).len()
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
}
