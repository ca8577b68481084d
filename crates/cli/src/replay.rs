//! `pagefold replay`: from the arguments to the printed report.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Context;
use rustix::fs::FileType;

use crate::args::ReplayArgs;
use crate::choices::{BackendChoice, Groups, SwapChoice, SwapOptions};
use crate::content::Content;
use crate::failure::Failure;
use crate::live;
use crate::machine;
use crate::output::{self, print};
use crate::plan::{GROUPS_DEFAULT, Plan};
use crate::plot;
use crate::policy_report::{PolicyReport, Replayed};
use crate::policy_table;
use crate::report::{Report, Workload};
use crate::room::{self, Room};
use crate::run::{self, Outcome, Setup};
use crate::signals;
use crate::table;
use crate::target::Target;
use crate::trace::{NAMED_THREADS_MAX, Options, Trace};
use crate::units;
use crate::worker::PIECE_BYTES_MAX;

/// Size of the temporary file if neither the user nor a trace determines one.
const SIZE_DEFAULT: u64 = 1 << 30;

/// Executes the command.
///
/// # Errors
/// The reason why the command failed or ended early. By then, it has printed the results so far.
pub(crate) fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    check_arguments(args)?;
    if args.pages.is_empty() {
        check_budget(args, &args.memory.iter().copied().map(Room::of_bytes).collect::<Vec<_>>())?;
    }
    signals::listen()?;
    let user_file = args.file.as_deref().map(|path| Target::user(path, args.size)).transpose()?;
    let trace = args.trace.as_deref().map(|path| load_trace(args, path)).transpose()?;
    let size = size(args, user_file.as_ref(), trace.as_ref())?;
    let (skipped, trace_memory_bytes) =
        trace.as_ref().map_or_else(Default::default, |trace| (trace.skipped, trace.memory_bytes()));
    let trace_files = trace.as_ref().map_or_else(Vec::new, |trace| trace.files.clone());
    if let Some(trace) = &trace
        && trace.writes == 0
        && let Some(first) = trace.first.filter(|&first| first >= size)
    {
        units::warn(&format!(
            "nothing can be read: all {} of the trace begin past the end of the file ({}); the first byte that is \
             asked \
             for is {}",
            units::plural(trace.requests, "operation"),
            units::bytes(size),
            first,
        ));
    }
    check_permission(args, trace.as_ref())?;
    let end = trace.as_ref().map_or(size, |trace| trace.end.max(size));
    let plan = Plan::new(args, trace, size)?;
    let rooms = rooms(args, end, plan.groups.len());
    if !args.pages.is_empty() {
        check_budget(args, &rooms)?;
    }
    if args.sync_every.is_some() && !plan.writes {
        return Err(Failure::usage("--sync-every has nothing to sync: the run only reads (--reads 80 makes it write)"));
    }
    for &room in &rooms {
        run::check_sizes(&plan, room, args.page_size)?;
    }
    if let Some(target) = user_file.as_ref().filter(|_| plan.writes) {
        target.check_writable()?;
    }
    let mut target = user_file.map_or_else(|| make_target(args, size), Ok)?;
    let verify = !args.no_verify && (args.verify || target.content().is_some());
    let workload = Workload {
        file: target.path().display().to_string(),
        file_kind: target.kind(),
        size_bytes: size,
        trace: args.trace.as_ref().map(|path| path.display().to_string()),
        patterns: if args.trace.is_some() { vec![] } else { args.generate.iter().map(ToString::to_string).collect() },
        op_bytes: args.trace.is_none().then_some(args.read_size),
        reads_percent: args.trace.is_none().then_some(args.reads),
        sync_every_s: args.sync_every.map(|every| every.as_secs_f64()),
        depth: args.depth,
        writes: plan.writes,
        seed: args.seed,
        threads: plan.threads(),
        page_bytes: args.page_size,
        backend: args.backend.to_string(),
        advised: args.advise.name(),
        verified: verify,
        trace_files,
        skipped,
        trace_memory_bytes,
    };
    let swap: Vec<SwapChoice> = args.swap.iter().flat_map(|list| list.0.iter().cloned()).collect();
    if !matches!(args.backend, BackendChoice::Simulated { .. }) {
        swap.iter().filter_map(SwapChoice::lacks_room).for_each(|message| units::warn(&message));
    }
    let setup = Setup {
        plan: &plan,
        sync_every: args.sync_every,
        depth: usize::from(args.depth),
        backend: args.backend,
        advised: args.advise,
        page_bytes: args.page_size,
        io_timeout: args.io_timeout,
        pretouch: args.pretouch,
        verify,
        quiet: args.quiet,
        swap: &swap,
        swap_options: SwapOptions { encrypted: args.swap_encrypted, placement: args.swap_placement.map(Into::into) },
    };
    run_all(args, &setup, &rooms, &mut target, workload)
}

