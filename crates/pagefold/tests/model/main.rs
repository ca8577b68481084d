//! Random operations on the whole library, compared with a simple model. The files are on a
//! simulated disk, or are the machine's own files; both fail now and then.
//!
//! Every byte that is read is compared with the model's, and after each successful `sync` the bytes
//! on the disk are, too. After every step, the limits are checked. A failure prints the command
//! that repeats it. `PAGEFOLD_SEEDS` is the number of seeds, or a range of them.
#![cfg(not(pagefold_loom))]

mod batches;
mod closing;
mod groups;
mod hints;
mod limits;
mod pins;
mod refusals;
mod silent;
mod sometimes;
#[path = "../support/mod.rs"]
mod support;
mod world;
mod writes;

use std::fmt::Debug;
use std::ops::{AddAssign, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use sometimes::Sometimes;
use support::gate::in_time;
use sync::atomic::{AtomicU64, Ordering};
use sync::random::seeds;
use world::World;

const STEPS: u64 = 300;
/// Seeds that run at the same time. There may be more than CPUs, because a run mostly waits.
const THREADS: usize = 8;

fn run(seed: u64) -> Sometimes {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.end()
}

/// Runs `run` for each seed, and adds up what it returns. `name` names the test for a repetition.
fn run_all<T: Default + AddAssign + Debug + Send>(seeds: Range<u64>, name: &str, run: fn(u64) -> T) -> T {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut seen = T::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return seen;
            }
            match catch_unwind(AssertUnwindSafe(|| run(seed))) {
                Ok(more) => seen += more,
                Err(panic) => {
                    next.store(seeds.end, Ordering::Relaxed);
                    eprintln!("repeat with: PAGEFOLD_SEED={seed} cargo test -p pagefold --test model -- {name}");
                    resume_unwind(panic);
                }
            }
        }
    };
    let seen = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let mut seen = T::default();
        for worker in workers {
            seen += worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        seen
    });
    println!("{seen:#?}");
    seen
}

#[test]
fn random_operations_agree_with_the_model() {
    run_all(seeds(150), "random_operations", run);
}

/// Which calls time out, and so how a run goes on, depends on the clock. The verdict doesn't.
#[test]
#[ignore = "for cargo xtask prove model --hours: timeouts decide how each run goes"]
fn beside_a_silent_device_calls_time_out_and_nothing_is_lost() {
    let in_time = |seed| in_time(&format!("seed {seed}"), move || silent::run(seed));
    run_all(seeds(40), "--ignored beside_a_silent_device", in_time);
}

/// The rarest of these events happens about once in a hundred seeds. Whether pages are written, and
/// fail, in the background depends on timing.
#[test]
#[ignore = "chance: cargo xtask prove times"]
fn chance_rare_things_happen_in_a_thousand_seeds() {
    run_all(seeds(1_000), "random_operations", run).check();
}
