//! Checks, and how they are run. Checks that build in different target directories run side by
//! side, and so do checks that only run what an earlier check has built.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{iter, thread};

use crate::limited;
use crate::workspace::{self, root, target_directory};

/// How many checks run at once: while the tests of one check wait, another check can build.
const SIDE_BY_SIDE: usize = 3;
/// The default limit of a check's time, builds included, because a test may hang. It is more than
/// ten times as long as any check takes on a quiet machine.
const LIMIT: Duration = Duration::from_mins(60);

/// One check: a name, and the command that makes it.
pub(crate) struct Check {
    name: &'static str,
    command: Command,
    /// The check passes if the command fails.
    must_fail: bool,
    /// Its target directory, which one check at a time builds in.
    directory: &'static str,
    /// The check needn't build, because earlier checks have built what it runs.
    is_built: bool,
    /// The lane that it belongs to, if any.
    lane: Option<&'static str>,
    /// The longest that it may take, with what it builds.
    limit: Duration,
}

/// What became of a check.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) lane: Option<&'static str>,
    pub(crate) passed: bool,
    pub(crate) time: Duration,
    /// The shell command that repeats it.
    pub(crate) command: String,
    /// What it printed.
    printed: String,
}

impl Outcome {
    /// Returns what failed, why, and the command that repeats it.
    pub(crate) fn failure(&self) -> String {
        format!("failed: {}: {}\n  repeat with: {}", self.name, self.first_error(), self.command)
    }

    /// Returns how many faults the check's tests injected, and in how many runs, according to what
    /// they printed: `faults injected: 300 in 12 runs`.
    pub(crate) fn injected(&self) -> (u64, u64) {
        let numbers = |line: &str| {
            // The test harness may have begun the line.
            let (faults, runs) = line.split_once("faults injected: ")?.1.strip_suffix(" runs")?.split_once(" in ")?;
            Some((faults.parse().ok()?, runs.parse().ok()?))
        };
        let sum = |sum: (u64, u64), more: (u64, u64)| (sum.0 + more.0, sum.1 + more.1);
        self.printed.lines().filter_map(numbers).fold((0, 0), sum)
    }

    /// Returns the first error that the check printed, in one line.
    fn first_error(&self) -> String {
        // The output of tests that passed comes before `FAILURES`.
        let of_failures = self.printed.split_once(FAILURES).map_or(&*self.printed, |(_, rest)| rest);
        let mut lines = of_failures.lines().skip_while(|line| !ERRORS.iter().any(|error| line.contains(error)));
        let first = lines.next().unwrap_or("see its output").trim();
        // The message of a panic is in the line after it.
        let rest = if first.contains("panicked at ") { lines.next().unwrap_or_default().trim() } else { "" };
        [first, rest].join(" ").chars().take(ERROR_MAX).collect()
    }
}

/// Where the test harness begins to print which tests failed, and why.
const FAILURES: &str = "\nfailures:\n";
/// The most characters that are shown of an error.
const ERROR_MAX: usize = 300;
/// How many of the last lines of a check that failed are printed again at the end.
const LINES_AGAIN: usize = 40;
/// A line with one of these says what went wrong.
const ERRORS: [&str; 10] = [
    "error[",
    "error: ",
    "panicked at ",
    "Diff in ",
    "WARNING: ThreadSanitizer",
    "ERROR: AddressSanitizer",
    "was ended: ",
    "can't run ",
    "MISSED  ",
    "bench: ",
];

impl Check {
    /// Returns the same check with an environment variable set.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Returns the same check with another target directory than the usual one. It then runs beside
    /// the tests.
    pub(crate) fn in_directory(mut self, directory: &'static str) -> Self {
        self.command.env("CARGO_TARGET_DIR", target_directory(directory));
        Self { directory, ..self }
    }

    /// Marks the check as one that only runs tests which earlier checks build. It waits for those
    /// checks, and then runs side by side with other checks of its target directory.
    pub(crate) fn built(self) -> Self {
        Self { is_built: true, ..self }
    }