/// Returns the memory of each run. `end` is the end of the file or of the trace, whichever is
/// greater.
fn rooms(args: &ReplayArgs, end: u64, groups: usize) -> Vec<Room> {
    if args.pages.is_empty() {
        return args.memory.iter().copied().map(Room::of_bytes).collect();
    }
    args.pages.iter().map(|&pages| Room::of_pages(pages, args.page_size, end, groups)).collect()
}

/// Compares the largest budget with the memory that the process may use. If the budget is larger,
/// prints a warning; with `--pretouch`, which touches all of the budget, fails instead.
fn check_budget(args: &ReplayArgs, rooms: &[Room]) -> Result<(), Failure> {
    machine::check_budget(rooms.iter().map(|room| room.budget).max().unwrap_or(0), args.pretouch)
}

/// Checks what the parser of the command line can't check.
fn check_arguments(args: &ReplayArgs) -> Result<(), Failure> {
    if args.looped && args.time.is_none() && args.ops.is_none() {
        return Err(Failure::usage("--loop needs --time or --ops to end"));
    }
    if args.plot.is_some() && args.memory.len().max(args.pages.len()) < 2 {
        return Err(Failure::usage("--plot draws a curve: give it two budgets or more, as in --memory 64MiB,128MiB"));
    }
    [&args.plot, &args.plot_latency].into_iter().flatten().try_for_each(|path| check_plot_name(path))?;
    if matches!(args.backend, BackendChoice::Simulated { .. }) && args.file.is_some() {
        return Err(Failure::usage("--backend simulated has no files: leave FILE out"));
    }
    if !args.pages.is_empty() && matches!(args.groups, Some(Groups::Named(_))) {
        return Err(Failure::usage(
            "--pages is shared by the groups in equal parts: give --groups a number, or use --memory",
        ));
    }
    if args.anonymous && (args.depth > 1 || matches!(args.backend, BackendChoice::Simulated { .. })) {
        return Err(Failure::usage(
            "--anonymous goes neither with --depth nor with --backend simulated: memory is no file",
        ));
    }
    let groups = match &args.groups {
        _ if args.anonymous => 1,
        None => GROUPS_DEFAULT,
        Some(groups) => group_count(groups),
    };
    if args.trace.is_none() && args.generate.len() > groups {
        return Err(Failure::usage(format!(
            "--generate lists {} patterns, more than there are groups to deal them to ({groups})",
            args.generate.len()
        )));
    }
    if args.depth > 1 && args.trace.is_none() && args.read_size > PIECE_BYTES_MAX {
        return Err(Failure::usage(format!(
            "--depth issues operations of at most {} together, and --read-size is {}",
            units::bytes(PIECE_BYTES_MAX),
            units::bytes(args.read_size)
        )));
    }
    check_outputs(args)
}

/// Fails if an output can't be written, or would replace an input or another output.
fn check_outputs(args: &ReplayArgs) -> Result<(), Failure> {
    let outputs: Vec<_> = [&args.plot, &args.plot_latency, &args.prometheus].into_iter().flatten().collect();
    for (at, path) in outputs.iter().enumerate() {
        if !directory_of(path).is_dir() || path.is_dir() {
            return Err(Failure::usage(format!("can't write {}: no such directory, or a directory", path.display())));
        }
        if let Some(input) = [&args.file, &args.trace].into_iter().flatten().find(|input| is_same_file(input, path)) {
            let (output, input) = (path.display(), input.display());
            return Err(Failure::usage(format!("{output} is to be written, and is {input}, which would be lost")));
        }
        if args.trace.as_deref() == Some(Path::new("-")) && is_standard_input(path) {
            let output = path.display();
            return Err(Failure::usage(format!("{output} is to be written, and is the trace, which would be lost")));
        }
        if outputs[..at].iter().any(|other| is_one_output(other, path)) {
            return Err(Failure::usage(format!("{} is named for two outputs: one would be lost", path.display())));
        }
        try_to_write(path).with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}

/// Returns whether two paths lead to one file.
fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((identity(a), identity(b)), (Some(a), Some(b)) if a == b)
}

