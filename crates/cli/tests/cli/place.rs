//! Running the command, and looking at what it leaves behind.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A directory for a test's files; the command's temporary files go to one of its own within.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    /// An empty place.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("tmp")).unwrap();
        Self { directory }
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file in it; the path as an argument.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), contents).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The command with these arguments, separated by white space, and perhaps some more.
    pub(crate) fn command(&self, line: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagefold"));
        command.args(line.split_whitespace()).args(more);
        command.current_dir(self.directory.path()).env("TMPDIR", self.path("tmp")).env("RUST_BACKTRACE", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, line: &str, more: &[&str]) -> Done {
        Done::from(self.command(line, more).output().unwrap())
    }

    /// The temporary file that a running command has open, without a name as it is.
    pub(crate) fn temporary_file_of(&self, child: &Child) -> Option<PathBuf> {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", child.id())).ok()?;
        let there = |path: &PathBuf| path.read_link().is_ok_and(|target| target.starts_with(self.path("tmp")));
        descriptors.filter_map(|entry| Some(entry.ok()?.path())).find(there)
    }

    /// Files that commands have left behind.
    pub(crate) fn temporary_files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

/// What a command that has ended said.
#[derive(Debug)]
pub(crate) struct Done {
    /// Exit code; `None` after a signal.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        let done = Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        };
        for trace in ["panicked", "backtrace", "src/"] {
            assert!(!done.err.contains(trace), "{done:?}");
        }
        done
    }
}

impl Done {
    /// The report, after a success.
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
