//! Planted bugs: patches that each break one rule. For each, a named check must fail.
//!
//! `planted/NAME.patch` begins with these lines, and goes on as a diff of the workspace:
//!
//! - `rule: …`, what the patch breaks; `lane: …`, which lane of `prove` catches it; `check: …`, the
//!   arguments of `cargo` for the check;
//! - `limit: …`, if the bug makes the check hang: the seconds after which it counts as hanging;
//! - `turns: …`, if not the usual number: how often the check may be run until it fails.
//!
//! The patch is applied to a copy of the workspace, and the copy's builds are stored beside the
//! copy. Builds for loom are in the directory of the loom models, because both use the same
//! dependencies. A patch counts as a failure if it doesn't apply or compile, or if its check
//! passes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use diffy::patch_set::{FileOperation, FilePatch, ParseOptions, PatchSet};
use serde_json::{Value, json};

use crate::check::{Check, LOOM, LOOM_CFG, this_program};
use crate::limited;
use crate::workspace::{cargo, root, target_directory};

/// The patches that the gate builds. Loom models catch them, so the verdict doesn't depend on
/// chance; one build serves both.
pub(crate) const IN_THE_GATE: [&str; 2] = ["held-ignored-by-swapping", "publication-relaxed"];
/// The time limit of a check whose patch sets no limit. A check that takes longer may hang, or may
/// only be slow. The two can't be distinguished, so the patch counts as missed.
const LIMIT: Duration = Duration::from_secs(90);
/// How many times a check is run at most until it fails, unless the patch says otherwise. Some bugs
/// of threads show only by chance.
const TURNS: u32 = 3;
/// Where the copy and most of its builds are.
const DIRECTORY: &str = "planted";

/// `planted`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlantedArgs {
    /// Only these patches, without `.patch` [default: all]
    #[arg(value_name = "PATCH")]
    names: Vec<String>,
    /// Print an array of flat records instead of text
    #[arg(long)]
    json: bool,
}

/// The lane's check, of these patches; of all of them if none is named.
pub(crate) fn check(names: &[&str]) -> Check {
    this_program("planted bugs", LOOM, &format!("planted {}", names.join(" ")))
}

/// A planted bug.
struct Patch {
    name: String,
    path: PathBuf,
    /// What the first lines say.
    head: BTreeMap<String, String>,
}

impl Patch {
    fn read(path: PathBuf) -> Result<Self, String> {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let head: BTreeMap<String, String> = text
            .lines()
            .take_while(|line| !line.starts_with("diff ") && !line.starts_with("--- "))
            .filter_map(|line| line.split_once(": "))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(key) = ["rule", "lane", "check"].into_iter().find(|&key| !head.contains_key(key)) {
            return Err(format!("{name}: no line `{key}: …`"));
        }
        Ok(Self { name, path, head })
    }

    fn says(&self, key: &str) -> &str {
        self.head.get(key).map_or("", String::as_str)
    }

