//! Plans which threads read and write what: the groups with their limits, and the threads with
//! their accesses.

use std::collections::BTreeSet;
use std::time::Duration;

use sync::Arc;
use sync::random::mix;

use crate::accesses::{Accesses, Mix, TraceGroups};
use crate::args::ReplayArgs;
use crate::choices::{GROUPS_MAX, Groups};
use crate::failure::Failure;
use crate::generate::{Generator, Pattern, Stream};
use crate::room::Room;
use crate::trace::Trace;
use crate::units;

/// Number of groups if neither the user nor a trace gives one.
pub(crate) const GROUPS_DEFAULT: usize = 4;

/// Duration of a run with generated accesses.
const TIME_DEFAULT: Duration = Duration::from_secs(10);

/// A group's limit must be at least this many pages for each of its threads. A thread uses up to
/// this many pages at once. So in a smaller group, a read could fail because other threads use all
/// pages of the group.
const PAGES_PER_THREAD: u64 = 4;

/// The settings that all runs have in common.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) groups: Vec<GroupPlan>,
    pub(crate) workers: Vec<WorkerPlan>,
    /// The maximum duration of a run.
    pub(crate) time: Option<Duration>,
    /// The number of operations of a run, if time doesn't end the run before.
    pub(crate) ops: Option<u64>,
    /// Some of the operations are writes.
    pub(crate) writes: bool,
}

/// One tenant.
#[derive(Debug)]
pub(crate) struct GroupPlan {
    pub(crate) name: String,
    /// The limit in bytes; an equal part of the budget if there is none.
    limit: Option<u64>,
    /// The pattern that its threads generate, if they replay no trace.
    pub(crate) pattern: Option<Pattern>,
    /// Number of threads that work for it.
    threads: usize,
}

/// One thread.
#[derive(Debug)]
pub(crate) struct WorkerPlan {
    pub(crate) accesses: Accesses,
    pub(crate) ops_max: Option<u64>,
}

impl Plan {
    /// Creates the plan for `args` and `size` bytes of file.
    ///
    /// # Errors
    /// Usage: options that contradict each other or the trace.
    pub(crate) fn new(args: &ReplayArgs, trace: Option<Trace>, size: u64) -> Result<Self, Failure> {
        let mut groups = groups(args, trace.as_ref())?;
        let writes = trace.as_ref().map_or(args.reads < 100, |trace| trace.writes > 0);
        let (workers, ops) = match trace {
            Some(trace) => {
                let ops = if args.looped { args.ops } else { Some(trace.requests) };
                (replayers(args, trace, &mut groups), ops)
            }
            None => (generators(args, size, &mut groups), args.ops),
        };
        let time = args.time.or(if ops.is_none() { Some(TIME_DEFAULT) } else { None });
        Ok(Self { groups, workers, time, ops, writes })
    }

    /// Returns the limits of the groups. A group without a limit of its own gets `budget / groups`,
    /// rounded to whole pages; the first groups get the remaining pages, one each.
    pub(crate) fn limits(&self, budget: u64, page_bytes: u64) -> impl Iterator<Item = u64> {
        let count = self.groups.len();
        let part = move |at| share(budget / page_bytes, at, count) * page_bytes;
        self.groups.iter().enumerate().map(move |(at, group)| group.limit.unwrap_or_else(|| part(at)))
    }

    /// Fails if a group's limit is less than `PAGES_PER_THREAD` pages for each of its threads.
    ///
    /// # Errors
    /// Usage: the message contains the memory that is needed.
    pub(crate) fn check_memory(&self, room: Room, page_bytes: u64) -> Result<(), Failure> {
        let needed = |threads: usize| (threads as u64).saturating_mul(PAGES_PER_THREAD).saturating_mul(page_bytes);
        let size = |bytes: u64| match room.pages {
            Some(_) => units::plural(bytes / page_bytes, "page"),
            None => units::bytes(bytes),
        };
        for (group, limit) in self.groups.iter().zip(self.limits(room.shared, page_bytes)) {
            let limit = limit.min(room.shared);
            let least = needed(group.threads);
            if limit < least {
                return Err(Failure::usage(format!(
                    "too small: group {} has {} of the {} in {} for {}, and needs {} at least \
                     ({PAGES_PER_THREAD} pages of {} for each thread)",
                    group.name,
                    size(limit),
                    size(room.shared),
                    room.option_name(),
                    units::plural(group.threads as u64, "thread"),
                    size(least),
                    units::bytes(page_bytes),
                )));
            }
        }
        let least = needed(self.workers.len());
        if room.shared < least {
            return Err(Failure::usage(format!(
                "too small: {} {} for {}, which need {} at least",
                room.option_name(),
                size(room.shared),
                units::plural(self.workers.len() as u64, "thread"),
                size(least)
            )));
        }
        Ok(())
    }

