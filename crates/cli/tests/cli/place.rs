//! Running the command, and looking at what it leaves behind.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long a test waits for an event before it fails. This is more than ten times as long as the
/// events take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until there is `what`.
pub(crate) fn wait_for<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reports that a test can't go on, because the machine lacks `what`.
pub(crate) fn not_here(what: &str) {
    println!("not here: {what}");
}

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
        // As on a plain screen, whatever the tests were started from.
        command.env("NO_COLOR", "1").env_remove("CLICOLOR_FORCE").env_remove("COLUMNS").env_remove("LINES");
        // Hides the library's warnings about the machine. A test that needs them sets the level.
        command.env("PAGEFOLD_LOG", "error");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, line: &str, more: &[&str]) -> Done {
        Done::of(self.command(line, more).spawn().unwrap())
    }

    /// Backends, without the one that this machine hasn't got.
    pub(crate) fn backends<'a>(&self, all: &[&'a str]) -> Vec<&'a str> {
        let small = "replay --size 1MiB --memory 512KiB --ops 10 --groups 1 --quiet --backend uring";
        let tried = self.run(small, &[]);
        let missing = ["os error 1)", "os error 13)", "os error 38)", "os error 95)"];
        let is_refused = tried.err.contains("the system refuses io_uring");
        let is_here =
            cfg!(feature = "uring") && !(is_refused && missing.iter().any(|missing| tried.err.contains(missing)));
        if !is_here {
            not_here("io_uring");
        }
        all.iter().copied().filter(|backend| is_here || *backend != "uring").collect()
    }

    /// Whether there is room for a file of so many bytes.
    pub(crate) fn has_room(&self, len: u64) -> bool {
        let there = rustix::fs::statvfs(self.path("tmp")).unwrap();
        let has_room = there.f_bavail.saturating_mul(there.f_frsize) > len + len / 4;
        if !has_room {
            not_here(&format!("{len} bytes of room"));
        }
        has_room
    }

    /// The temporary file that a running command has open. The file's name has been removed
    /// already.
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

/// Waits until the threads of a running command have used two ticks of CPU time. They have then
/// completed thousands of operations.
pub(crate) fn wait_for_operations(child: &Child) {
    let ticks = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).ok()?;
        let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
        let ticks = stats.filter_map(|stat| {
            let (name, rest) = stat.rsplit_once(") ")?;
            let number = |at| rest.split(' ').nth(at)?.parse::<u64>().ok();
            // In user space, and in the kernel.
            name.contains("(replay-").then_some(number(11)? + number(12)?)
        });
        Some(ticks.sum::<u64>())
    };
    wait_for("operations of the command", || ticks().filter(|&ticks| ticks >= 2));
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
    /// Waits for the command's end.
    pub(crate) fn of(child: Child) -> Self {
        let id = Pid::from_child(&child);
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || tell.send(child.wait_with_output()));
        let Ok(output) = told.recv_timeout(PATIENCE) else {
            let _ = kill_process(id, Signal::KILL);
            panic!("waited in vain for this: the command ends");
        };
        Self::from(output.unwrap())
    }

    /// The report, after a success.
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
