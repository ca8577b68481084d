//! Checks, and how they are run: side by side where they have target directories of their own.

use std::io::{self, Read};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;
use std::{iter, thread};

use crate::workspace::{self, root, target_directory};

/// How many checks run at once: one builds while another's tests wait for each other.
const SIDE_BY_SIDE: usize = 2;

/// One check: a name, and the command that makes it.
pub(crate) struct Check {
    name: &'static str,
    command: Command,
    /// The check passes if the command fails.
    must_fail: bool,
    /// Its target directory, which one check at a time builds in.
    directory: &'static str,
}

impl Check {
    /// The same with a variable of the environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// The same, that passes if the command fails.
    pub(crate) fn must_fail(self) -> Self {
        Self { must_fail: true, ..self }
    }

    /// Runs it, with its output as it comes, or, if there are others beside it, whole at the end. Says whether it passed.
    fn passes(self, alone: bool) -> bool {
        let Self { name, command, must_fail, .. } = self;
        println!("== {name}{}", if alone { "" } else { ": begun" });
        let start = Instant::now();
        let passed = match if alone { as_it_comes(command) } else { whole(command) } {
            Ok((status, printed)) => {
                print!("{}", String::from_utf8_lossy(&printed));
                status.success() != must_fail
            }
            Err(error) => {
                eprintln!("can't run {name}: {error}");
                false
            }
        };
        println!("== {name}: {} in {:.0} s", if passed { "ok" } else { "FAILED" }, start.elapsed().as_secs_f64());
        passed
    }
}

/// Runs a command, and has nothing left to print.
fn as_it_comes(mut command: Command) -> io::Result<(ExitStatus, Vec<u8>)> {
    Ok((command.status()?, Vec::new()))
}

/// Runs a command: what it prints to either stream, in its order.
fn whole(mut command: Command) -> io::Result<(ExitStatus, Vec<u8>)> {
    let (mut reader, writer) = io::pipe()?;
    let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
    drop(command); // And with it the pipe's ends that it keeps.
    let mut printed = Vec::new();
    reader.read_to_end(&mut printed)?;
    Ok((child.wait()?, printed))
}

/// Checks that wait, and the target directories that are in use.
struct Queue {
    waiting: Vec<Check>,
    in_use: Vec<&'static str>,
}

impl Queue {
    /// Where the first check is whose directory nobody uses.
    fn next(&self) -> Option<usize> {
        self.waiting.iter().position(|check| !self.in_use.contains(&check.directory))
    }

    fn must_wait(&self) -> bool {
        !self.waiting.is_empty() && self.next().is_none()
    }

    fn take(&mut self) -> Option<Check> {
        let check = self.waiting.remove(self.next()?);
        self.in_use.push(check.directory);
        Some(check)
    }
}

/// Runs all of them, those of a directory in their order, and says what failed.
pub(crate) fn run(checks: Vec<Check>) -> ExitCode {
    let count = checks.len();
    let alone = checks.iter().all(|check| check.directory == checks[0].directory);
    let queue = Mutex::new(Queue { waiting: checks, in_use: Vec::new() });
    let ended = Condvar::new();
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let next = || ended.wait_while(lock(), |queue| queue.must_wait()).unwrap_or_else(PoisonError::into_inner).take();
    let work = || -> Vec<&'static str> {
        let failed = iter::from_fn(next).filter_map(|check| {
            let (name, directory) = (check.name, check.directory);
            let passed = check.passes(alone);
            lock().in_use.retain(|&other| other != directory);
            ended.notify_all();
            (!passed).then_some(name)
        });
        failed.collect()
    };
    let failed: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..SIDE_BY_SIDE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|_| vec!["a check that panicked"])).collect()
    });
    println!("{} passed, {} failed", count - failed.len(), failed.len());
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// A check that cargo makes.
pub(crate) fn cargo(name: &'static str, arguments: &str) -> Check {
    let mut command = workspace::cargo();
    command.args(arguments.split_whitespace()).current_dir(root());
    Check { name, command, must_fail: false, directory: "" }
}

/// As [`cargo`], with compiler flags and a target directory for them.
pub(crate) fn cargo_with(name: &'static str, flags: &str, directory: &'static str, arguments: &str) -> Check {
    let mut check = cargo(name, arguments);
    check.command.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", target_directory(directory));
    Check { directory, ..check }
}

/// A check of loom models.
pub(crate) fn loom(name: &'static str, arguments: &str) -> Check {
    cargo_with(name, "--cfg pagefold_loom", "loom", arguments)
}

/// Sees memory that is used after it was freed: by a device too, if it is the kernel that copies, or somebody reads it later.
pub(crate) fn address_sanitizer(name: &'static str, arguments: &str) -> Check {
    let target = concat!("--target ", "x86_64-unknown-linux-gnu");
    let check = cargo_with(name, "-Zsanitizer=address", "asan", &format!("{arguments} {target}"));
    check.env("RUSTC_BOOTSTRAP", "1")
}

/// Sees memory that is read and written at once.
pub(crate) fn thread_sanitizer(name: &'static str, arguments: &str) -> Check {
    // The sanitizer is in the stable compiler, behind a flag; naming the target keeps it out of build scripts.
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg pagefold_tsan";
    let target = concat!("--target ", "x86_64-unknown-linux-gnu");
    let (test, rest) = arguments.split_once(" -- ").unwrap_or((arguments, ""));
    let check = cargo_with(name, flags, "tsan", &format!("{test} {target} -- {rest}"));
    let suppressions = root().join("crates/frames/tests/tsan.supp");
    let options = format!("halt_on_error=1 suppressions={}", suppressions.display());
    // What is suppressed is told by names that line tables alone don't have.
    check.env("RUSTC_BOOTSTRAP", "1").env("TSAN_OPTIONS", &options).env("CARGO_PROFILE_DEV_DEBUG", "full")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_check_at_a_time_in_their_order() {
        let waiting = vec![cargo("a", ""), cargo("b", ""), loom("c", ""), loom("d", "")];
        let mut queue = Queue { waiting, in_use: Vec::new() };
        let mut take = || queue.take().map(|check| check.name);
        assert_eq!((take(), take(), take()), (Some("a"), Some("c"), None));
        assert!(queue.must_wait());
        queue.in_use.retain(|directory| directory.is_empty());
        assert_eq!(queue.take().map(|check| check.name), Some("d"));
        queue.in_use.clear();
        assert_eq!(queue.take().map(|check| check.name), Some("b"));
        assert!(!queue.must_wait());
    }

    #[test]
    fn what_is_printed_to_either_stream_is_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let (status, printed) = whole(command).unwrap();
        assert_eq!((status.code(), &printed[..]), (Some(3), &b"out\nerr\n"[..]));
    }
}