    /// Returns the same check as a part of a lane.
    pub(crate) fn of_lane(self, lane: &'static str) -> Self {
        Self { lane: Some(lane), ..self }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the command as a user would type it.
    pub(crate) fn typed(&self) -> String {
        let variables = self
            .command
            .get_envs()
            .filter_map(|(name, value)| Some(format!("{}='{}'", name.to_string_lossy(), value?.to_string_lossy())));
        let arguments = self.command.get_args().map(|argument| argument.to_string_lossy().into_owned());
        let program =
            if self.command.get_program() == workspace::cargo().get_program() { "cargo" } else { "cargo xtask" };
        variables.chain(iter::once(program.to_owned())).chain(arguments).collect::<Vec<_>>().join(" ")
    }

    /// Returns the same check with another time limit.
    pub(crate) fn may_take(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Returns the same check, which passes if its command fails.
    pub(crate) fn must_fail(self) -> Self {
        Self { must_fail: true, ..self }
    }

    /// Runs the check. If it runs `alone`, its output is printed as it comes; otherwise all of it
    /// is printed at the end.
    fn run(self, alone: bool) -> Outcome {
        let typed = self.typed();
        let Self { name, command, must_fail, lane, limit, .. } = self;
        println!("== {name}{}", if alone { "" } else { ": begun" });
        let start = Instant::now();
        let result = if alone { as_it_comes(command, limit) } else { limited::printed(command, limit) };
        let (passed, printed) = match result {
            Ok((status, printed)) => {
                let mut printed = without_colours(&String::from_utf8_lossy(&printed));
                let success = status.map(|status| status.success());
                let why = match success {
                    None => format!("{name} was ended: it took longer than {} s\n", limit.as_secs()),
                    Some(true) if must_fail => "error: the command succeeds, and has to fail\n".to_owned(),
                    Some(_) => String::new(),
                };
                if alone {
                    print!("{why}");
                }
                printed += &why;
                (success == Some(!must_fail), printed)
            }
            Err(error) => (false, format!("can't run {name}: {error}\n")),
        };
        if !alone {
            print!("{printed}");
        }
        let time = start.elapsed();
        println!("== {name}: {} in {:.0} s", if passed { "ok" } else { "FAILED" }, time.as_secs_f64());
        Outcome { name, lane, passed, time, command: typed, printed }
    }
}

/// Runs a command, and prints its output as it comes. The status is `None` if the command took
/// longer than the limit.
fn as_it_comes(mut command: Command, limit: Duration) -> io::Result<(Option<ExitStatus>, Vec<u8>)> {
    if io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    limited::passed_on(command, limit, io::stdout())
}

/// Returns a text without the sequences that control a terminal, such as colours.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    // Parameters, then one final letter.
    let is_parameter = |c: char| (' '..='?').contains(&c);
    parts.for_each(|part| plain.extend(part.trim_start_matches(is_parameter).chars().skip(1)));
    plain
}

/// Checks that wait, in their order, and the target directories that running checks build in.
struct Queue {
    waiting: Vec<Check>,
    in_use: Vec<&'static str>,
}

impl Queue {
    /// The position of the first check that may run now.
    fn next(&self) -> Option<usize> {
        let may_run = |at: usize, check: &Check| {
            let builds = |other: &Check| other.directory == check.directory && !other.is_built;
            let waits = check.is_built && self.waiting[..at].iter().any(builds);
            !waits && !self.in_use.contains(&check.directory)
        };
        self.waiting.iter().enumerate().position(|(at, check)| may_run(at, check))
    }

    fn must_wait(&self) -> bool {
        !self.waiting.is_empty() && self.next().is_none()
    }

    fn take(&mut self) -> Option<Check> {
        let check = self.waiting.remove(self.next()?);
        if !check.is_built {
            self.in_use.push(check.directory);
        }
        Some(check)
    }

