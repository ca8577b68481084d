//! What a crowd takes of the system's memory, and how much of that the budget counts.
//!
//! The process pretends to have `cpus` CPUs, and starts a thread for each of them. Up to 64 of
//! these threads use every object of the crowd, one thread after the other. If there are more CPUs,
//! the memory that their threads would need is computed: for each, the average of what the last 32
//! of the 64 threads needed. Memory that the threads, the disk and the program took before Pagefold
//! was created isn't included.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{fs, thread};

use anyhow::{Context, Result};
use pagefold::{Pagefold, Protection};
use serde::{Deserialize, Serialize};

use super::scene::{HOT, PAGE, PAGES, Scene, Sizes, Step, disk};

/// What a step took, in bytes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Share {
    pub(super) step: String,
    pub(super) resident: i64,
    pub(super) counted: i64,
    /// Bytes that earlier steps counted in advance, and that become resident in this step.
    pub(super) counted_before: i64,
}

impl Share {
    /// Returns the bytes of the step that the budget doesn't count.
    pub(super) fn uncounted(&self) -> i64 {
        (self.resident - self.counted - self.counted_before).max(0)
    }
}

/// Bytes of the process that are in memory.
fn resident() -> Result<i64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").context("cannot see what this process takes")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).context("no line about memory")?;
    let kib: i64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kib << 10)
}

/// The maximum number of CPUs that use every object. There is a maximum because each of them takes
/// seconds. But some effects appear only on the first CPUs, such as readahead for files whose pages
/// were evicted. So the maximum must be so large that these effects are over before its last CPUs.
const USERS_MAX: usize = 64;

/// Sees what each step takes.
struct Ledger {
    shares: Vec<Share>,
    resident: i64,
    counted: i64,
    /// What is counted for counters that aren't in memory yet.
    in_advance: i64,
}

impl Ledger {
    fn add(&mut self, step: Step, fold: &Pagefold) {
        let Ok(resident) = resident() else { return };
        let counted = i64::try_from(fold.used()).unwrap_or(i64::MAX);
        let mut share = Share {
            step: step.name().to_owned(),
            resident: resident - self.resident,
            counted: counted - self.counted,
            counted_before: 0,
        };
        if step.makes_counters() {
            self.in_advance += (share.counted - share.resident).max(0);
        } else if step == Step::EveryCpu {
            share.counted_before = self.in_advance;
        }
        self.shares.push(share);
        (self.resident, self.counted) = (resident, counted);
    }
}

/// Makes the crowd on `cpus` CPUs, and returns what each step took.
pub(super) fn measure(sizes: Sizes, budget: u64, cpus: usize) -> Result<Vec<Share>> {
    sync::cpu::pretend(cpus);
    let barrier = Barrier::new(cpus + 1);
    thread::scope(|scope| {
        let mut jobs: Vec<Sender<Job<'_>>> = Vec::new();
        for _ in 0..cpus {
            let (sender, receiver) = channel();
            let barrier = &barrier;
            thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, move || work(&receiver, barrier))?;
            jobs.push(sender);
        }
        barrier.wait(); // All have their stacks.
        let disk = disk(sizes);
        let mut ledger = Ledger { shares: Vec::new(), resident: resident()?, counted: 0, in_advance: 0 };
        let scene = Scene::new(disk, sizes, budget, &mut |step: Step, fold| ledger.add(step, fold))?;
        let scene: &Scene = Box::leak(Box::new(scene)); // The process ends with it.
        let (done, others) = channel();
        let mut after = Vec::new();
        for job in jobs.iter().take(USERS_MAX) {
            // One after the other.
            job.send((scene, done.clone())).context("a thread is gone")?;
            others.recv().context("a thread is gone")?;
            after.push(resident()?);
        }
        ledger.add(Step::EveryCpu, &scene.fold);
        drop(jobs);
        if let (Some(share), Some([half, .., all])) = (ledger.shares.last_mut(), after.get(USERS_MAX / 2 - 1..)) {
            let half_of_them = after.len() as i64 - (USERS_MAX / 2) as i64;
            share.resident += (all - half) * (cpus - after.len()) as i64 / half_of_them;
        }
        Ok(ledger.shares)
    })
}

/// What is to be used, and where to say that it was.
type Job<'a> = (&'a Scene, Sender<()>);

/// About the most stack that a call uses. The stack is the caller's memory, not Pagefold's.
const STACK: usize = 64 << 10;

/// Brings the part of the stack that calls will use into memory.
#[inline(never)]
fn touch_stack() {
    std::hint::black_box(&mut [0_u8; STACK]).fill(1);
}

fn work(jobs: &Receiver<Job<'_>>, barrier: &Barrier) {
    touch_stack();
    barrier.wait();
    let Ok((scene, done)) = jobs.recv() else { return };
    if let Err(error) = use_all(scene) {
        eprintln!("bench: a thread was refused something: {error}");
    }
    // The receiver waits for it.
    let _ = done.send(());
    let _ = jobs.recv(); // Until all have done so: a thread's counters are another one's when it has ended.
}

fn use_all(scene: &Scene) -> Result<(), pagefold::Error> {
    let mut bytes = [0; 8];
    for file in &scene.files {
        file.read_at(&mut bytes, 0)?;
        file.read_at(&mut bytes, 0)?; // A hit, whatever it was before.
    }
    for (space, own) in scene.spaces.iter().zip(&scene.own) {
        space.read_at(&mut bytes, own.start)?;
    }
    for (space, range) in &scene.mapped {
        scene.spaces[*space].read_at(&mut bytes, range.start)?;
        scene.spaces[*space].read_at(&mut bytes, range.start)?;
    }
    for (space, file) in scene.spaces.iter().zip(&scene.files).take(HOT) {
        space.unmap(space.map(PAGES * PAGE, Protection::ReadWrite)?)?;
        space.unmap(space.map_file(file, 0, PAGES * PAGE, Protection::Read)?)?;
    }
    Ok(())
}
