//! Where things are, and how cargo is called.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the workspace. That for which `cargo run` was called, if it was: workspaces may have
/// a target directory in common, and then this program was perhaps built for another one.
pub(crate) fn root() -> PathBuf {
    let own = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&own).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The workspace's manifest.
pub(crate) fn manifest() -> PathBuf {
    root().join("Cargo.toml")
}

/// The cargo that runs us, without what it says of this package in our environment. Build scripts
/// run again if that changes (`ring`'s does), and then all that depends on them is built again:
/// each time that a check's command is repeated in a shell, and the next time that we run it.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|it| name.starts_with(it))) {
            command.env_remove(name);
        }
    }
    command
}

/// Where builds with other flags go, beside the usual ones, so that they don't throw each other
/// out.
pub(crate) fn target_directory(name: &str) -> PathBuf {
    let mut usual = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| root().join("target").into_os_string());
    usual.push(format!("-{name}"));
    usual.into()
}

/// What a command prints that has to succeed.
pub(crate) fn succeed(command: &mut Command) -> Result<Vec<u8>, String> {
    let name: OsString = command.get_program().to_owned();
    let output = command.output().map_err(|error| format!("{}: {error}", name.display()))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("{} fails: {}", name.display(), String::from_utf8_lossy(&output.stderr)))
}