/// Returns whether a write to one path would replace what was written to the other. This is never
/// so for devices and pipes.
fn is_one_output(a: &Path, b: &Path) -> bool {
    match (a.metadata(), b.metadata()) {
        (Ok(metadata), _) | (_, Ok(metadata)) if !metadata.is_file() => false,
        (Ok(_), Ok(_)) => is_same_file(a, b),
        // Neither is there yet.
        (Err(_), Err(_)) => a.file_name() == b.file_name() && is_same_file(directory_of(a), directory_of(b)),
        _ => false,
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns whether the path leads to the regular file that standard input reads.
fn is_standard_input(path: &Path) -> bool {
    let input = rustix::fs::fstat(io::stdin()).ok();
    let input = input.filter(|input| FileType::from_raw_mode(input.st_mode).is_file());
    input.is_some_and(|input| identity(path) == Some((input.st_dev, input.st_ino)))
}

/// Returns the device and inode number of the file, if there is one.
fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Fails if the user's file would be written to without permission.
fn check_permission(args: &ReplayArgs, trace: Option<&Trace>) -> Result<(), Failure> {
    let Some(file) = args.file.as_ref().filter(|_| !args.allow_writes) else { return Ok(()) };
    let (what, instead) = match trace {
        None if args.reads < 100 => (format!("--reads {} writes", args.reads), ""),
        Some(Trace { first_write: Some(place), .. }) => {
            (format!("the trace writes (first at {place})"), ", --skip-writes leaves the writes out")
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(format!(
        "{what} to {}, which would lose what it holds: --allow-writes permits that{instead}",
        file.display()
    )))
}

/// Fails if an output file can't be written. Called before the run, so that an error here costs no
/// results. Doesn't change an existing file, and leaves no new file behind.
fn try_to_write(path: &Path) -> io::Result<()> {
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => OpenOptions::new().write(true).open(path).map(drop),
        // Not tried for pipes and terminals: opening a pipe may block, and its reader may notice.
        Ok(_) => Ok(()),
        Err(_) => {
            let made = OpenOptions::new().write(true).create_new(true).open(path);
            match made {
                Ok(_) => std::fs::remove_file(path),
                // A dangling symbolic link.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(error),
            }
        }
    }
}

/// Fails if the name implies another image format than SVG.
fn check_plot_name(path: &Path) -> Result<(), Failure> {
    match path.extension() {
        Some(extension) if !extension.eq_ignore_ascii_case("svg") => {
            let svg = path.with_extension("svg");
            Err(Failure::usage(format!("plots are SVG: name the file {}", svg.display())))
        }
        _ => Ok(()),
    }
}

fn group_count(groups: &Groups) -> usize {
    match groups {
        Groups::Count(count) => *count,
        Groups::Named(limits) => limits.len(),
    }
}

fn load_trace(args: &ReplayArgs, path: &Path) -> Result<Trace, Failure> {
    let threads = args.threads.map(usize::from);
    let options = Options {
        format: args.format,
        block_bytes: args.block_size.unwrap_or(args.page_size),
        skip_writes: args.skip_writes,
        requests_max: args.ops.filter(|_| !args.looped),
        threads: threads.unwrap_or(match &args.groups {
            Some(Groups::Count(count)) => *count,
            _ => 1,
        }),
        threads_max: threads.unwrap_or(NAMED_THREADS_MAX),
        groups_allowed: match &args.groups {
            Some(Groups::Named(limits)) => Some(limits.iter().map(|(name, _)| name.clone()).collect()),
            _ => None,
        },
        map: args.map.clone(),
        page_bytes: args.page_size,
    };
    let len = path.metadata().map_or(0, |metadata| metadata.len());
    let bar = live::bytes_bar(args.quiet, len, "reading the trace");
    let trace = signals::while_nothing_is_lost(|| Trace::load(path, &options, |bytes| bar.set_position(bytes)));
    bar.finish_and_clear();
    trace
}

/// Returns the number of bytes of the file that may be used.
fn size(args: &ReplayArgs, user_file: Option<&Target>, trace: Option<&Trace>) -> Result<u64, Failure> {
    if let Some(target) = user_file {
        return Ok(target.size());
    }
    let needed = match trace {
        None => Some(SIZE_DEFAULT),
        Some(trace) => trace.end.max(1).checked_next_multiple_of(args.page_size),
    };
    let size = args.size.or(needed).filter(|&size| i64::try_from(size).is_ok());
    size.ok_or_else(|| Failure::usage("the trace reaches further than a file can: name a FILE, or give a --size"))
}

fn make_target(args: &ReplayArgs, size: u64) -> Result<Target, Failure> {
    let content = Content::new(args.seed);
    if args.anonymous {
        return Ok(Target::memory(size, content));
    }
    if let BackendChoice::Simulated { .. } = args.backend {
        return Ok(Target::simulated(size, content));
    }
    let bar = live::bytes_bar(args.quiet, size, "making a temporary file");
    let target = Target::temporary(args.temp_dir.as_deref(), size, content, |bytes| {
        bar.set_position(bytes);
        if bytes == size {
            bar.set_message("flushing the temporary file to disk");
        }
    });
    bar.finish_and_clear();
    target
}

/// Restores the file, so that each run begins with the same contents.
fn restore(args: &ReplayArgs, target: &mut Target) -> Result<(), Failure> {
    let bar = live::bytes_bar(args.quiet, target.size(), "restoring the temporary file");
    let restored = target.restore(|bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    restored
}

/// Executes one run for each budget, and prints each when it ends.
fn run_all(
    args: &ReplayArgs,
    setup: &Setup<'_>,
    rooms: &[Room],
    target: &mut Target,
    workload: Workload,
) -> Result<(), Failure> {
    let mut report =
        Report { version: env!("CARGO_PKG_VERSION"), workload, runs: vec![], interrupted: false, error: None };
    if !args.json {
        print(&table::workload(&report.workload))?;
    }
    let mut failure = None;
    for (number, &room) in rooms.iter().enumerate() {
        // A signal may have come after the run before had ended.
        let unbroken = if number > 0 { signals::check() } else { Ok(()) };
        let restored = unbroken.and_then(|()| match number > 0 && setup.plan.writes {
            true => restore(args, target),
            false => Ok(()),
        });
        match restored.and_then(|()| setup.run(room, target)) {
            Ok(mut outcome) => {
                failure = outcome.failure.take();
                if !args.json {
                    fails_too(&mut failure, print(&table::run(&outcome.report, &report.workload)));
                }
                if args.policy_report && failure.is_none() {
                    match beside_policies(setup, room, &outcome) {
                        Ok(policies) => outcome.report.policies = Some(policies),
                        Err(error) => failure = Some(error),
                    }
                }
                if let Some(policies) = outcome.report.policies.as_ref().filter(|_| !args.json) {
                    fails_too(&mut failure, print(&policy_table::policies(policies, &outcome.report)));
                }
                report.runs.push(outcome.report);
                signals::set_has_results(args.json || args.plot.is_some() || args.plot_latency.is_some());
                if let Some(path) = &args.prometheus {
                    fails_too(&mut failure, output::write(path, outcome.metrics.as_bytes()));
                }
            }
            Err(error) => failure = Some(error),
        }
        if failure.is_some() {
            break;
        }
    }
    finish(args, &mut report, failure)
}

/// Counts what known policies would have missed in a run.
fn beside_policies(setup: &Setup<'_>, room: Room, outcome: &Outcome) -> Result<PolicyReport, Failure> {
    let run = Replayed {
        plan: setup.plan,
        done: &outcome.done,
        room,
        page_bytes: setup.page_bytes,
        depth: setup.depth,
        quiet: setup.quiet,
    };
    let total = &outcome.report.total;
    PolicyReport::new(&run, total.misses, total.read_ahead)
}

/// Records the failure of `result`. The command ends with its first failure, unless the first one
/// is `OutputClosed`, which any other failure replaces.
fn fails_too(failure: &mut Option<Failure>, result: Result<(), Failure>) {
    if let (None | Some(Failure::OutputClosed), Err(error)) = (&failure, result) {
        *failure = Some(error);
    }
}

/// Prints the results of all runs, and returns the failure.
fn finish(args: &ReplayArgs, report: &mut Report, mut failure: Option<Failure>) -> Result<(), Failure> {
    report.interrupted = matches!(failure, Some(Failure::Interrupted(_)));
    signals::set_has_results(false);
    report.error = failure.as_ref().filter(|_| !report.interrupted).map(ToString::to_string);
    if args.json {
        let json = serde_json::to_string_pretty(report).context("can't write the report as JSON")?;
        fails_too(&mut failure, print(&(json + "\n")));
    } else {
        fails_too(&mut failure, print(&table::curve(report)));
    }
    if let Some(path) = args.plot.as_ref().filter(|_| report.runs.len() > 1) {
        let title = format!("{}: hit rate over memory", title(&report.workload));
        fails_too(&mut failure, plot::write_hit_rate(path, &title, &report.runs));
    }
    if let (Some(path), Some(run)) = (&args.plot_latency, report.runs.last()) {
        let title = format!("{}, {}", title(&report.workload), room::shown(run.memory_bytes, run.pages));
        fails_too(&mut failure, plot::write_latency(path, &title, run));
    }
    failure.map_or(Ok(()), Err)
}

fn title(workload: &Workload) -> String {
    match &workload.trace {
        Some(trace) => trace.clone(),
        None => workload.patterns.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `pagefold replay … | head` exited with 0 even if the run had failed. It must
    /// exit with the run's failure.
    #[test]
    fn an_output_that_was_closed_hides_no_failure() {
        let failed = || Failure::Failed(anyhow::anyhow!("a wrong byte"));
        for (before, then, code) in [
            (None, Ok(()), None),
            (None, Err(Failure::OutputClosed), Some(0)),
            (Some(failed()), Err(Failure::OutputClosed), Some(1)),
            (Some(Failure::OutputClosed), Err(failed()), Some(1)),
            (Some(Failure::Interrupted(2)), Err(failed()), Some(130)),
        ] {
            let mut failure = before;
            fails_too(&mut failure, then);
            assert_eq!(failure.map(|failure| failure.exit_code()), code);
        }
    }
}
