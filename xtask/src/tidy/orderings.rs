//! Comments on memory ordering. A file that orders memory accesses says in a comment what pairs
//! with what, so one of its comments names an ordering or a fence.

use std::ffi::OsStr;

use syn::visit::{self, Visit};

use super::{Source, Violation, is_test};

/// Orderings that need a partner.
const ORDERINGS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];
/// A comment on ordering has one of these words.
const WORDS: [&str; 8] = ["Acquire", "Release", "AcqRel", "SeqCst", "Relaxed", "fence", "ordering", "Pairs"];

/// Looks at the sources of what users depend on, but for their tests and models.
pub(super) fn check(source: &Source) -> Option<Violation> {
    let mut parts = source.path.iter();
    let is = |part: Option<&OsStr>, name| part.is_some_and(|part| part == name);
    let is_product = is(parts.next(), "crates") && is(parts.nth(1), "src");
    let mut comments = source.text.lines().filter_map(|line| Some(line.split_once("//")?.1));
    let is_word = |word: &str| WORDS.contains(&word);
    let tells = comments.any(|text| text.split(|c: char| !c.is_alphanumeric()).any(is_word));
    if !is_product || tells || is_test(&source.path) {
        return None;
    }
    let mut search = Search { first: None };
    search.visit_file(&source.product);
    let what = |name| format!("`{name}`, and no comment in this file says what it is paired with");
    search.first.map(|(name, span)| source.violation(span, what(name)))
}

/// The first ordering that needs a partner.
struct Search {
    first: Option<(String, proc_macro2::Span)>,
}

impl Visit<'_> for Search {
    fn visit_path(&mut self, path: &syn::Path) {
        let last = path.segments.last().map(|segment| (segment.ident.to_string(), segment.ident.span()));
        self.first = self.first.take().or_else(|| last.filter(|(name, _)| ORDERINGS.contains(&&**name)));
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    fn line(path: &str, text: &str) -> Option<usize> {
        check(&source(path, text)).map(|violation| violation.line)
    }

    #[test]
    fn an_ordering_without_a_comment_is_found() {
        let text = "/// Takes it.\nfn f(a: &A) {\n    a.swap(1, Ordering::AcqRel);\n}\n";
        assert_eq!(line("crates/a/src/b.rs", text), Some(3));
        assert_eq!(line("crates/a/src/b.rs", &format!("//! Release: pairs with `g`.\n{text}")), None);
        assert_eq!(line("crates/a/src/b.rs", &text.replace("AcqRel", "Relaxed")), None);
        assert_eq!(line("crates/a/src/b.rs", &format!("#[cfg(test)]\nmod tests {{ {text} }}")), None);
        for path in ["crates/a/src/b/tests.rs", "crates/a/tests/b.rs", "lab/a/src/b.rs"] {
            assert_eq!(line(path, text), None, "{path}");
        }
    }
}
