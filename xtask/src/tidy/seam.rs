//! Finds what product code imports from elsewhere although crate `sync` provides it, in versions
//! for loom and for virtual CPUs.

use std::path::Path;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{ItemUse, UseTree};

use super::{Source, Violation, is_test};

/// Crates that go through the seam.
const CRATES: [&str; 7] = ["pagefold", "frames", "swap", "io", "test-disks", "span-lock", "smp-list"];

/// What a path mustn't begin with.
const FORBIDDEN: [&str; 18] = [
    "core::sync::atomic",
    "lock_api",
    "parking_lot",
    "rustix_futex_sync",
    "std::hint::spin_loop",
    "std::sync::atomic",
    "std::sync::mpsc",
    "std::sync::Arc",
    "std::sync::Barrier",
    "std::sync::Condvar",
    "std::sync::LazyLock",
    "std::sync::Mutex",
    "std::sync::OnceLock",
    "std::sync::RwLock",
    "std::sync::Weak",
    "std::thread",
    "std::time::Instant",
    "core::hint::spin_loop",
];

pub(super) fn check(source: &Source) -> Vec<Violation> {
    let mut search = Search { source, found: Vec::new() };
    if is_product(&source.path) {
        search.visit_file(&source.product);
    }
    search.found
}

/// The sources of these crates, but for their tests and models.
fn is_product(path: &Path) -> bool {
    !is_test(path) && CRATES.iter().any(|name| path.starts_with(Path::new("crates").join(name).join("src")))
}

struct Search<'a> {
    source: &'a Source,
    found: Vec<Violation>,
}

impl Search<'_> {
    fn look(&mut self, path: &str, span: proc_macro2::Span) {
        let begins = |of: &&&str| path == **of || path.strip_prefix(**of).is_some_and(|rest| rest.starts_with("::"));
        if FORBIDDEN.iter().find(begins).is_some() {
            let what = format!("`{path}` goes past crate `sync`: take it from there");
            self.found.push(self.source.violation(span, what));
        }
    }

    fn look_at_imports(&mut self, before: &str, tree: &UseTree) {
        let joined = |name: String| if before.is_empty() { name } else { format!("{before}::{name}") };
        match tree {
            UseTree::Path(path) => self.look_at_imports(&joined(path.ident.to_string()), &path.tree),
            UseTree::Name(name) => self.look(&joined(name.ident.to_string()), name.span()),
            UseTree::Rename(name) => self.look(&joined(name.ident.to_string()), name.span()),
            UseTree::Glob(glob) => self.look(before, glob.span()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.look_at_imports(before, tree)),
        }
    }
}

impl Visit<'_> for Search<'_> {
    fn visit_item_use(&mut self, import: &ItemUse) {
        self.look_at_imports("", &import.tree);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.look(&names.join("::"), path.span());
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&source(path, text)).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn what_goes_past_the_seam_is_found() {
        let text = "use std::{sync::{Arc, Once}, time::Duration};\nuse sync::lock::Mutex;\nfn a() { \
                    std::thread::yield_now(); }\n\
                    type A = parking_lot::Mutex<u8>;\nuse std::sync::atomic::*;";
        assert_eq!(lines("crates/io/src/a.rs", text), [1, 3, 4, 5]);
    }

    #[test]
    fn tests_and_other_crates_may_go_past_it() {
        let text = "#[cfg(test)] mod tests { use std::thread; } #[cfg(all(test, not(unix)))] use std::sync::Mutex;";
        assert!(lines("crates/io/src/a.rs", text).is_empty());
        assert_eq!(lines("crates/io/src/a.rs", "#[cfg(not(test))] use std::thread;"), [1]);
        for path in ["crates/io/src/a_tests.rs", "crates/cli/src/a.rs", "crates/io/tests/a.rs"] {
            assert!(lines(path, "use std::thread;").is_empty());
        }
    }
}
