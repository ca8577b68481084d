//! The table of the gate's checks in CONTRIBUTING.md.

use super::Violation;

/// Finds checks of the gate without a row. A row names checks, separated by commas; `a` also stands
/// for `a: b`.
pub(super) fn check(contributing: &str, gate: &[&str]) -> Vec<Violation> {
    let table = contributing.split_once("## The gate").map_or("", |(_, rest)| rest);
    let first_columns = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let named: Vec<&str> = first_columns.flat_map(|column| column.split(", ")).collect();
    let has_row = |check: &str| named.iter().any(|name| check == *name || check.split(": ").next() == Some(name));
    let line = 1 + contributing.lines().take_while(|line| *line != "## The gate").count();
    let without = gate.iter().filter(|check| !has_row(check));
    without
        .map(|check| Violation {
            path: "CONTRIBUTING.md".into(),
            line,
            what: format!("the check `{check}` has no row"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_without_a_row_is_found() {
        let page = "# A\n## The gate\n| check | what |\n|---|---|\n| lints | b |\n| loom models, model: swap | c |\n";
        assert!(check(page, &["lints", "loom models: io", "model: swap"]).is_empty());
        let found = check(page, &["model: slots", "lint"]);
        assert_eq!(found.iter().map(|violation| violation.line).collect::<Vec<_>>(), [2, 2]);
    }
}