    /// Returns the files of `tree` that the patch changes, and their new contents.
    fn changes(&self, tree: &Path) -> Result<Vec<(PathBuf, String)>, String> {
        let text = fs::read_to_string(&self.path).map_err(|error| error.to_string())?;
        let change = |part: Result<FilePatch<'_, str>, _>| {
            let part = part.map_err(|error| format!("isn't a diff: {error}"))?;
            let operation = part.operation().strip_prefix(1);
            let (FileOperation::Modify { original, .. }, Some(patch)) = (&operation, part.patch().as_text()) else {
                return Err("does more than change files".to_owned());
            };
            let path = tree.join(&**original);
            let before = fs::read_to_string(&path).map_err(|error| format!("{original}: {error}"))?;
            let after =
                diffy::apply(&before, patch).map_err(|error| format!("doesn't apply to {original}: {error}"))?;
            Ok((path, after))
        };
        PatchSet::parse(&text, ParseOptions::gitdiff()).map(change).collect()
    }

    /// Applies the patch, and runs its check. Returns how the check failed, or why the bug wasn't
    /// caught.
    fn try_out(&self, tree: &Path) -> Result<String, String> {
        let text = |error: io::Error| error.to_string();
        for (path, changed) in self.changes(tree)? {
            fs::write(path, changed).map_err(text)?;
        }
        let mut build = cargo_in(tree, self.says("check").split(" -- ").next().unwrap_or_default());
        build.arg("--no-run").arg("--quiet");
        if !build.status().map_err(text)?.success() {
            return Err("doesn't compile".to_owned());
        }
        let hangs_after = self.says("limit").parse().map(Duration::from_secs).ok();
        let limit = hangs_after.unwrap_or(LIMIT);
        let turns = self.says("turns").parse().unwrap_or(TURNS);
        for turn in 1..=turns {
            let (status, printed) = limited::printed(cargo_in(tree, self.says("check")), limit).map_err(text)?;
            if status.is_some_and(|status| status.success()) {
                continue;
            }
            let said = String::from_utf8_lossy(&printed);
            let seed = said.split("PAGEFOLD_SEED=").nth(1).and_then(|rest| rest.split_whitespace().next());
            let how = match (status, seed) {
                (None, _) if hangs_after.is_none() => {
                    return Err(format!("takes over {} s, and no `limit: …` says that it hangs", limit.as_secs()));
                }
                (None, _) => format!("hangs: over {} s", limit.as_secs()),
                (_, Some(seed)) => format!("seed {seed}"),
                _ => "fails".to_owned(),
            };
            return Ok(if turn == 1 { how } else { format!("{how} (run {turn})") });
        }
        Err(format!("its check passes {turns} times"))
    }
}

/// `cargo` with the arguments of a check, whose first words may be variables: `NAME=VALUE test …`.
fn cargo_in(tree: &Path, check: &str) -> Command {
    let mut command = cargo();
    let words: Vec<&str> = check.split_whitespace().collect();
    let variables = words.iter().take_while(|word| word.contains('=') && !word.starts_with('-')).count();
    command.envs(words[..variables].iter().filter_map(|word| word.split_once('=')));
    command.args(&words[variables..]).current_dir(tree).env_remove("RUSTFLAGS");
    // `CFG=pagefold_loom test …` is built for loom.
    let cfg = words[..variables].iter().find_map(|word| word.strip_prefix("CFG="));
    if let Some(cfg) = cfg {
        command.env("RUSTFLAGS", format!("--cfg {cfg}"));
    }
    let directory = if cfg == Some(LOOM_CFG) { LOOM } else { &[DIRECTORY, cfg.unwrap_or_default()].concat() };
    command.env("CARGO_TARGET_DIR", target_directory(directory));
    command
}

/// `planted`.
pub(crate) fn run(args: &PlantedArgs) -> ExitCode {
    match try_all(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("planted: {error}");
            ExitCode::FAILURE
        }
    }
}

/// All patches of the workspace, in no order.
fn patches(directory: &Path) -> Result<Vec<Patch>, String> {
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let paths = paths.filter(|path| path.extension().is_some_and(|extension| extension == "patch"));
    paths.map(Patch::read).collect()
}

