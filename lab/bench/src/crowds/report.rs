//! The figures, as text and as records, and the targets.

use super::args::NAME;
use super::memory::Share;
use super::operations::{ALL, Operation, Times};
use super::part::Round;
use super::scene::Sizes;
use crate::machine::Machine;
use crate::record::{Metric, Record, Source};
use crate::summary::Summary;

/// How many times slower a crowd may make an operation on a hot object.
const RATIO_MAX: f64 = 1.1;
/// The most of the budget that may be in memory besides, in percent.
const UNCOUNTED_MAX: f64 = 2.0;

/// The metric that this limits.
pub(super) const UNCOUNTED: &str = "uncounted";

/// All that was measured.
pub(super) struct Report {
    sizes: Sizes,
    /// Without the crowd, and with it.
    pub(super) rounds: Vec<(Round, Round)>,
    /// For so many CPUs.
    pub(super) memory: Vec<(usize, Vec<Share>)>,
}

impl Report {
    pub(super) fn new(sizes: Sizes) -> Self {
        Self { sizes, rounds: Vec::new(), memory: Vec::new() }
    }

    fn summary(&self, value: impl Fn(&Round, &Round) -> f64) -> Summary {
        Summary::of(self.rounds.iter().map(|(alone, crowd)| value(alone, crowd)))
    }

    fn figures(&self, operation: Operation) -> [Metric<'static>; 6] {
        let of = |times: &Times| times.get(operation.name()).copied().unwrap_or(f64::NAN);
        let [alone, hot, random] = [
            self.summary(|alone, _| of(&alone.hot)),
            self.summary(|_, crowd| of(&crowd.hot)),
            self.summary(|_, crowd| of(&crowd.random)),
        ];
        let [map, pages] = [
            self.summary(|_, crowd| of(&crowd.map_random)).median / self.summary(|_, crowd| of(&crowd.map_hot)).median,
            self.summary(|_, crowd| of(&crowd.pages_random)).median
                / self.summary(|_, crowd| of(&crowd.pages_hot)).median,
        ];
        [
            ("hot", "ns", hot),
            ("hot_ratio_alone", "x", Summary::exact(hot.median / alone.median)),
            ("random", "ns", random),
            ("random_ratio_hot", "x", Summary::exact(random.median / hot.median)),
            ("random_ratio_hot_hashmap", "x", Summary::exact(map)),
            ("random_ratio_hot_pages", "x", Summary::exact(pages)),
        ]
    }

    fn stats(&self) -> [Metric<'static>; 2] {
        let objects = self.sizes.objects() as f64;
        [
            ("time", "ms", self.summary(|_, crowd| crowd.stats / 1e6)),
            ("time_per_object", "ns", self.summary(|_, crowd| crowd.stats / objects)),
        ]
    }

    /// One for each figure.
    pub(super) fn records(&self, machine: &Machine, budget: u64) -> Vec<Record> {
        let machine_cpus = machine.cpus;
        let machine = &*machine.description;
        let source = |workload, cpus| Source { experiment: NAME, subject: "pagefold", workload, machine, cpus };
        let mut records = Vec::new();
        for operation in ALL {
            let figures = self.figures(operation).into_iter();
            records.extend(figures.map(|figure| source(operation.name(), machine_cpus).record(figure)));
        }
        records.extend(self.stats().map(|figure| source("stats", machine_cpus).record(figure)));
        for (cpus, shares) in &self.memory {
            let cpus = u32::try_from(*cpus).unwrap_or(u32::MAX);
            for share in shares {
                for (metric, bytes) in [("resident", share.resident), ("counted", share.counted)] {
                    records.push(source(&share.step, cpus).record((metric, "bytes", Summary::exact(bytes as f64))));
                }
            }
            let percent = uncounted(shares) as f64 * 100.0 / budget as f64;
            records.push(source("memory", cpus).record((UNCOUNTED, "%", Summary::exact(percent))));
        }
        records
    }

    /// For people.
    pub(super) fn text(&self, machine: &Machine, budget: u64) -> String {
        let Sizes { files, spaces, groups, mappings, .. } = self.sizes;
        let mut text = format!(
            "{NAME}: {files} open files, {spaces} spaces, {groups} groups, {mappings} mappings. {} rounds. \
             Medians.\n{}\n\n  \
             {:34} {:>10} {:>12} {:>12} {:>12} {:>12} {:>12}\n",
            self.rounds.len(),
            machine.description,
            "",
            "hot [ns]",
            "over alone",
            "random [ns]",
            "over hot",
            "of HashMap",
            "of pages"
        );
        for operation in ALL {
            let [hot, alone, random, over_hot, map, pages] = self.figures(operation).map(|figure| figure.2.median);
            text += &format!(
                "  {:34} {hot:>10.1} {alone:>12.2} {random:>12.1} {over_hot:>12.2} {map:>12.2} {pages:>12.2}\n",
                operation.name()
            );
        }
        let [time, each] = self.stats().map(|figure| figure.2.median);
        text += &format!("\n  stats(): {time:.1} ms, {each:.0} ns for each object\n");
        for (cpus, shares) in &self.memory {
            text += &format!(
                "\n  memory for {cpus} CPUs [MiB]           resident      counted    in advance    uncounted\n"
            );
            let mib = |bytes: i64| bytes as f64 / f64::from(1 << 20);
            for share in shares {
                text += &format!(
                    "    {:30} {:>12.1} {:>12.1} {:>13.1} {:>12.1}\n",
                    share.step,
                    mib(share.resident),
                    mib(share.counted),
                    mib(share.counted_before),
                    mib(share.uncounted())
                );
            }
            let uncounted = uncounted(shares);
            let percent = uncounted as f64 * 100.0 / budget as f64;
            text += &format!("    {:70} {:>12.1}, {percent:.2} % of the budget\n", "", mib(uncounted));
        }
        text
    }
}

/// Returns the bytes that the budget doesn't count, over all steps. A step that counts more bytes
/// than become resident doesn't compensate for a step that counts too few. The counters on each CPU
/// are an exception, because they are counted in one step and become resident in a later one.
fn uncounted(shares: &[Share]) -> i64 {
    shares.iter().map(Share::uncounted).sum()
}

/// The targets that were missed, of the metrics that are checked.
pub(super) fn missed(records: &[Record], is_checked: impl Fn(&str) -> bool) -> Vec<String> {
    let map_ratio = |workload: &str| {
        let is_it = |it: &&Record| it.workload == workload && it.metric == "random_ratio_hot_hashmap";
        records.iter().find(is_it).map_or(f64::INFINITY, |it| it.value)
    };
    let limit = |record: &Record| match record.metric.as_str() {
        "hot_ratio_alone" => RATIO_MAX,
        "random_ratio_hot" => map_ratio(&record.workload),
        UNCOUNTED => UNCOUNTED_MAX,
        _ => f64::INFINITY,
    };
    let told = |record: &Record| {
        format!("{}: {} is {:.2} {} of {:.2}", record.workload, record.metric, record.value, record.unit, limit(record))
    };
    let is_missed = |record: &&Record| is_checked(&record.metric) && record.value > limit(record);
    records.iter().filter(is_missed).map(told).collect()
}
