//! Tests that sleep. `sleep` orders nothing: however long it is, on a busy machine the other thread
//! may need longer. So a test waits for what another thread does, or until that thread sleeps
//! (`sync::asleep`). This file lists the functions of tests that call `sleep` for other reasons.

use std::path::Path;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{ExprPath, ImplItemFn, ItemFn, ItemMod};

use super::{Source, Violation, is_for_tests, is_test};

/// This file, from the root of the workspace.
const HERE: &str = "xtask/src/tidy/sleeps.rs";

/// A file, and a function in it.
type Place = (&'static str, &'static str);

/// The functions of tests that call `sleep`.
const ALLOWED: &[Place] = &[
    // Between two looks at what the test waits for.
    ("crates/cli/tests/cli/place.rs", "wait_for"),
    ("crates/frames/tests/stress/policy.rs", "run"),
    ("crates/io/src/patience.rs", "wait_until"),
    ("crates/io/tests/uring_process.rs", "in_a_process"),
    ("crates/pagefold/src/patience.rs", "wait_for"),
    ("crates/pagefold/tests/space/world.rs", "ends"),
    ("crates/pagefold/tests/support/mod.rs", "eventually"),
    ("crates/pagefold/tests/swap/main.rs", "left"),
    ("crates/pagefold/tests/writes.rs", "is_written_by_itself"),
    ("crates/regressions/tests/everything_pinned.rs", "block_on"),
    ("crates/span-lock/tests/lock.rs", "watchdog"),
    ("crates/swap/tests/areas.rs", "join_in_time"),
    // A device, or what is called when a request completes, takes this time.
    ("crates/io/src/reaping_models.rs", "reap"),
    ("crates/io/src/thread_pool_tests.rs", "threads_start_as_they_are_needed_and_end_with_the_last_handle"),
    ("crates/io/src/uring_tests.rs", "dropping_the_last_handle_waits_for_what_threads_do"),
    ("crates/pagefold/tests/model/silent.rs", "new"),
    ("crates/regressions/tests/futures.rs", "futures_that_are_not_polled_keep_no_reader_out"),
    ("crates/regressions/tests/io_timeout.rs", "no_device_is_silent_for_good"),
    ("crates/regressions/tests/small_budgets.rs", "maps_find_room_with_a_load_under_way_in_each_extent"),
    // The process is stopped for this time.
    ("crates/pagefold/src/timers.rs", "a_timer_tells_that_the_process_was_stopped"),
    ("crates/pagefold/tests/strangers/surroundings.rs", "is_stopped"),
    // Between two signals or changes of limits with which the test disturbs other threads, or while
    // a page is pinned.
    ("crates/io/tests/uring_process.rs", "interrupted"),
    ("crates/pagefold/tests/strangers/surroundings.rs", "signals"),
    ("crates/pagefold/tests/stress.rs", "everything_at_once"),
    ("crates/pagefold/tests/stress.rs", "writers_and_everybody_else_at_once"),
    // Time to do something that must not happen: to write, to wake up, to start another read.
    ("crates/io/src/thread_pool_tests.rs", "no_more_threads_than_allowed_and_the_helper"),
    ("crates/io/tests/uring_process.rs", "idle"),
    ("crates/io/tests/uring_process.rs", "idle_by_the_clock"),
    ("crates/regressions/tests/dirty_pages.rs", "a_range_that_is_synced_does_not_heal_the_file"),
    ("crates/sync/src/lock.rs", "a_wait_of_any_length_sleeps"),
];

pub(super) fn check(sources: &[Source]) -> Vec<Violation> {
    compare(sources, ALLOWED)
}

/// Finds the calls of `sleep` that `allowed` doesn't list, and the places in `allowed` that no
/// longer call it.
fn compare(sources: &[Source], allowed: &[Place]) -> Vec<Violation> {
    let found: Vec<_> =
        sources.iter().flat_map(|source| calls(source).into_iter().map(move |it| (source, it))).collect();
    let is_at = |source: &Source, call: &Call, place: &Place| {
        source.path == Path::new(place.0) && call.function.as_deref() == Some(place.1)
    };
    let is_allowed = |source, call| allowed.iter().any(|place| is_at(source, call, place));
    let is_used = |place| found.iter().any(|(source, call)| is_at(source, call, place));
    let what = "a test calls `sleep`: wait for what the other thread does, or until it sleeps (`sync::asleep`); if it \
                has another reason, add it to `xtask/src/tidy/sleeps.rs`";
    let calls = found
        .iter()
        .filter(|(source, call)| !is_allowed(source, call))
        .map(|(source, call)| source.violation(call.span, what.to_owned()));
    let unused = allowed.iter().filter(|place| !is_used(place)).map(|(file, function)| {
        let what = format!("`{function}` in {file} doesn't call `sleep`");
        Violation { path: HERE.into(), line: 1, what }
    });
    calls.chain(unused).collect()
}

/// A use of the function `sleep`.
struct Call {
    /// The innermost function that has it.
    function: Option<String>,
    span: proc_macro2::Span,
}

