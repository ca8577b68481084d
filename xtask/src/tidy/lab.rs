//! Finds crates of the product that depend on crates of the lab, or on the disks for tests.

use std::path::{Path, PathBuf};

use super::Violation;

/// The names of the crate with disks for tests.
const TEST_DISKS: [&str; 2] = ["test-disks", "pagefold-test-disks"];
/// The folder of the only crate of the product that may depend on these disks outside of its tests.
const COMMAND: &str = "crates/cli";

/// Looks at the manifests of crates, by their paths from the root.
pub(super) fn check(manifests: &[(PathBuf, String)]) -> Vec<Violation> {
    let below = |folder: &'static str| {
        let is_crate = move |path: &Path| path.starts_with(folder) && path.ends_with("Cargo.toml");
        manifests.iter().filter(move |(path, _)| is_crate(path))
    };
    let lab: Vec<&str> = below("lab").filter_map(|(_, text)| name(text)).collect();
    let mut found = Vec::new();
    for (path, text) in below("crates") {
        let mut is_for_tests = false;
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('[') {
                is_for_tests = line.contains("dev-dependencies");
            }
            if !is_for_tests && !path.starts_with(COMMAND) && TEST_DISKS.iter().any(|name| depends(line, name)) {
                let what = "disks for tests are no part of the product: only its tests depend on them".to_owned();
                found.push(Violation { path: path.clone(), line: number + 1, what });
            }
            if let Some(of_lab) = lab.iter().find(|name| depends(line, name)) {
                let what = format!("`{of_lab}` belongs to the lab, and this crate to the product");
                found.push(Violation { path: path.clone(), line: number + 1, what });
            }
        }
    }
    found
}

/// Whether a line of a manifest makes its crate depend on the package: as a key, as a table of its
/// own, or under another name.
fn depends(line: &str, package: &str) -> bool {
    if line.starts_with('#') {
        return false;
    }
    let table = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
    let key = match table {
        Some(table) => table.rsplit_once("dependencies.").map_or("", |(_, key)| key),
        None => line.split(['.', '=']).next().unwrap_or_default(),
    };
    key.trim().trim_matches('"') == package
        || line.contains(&format!("package = \"{package}\""))
        || line.contains(&format!("lab/{package}\""))
}

/// A package's name.
fn name(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("name = "))?;
    Some(line.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_on_the_lab_is_found() {
        let check = |product: &str| {
            let lab = ("lab/bench/Cargo.toml".into(), "[package]\nname = \"bench\"\n".to_owned());
            check(&[lab, ("crates/io/Cargo.toml".into(), product.to_owned())]).len()
        };
        assert_eq!(check("[dependencies]\nlibc.workspace = true\nbenchmarks = \"1\"\n"), 0);
        assert_eq!(check("[dependencies]\nbench.workspace = true\n"), 1);
        assert_eq!(check("# As in lab/bench\n[package]\nname = \"io\"\n"), 0);
        assert_eq!(check("[dev-dependencies.bench]\nworkspace = true\n"), 1);
        assert_eq!(check("[dependencies]\nb = { package = \"bench\", workspace = true }\n"), 1);
        assert_eq!(check("[dev-dependencies]\nother = { path = \"../../lab/bench\" }\n"), 1);
    }

    #[test]
    fn disks_for_tests_are_for_tests() {
        let check = |path: &str, text: &str| check(&[(path.into(), text.to_owned())]).len();
        let (library, command) = ("crates/pagefold/Cargo.toml", "crates/cli/Cargo.toml");
        let own = "[package]\nname = \"pagefold-test-disks\"\n[dependencies]\nio.workspace = true\n";
        assert_eq!(check("crates/test-disks/Cargo.toml", own), 0);
        assert_eq!(check(library, "[dev-dependencies]\ntest-disks.workspace = true\n"), 0);
        assert_eq!(check(library, "[target.'cfg(unix)'.dev-dependencies]\ntest-disks.workspace = true\n"), 0);
        assert_eq!(check(library, "[dependencies]\ntest-disks.workspace = true\n"), 1);
        assert_eq!(check(library, "[dev-dependencies]\n[dependencies.test-disks]\nworkspace = true\n"), 1);
        assert_eq!(check(library, "[dependencies]\nd = { package = \"pagefold-test-disks\", version = \"1\" }\n"), 1);
        assert_eq!(check(command, "[dependencies]\ntest-disks.workspace = true\n"), 0);
    }
}
