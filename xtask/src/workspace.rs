//! Where things are, and how cargo is called.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the root of the workspace for which `cargo run` was called, or else of this program's
/// own. Workspaces may share a target directory, so this program may have been built for another
/// workspace.
pub(crate) fn root() -> PathBuf {
    let own = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&own).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The workspace's manifest.
pub(crate) fn manifest() -> PathBuf {
    root().join("Cargo.toml")
}

/// Returns the cargo that runs this program, without the variables that describe this package. If
/// these variables change, some build scripts (`ring`'s) run again, and everything that depends on
/// them is built again. This would happen whenever a check's command is repeated in a shell, and
/// again at the next run of this program.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|it| name.starts_with(it))) {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the target directory of builds with other compiler flags. In the usual directory, these
/// and the usual builds would replace each other.
pub(crate) fn target_directory(name: &str) -> PathBuf {
    let mut usual = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| root().join("target").into_os_string());
    usual.push(format!("-{name}"));
    usual.into()
}

/// Runs a command that has to succeed. Returns what it prints.
pub(crate) fn succeed(command: &mut Command) -> Result<Vec<u8>, String> {
    let name: OsString = command.get_program().to_owned();
    let output = command.output().map_err(|error| format!("{}: {error}", name.display()))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("{} fails: {}", name.display(), String::from_utf8_lossy(&output.stderr)))
}
