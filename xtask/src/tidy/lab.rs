//! Dependencies of the product's crates on those of the lab.

use std::path::{Path, PathBuf};

use super::Violation;

/// Looks at the manifests of crates, by their paths from the root.
pub(super) fn check(manifests: &[(PathBuf, String)]) -> Vec<Violation> {
    let below = |folder: &'static str| {
        let is_crate = move |path: &Path| path.starts_with(folder) && path.ends_with("Cargo.toml");
        manifests.iter().filter(move |(path, _)| is_crate(path))
    };
    let lab: Vec<&str> = below("lab").filter_map(|(_, text)| name(text)).collect();
    let mut found = Vec::new();
    for (path, text) in below("crates") {
        for (number, line) in text.lines().enumerate() {
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
}
