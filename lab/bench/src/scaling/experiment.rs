//! What an experiment is: a question, workloads, and schemes that are measured on each of them.

use std::time::Duration;

use anyhow::Result;

use super::device::Device;
use super::job::Job;
use super::row::Row;
use super::sample::Sample;
use super::workload::Workload;

/// What we ship is called this, in every experiment.
pub(crate) const OURS: &str = "pagefold";

/// An experiment. Each is a constant in a folder or file of its own; see [`crate::experiments`].
#[derive(Debug)]
pub(crate) struct Experiment {
    /// On the command line and in records.
    pub(crate) name: &'static str,
    /// What it answers, in a sentence.
    pub(crate) question: &'static str,
    /// What is counted: `one read_at of a page`.
    pub(crate) operation: &'static str,
    /// The preset it runs on unless the user names another.
    pub(crate) machine: &'static str,
    /// What tasks do.
    pub(crate) workloads: &'static [Workload],
    /// Workloads that take long on virtual CPUs. There they run only if the user names them, and
    /// for the page of results.
    pub(crate) long: &'static [&'static str],
    /// The schemes that are compared. The first is what speed-ups refer to.
    pub(crate) schemes: &'static [Scheme],
    /// Bytes that an operation copies, if that can be chosen.
    pub(crate) bytes: Option<usize>,
    /// Where pages can go that don't fit, if that can be chosen.
    pub(crate) devices: &'static [Device],
    /// The virtual time of a run, if the usual time is shorter than one turn of a task.
    #[cfg_attr(not(pagefold_manycore), expect(dead_code, reason = "real runs are long enough"))]
    pub(crate) time: Option<Duration>,
    /// Pages are on lists: what those take is shown.
    pub(crate) lists: bool,
    /// On virtual CPUs, tasks are spread evenly over all sockets; otherwise they fill the first
    /// socket first.
    #[cfg_attr(not(pagefold_manycore), expect(dead_code, reason = "where real threads go is for the system to say"))]
    pub(crate) spread: bool,
    /// What others measured.
    pub(crate) published: &'static [Published],
    /// The numbers of CPUs for the page of results, if the experiment has a table there although it
    /// has no published figures. Otherwise empty.
    #[cfg_attr(not(pagefold_manycore), expect(dead_code, reason = "the page of results is of virtual CPUs"))]
    pub(crate) unpublished: &'static [usize],
    /// What has to come out.
    pub(crate) claims: &'static [Claim],
}

/// One way to do it.
#[derive(Debug)]
pub(crate) struct Scheme {
    /// On the command line and in records; what we ship is called `pagefold`.
    pub(crate) name: &'static str,
    /// In a sentence.
    pub(crate) about: &'static str,
    /// Only measured when asked for.
    pub(crate) hidden: bool,
    /// Measures one run.
    pub(crate) measure: fn(&Job<'_>) -> Result<Sample>,
}

/// Figures that others published.
#[derive(Debug)]
pub(crate) struct Published {
    /// The preset that stands for the machine.
    pub(crate) machine: &'static str,
    /// The workload that comes closest.
    pub(crate) workload: &'static str,
    /// Who, where and when.
    pub(crate) source: &'static str,
    /// What was measured, in a sentence.
    pub(crate) about: &'static str,
    /// Unit of the figures.
    pub(crate) unit: &'static str,
    /// Whether larger figures are better.
    pub(crate) higher_is_better: bool,
    /// The design with which the others are compared, at the same number of CPUs. If there is none,
    /// each scheme is compared with itself on the fewest CPUs.
    pub(crate) older: Option<&'static str>,
    /// The figures.
    pub(crate) figures: &'static [Figure],
    /// Workloads that belong to the table, but of which nothing was published.
    #[cfg_attr(not(pagefold_manycore), expect(dead_code, reason = "the page of results is of virtual CPUs"))]
    pub(crate) beside: &'static [&'static str],
    /// Further columns.
    #[cfg_attr(not(pagefold_manycore), expect(dead_code, reason = "the page of results is of virtual CPUs"))]
    pub(crate) columns: &'static [Column],
    /// Which figures differ from the published ones, and why, as far as that is known.
    #[cfg_attr(not(pagefold_manycore), expect(dead_code, reason = "the page of results is of virtual CPUs"))]
    pub(crate) note: &'static str,
}

