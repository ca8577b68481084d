//! `shared-lines`: to which cache lines do two threads both write atomically when they do the same
//! work on two CPUs?
//!
//! Virtual CPUs see every atomic operation that goes through crate `sync`, but neither the counts
//! in `Arc` nor the allocator's locks. This experiment sees all atomic read-modify-writes: one
//! thread does an operation on one CPU and then on another, and the kernel stops the thread at each
//! instruction. If the operation wrote to a line on both CPUs, two threads on these CPUs would move
//! the line between them.

use std::env;
use std::ops::Range;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use pagefold::{Advice, Pagefold, Protection, SwapArea};

use crate::calibrate::pin;
use crate::experiments::zeros::{self, PAGE};
use crate::output::progress;
use crate::rows::Rows;
use crate::scaling::stage::allowed_cpus;
use crate::stepper::{self, Section};
use crate::summary::Summary;

/// On the command line, and in records.
pub(crate) const NAME: &str = "shared-lines";
/// The hidden command with which the program starts itself, to be traced.
pub(crate) const TRACED_COMMAND: &str = "shared-lines-traced";

/// `shared-lines`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SharedLinesArgs {
    /// Only these operations: a list
    #[arg(long, value_delimiter = ',')]
    operations: Vec<Operation>,
    /// How often each is done on either CPU
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    times: u64,
    /// Print an array of flat records instead of text
    #[arg(long)]
    json: bool,
    /// A few times each: shows that everything works
    #[arg(long, conflicts_with = "times")]
    quick: bool,
}

/// How often with `--quick`.
const QUICK_TIMES: u64 = 16;

/// What the traced process is told.
#[derive(Debug, Args)]
pub(crate) struct TracedArgs {
    #[arg(long)]
    operation: Operation,
    #[arg(long)]
    times: u64,
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
}

/// What is done on both CPUs, with the same handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Operation {
    /// 8 bytes of one page of a file, which is in memory
    Hit,
    /// 8 bytes of one page of a mapped file; the page is in memory
    SpaceHit,
    /// The first byte of a new page of a space
    FirstTouch,
    /// 8 bytes of a page of a file; the page isn't in memory, and another one is evicted for it
    Miss,
    /// 100 bytes of a page in swap, for which another goes there
    Swap,
}

/// The command.
pub(crate) fn command() -> clap::Command {
    SharedLinesArgs::augment_args(clap::Command::new(NAME))
        .about("To which cache lines do two threads both write atomically?")
}

/// `shared-lines`.
pub(crate) fn run(args: &SharedLinesArgs) -> Result<()> {
    let [first_cpu, second_cpu, ..] = allowed_cpus()[..] else { bail!("there is one CPU here: {NAME} needs two") };
    let chosen = |operation: &Operation| args.operations.is_empty() || args.operations.contains(operation);
    let operations: Vec<Operation> = Operation::value_variants().iter().copied().filter(chosen).collect();
    let times = if args.quick { QUICK_TIMES } else { args.times };
    let bar = progress(NAME, operations.len());
    let mut rows = Rows::new(
        NAME,
        "atomic read-modify-writes outside the kernel, for each operation; shared ones go to lines that are written \
         on both CPUs.",
    );
    for operation in operations {
        let name = operation.to_possible_value().context("each has a name")?.get_name().to_owned();
        bar.set_message(name.clone());
        let mut command = Command::new(env::current_exe().context("cannot find this program")?);
        command.args([TRACED_COMMAND, "--operation", &name, "--times", &times.to_string()]);
        command.args(["--cpus", &format!("{first_cpu},{second_cpu}")]);
        let sections = stepper::sections(&mut command, 2)?;
        let [first, second] = &sections[..] else { unreachable!("two sections were asked for") };
        let each = |value: u64| Summary::exact(value as f64 / (2 * times) as f64);
        let counts = [first.count, second.count];
        let metrics = [
            ("instructions", "count", each(counts.iter().map(|count| count.instructions).sum())),
            ("atomic_rmw", "count", each(counts.iter().map(|count| count.atomics).sum())),
            ("shared_rmw", "count", each(shared(first, second))),
        ];
        rows.add(&name, "pagefold", &metrics);
        bar.inc(1);
    }
    bar.finish_and_clear();
    rows.print(args.json)
}

/// How many atomic read-modify-writes went to lines that both sections wrote to.
fn shared(first: &Section, second: &Section) -> u64 {
    let both = first.lines.iter().filter_map(|(line, times)| Some(times + second.lines.get(line)?));
    both.sum()
}

/// What the traced process does.
pub(crate) fn traced(args: &TracedArgs) -> Result<()> {
    let access = access(args.operation)?;
    let on_each = |times: Range<u64>, around: fn()| -> Result<()> {
        for (place, &cpu) in args.cpus.iter().enumerate() {
            pin(cpu)?;
            around();
            let done = times.clone().try_for_each(|time| access(place as u64 * APART + time));
            around();
            done?;
        }
        Ok(())
    };
    // First, each CPU fills its stocks.
    on_each(0..WARM_UP, || ())?;
    on_each(WARM_UP..WARM_UP + args.times, stepper::breakpoint)
}

/// The distance between the pages of the two CPUs. It is so large that no line holds data of pages
/// of both.
const APART: u64 = 1 << 18;
/// Pages that are accessed before the count.
const WARM_UP: u64 = 4096;
/// Pages that stay in memory, if others have to go.
const ROOM: u64 = 1024;

/// Returns a function that does the operation on the page with a number. Both CPUs use the same
/// handles, in one group.
fn access(operation: Operation) -> Result<Box<dyn Fn(u64) -> Result<()>>> {
    let bytes = 2 * APART * PAGE;
    let builder = Pagefold::builder().memory(1 << 30);
    Ok(match operation {
        Operation::Hit => {
            let file = zeros::open(&zeros::manager(ROOM).group("all").build()?, 1);
            Box::new(move |_| Ok(file.read_at(&mut [0; 8], 0).map(|_| ())?))
        }
        Operation::SpaceHit => {
            let group = zeros::manager(ROOM).group("all").build()?;
            let space = group.space()?;
            let start = space.map_file(&zeros::open(&group, 1), 0, PAGE, Protection::Read)?.start;
            Box::new(move |_| Ok(space.read_at(&mut [0; 8], start)?))
        }
        Operation::Miss => {
            let file = zeros::open(&zeros::manager(ROOM).group("all").max(ROOM * PAGE).build()?, 1);
            file.advise(0..bytes, Advice::Random)?;
            Box::new(move |page| Ok(file.read_at(&mut [0; 8], page * PAGE).map(|_| ())?))
        }
        Operation::FirstTouch => {
            let space = builder.build()?.group("all").build()?.space()?;
            let start = space.map(bytes, Protection::ReadWrite)?.start;
            Box::new(move |page| Ok(space.write_at(&[1], start + page * PAGE)?))
        }
        Operation::Swap => {
            let fold = builder.swap_area(SwapArea::memory(64 << 20)).build()?;
            let space = fold.group("all").max(ROOM * PAGE).build()?.space()?;
            let start = space.map(bytes, Protection::ReadWrite)?.start;
            // Twice as many pages as there is room for, again and again.
            Box::new(move |page| {
                let page = page / APART * APART + page % (2 * ROOM);
                Ok(space.write_at(&[page as u8 | 1; 100], start + page * PAGE)?)
            })
        }
    })
}
