//! Runs commands that always end: by themselves, after their limit, or when this program ends. When
//! a command ends, all processes that it started are killed.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How often a command is asked whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The time that a command has to end after it was told to.
const TIME_TO_END: Duration = Duration::from_millis(200);

/// The process groups of commands that run.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Runs a command until it ends, or until `has_to_end` returns true. In the second case returns
/// `None`.
fn run_until(command: &mut Command, mut has_to_end: impl FnMut() -> bool) -> io::Result<Option<ExitStatus>> {
    let mut child = command.stdin(Stdio::null()).process_group(0).spawn()?;
    let group = Pid::from_child(&child);
    running(|groups| groups.push(group));
    let status = loop {
        match child.try_wait()? {
            None if !has_to_end() => thread::sleep(LOOK_EVERY),
            status => break status,
        }
    };
    if status.is_none() {
        // A command that runs commands with limits itself can end them now.
        let _ = kill_process_group(group, Signal::TERM);
        thread::sleep(TIME_TO_END);
    }
    end(group);
    child.wait()?;
    running(|groups| groups.retain(|&other| other != group));
    Ok(status)
}

/// Runs a command. Also returns what it prints to both streams, in order. The status is `None` if
/// the command took longer than the limit, and was ended.
///
/// # Errors
/// The system's, if the command can't be started, or its output can't be stored.
pub(crate) fn printed(command: Command, limit: Duration) -> io::Result<(Option<ExitStatus>, Vec<u8>)> {
    let start = Instant::now();
    printed_until(command, |_| start.elapsed() >= limit)
}

/// Runs a command like [`printed`], and passes its output on to `out` as it comes.
///
/// # Errors
/// Those of [`printed`]. Errors of `out` are ignored.
pub(crate) fn passed_on(
    command: Command,
    limit: Duration,
    mut out: impl Write,
) -> io::Result<(Option<ExitStatus>, Vec<u8>)> {
    let (start, mut passed) = (Instant::now(), 0);
    let mut pass = |new: &[u8]| {
        let _ = out.write_all(new).and_then(|()| out.flush());
        new.len() as u64
    };
    let (status, printed) = printed_until(command, |file| {
        let mut new = [0; 1 << 16];
        // The limit is checked after each part: a command may print faster than `out` takes it.
        while start.elapsed() < limit
            && let Ok(len @ 1..) = file.read_at(&mut new, passed)
        {
            passed += pass(&new[..len]);
        }
        start.elapsed() >= limit
    })?;
    pass(printed.get(passed as usize..).unwrap_or_default());
    Ok((status, printed))
}

/// Runs a command until it ends, or until `has_to_end`, which gets the output so far.
fn printed_until(
    mut command: Command,
    mut has_to_end: impl FnMut(&File) -> bool,
) -> io::Result<(Option<ExitStatus>, Vec<u8>)> {
    // Not a pipe: a process that outlives the command may keep its end.
    let mut file = tempfile::tempfile()?;
    let status = run_until(command.stdout(file.try_clone()?).stderr(file.try_clone()?), || has_to_end(&file))?;
    let mut printed = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut printed)?;
    Ok((status, printed))
}

/// From this call on, Ctrl-C and similar signals end the running commands, too.
///
/// # Errors
/// The system's, if it refuses the handlers.
pub(crate) fn end_with_this_program() -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            running(|groups| groups.drain(..).for_each(end));
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

fn running<T>(change: impl FnOnce(&mut Vec<Pid>) -> T) -> T {
    change(&mut RUNNING.lock().unwrap_or_else(PoisonError::into_inner))
}

fn end(group: Pid) {
    // No such group: all of its processes have ended.
    let _ = kill_process_group(group, Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn run(command: &mut Command, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let start = Instant::now();
        run_until(command, || start.elapsed() >= limit)
    }

    #[test]
    fn a_command_that_takes_too_long_is_ended_with_all_that_it_started() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut command = shell("sleep 1000 & sleep 1000");
        assert!(run(command.stdout(writer), Duration::from_millis(100)).unwrap().is_none());
        drop(command);
        // The end of the pipe comes when no process has it any more.
        io::copy(&mut reader, &mut io::sink()).unwrap();
    }

    #[test]
    fn what_a_command_leaves_behind_ends_with_it() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut command = shell("sleep 1000 & exit 3");
        let status = run(command.stdout(writer), Duration::from_secs(1000)).unwrap();
        assert_eq!(status.and_then(|status| status.code()), Some(3));
        drop(command);
        io::copy(&mut reader, &mut io::sink()).unwrap();
    }

    #[test]
    fn what_is_printed_to_either_stream_is_kept() {
        let (status, text) = printed(shell("echo out; echo err >&2; exit 3"), Duration::from_secs(1000)).unwrap();
        assert_eq!((status.and_then(|status| status.code()), &text[..]), (Some(3), &b"out\nerr\n"[..]));
    }

    #[test]
    fn what_is_passed_on_is_kept_too() {
        let (mut out, script) = (Vec::new(), "echo out; sleep 0.1; echo err >&2");
        let (status, text) = passed_on(shell(script), Duration::from_secs(1000), &mut out).unwrap();
        assert!(status.is_some_and(|status| status.success()));
        assert_eq!((&text[..], &out[..]), (&b"out\nerr\n"[..], &b"out\nerr\n"[..]));
    }

    #[test]
    fn a_command_that_prints_without_end_is_ended_at_the_limit() {
        let limit = Duration::from_millis(200);
        let (status, _) = passed_on(shell("while :; do echo y; sleep 0.01; done"), limit, io::sink()).unwrap();
        assert_eq!(status, None);
    }

    #[test]
    fn what_was_printed_before_the_limit_is_kept() {
        let has_printed = |file: &File| file.metadata().unwrap().len() >= 4;
        let (status, text) = printed_until(shell("echo out; sleep 1000"), has_printed).unwrap();
        assert_eq!((status, &text[..]), (None, &b"out\n"[..]));
    }
}