fn try_all(args: &PlantedArgs) -> Result<bool, String> {
    let directory = root().join("planted");
    let mut patches = patches(&directory)?;
    if let Some(name) = args.names.iter().find(|name| patches.iter().all(|patch| patch.name != **name)) {
        return Err(format!("there is no {}", directory.join(name).with_extension("patch").display()));
    }
    patches.retain(|patch| args.names.is_empty() || args.names.contains(&patch.name));
    let tree = target_directory(DIRECTORY).join("tree");
    let copy = || {
        let copied = copy_directory(&root(), &tree).and_then(|()| rename_version(&tree.join("Cargo.toml")));
        copied.map_err(|error| format!("can't copy the workspace to {}: {error}", tree.display()))
    };
    patches.sort_by(|one, other| one.name.cmp(&other.name));
    let (mut caught, mut missed, mut records) = (0, Vec::new(), Vec::new());
    if !args.json {
        println!("{:7} {:38} {:7} {:7} {:>6}  {:20} rule", "", "patch", "finding", "lane", "s", "how");
    }
    for patch in &patches {
        copy()?;
        let start = Instant::now();
        let result = patch.try_out(&tree);
        let seconds = start.elapsed().as_secs_f64();
        let (lane, rule, finding) = (patch.says("lane"), patch.says("rule"), patch.says("finding"));
        let is_caught = result.is_ok();
        let how = result.unwrap_or_else(|why| why);
        match is_caught {
            true => caught += 1,
            false => missed.push(patch.name.clone()),
        }
        if !args.json {
            let word = if is_caught { "caught" } else { "MISSED" };
            println!("{word}  {:38} {finding:7} {lane:7} {seconds:4.0} s  {how:20} {rule}", patch.name);
        }
        records.push(json!({
            "patch": patch.name, "rule": rule, "finding": finding, "lane": lane, "caught": is_caught, "how": how,
            "seconds": seconds,
        }));
    }
    copy()?;
    if args.json {
        println!("{:#}", Value::from(records));
    } else {
        println!("{caught} caught, {} missed", missed.len());
    }
    if !missed.is_empty() {
        eprintln!("repeat with: cargo xtask planted {}", missed.join(" "));
    }
    Ok(missed.is_empty())
}

/// Copies a directory, except builds and `.git`. Unchanged files keep their times, so that they
/// aren't built again.
fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (name, kind, to) = (entry.file_name(), entry.file_type()?, to.join(entry.file_name()));
        let built = name.to_str().is_some_and(|name| name == "target" || name.starts_with("target-"));
        if kind.is_dir() && !built && name != ".git" {
            copy_directory(&entry.path(), &to)?;
        } else if kind.is_file() {
            let bytes = fs::read(entry.path())?;
            if fs::read(&to).ok().as_ref() != Some(&bytes) {
                fs::write(&to, bytes)?;
            }
        }
    }
    Ok(())
}

/// Gives the copy's packages another version. With the same version, cargo would later use the
/// copy's builds for the workspace, because both build in the same directory.
fn rename_version(manifest: &Path) -> io::Result<()> {
    fs::write(manifest, with_own_version(&fs::read_to_string(manifest)?).ok_or(io::ErrorKind::InvalidData)?)
}

/// Returns a workspace's manifest with another version for its packages, or `None` if the manifest
/// sets no version for them.
fn with_own_version(manifest: &str) -> Option<String> {
    let (before, packages) = manifest.split_once("[workspace.package]\nversion = \"")?;
    let (version, after) = packages.split_once('"')?;
    Some(format!("{before}[workspace.package]\nversion = \"{version}+planted\"{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::lanes;

    #[test]
    fn the_copy_has_a_version_of_its_own() {
        let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        let renamed = with_own_version(&manifest).unwrap();
        assert_eq!(renamed.replace("+planted", ""), manifest);
        assert_eq!(renamed.matches("+planted").count(), 1);
        assert_eq!(with_own_version("[package]\nversion = \"1.0.0\"\n"), None);
    }

    /// Without this test, the lane would find out only when it reaches the patch.
    #[test]
    fn every_patch_applies() {
        let patches = patches(&root().join("planted")).unwrap();
        assert!(patches.len() >= 24);
        for patch in patches {
            let lane = patch.says("lane");
            assert!(lanes::ALL.iter().any(|it| it.name == lane), "{}: `prove` has no lane {lane:?}", patch.name);
            let changes = patch.changes(&root()).unwrap_or_else(|why| panic!("{}: {why}", patch.name));
            assert!(!changes.is_empty(), "{} changes nothing", patch.name);
        }
    }
}