    /// Returns the number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len()
    }
}

/// Returns the groups in the order of the table, without their threads.
fn groups(args: &ReplayArgs, trace: Option<&Trace>) -> Result<Vec<GroupPlan>, Failure> {
    let named = trace.map_or(&[][..], |trace| trace.groups.as_slice());
    let group = |name: String, limit| GroupPlan { name, limit, pattern: None, threads: 0 };
    if args.anonymous {
        return match named {
            [] => Ok(vec![group("g1".to_owned(), None)]),
            [name] => Ok(vec![group(name.clone(), None)]),
            _ => Err(Failure::usage("--anonymous: the memory is one group's, and the trace names several")),
        };
    }
    match &args.groups {
        Some(Groups::Named(limits)) => {
            Ok(limits.iter().map(|(name, limit)| group(name.clone(), Some(*limit))).collect())
        }
        Some(Groups::Count(count)) if !named.is_empty() && named.len() != *count => Err(Failure::usage(format!(
            "--groups {count}: the trace names {}; leave --groups out, or give each a limit (--groups {}=64MiB,…)",
            units::plural(named.len() as u64, "group"),
            named[0]
        ))),
        _ if named.len() > GROUPS_MAX => {
            Err(Failure::usage(format!("the trace names {} groups; at most {GROUPS_MAX} are possible", named.len())))
        }
        _ if !named.is_empty() => Ok(named.iter().map(|name| group(name.clone(), None)).collect()),
        Some(Groups::Count(count)) => Ok((1..=*count).map(|n| group(format!("g{n}"), None)).collect()),
        None if trace.is_some() => Ok(vec![group("all".to_owned(), None)]),
        None => Ok((1..=GROUPS_DEFAULT).map(|n| group(format!("g{n}"), None)).collect()),
    }
}

/// Returns the groups that thread `thread` of `threads` serves. If there are more groups than
/// threads, a thread serves several.
fn groups_of_thread(thread: usize, threads: usize, groups: usize) -> Vec<usize> {
    if threads >= groups { vec![thread % groups] } else { (thread..groups).step_by(threads).collect() }
}

/// Plans threads that generate their accesses.
fn generators(args: &ReplayArgs, size: u64, groups: &mut [GroupPlan]) -> Vec<WorkerPlan> {
    let threads = args.threads.map_or(groups.len(), usize::from);
    let places = size.div_ceil(args.read_size);
    let worker = |thread| {
        let served = groups_of_thread(thread, threads, groups.len());
        let generators = served.into_iter().map(|group| {
            let pattern = args.generate[group % args.generate.len()];
            groups[group].threads += 1;
            groups[group].pattern = Some(pattern);
            (group, Generator::new(pattern, places, Stream { seed: args.seed, group, thread, threads }))
        });
        let reads = Mix::new(args.reads, mix(args.seed ^ mix(thread as u64)));
        let accesses = Accesses::generated(generators.collect(), reads, args.read_size, size);
        WorkerPlan { accesses, ops_max: args.ops.map(|ops| share(ops, thread, threads)) }
    };
    (0..threads).map(worker).collect()
}

/// Plans threads that replay a trace.
fn replayers(args: &ReplayArgs, trace: Trace, groups: &mut [GroupPlan]) -> Vec<WorkerPlan> {
    let threads = trace.streams.len();
    let position = |name: &String| groups.iter().position(|group| group.name == *name).unwrap_or(0);
    let named = Arc::new(trace.groups.iter().map(position).collect::<Vec<_>>());
    let worker = |(thread, requests): (usize, Vec<_>)| {
        let trace_groups = if named.is_empty() {
            let served = groups_of_thread(thread, threads, groups.len());
            served.iter().for_each(|&group| groups[group].threads += 1);
            TraceGroups::InTurn { groups: served, turn: 0 }
        } else {
            let served: BTreeSet<usize> =
                requests.iter().map(|request: &crate::trace::Request| request.group()).collect();
            served.iter().for_each(|&group| groups[named[group]].threads += 1);
            TraceGroups::Named(Arc::clone(&named))
        };
        let ops_max = args.ops.filter(|_| args.looped).map(|ops| share(ops, thread, threads));
        WorkerPlan { accesses: Accesses::trace(requests, args.looped, trace_groups), ops_max }
    };
    trace.streams.into_iter().enumerate().map(worker).collect()
}