/// Returns the calls of `sleep` in the tests of a source. Skips the arguments of macros. Skips
/// tests that run in virtual time, where a sleep takes the same time on each machine.
fn calls(source: &Source) -> Vec<Call> {
    let is_virtual = source.path.starts_with("crates/manycore")
        || source.file.attrs.iter().any(|attribute| {
            let condition = attribute.meta.require_list().map(|list| list.tokens.to_string());
            attribute.path().is_ident("cfg") && condition.is_ok_and(|condition| condition == "pagefold_manycore")
        });
    let mut search = Search { is_test: is_test(&source.path), function: None, found: Vec::new() };
    if !is_virtual {
        search.visit_file(&source.file);
    }
    search.found
}

struct Search {
    /// Whether the search is within a test.
    is_test: bool,
    function: Option<String>,
    found: Vec<Call>,
}

impl Search {
    /// Searches an item, with these attributes, that may be for tests.
    fn within(&mut self, attributes: &[syn::Attribute], search: impl FnOnce(&mut Self)) {
        let before = self.is_test;
        self.is_test |= is_for_tests(attributes);
        search(self);
        self.is_test = before;
    }

    fn within_function(&mut self, name: &syn::Ident, search: impl FnOnce(&mut Self)) {
        let before = self.function.replace(name.to_string());
        search(self);
        self.function = before;
    }
}

impl Visit<'_> for Search {
    fn visit_item_mod(&mut self, module: &ItemMod) {
        self.within(&module.attrs, |search| visit::visit_item_mod(search, module));
    }

    fn visit_item_fn(&mut self, function: &ItemFn) {
        self.within(&function.attrs, |search| {
            search.within_function(&function.sig.ident, |search| visit::visit_item_fn(search, function));
        });
    }

    fn visit_impl_item_fn(&mut self, function: &ImplItemFn) {
        self.within(&function.attrs, |search| {
            search.within_function(&function.sig.ident, |search| visit::visit_impl_item_fn(search, function));
        });
    }

    fn visit_expr_path(&mut self, path: &ExprPath) {
        let names: Vec<_> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // A function of a module, and not of a type.
        let is_sleep = match &names[..] {
            [.., module, name] => name == "sleep" && module.starts_with(|c: char| c.is_lowercase()),
            [name] => name == "sleep",
            [] => false,
        };
        if self.is_test && is_sleep {
            self.found.push(Call { function: self.function.clone(), span: path.span() });
        }
        visit::visit_expr_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    fn lines(path: &str, text: &str, allowed: &[Place]) -> Vec<usize> {
        compare(&[source(path, text)], allowed).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_test_that_sleeps_is_found() {
        let text = "fn a() {\n    std::thread::sleep(MOMENT);\n    let b = || sleep(MOMENT);\n}\n\
                    struct B;\nimpl B {\n    fn b() { [MOMENT].map(thread::sleep); }\n}\n";
        let inline = format!("#[cfg(all(test, not(pagefold_loom)))]\nmod tests {{\n{text}}}");
        let function = "fn a() { sleep(MOMENT); }\n#[test]\nfn b() { sleep(MOMENT); }\nfn c() { sleep(MOMENT); }";
        for path in ["crates/a/tests/a.rs", "crates/a/src/a_tests.rs", "lab/a/tests/b/c.rs"] {
            assert_eq!(lines(path, text, &[]), [2, 3, 7], "{path}");
        }
        assert_eq!(lines("crates/a/src/a.rs", &inline, &[]), [4, 5, 9]);
        assert_eq!(lines("crates/a/src/a.rs", function, &[]), [3]);
    }

    #[test]
    fn what_is_no_sleep_of_a_test_is_not_found() {
        let text = "fn a() { sleep(MOMENT); }";
        assert!(lines("crates/a/src/a.rs", text, &[]).is_empty(), "no test");
        assert!(lines("crates/manycore/tests/a.rs", text, &[]).is_empty(), "virtual time");
        assert!(lines("crates/a/tests/a.rs", &format!("#![cfg(pagefold_manycore)]\n{text}"), &[]).is_empty());
        let others = "fn a(mut waiting: Waiting) { waiting.sleep(); Waiting::sleep(waiting); asleep(); }";
        assert!(lines("crates/a/tests/a.rs", others, &[]).is_empty(), "other functions");
    }

    #[test]
    fn a_function_that_may_sleep_does() {
        let (path, text) = ("crates/a/tests/a.rs", "fn a() { sleep(MOMENT); }\nfn b() { sleep(MOMENT); }");
        assert_eq!(lines(path, text, &[(path, "a")]), [2]);
        assert!(lines(path, text, &[(path, "a"), (path, "b")]).is_empty());
        for unused in [(path, "c"), ("crates/b/tests/a.rs", "a")] {
            let found = compare(&[source(path, text)], &[(path, "a"), (path, "b"), unused]);
            assert_eq!(found.iter().map(|found| &found.path).collect::<Vec<_>>(), [Path::new(HERE)]);
        }
    }
}
