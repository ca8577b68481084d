//! Why tests are ignored.

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, ItemFn, Lit, Meta, Token};

use super::{Source, Violation};

/// How a reason begins, and how the names of tests with this reason must begin. A reason `for …`
/// says what runs the test by its name.
const REASONS: [(&str, &str); 4] = [
    ("timed: cargo xtask prove times", "timed_"),
    ("chance: cargo xtask prove times", "chance_"),
    ("quarantine: ", ""),
    ("for ", ""),
];

#[derive(Default)]
pub(super) struct Ignored {
    pub(super) violations: Vec<Violation>,
    /// Names and reasons.
    pub(super) quarantined: Vec<String>,
}

pub(super) fn check(sources: &[Source]) -> Ignored {
    let mut ignored = Ignored::default();
    for source in sources {
        Search { source, into: &mut ignored }.visit_file(&source.file);
    }
    ignored
}

struct Search<'a> {
    source: &'a Source,
    into: &'a mut Ignored,
}

impl Visit<'_> for Search<'_> {
    fn visit_item_fn(&mut self, function: &ItemFn) {
        let name = function.sig.ident.to_string();
        let ignores = |attribute| Some((attribute, ignore_of(attribute)?));
        if let Some((attribute, ignore)) = function.attrs.iter().find_map(ignores) {
            let reason = reason(&ignore);
            let known = REASONS.iter().find(|(start, _)| reason.starts_with(start));
            // An attribute that applies only in some builds may give any reason.
            let in_some_builds = !attribute.path().is_ident("ignore") && !reason.is_empty();
            if !in_some_builds && !known.is_some_and(|(_, prefix)| name.starts_with(prefix)) {
                let what = format!(
                    "test `{name}` is ignored for this reason: `{reason}`. A reason begins with `timed: cargo xtask \
                     prove times` (and the name \
                     with `timed_`), `chance: cargo xtask prove times` (`chance_`), `for ` (what runs it), or \
                     `quarantine: `"
                );
                self.into.violations.push(self.source.violation(attribute.span(), what));
            }
            if reason.starts_with("quarantine: ") {
                self.into.quarantined.push(format!("{}: {name}: {reason}", self.source.path.display()));
            }
        } else if ["timed_", "chance_"].iter().any(|prefix| name.starts_with(prefix))
            && function.attrs.iter().any(|attribute| attribute.path().is_ident("test"))
        {
            let what = format!(
                "test `{name}` isn't ignored, though its name says that its verdict depends on more than the code"
            );
            self.into.violations.push(self.source.violation(function.sig.span(), what));
        }
        visit::visit_item_fn(self, function);
    }
}

/// Returns the `ignore` of an attribute: its own, or one that applies only in some builds.
fn ignore_of(attribute: &Attribute) -> Option<Meta> {
    let is_ignore = |meta: &Meta| meta.path().is_ident("ignore");
    if attribute.path().is_ident("cfg_attr") {
        let parts = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
        return parts.into_iter().skip(1).find(is_ignore);
    }
    Some(attribute.meta.clone()).filter(is_ignore)
}

fn reason(ignore: &Meta) -> String {
    match ignore {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.value(),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    fn violations(text: &str) -> usize {
        check(&[source("crates/a/tests/a.rs", text)]).violations.len()
    }

    #[test]
    fn a_test_is_ignored_for_a_reason_that_its_name_tells() {
        assert_eq!(violations("#[test] #[ignore = \"timed: cargo xtask prove times\"] fn timed_a() {}"), 0);
        assert_eq!(violations("#[test] #[ignore = \"timed: cargo xtask prove times\"] fn a() {}"), 1);
        assert_eq!(violations("#[test] fn chance_a() {}"), 1);
        assert_eq!(violations("mod a { #[test] #[ignore] fn a() {} }"), 1);
        assert_eq!(violations("#[test] #[ignore = \"is slow\"] fn a() {}"), 1);
        assert_eq!(violations("#[test] #[ignore = \"for a process of its own\"] fn a() {}"), 0);
    }

    #[test]
    fn what_is_in_quarantine_is_counted() {
        let ignored = check(&[source("a.rs", "#[test] #[ignore = \"quarantine: hung once\"] fn a() {}")]);
        assert_eq!(
            (ignored.violations.len(), &ignored.quarantined[..]),
            (0, &["a.rs: a: quarantine: hung once".to_owned()][..])
        );
        let some_builds = "#[test] #[cfg_attr(not(feature = \"f\"), ignore = \"quarantine: hung once\")] fn a() {}";
        let ignored = check(&[source("a.rs", some_builds)]);
        assert_eq!((ignored.violations.len(), ignored.quarantined.len()), (0, 1));
        assert_eq!(violations("#[test] #[cfg_attr(windows, ignore)] fn a() {}"), 1);
        assert_eq!(violations("#[test] #[cfg_attr(windows, ignore = \"has no forks\")] fn a() {}"), 0);
        assert_eq!(violations("#[test] #[cfg_attr(windows, allow(dead_code))] fn a() {}"), 0);
    }
}
