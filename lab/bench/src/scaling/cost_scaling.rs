//! Does the result depend on costs that aren't known exactly? Repeats a run with every cost halved
//! and doubled, and with several values of `transfer_hold`.

use std::fmt;

use anyhow::Result;
use manycore::Costs;

use super::job::Job;
use super::labels::{cpus_label, number};
use super::results::Results;
use super::stage::Stage;
use super::virtual_run::Run;
use crate::output::progress;

/// Schemes whose throughputs are closer count as equal.
const TIE: f64 = 1.02;
const FACTORS: [f64; 2] = [0.5, 2.0];
/// A CPU that gets a contended cache line keeps it for a while before the next CPU gets it. This
/// cost is that time as a fraction of a transfer's time. It was measured at 0.26 to 0.65, and
/// decides how much CPUs lose when they contend for a line.
const HOLD: &str = "transfer_hold";
const HOLDS: [f64; 3] = [0.0, 0.25, 0.5];

/// What changed, for each workload.
#[derive(Clone, Debug)]
pub(crate) struct CostScaling {
    cpus: usize,
    workloads: Vec<Changes>,
    /// Costs that can't be scaled, and why.
    skipped: Vec<String>,
}

#[derive(Clone, Debug)]
struct Changes {
    workload: &'static str,
    /// Schemes and their operations per second, fastest first, with unchanged costs.
    order: Vec<(&'static str, f64)>,
    /// Runs made.
    runs: usize,
    /// Where another scheme wins.
    winner: Vec<Change>,
    /// Where the order is another one, the winner the same.
    others: Vec<Change>,
}

#[derive(Clone, Debug)]
struct Change {
    /// `rmw × 0.5`
    what: String,
    order: Vec<(&'static str, f64)>,
}

impl CostScaling {
    /// Repeats the first seed's run on the most CPUs.
    pub(crate) fn run(run: &Run, results: &Results) -> Result<Self> {
        let plan = &run.plan;
        let cpus = results.most();
        let mut skipped = Vec::new();
        let mut machines = Vec::new();
        // A quick look is content with the costs of contention itself.
        let table = run.machine.machine.cost_table();
        let scaled = Costs::names()
            .filter(|&cost| cost != HOLD && (!run.quick || cost.starts_with("transfer")))
            .flat_map(|cost| FACTORS.map(|factor| (format!("{cost} × {factor}"), table.clone().scaled(cost, factor))));
        let holds = HOLDS.into_iter().map(|hold| (format!("{HOLD} = {hold}"), table.clone().with(HOLD, hold)));
        for (what, costs) in scaled.chain(holds) {
            match costs {
                Ok(costs) if costs == *table => {}
                Ok(costs) => machines.push((what, run.machine.machine.clone().costs(costs)?.seed(1))),
                Err(error) => skipped.push(format!("{what}: {error}")),
            }
        }
        let bar = progress("costs", machines.len() * plan.workloads.len());
        let mut workloads = Vec::new();
        for workload in &plan.workloads {
            let rows = results.of(workload.name).filter(|row| row.cpus == cpus);
            let order = sorted(rows.map(|row| (row.scheme, row.samples[&0].operations_per_s)).collect());
            let mut changes =
                Changes { workload: workload.name, order, runs: machines.len(), winner: vec![], others: vec![] };
            for (what, machine) in &machines {
                bar.set_message(format!("{}, {what}", workload.name));
                let stage = Stage::new(plan, machine.clone(), false);
                let job = Job::new(workload, cpus, plan.choices, &stage);
                let measure = |scheme: &&'static super::experiment::Scheme| {
                    Ok((scheme.name, (scheme.measure)(&job)?.operations_per_s))
                };
                let order = sorted(plan.schemes.iter().map(measure).collect::<Result<_>>()?);
                changes.add(Change { what: what.clone(), order });
                bar.inc(1);
            }
            workloads.push(changes);
        }
        bar.finish_and_clear();
        Ok(Self { cpus, workloads, skipped })
    }

    /// A line for each workload, and one for each change.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for changes in &self.workloads {
            let Changes { workload, order, runs, winner, others } = changes;
            let Some(first) = order.first() else { continue };
            let (same, kept) = (runs - winner.len() - others.len(), runs - winner.len());
            lines.push(format!(
                "{workload}: {} (M/s); nobody overtakes {} in {kept} of {runs} runs, the order stays in {same}",
                in_words(order),
                first.0
            ));
            for (change, what) in winner
                .iter()
                .map(|change| (change, "ANOTHER WINS"))
                .chain(others.iter().map(|change| (change, "another order")))
            {
                lines.push(format!("  {}: {what}: {}", change.what, in_words(&change.order)));
            }
        }
        lines.extend(self.skipped.iter().map(|skipped| format!("not tried: {skipped}")));
        lines
    }

    /// What stands above it.
    pub(crate) fn title(&self) -> String {
        format!(
            "every cost halved and doubled, {HOLD} at several values, {}; throughputs within 2 % count as equal",
            cpus_label(self.cpus)
        )
    }
}

impl Changes {
    fn add(&mut self, change: Change) {
        let of = |order: &[(&str, f64)], scheme: &str| {
            order.iter().find(|(name, _)| *name == scheme).map_or(0.0, |(_, throughput)| *throughput)
        };
        let overtakes = |behind: usize, ahead: usize| {
            let (slow, fast) = (self.order[behind], self.order[ahead]);
            fast.1 > slow.1 * TIE && of(&change.order, slow.0) > of(&change.order, fast.0) * TIE
        };
        let overtaken = |ahead: usize| (ahead + 1..self.order.len()).any(|behind| overtakes(behind, ahead));
        if overtaken(0) {
            self.winner.push(change);
        } else if (1..self.order.len()).any(overtaken) {
            self.others.push(change);
        }
    }
}

fn sorted(mut order: Vec<(&'static str, f64)>) -> Vec<(&'static str, f64)> {
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    order
}

fn in_words(order: &[(&str, f64)]) -> String {
    let words = order.iter().map(|(scheme, throughput)| format!("{scheme} {}", number(throughput / 1e6)));
    words.collect::<Vec<_>>().join(" > ")
}

impl fmt::Display for CostScaling {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.title())?;
        self.lines().iter().try_for_each(|line| writeln!(formatter, "{line}"))
    }
}
