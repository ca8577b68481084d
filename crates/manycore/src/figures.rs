//! Computes a machine's figures from its counts.

use crate::ledger::{Chain, Ledger, Spent, Subject, Sums, Work};
use crate::report::{ChainShare, LineShare, LockShare, Report, Shares, WorkShare};
use crate::state::{Order, State};
use crate::ticks::{Ticks, to_ns};
use std::collections::BTreeMap;

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
            operations_per_s: match elapsed {
                _ if ledger.rate > 0.0 => ledger.rate,
                0 => 0.0,
                _ => ledger.operations as f64 * 1e9 / to_ns(elapsed),
            },
            latency: ledger.latencies.summary(),
            memory: (ledger.windows > 0).then(|| 100.0 * ledger.memory / f64::from(ledger.windows)),
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
}

/// Percentage of a total.
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

/// Sorts by time, longest first, then by name.
fn sort_by<T>(items: &mut [T], time: impl Fn(&T) -> f64, name: impl Fn(&T) -> String) {
    items.sort_by(|a, b| time(b).total_cmp(&time(a)).then_with(|| name(a).cmp(&name(b))));
}

fn chains(ledger: &Ledger, percent: &Percent) -> Vec<ChainShare> {
    let lost = ledger.chains.iter().filter(|chain| chain.lost != 0);
    let share = |chain: &Chain| {
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
    // The compiler may keep several copies of a source location; those with equal text are merged.
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
    let share = |work: &Work| WorkShare {
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
