//! What a run says about itself.
//!
//! Shares are of all CPU time: of what the CPUs did, not of the time they were idle. Everything is
//! sorted by time and then by name, so two runs with the same seed give the same bytes.

use crate::ledger::{Ledger, Spent, Subject, Sums};
use crate::state::{Order, State};
use crate::ticks::{Ticks, to_ns};
use serde::Serialize;
use std::collections::BTreeMap;

/// A run's figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The name of the machine: of its preset or its file, or `custom`.
    pub machine: String,
    /// CPUs of the machine.
    pub cpus: usize,
    /// The seed.
    pub seed: u64,
    /// False if contention was free.
    pub contention: bool,
    /// True if the order was random: then times mean nothing.
    pub random_order: bool,
    /// Virtual time from start to end.
    pub elapsed_ns: f64,
    /// What the CPUs spent, altogether.
    pub cpu_ns: f64,
    /// What they were idle.
    pub idle_ns: f64,
    /// Operations counted by the program.
    pub operations: u64,
    /// Operations in a second of virtual time.
    pub operations_per_s: f64,
    /// Accesses, hints, work: what the machine went through.
    pub events: u64,
    /// Lines that were moved between cores, or whose copies were invalidated.
    pub transfers: u64,
    /// Stores and read-modify-writes to a line that another CPU touched last.
    pub shared_writes: u64,
    /// The same for each operation; 0 without operations.
    pub transfers_per_operation: f64,
    /// The same for each operation; 0 without operations.
    pub shared_writes_per_operation: f64,
    /// Times that a CPU went from one thread to another.
    pub context_switches: u64,
    /// Times that a parked thread was woken.
    pub wakeups: u64,
    /// Shares of all CPU time.
    pub shares: Shares,
    /// By lock or named line and where it was used, most expensive first.
    pub chains: Vec<ChainShare>,
    /// By lock and by named line, most expensive first.
    pub locks: Vec<LockShare>,
    /// By source line and region, most expensive first.
    pub lines: Vec<LineShare>,
    /// By named work.
    pub works: Vec<WorkShare>,
}

/// Percent of all CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Spinning, or queueing for a line or for memory.
    pub waiting: f64,
    /// Moving lines from other cores.
    pub transferring: f64,
    /// What a CPU alone would do too.
    pub working: f64,
    /// Parking, waking and switching.
    pub system: f64,
}

impl Shares {
    /// Waiting and transferring: what is lost to others.
    #[must_use]
    pub fn lost(&self) -> f64 {
        self.waiting + self.transferring
    }
}

/// Time lost at a lock or a named line, in one region.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainShare {
    /// `kind.name.region.outer_region`.
    pub chain: String,
    /// Waiting and transferring, percent of all CPU time.
    pub lost: f64,
}

/// What a lock or a named line costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockShare {
    /// Its name, or the source line where it was made.
    pub name: String,
    /// `mutex`, `rwlock` or `line`.
    pub kind: String,
    /// Percent of all CPU time.
    pub shares: Shares,
    /// Time that threads were parked for it, as percent of all CPU time; their CPUs were free
    /// meanwhile.
    pub parked: f64,
    /// Times it was taken.
    pub taken: u64,
    /// Times that it wasn't free.
    pub contended: u64,
    /// Transfers of its line.
    pub transfers: u64,
    /// Shared writes to its line.
    pub shared_writes: u64,
}

/// What a source line costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineShare {
    /// File, line and column.
    pub line: String,
    /// The regions it was in, innermost first, with dots between.
    pub region: String,
    /// Percent of all CPU time.
    pub shares: Shares,
    /// Events there.
    pub events: u64,
    /// Transfers there.
    pub transfers: u64,
    /// Shared writes there.
    pub shared_writes: u64,
}

/// What named work costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkShare {
    /// Its name.
    pub name: String,
    /// Times it was asked for.
    pub count: u64,
    /// Bytes, if it has any.
    pub bytes: u64,
    /// Time spent on it; for a disk, the time its requests took.
    pub time_ns: f64,
    /// Time it had to wait for the memory bus, or the disk.
    pub waited_ns: f64,
    /// Percent of all CPU time; 0 for a disk.
    pub share: f64,
}

/// Percent of a total.
struct Percent(Ticks);

impl Percent {
    fn of(&self, ticks: Ticks) -> f64 {
        if self.0 == 0 { 0.0 } else { ticks as f64 * 100.0 / self.0 as f64 }
    }

    fn shares(&self, sums: &Sums) -> Shares {
        let of = |spent: Spent| self.of(sums.time[spent as usize]);
        Shares {
            waiting: of(Spent::Waiting),
            transferring: of(Spent::Transferring),
            working: of(Spent::Working),
            system: of(Spent::System),
        }
    }
}

