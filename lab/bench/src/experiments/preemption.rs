//! How long do the slowest operations take if there are more threads than CPUs? Threads then lose
//! their CPU at any point, even while they hold a lock.
//!
//! Dropping a group delays other operations longest, because it takes a lock in the exclusive mode,
//! and page faults take this lock in the shared mode. So one task makes and drops groups while the
//! others hit or fault.

use anyhow::Result;
use pagefold::{File, Group, Pagefold, Protection, Space};

use super::OURS;
use super::zeros::{self, PAGE};
use crate::scaling::experiment::{Experiment, Scheme};
use crate::scaling::job::Job;
use crate::scaling::sample::Sample;
use crate::scaling::workload::Workload;

const HITS: Workload =
    Workload { name: "hits", about: "each task reads 8 bytes of cached pages; one makes groups instead" };
const FAULTS: Workload =
    Workload { name: "faults", about: "each task touches new pages of its own space; one makes groups instead" };
const GROUPS: Workload =
    Workload { name: "groups", about: "each task makes a group, reads a page of a file in it, and drops both" };

/// The experiment.
pub(crate) const PREEMPTION: Experiment = Experiment {
    name: "preemption",
    question: "What do the slowest operations take with more threads than CPUs?",
    operation: "one hit, one first touch, or one group",
    machine: "xeon-e5-2699v4",
    workloads: &[HITS, FAULTS, GROUPS],
    long: &[],
    schemes: &[Scheme { name: OURS, about: "Pagefold", hidden: false, measure }],
    bytes: None,
    devices: &[],
    time: None,
    lists: false,
    spread: false,
    published: &[],
    unpublished: &[88, 132],
    claims: &[],
};

/// Pages of the file that all tasks read.
const CACHED: u64 = 1024;
/// Pages that a task touches before it discards them.
const AREA: u64 = 256;

fn measure(job: &Job<'_>) -> Result<Sample> {
    let workload = job.workload.name;
    let begin = move |all: &All, number: usize| {
        let turns = match number {
            0 => Turns::Groups,
            _ if workload == HITS.name => Turns::Hits,
            _ if workload == FAULTS.name => Turns::Faults(all.area()),
            _ => Turns::Groups,
        };
        let warm_up = if matches!(turns, Turns::Groups) { 2 } else { 2 * AREA };
        let mut task = Task { number, count: 0, turns };
        (0..warm_up).for_each(|_| all.turn(&mut task));
        task
    };
    job.measure(|| All::new(job.tasks), begin, All::turn)
}

/// What tasks share.
struct All {
    group: Group,
    file: File,
    manager: Pagefold,
}

struct Task {
    number: usize,
    count: u64,
    turns: Turns,
}

enum Turns {
    Hits,
    Faults(Area),
    Groups,
}

/// Memory in a space of its own.
struct Area {
    space: Space,
    start: u64,
}

impl All {
    fn new(tasks: usize) -> Self {
        let manager = zeros::manager(CACHED + tasks as u64 * (AREA + 256));
        let group = manager.group("readers").build().expect("a group without a limit of its own");
        let file = zeros::open(&group, 0);
        (0..CACHED).for_each(|page| _ = file.read_at(&mut [0; 8], page * PAGE).expect("the budget holds it"));
        Self { group, file, manager }
    }

    fn area(&self) -> Area {
        let space = self.group.space().expect("room for a space");
        let start = space.map(AREA * PAGE, Protection::ReadWrite).expect("addresses are plenty").start;
        Area { space, start }
    }

    fn turn(&self, task: &mut Task) {
        let count = task.count;
        task.count += 1;
        match &mut task.turns {
            Turns::Hits => {
                let page = (count + task.number as u64 * 7) % CACHED;
                self.file.read_at(&mut [0; 8], page * PAGE).expect("the page is in memory");
            }
            Turns::Faults(Area { space, start }) => {
                let page = count % AREA;
                space.write_at(&[1; 8], *start + page * PAGE).expect("the budget holds it");
                if page == AREA - 1 {
                    space.discard(*start..*start + AREA * PAGE).expect("it is mapped");
                }
            }
            Turns::Groups => {
                let name = format!("group {} {count}", task.number);
                let group = self.manager.group(&name).build().expect("room for a group");
                let file = zeros::open(&group, 1 + task.number);
                file.read_at(&mut [0; 8], 0).expect("the budget holds it");
            }
        }
    }
}
