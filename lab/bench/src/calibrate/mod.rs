//! `bench real calibrate`: this machine's own cost table, for `manycore`.
//!
//! Each probe measures one cost, or a few related costs, in many short rounds, and uses the median.
//! Costs that no probe measures keep their defaults. The last cost is the residual: the time that
//! [`residual`]'s reference workload takes beyond what the other costs explain. That workload isn't
//! used to judge the model.

mod arena;
pub(crate) mod distance;
mod lines;
mod memory;
mod order;
mod pair;
mod residual;
mod shape;
mod system;
mod table;
mod timing;
mod window;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use manycore::{Costs, Description, Shape};

pub(crate) use arena::Arena;
pub(crate) use shape::{stay_on, two_cores, unpin};
use timing::Rounds;
pub(crate) use timing::{median, on, pin};

/// The command's name,
pub(crate) const NAME: &str = "calibrate";
/// and what it does.
pub(crate) const ABOUT: &str = "Measure this machine's costs, for virtual machines like it";

/// What `calibrate` takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// What the machine is to be called
    #[arg(long, value_name = "NAME", default_value = "this-machine")]
    name: String,
    /// Write the machine to this file, which `--machine` and `manycore::Machine::from_json`
    /// understand
    #[arg(long, value_name = "FILE.json")]
    output: Option<PathBuf>,
    /// Print an array of records instead of a table
    #[arg(long)]
    json: bool,
    /// Also say how accurate the model is on this machine: run the experiment `locks` on two CPUs,
    /// and on two virtual ones with the costs just measured. Builds the program for virtual CPUs
    #[arg(long, conflicts_with = "json")]
    pub(crate) judge: bool,
    /// A few rounds only: shows that everything works; the figures mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
}

/// A cost that was measured, in the unit of [`Costs`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    cost: &'static str,
    /// The median, and the quartiles below and above.
    value: f64,
    low: f64,
    high: f64,
}

/// What probes work with: how long they may take, and what is known so far.
struct Bench {
    rounds: Rounds,
    shape: Shape,
    measured: Vec<Measured>,
    notes: Vec<String>,
}

impl Bench {
    /// Records what was measured. Returns the median.
    fn add(&mut self, cost: &'static str, samples: Vec<f64>) -> f64 {
        let measured = timing::summary(cost, samples);
        self.measured.push(measured);
        measured.value
    }

    /// The table so far.
    fn costs(&self) -> Result<Costs> {
        let costs = self.measured.iter().try_fold(Costs::default(), |costs, m| costs.with(m.cost, m.value));
        costs.context("a measured cost is out of its range")
    }
}

type Probe = fn(&mut Bench) -> Result<()>;

/// How often a probe is repeated if its result is impossible.
const REPEATS: usize = 3;

/// In this order: later ones subtract what earlier ones found.
const PROBES: &[(&str, Probe)] = &[
    ("instructions", lines::instructions),
    ("caches and memory", memory::levels),
    ("looking ahead", window::window),
    ("bandwidth", memory::bandwidth),
    ("between CPUs", pair::transfer),
    ("beside each other", pair::slowdown),
    ("operating system", system::calls),
    ("waking", system::waking),
    ("residual", residual::residual),
    ("between CPUs again", pair::moved),
];

/// Measures, and measures again if the result is impossible.
fn believable(bench: &mut Bench, probe: Probe) -> Result<()> {
    let first = bench.measured.len();
    for _ in 0..REPEATS {
        let notes = bench.notes.len();
        probe(bench)?;
        let Some(what) = order::impossible(bench, first) else { return Ok(()) };
        bench.measured.truncate(first);
        bench.notes.truncate(notes);
        bench.notes.push(format!("{what}, which can't be: measured again"));
    }
    probe(bench)?;
    if let Some(what) = order::impossible(bench, first) {
        bench.notes.push(format!("{what}, {REPEATS} times and still: don't believe what is copied out of caches"));
    }
    Ok(())
}

/// Measures, prints and writes. Returns the machine.
pub(crate) fn run(args: &CalibrateArgs) -> Result<Description> {
    if cfg!(pagefold_manycore) {
        bail!(
            "calibrate measures the real machine: build without --cfg pagefold_manycore (cargo bench-real calibrate)"
        );
    }
    if let Some(path) = &args.output {
        // Before anything takes long.
        fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let shape = shape::here()?;
    let mut bench = Bench { rounds: Rounds::new(args.quick), shape, measured: Vec::new(), notes: Vec::new() };
    let progress = ProgressBar::new(PROBES.len() as u64);
    progress.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")?);
    for (name, probe) in PROBES {
        progress.set_message(*name);
        believable(&mut bench, *probe).with_context(|| format!("cannot measure: {name}"))?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    let costs = bench.costs()?;
    let description = Description {
        name: args.name.clone(),
        shape,
        costs: Costs::names().map(|name| Ok((name.to_owned(), costs.get(name)?))).collect::<Result<_>>()?,
    };
    if let Some(path) = &args.output {
        let text = serde_json::to_string_pretty(&description)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if !args.judge {
        bench.notes.push("how far off the model is on this machine: calibrate --judge says it".to_owned());
    }
    let text = if args.json { table::json(&bench)? } else { table::text(&bench, args.quick) };
    crate::output::say(&text)?;
    Ok(description)
}