impl Report {
    pub(crate) fn of(state: &State) -> Self {
        let ledger = &state.ledger;
        let cpu_time: Ticks = ledger.total.time.iter().sum();
        let elapsed = state.end() - state.origin;
        let percent = Percent(cpu_time);
        let all = elapsed * state.cpus.len() as Ticks;
        let per_operation =
            |count: u64| if ledger.operations == 0 { 0.0 } else { count as f64 / ledger.operations as f64 };
        let setup = &state.setup;
        Self {
            machine: setup.name.clone(),
            cpus: state.cpus.len(),
            seed: setup.seed,
            contention: setup.contention,
            random_order: setup.order == Order::Random,
            elapsed_ns: to_ns(elapsed),
            cpu_ns: to_ns(cpu_time),
            idle_ns: to_ns(all.saturating_sub(cpu_time)),
            operations: ledger.operations,
            operations_per_s: if elapsed == 0 { 0.0 } else { ledger.operations as f64 * 1e9 / to_ns(elapsed) },
            events: ledger.total.events,
            transfers: ledger.total.transfers,
            shared_writes: ledger.total.shared_writes,
            transfers_per_operation: per_operation(ledger.total.transfers),
            shared_writes_per_operation: per_operation(ledger.total.shared_writes),
            context_switches: ledger.switches,
            wakeups: ledger.wakeups,
            shares: percent.shares(&ledger.total),
            chains: chains(ledger, &percent),
            locks: locks(ledger, &percent),
            lines: lines(ledger, &percent),
            works: works(ledger, &percent),
        }
    }

    /// The source line that most time is lost at, waiting or transferring.
    #[must_use]
    pub fn hottest_line(&self) -> Option<&LineShare> {
        self.lines.iter().max_by(|a, b| a.shares.lost().total_cmp(&b.shares.lost()))
    }
}

/// Sorts by a time, most first, then by a name.
fn sort_by<T>(items: &mut [T], time: impl Fn(&T) -> f64, name: impl Fn(&T) -> String) {
    items.sort_by(|a, b| time(b).total_cmp(&time(a)).then_with(|| name(a).cmp(&name(b))));
}

fn chains(ledger: &Ledger, percent: &Percent) -> Vec<ChainShare> {
    let lost = ledger.chains.iter().filter(|chain| chain.lost != 0);
    let share = |chain: &crate::ledger::Chain| {
        let (subject, region) = (&ledger.subjects[chain.subject as usize], &ledger.regions[chain.region as usize]);
        let dot = if region.is_empty() { "" } else { "." };
        ChainShare { chain: format!("{}.{}{dot}{region}", subject.kind, subject.label), lost: percent.of(chain.lost) }
    };
    let mut chains: Vec<_> = lost.map(share).collect();
    sort_by(&mut chains, |chain| chain.lost, |chain| chain.chain.clone());
    chains
}

fn locks(ledger: &Ledger, percent: &Percent) -> Vec<LockShare> {
    let used = ledger.subjects[1..].iter().filter(|subject| subject.sums.events != 0);
    let share = |subject: &Subject| LockShare {
        name: subject.label.clone(),
        kind: subject.kind.to_owned(),
        shares: percent.shares(&subject.sums),
        parked: percent.of(subject.parked),
        taken: subject.taken,
        contended: subject.contended,
        transfers: subject.sums.transfers,
        shared_writes: subject.sums.shared_writes,
    };
    let mut locks: Vec<_> = used.map(share).collect();
    sort_by(&mut locks, |lock| lock.shares.lost() + lock.parked, |lock| lock.name.clone());
    locks
}

fn lines(ledger: &Ledger, percent: &Percent) -> Vec<LineShare> {
    // The compiler may keep several copies of a source location: by their text they are one.
    let mut merged: BTreeMap<(String, &str), Sums> = BTreeMap::new();
    for site in &ledger.sites {
        let key = (site.at.to_string(), ledger.regions[site.region as usize].as_str());
        let sums = merged.entry(key).or_default();
        sums.time.iter_mut().zip(site.sums.time).for_each(|(sum, time)| *sum += time);
        sums.events += site.sums.events;
        sums.transfers += site.sums.transfers;
        sums.shared_writes += site.sums.shared_writes;
    }
    let used = merged.into_iter().filter(|(_, sums)| sums.time != [0; 4]);
    let share = |((line, region), sums): ((String, &str), Sums)| LineShare {
        line,
        region: region.to_owned(),
        shares: percent.shares(&sums),
        events: sums.events,
        transfers: sums.transfers,
        shared_writes: sums.shared_writes,
    };
    let mut lines: Vec<_> = used.map(share).collect();
    let all = |shares: &Shares| shares.lost() + shares.working + shares.system;
    sort_by(&mut lines, |line| all(&line.shares), |line| line.line.clone());
    lines
}

fn works(ledger: &Ledger, percent: &Percent) -> Vec<WorkShare> {
    let share = |work: &crate::ledger::Work| WorkShare {
        name: work.name.to_owned(),
        count: work.count,
        bytes: work.bytes,
        time_ns: to_ns(work.time),
        waited_ns: to_ns(work.waited),
        share: if work.name == "disk" { 0.0 } else { percent.of(work.time + work.waited) },
    };
    let mut works: Vec<_> = ledger.works.iter().map(share).collect();
    sort_by(&mut works, |work| work.time_ns, |work| work.name.clone());
    works
}