    fn ended(&mut self, directory: &str, is_built: bool) {
        if !is_built {
            self.in_use.retain(|&other| other != directory);
        }
    }
}

/// Runs all checks. Those that build in one directory run one after the other, in their order.
pub(crate) fn run(checks: Vec<Check>) -> Vec<Outcome> {
    let in_turn = checks.iter().all(|check| !check.is_built && check.directory == checks[0].directory);
    let alone = checks.len() == 1 || in_turn;
    let queue = Mutex::new(Queue { waiting: checks, in_use: Vec::new() });
    let ended = Condvar::new();
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let next = || ended.wait_while(lock(), |queue| queue.must_wait()).unwrap_or_else(PoisonError::into_inner).take();
    let work = || -> Vec<Outcome> {
        let outcomes = iter::from_fn(next).map(|check| {
            let (directory, is_built) = (check.directory, check.is_built);
            let outcome = check.run(alone);
            lock().ended(directory, is_built);
            ended.notify_all();
            outcome
        });
        outcomes.collect()
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..SIDE_BY_SIDE).map(|_| scope.spawn(work)).collect();
        let outcomes = |worker: thread::ScopedJoinHandle<'_, Vec<Outcome>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(outcomes).collect()
    })
}

/// Prints the last lines of each failed check, then a table of all checks, and at the end the first
/// error of each failed check and the command that repeats it.
pub(crate) fn conclude(outcomes: &[Outcome]) -> ExitCode {
    let failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.passed).collect();
    for Outcome { name, printed, .. } in failed.iter().filter(|outcome| !outcome.printed.is_empty()) {
        let lines: Vec<&str> = printed.lines().collect();
        println!(
            "== {name} FAILED; the last that it printed:\n{}",
            lines[lines.len().saturating_sub(LINES_AGAIN)..].join("\n")
        );
    }
    println!("\n{:44}{:8}{:>6}", "check", "verdict", "s");
    for Outcome { name, passed, time, .. } in outcomes {
        println!("{name:44}{:8}{:>6.0}", if *passed { "ok" } else { "FAILED" }, time.as_secs_f64());
    }
    for feature in not_here(outcomes) {
        println!("{feature}");
    }
    println!("{} passed, {} failed", outcomes.len() - failed.len(), failed.len());
    for outcome in &failed {
        println!("{}", outcome.failure());
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns what this machine lacks, according to the tests, each item once: `not here: io_uring`.
pub(crate) fn not_here(outcomes: &[Outcome]) -> BTreeSet<&str> {
    let lines = outcomes.iter().flat_map(|outcome| outcome.printed.lines());
    lines.filter_map(|line| line.find("not here: ").map(|at| line[at..].trim())).collect()
}

/// Creates a check that runs cargo.
pub(crate) fn cargo(name: &'static str, arguments: &str) -> Check {
    let mut command = workspace::cargo();
    command.args(arguments.split_whitespace()).current_dir(root());
    Check { name, command, must_fail: false, directory: "", is_built: false, lane: None, limit: LIMIT }
}

/// Dependencies whose speed no test depends on, and that take long to optimise.
const SLOW_TO_OPTIMISE: [&str; 4] = ["futures-util", "itertools", "rustix", "tokio"];

/// The arguments that begin a run of tests in the release profile.
fn test_in_release(unoptimised: &[&str]) -> String {
    let at_zero = |package| format!(" --config profile.release.package.{package}.opt-level=0");
    let all: String = SLOW_TO_OPTIMISE.iter().chain(unoptimised).map(at_zero).collect();
    format!("test --release{all}")
}

/// A check by the workspace's tests, in the build that most lanes need. The benchmarks, the virtual
/// machine and the command line aren't optimised, because that takes two minutes, and no test
/// depends on their speed.
pub(crate) fn tests(name: &'static str, which: &str) -> Check {
    cargo(name, &format!("{} --workspace {which}", test_in_release(&["bench", "manycore", "pagefold-cli"])))
}

/// A check by tests on virtual CPUs.
pub(crate) fn virtual_cpus(name: &'static str, tests: &str) -> Check {
    cargo_with(name, "--cfg pagefold_manycore", "virtual", &format!("{} {tests}", test_in_release(&[])))
}

/// Creates a check that runs cargo with compiler flags, which have a target directory of their own.
pub(crate) fn cargo_with(name: &'static str, flags: &str, directory: &'static str, arguments: &str) -> Check {
    cargo(name, arguments).env("RUSTFLAGS", flags).in_directory(directory)
}

/// Creates a check that runs this program.
pub(crate) fn this_program(name: &'static str, directory: &'static str, arguments: &str) -> Check {
    let mut check = cargo(name, "");
    check.command = Command::new(std::env::current_exe().unwrap_or_else(|_| "xtask".into()));
    check.command.args(arguments.split_whitespace()).current_dir(root());
    Check { directory, ..check }
}

/// What loom models are compiled with, and the name of their target directory.
pub(crate) const LOOM_CFG: &str = "pagefold_loom";
pub(crate) const LOOM: &str = "loom";

/// A check of loom models. Planted bugs use the same builds of dependencies.
pub(crate) fn loom(name: &'static str, tests: &str) -> Check {
    cargo_with(name, &format!("--cfg {LOOM_CFG}"), LOOM, &format!("test --release {tests}"))
}

/// Returns the arguments of a check with a sanitizer. Sanitizers are in the stable compiler, behind
/// a flag. Naming the target keeps them out of build scripts.
fn with_target(arguments: &str) -> String {
    let (test, rest) = arguments.split_once(" -- ").unwrap_or((arguments, ""));
    format!("{test} --target x86_64-unknown-linux-gnu -- {rest}")
}

/// Creates a check with the address sanitizer, which detects uses of freed memory. A use by a
/// device is detected only if the kernel copies the bytes, or if a thread reads the memory later.
pub(crate) fn address_sanitizer(name: &'static str, arguments: &str) -> Check {
    let check = cargo_with(name, "-Zsanitizer=address", "asan", &with_target(arguments));
    check.env("RUSTC_BOOTSTRAP", "1")
}

/// Creates a check that sees data races.
pub(crate) fn thread_sanitizer(name: &'static str, arguments: &str) -> Check {
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg pagefold_tsan";
    let check = cargo_with(name, flags, "tsan", &with_target(arguments));
    let suppressions = root().join("crates/frames/tests/tsan.supp");
    let options = format!("halt_on_error=1 suppressions={}", suppressions.display());
    // Suppressions contain names of functions, which line tables alone don't have.
    check.env("RUSTC_BOOTSTRAP", "1").env("TSAN_OPTIONS", &options).env("CARGO_PROFILE_DEV_DEBUG", "limited")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(printed: &str) -> Outcome {
        Outcome {
            name: "a",
            lane: None,
            passed: false,
            time: Duration::ZERO,
            command: String::new(),
            printed: printed.to_owned(),
        }
    }

    #[test]
    fn the_first_error_is_shown_in_a_line() {
        let panic = outcome("test a ... ok\nthread 'b' panicked at b.rs:1:2:\n  no page\nthread 'c' panicked at c.rs");
        assert_eq!(panic.first_error(), "thread 'b' panicked at b.rs:1:2: no page");
        assert_eq!(outcome("error[E0001]: wrong\n").first_error().trim(), "error[E0001]: wrong");
        let expected = outcome("successes:\n\npanicked at a.rs\nfailures:\n\npanicked at b.rs:\nno");
        assert_eq!(expected.first_error(), "panicked at b.rs: no");
        assert_eq!(outcome("nothing").first_error().trim(), "see its output");
        let coloured = "\x1b[K\x1b[1m\x1b[91merror\x1b[0m\x1b[1m: wrong\x1b[0m\n";
        assert_eq!(outcome(&without_colours(coloured)).first_error().trim(), "error: wrong");
        let lacking = [outcome("not here: io_uring\n"), outcome("x: not here: io_uring\n")];
        assert_eq!(not_here(&lacking).len(), 1);
    }

    #[test]
    fn the_faults_of_all_tests_are_added_up() {
        let injected = |printed: &str| outcome(printed).injected();
        assert_eq!(
            injected("9 calls\nfaults injected: 40 in 3 runs\ntest a ... faults injected: 2 in 1 runs\n"),
            (42, 4)
        );
        assert_eq!(injected("faults injected: many in 3 runs\nfaults injected: 7\n"), (0, 0));
    }

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
    fn what_is_built_runs_beside_others_after_what_builds_it() {
        let waiting = vec![cargo("a", ""), cargo("b", "").built(), cargo("c", "").built(), cargo("d", "")];
        let mut queue = Queue { waiting, in_use: Vec::new() };
        assert_eq!(queue.take().map(|check| check.name), Some("a"));
        assert!(queue.must_wait());
        queue.ended("", false);
        let mut take = || queue.take().map(|check| check.name);
        assert_eq!((take(), take(), take(), take()), (Some("b"), Some("c"), Some("d"), None));
    }
}