/// A column that only one table has.
#[derive(Debug)]
#[cfg_attr(not(pagefold_manycore), expect(dead_code, reason = "the page of results is of virtual CPUs"))]
pub(crate) struct Column {
    /// What it is, and its unit.
    pub(crate) head: &'static str,
    /// Its figure of a row, if the row has one.
    pub(crate) figure: fn(&Row) -> Option<f64>,
}

/// One figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    /// Our name of the scheme.
    pub(crate) scheme: &'static str,
    /// CPUs, or processes.
    pub(crate) cpus: usize,
    /// In the table's unit.
    pub(crate) value: f64,
    /// Its standard deviation, if that was published.
    pub(crate) deviation: Option<f64>,
}

/// A condition on a figure, which is checked: something that others published, or that we promise.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The preset it holds on.
    pub(crate) machine: &'static str,
    /// The workload.
    pub(crate) workload: &'static str,
    /// The scheme.
    pub(crate) scheme: &'static str,
    /// CPUs.
    pub(crate) cpus: usize,
    /// What is looked at.
    pub(crate) measure: Measure,
    /// What it has to be.
    pub(crate) bound: Bound,
    /// Whether the project's checks fail without it.
    pub(crate) gate: bool,
}

/// A figure of a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Throughput over that of one CPU.
    Scaling,
    /// Throughput over that without contention.
    Efficiency,
    /// Shared writes for each operation.
    SharedWrites,
    /// Percent of all CPU time that is lost at lists and their locks.
    ListsLost,
    /// Throughput over that of another scheme on as many CPUs.
    Over(&'static str),
}

/// What a figure has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Bound {
    /// Whether `value` keeps to it.
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl Experiment {
    /// The schemes that are measured if the user names none.
    pub(crate) fn usual_schemes(&self) -> impl Iterator<Item = &'static Scheme> {
        self.schemes.iter().filter(|scheme| !scheme.hidden)
    }

    /// The workloads that run if the user names none.
    pub(crate) fn usual_workloads(&self) -> impl Iterator<Item = &'static Workload> {
        let skips = |name: &str| cfg!(pagefold_manycore) && self.long.contains(&name);
        self.workloads.iter().filter(move |workload| !skips(workload.name))
    }

    /// Whether not all pages fit in memory, so that some are on a device.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        !self.devices.is_empty()
    }

    /// Whether the experiment has a workload with a memory group for each task, and one with a
    /// single group.
    pub(crate) fn has_groups(&self) -> bool {
        let named = |name| self.workloads.iter().any(|workload| workload.name == name);
        named(Workload::GROUPS) && named(Workload::ONE_GROUP)
    }

    /// The machines of the experiment: the usual one, and those of published figures.
    pub(crate) fn machines(&self) -> Vec<&'static str> {
        let mut machines = vec![self.machine];
        for published in self.published {
            if !machines.contains(&published.machine) {
                machines.push(published.machine);
            }
        }
        machines
    }
}

impl Published {
    /// Numbers of CPUs that the table has.
    #[cfg_attr(not(pagefold_manycore), expect(dead_code, reason = "the page of results is of virtual CPUs"))]
    pub(crate) fn cpus(&self) -> Vec<usize> {
        let mut cpus: Vec<usize> = self.figures.iter().map(|figure| figure.cpus).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// The figure with which a figure is compared: the older design's on as many CPUs or, if there
    /// is no older design, the same scheme's on the fewest CPUs. `None` if that is the figure
    /// itself.
    pub(crate) fn base(&self, figure: &Figure) -> Option<&'static Figure> {
        let base = match self.older {
            Some(older) => self.figures.iter().find(|other| other.scheme == older && other.cpus == figure.cpus),
            None => self.first(figure.scheme),
        };
        base.filter(|base| (base.scheme, base.cpus) != (figure.scheme, figure.cpus))
    }

    /// The scheme's figure with the fewest CPUs.
    pub(crate) fn first(&self, scheme: &str) -> Option<&'static Figure> {
        self.figures.iter().filter(|figure| figure.scheme == scheme).min_by_key(|figure| figure.cpus)
    }

    /// How many times better than its base a figure is.
    pub(crate) fn gain(&self, figure: &Figure) -> f64 {
        self.base(figure).map_or(1.0, |base| self.ratio(figure, base))
    }

    /// How many times better than `base` a figure is.
    pub(crate) fn ratio(&self, figure: &Figure, base: &Figure) -> f64 {
        if self.higher_is_better { figure.value / base.value } else { base.value / figure.value }
    }
}