/// Divides `whole` into `parts` parts that differ by at most 1. Returns part number `at`.
fn share(whole: u64, at: usize, parts: usize) -> u64 {
    let parts = parts.max(1) as u64;
    whole / parts + u64::from((at as u64) < whole % parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn args(line: &str) -> ReplayArgs {
        let cli = Cli::try_parse_from(["pagefold", "replay"].into_iter().chain(line.split_whitespace())).unwrap();
        match cli.command {
            Command::Replay(args) => *args,
            Command::Completions { .. } => unreachable!(),
        }
    }

    fn plan(line: &str) -> Plan {
        Plan::new(&args(line), None, 1 << 30).unwrap()
    }

    fn trace(groups: &[&str], streams: usize) -> Trace {
        Trace {
            groups: groups.iter().map(|&name| name.to_owned()).collect(),
            streams: vec![Vec::new(); streams],
            ..Trace::default()
        }
    }

    #[test]
    fn without_arguments_four_groups_share_the_budget_for_ten_seconds() {
        let plan = plan("");
        assert_eq!(plan.threads(), 4);
        assert_eq!(plan.time, Some(Duration::from_secs(10)));
        assert_eq!(plan.limits(128 << 20, 4096).collect::<Vec<_>>(), [32 << 20; 4]);
        let pages: Vec<_> = plan.limits(19 * 4096 + 1, 4096).map(|limit| limit / 4096).collect();
        assert_eq!(pages, [5, 5, 5, 4]);
    }

    #[test]
    fn threads_are_dealt_to_groups() {
        assert_eq!(groups_of_thread(5, 8, 3), [2]);
        assert_eq!(groups_of_thread(1, 2, 5), [1, 3]);
        let threads = |line| plan(line).groups.iter().map(|group| group.threads).collect::<Vec<_>>();
        assert_eq!(threads("--groups 3 --threads 8"), [3, 3, 2]);
        assert_eq!(threads("--groups 3 --threads 2"), [1, 1, 1]);
    }

    #[test]
    fn operations_are_dealt_without_a_rest() {
        let plan = plan("--ops 10 --threads 4");
        let ops: Vec<_> = plan.workers.iter().map(|worker| worker.ops_max.unwrap()).collect();
        assert_eq!(ops, [3, 3, 2, 2]);
        assert_eq!(plan.time, None);
    }

    #[test]
    fn a_trace_brings_its_groups() {
        let names = |line: &str, trace: Trace| {
            let plan = Plan::new(&args(line), Some(trace), 4096)?;
            Ok::<_, Failure>(plan.groups.iter().map(|group| group.name.clone()).collect::<Vec<_>>())
        };
        assert_eq!(names("", trace(&[], 1)).unwrap(), ["all"]);
        assert_eq!(names("", trace(&["x", "y"], 1)).unwrap(), ["x", "y"]);
        assert_eq!(names("--groups y=1MiB,x=1MiB", trace(&["x"], 1)).unwrap(), ["y", "x"]);
        assert_eq!(names("--groups 2", trace(&[], 2)).unwrap(), ["g1", "g2"]);
        assert!(matches!(names("--groups 3", trace(&["x", "y"], 1)), Err(Failure::Usage(_))));
    }

    #[test]
    fn memory_must_do_for_the_threads() {
        let plan = plan("--groups 4 --threads 8");
        assert!(plan.check_memory(Room::of_bytes(8 * 4 * 4096), 4096).is_ok());
        let error = plan.check_memory(Room::of_bytes(8 * 4 * 4096 - 1), 4096).unwrap_err();
        assert!(matches!(&error, Failure::Usage(message) if message.contains("too small")), "{error}");
        assert!(plan.check_memory(Room::of_bytes(1), u64::MAX).is_err());
        assert!(plan.check_memory(Room::of_pages(8 * 4, 4096, 1, 4), 4096).is_ok());
        let error = plan.check_memory(Room::of_pages(8 * 4 - 1, 4096, 1, 4), 4096).unwrap_err().to_string();
        let expected = "group g4 has 7 pages of the 31 pages in --pages for 2 threads, and needs 8 pages at least";
        assert!(error.contains(expected), "{error}");
    }
}
