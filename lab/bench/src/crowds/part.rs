//! The processes that together make a measurement.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::args::{BUDGET, CrowdsArgs, NAME, Part, ROOMY_BUDGET};
use super::memory::{self, Share};
use super::operations::{self, Choice, Times, Yardstick};
use super::scene::{HOT, PAGE, Scene, Sizes, disk};
use crate::random::Random;

/// What one round came to, in nanoseconds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Round {
    pub(super) hot: Times,
    pub(super) random: Times,
    /// Of a `HashMap` with as many entries as each operation has objects.
    pub(super) map_hot: Times,
    pub(super) map_random: Times,
    /// Of one whose entries are pages of 4 KiB.
    pub(super) pages_hot: Times,
    pub(super) pages_random: Times,
    pub(super) stats: f64,
}

impl Part {
    /// The whole of the process.
    pub(super) fn run(self, args: &CrowdsArgs) -> Result<()> {
        match self {
            Self::Memory => {
                let cpus = args.cpus.first().copied().unwrap_or(1);
                // In a full budget, Pagefold refuses pages to a tenant that has its share already.
                // So fewer pages are written.
                let sizes = Sizes { written: HOT, in_one: 0, ..args.sizes() };
                tell(&memory::measure(sizes, args.budget(BUDGET), cpus)?)
            }
            Self::Alone => rounds(Sizes::HOT, args.budget(ROOMY_BUDGET)),
            Self::Crowd => rounds(args.sizes(), args.budget(ROOMY_BUDGET)),
        }
    }
}

/// Measures a round for each line of standard input.
fn rounds(sizes: Sizes, budget: u64) -> Result<()> {
    let scene = Scene::new(disk(sizes), sizes, budget, &mut |_, _| {})?;
    let has_crowd = sizes.objects() > Sizes::HOT.objects();
    let mut populations: Vec<_> = operations::ALL.iter().map(|operation| operation.population(&scene)).collect();
    populations.sort_unstable();
    populations.dedup();
    // Only the process with the crowd has them, because they take memory.
    let yardsticks = populations.iter().filter(|_| has_crowd);
    let yardsticks: Vec<_> = yardsticks
        .map(|&entries| (entries, Yardstick::<64>::new(entries), Yardstick::<{ PAGE as usize }>::new(entries)))
        .collect();
    let mut random = Random::new(7);
    tell(&true)?;
    for line in io::stdin().lines() {
        line?;
        let mut round = Round::default();
        for operation in operations::ALL {
            let name = operation.name().to_owned();
            // The first time puts the hot objects back into the CPU's caches.
            operation.time(&scene, Choice::Hot, &mut random)?;
            round.hot.insert(name.clone(), operation.time(&scene, Choice::Hot, &mut random)?);
            let yardstick = yardsticks.iter().find(|it| it.0 == operation.population(&scene));
            let Some((_, yardstick, pages)) = yardstick else { continue };
            round.random.insert(name.clone(), operation.time(&scene, Choice::Random, &mut random)?);
            yardstick.time(Choice::Hot, &mut random);
            round.map_hot.insert(name.clone(), yardstick.time(Choice::Hot, &mut random));
            round.map_random.insert(name.clone(), yardstick.time(Choice::Random, &mut random));
            pages.time(Choice::Hot, &mut random);
            round.pages_hot.insert(name.clone(), pages.time(Choice::Hot, &mut random));
            round.pages_random.insert(name, pages.time(Choice::Random, &mut random));
        }
        let start = Instant::now();
        drop(scene.fold.stats());
        round.stats = start.elapsed().as_nanos() as f64;
        tell(&round)?;
    }
    Ok(())
}

fn tell(what: &impl Serialize) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(what)?)?;
    Ok(out.flush()?)
}

/// A process that does a part.
pub(super) struct Process {
    child: Child,
    asked: ChildStdin,
    told: BufReader<ChildStdout>,
}

impl Process {
    /// Starts the process. Unless `cpus` is 0, it pretends to have `cpus` CPUs. If the process
    /// measures rounds, waits until it is ready for the first one.
    pub(super) fn start(args: &CrowdsArgs, part: Part, cpus: usize) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let name = part.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        command.args(["real", NAME, "--part", &name]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if args.small {
            command.arg("--small");
        }
        if cpus > 0 {
            command.args(["--cpus", &cpus.to_string()]);
        }
        let mut child = command.spawn().context("cannot start a process")?;
        let (Some(asked), Some(told)) = (child.stdin.take(), child.stdout.take()) else { bail!("no pipes") };
        let mut process = Self { child, asked, told: BufReader::new(told) };
        if part != Part::Memory {
            process.hear::<bool>()?;
        }
        Ok(process)
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.told.read_line(&mut line)?;
        serde_json::from_str(&line).context("a process failed")
    }

    /// One more round.
    pub(super) fn round(&mut self) -> Result<Round> {
        writeln!(self.asked, "round")?;
        self.hear()
    }

    /// What the steps of making a crowd took.
    pub(super) fn shares(&mut self) -> Result<Vec<Share>> {
        self.hear()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process holds nothing that it would have to clean up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
