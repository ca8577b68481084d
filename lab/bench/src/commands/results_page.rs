//! Writes `docs/results.md`, which repeats the published tables: it compares the older design, the
//! proposed design and Pagefold, and has a verdict for each published gain. Also checks whether the
//! page is up to date.
//!
//! A table shows one [`Published`] result of an experiment: on its machine, with its workload and
//! the numbers of CPUs for which figures were published, and with all schemes. Some experiments
//! have a table without published figures. Each table has three files in the directory `results`
//! beside the page: a chapter, a plot, and a [`Table`], from which the page is made and checked. So
//! one table can be made again without the others. All verdicts follow from the throughputs in the
//! [`Table`], so a change of their rule needs no new runs.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::experiments::{self, OURS};
use crate::output::QUICK;
use crate::record::Record;
use crate::scaling::args::Common;
use crate::scaling::experiment::{Column, Experiment, Figure, Published, Scheme};
use crate::scaling::labels::{cpus_label, number};
use crate::scaling::results::Results;
use crate::scaling::verdict::{Comparison, Direction};
use crate::scaling::virtual_run::Run;
use crate::scaling::{curves, records};
use crate::usage::Usage;

/// A figure of a check may differ by at most this factor from the figure of the same seed on the
/// page.
const SAME: f64 = 1.10;

/// A table of the page.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    experiment: &'static Experiment,
    /// Nothing, if there is nothing to compare with.
    published: Option<&'static Published>,
}

/// All tables, in the order of the experiments: first those with published figures.
pub(crate) fn all() -> Vec<Page> {
    let published = |&experiment: &&'static Experiment| {
        experiment.published.iter().map(move |published| Page { experiment, published: Some(published) })
    };
    let others = experiments::ALL.iter().filter(|experiment| !experiment.unpublished.is_empty());
    let others = others.map(|&experiment| Page { experiment, published: None });
    experiments::ALL.iter().flat_map(published).chain(others).collect()
}

impl Page {
    /// `page-fault-private`
    pub(crate) fn name(self) -> String {
        let experiment = self.experiment.name;
        self.published.map_or_else(|| experiment.to_owned(), |it| format!("{experiment}-{}", it.workload))
    }

    fn machine(self) -> &'static str {
        self.published.map_or(self.experiment.machine, |published| published.machine)
    }

    fn cpus(self) -> Vec<usize> {
        self.published.map_or_else(|| self.experiment.unpublished.to_vec(), Published::cpus)
    }

    /// The workloads whose figures are kept and checked.
    fn workloads(self) -> Vec<&'static str> {
        match self.published {
            Some(published) => vec![published.workload],
            None => self.experiment.workloads.iter().map(|workload| workload.name).collect(),
        }
    }

    /// The columns that only it has.
    fn columns(self) -> &'static [Column] {
        self.published.map_or(&[], |published| published.columns)
    }

    /// How many runs it has with one seed.
    pub(crate) fn runs(self) -> usize {
        self.cpus().len() * self.experiment.usual_schemes().count() * self.workloads().len()
    }

    /// Makes its runs, with so many seeds.
    pub(crate) fn run(self, seeds: u32, quick: bool) -> Result<Results> {
        let beside = self.published.map_or(&[][..], |published| published.beside);
        let workloads = self.workloads().into_iter().chain(beside.iter().copied()).map(str::to_owned).collect();
        let cpus = if quick { vec![1, 2] } else { self.cpus() };
        let common = Common { cpus, workloads, quick, ..Common::default() };
        Run::new(self.experiment, &common, self.machine(), Some(seeds))?.efficiency_of_ours_only().results()
    }
}

/// What is kept of a table.
#[derive(Debug, Deserialize, Serialize)]
struct Table {
    seeds: u32,
    /// Of two CPUs at most: it means nothing.
    quick: bool,
    /// Throughputs.
    records: Vec<Kept>,
}

/// A figure that is kept.
#[derive(Debug, Deserialize, Serialize)]
struct Kept {
    #[serde(flatten)]
    record: Record,
    /// The first seed's, in the record's unit: what a check makes anew.
    first_seed: f64,
}

/// How many of the published gains come out.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Those that have a base to compare them with.
    compared: usize,
    /// Those whose direction is the same here.
    same: usize,
    /// Those whose direction is the opposite.
    opposite: usize,
    /// Those whose size is close, whatever their direction.
    close: usize,
}

impl Counts {
    fn of(comparisons: &[Comparison]) -> Self {
        let count = |wanted: &dyn Fn(&Comparison) -> bool| comparisons.iter().filter(|it| wanted(it)).count();
        Self {
            compared: comparisons.len(),
            same: count(&|it| it.direction() == Direction::Same),
            opposite: count(&|it| it.direction() == Direction::Opposite),
            close: count(&Comparison::is_close),
        }
    }

    /// Adds those of another table.
    fn and(self, other: Self) -> Self {
        Self {
            compared: self.compared + other.compared,
            same: self.same + other.same,
            opposite: self.opposite + other.opposite,
            close: self.close + other.close,
        }
    }

    /// Returns cells of a line of the page. They are empty if nothing was compared.
    fn cells(self) -> String {
        let cell =
            |count: usize| if self.compared > 0 { format!("{count} of {}", self.compared) } else { String::new() };
        [self.same, self.opposite, self.close].map(cell).join(" | ")
    }
}

impl Table {
    fn new(results: &Results, seeds: u32, quick: bool) -> Self {
        let kept = |record| Kept::of(results, record);
        Self { seeds, quick, records: records::of(results).into_iter().filter_map(kept).collect() }
    }

    /// Returns what is kept of a scheme's throughput on so many CPUs.
    fn kept(&self, page: Page, (workload, scheme, cpus): (&str, &str, usize)) -> Option<&Kept> {
        let is_its = |Kept { record, .. }: &&Kept| {
            record.experiment == page.experiment.name
                && record.machine == page.machine()
                && record.workload == workload
                && record.subject == scheme
                && record.cpus as usize == cpus
        };
        self.records.iter().find(is_its)
    }

    /// Compares a published figure of the page with the median throughputs.
    fn comparison(&self, page: Page, published: &'static Published, figure: &Figure) -> Option<Comparison> {
        let median = |scheme: &str, cpus| Some(self.kept(page, (published.workload, scheme, cpus))?.record.value);
        Comparison::of(published, figure, median)
    }

    fn comparisons(&self, page: Page) -> Vec<Comparison> {
        let of = |published: &'static Published| {
            published.figures.iter().filter_map(|figure| self.comparison(page, published, figure)).collect()
        };
        page.published.map_or_else(Vec::new, of)
    }

    /// Returns Pagefold's throughput with the most tasks, divided by that of the best older or
    /// proposed design.
    fn over_the_best(&self, page: Page) -> Option<f64> {
        let workload = page.published?.workload;
        let most = self.records.iter().map(|kept| kept.record.cpus).max()?;
        let at_most = self.records.iter().map(|kept| &kept.record);
        let at_most = at_most.filter(|record| record.workload == workload && record.cpus == most);
        let (ours, others): (Vec<_>, Vec<_>) = at_most.partition(|record| record.subject.starts_with(OURS));
        let ours = ours.iter().find(|record| record.subject == OURS)?.value;
        Some(ours / others.iter().map(|record| record.value).fold(0.0, f64::max))
    }

    /// That of `page` in the directory, if there is one.
    fn read(directory: &Path, page: Page) -> Result<Option<Self>> {
        let path = file(directory, page, "json");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let table = serde_json::from_str(&text);
        let what = || format!("{} isn't what this program writes; {}", path.display(), anew(&page.name()));
        table.map(Some).with_context(what)
    }

    /// Its line in the page.
    fn row(&self, page: Page) -> String {
        let (name, counts) = (page.name(), Counts::of(&self.comparisons(page)).cells());
        let over = self.over_the_best(page).map_or_else(String::new, number);
        format!("| [{name}](results/{name}.md) | {} | {} | {counts} | {over} |\n", page.cpus().len(), self.seeds)
    }
}

impl Kept {
    /// Nothing if it isn't a throughput.
    fn of(results: &Results, record: Record) -> Option<Self> {
        let row = results.row(&record.workload, &record.subject, record.cpus as usize)?;
        let first_seed = row.samples.get(&0)?.operations_per_s;
        (record.metric == records::THROUGHPUT).then_some(Self { record, first_seed })
    }
}

/// How to make the page from its tables.
const REWRITE: &str = "make it anew with `cargo bench-virtual results --no-runs`";

/// How to make a table.
fn anew(name: &str) -> String {
    format!("make it anew with `cargo bench-virtual results --only {name}`")
}

/// Where things are, below the directory of the page.
fn page_path(directory: &Path) -> PathBuf {
    directory.join("results.md")
}

fn file(directory: &Path, page: Page, kind: &str) -> PathBuf {
    directory.join("results").join(format!("{}.{kind}", page.name()))
}

/// Writes a file atomically: if the write fails, the old file stays. Other processes may read this
/// table, or make other tables, at the same time.
fn save(path: &Path, text: &str) -> Result<()> {
    let new = || -> io::Result<()> {
        let mut file = NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    new().with_context(|| format!("cannot write {}", path.display()))
}

/// Makes the directories, before anything takes long.
///
/// # Errors
/// The directories can't be made; or the tables would be `quick`, and replace tables that aren't.
pub(crate) fn prepare(directory: &Path, quick: bool) -> Result<()> {
    for page in all() {
        if quick && Table::read(directory, page)?.is_some_and(|table| !table.quick) {
            let why = "holds tables that --quick would replace: name another directory with --output";
            return Err(Usage::error(format!("{} {why}", directory.display())));
        }
    }
    let below = directory.join("results");
    fs::create_dir_all(&below).with_context(|| format!("cannot make the directory {}", below.display()))
}

/// Writes a table's files.
pub(crate) fn write(directory: &Path, page: Page, results: &Results, seeds: u32, quick: bool) -> Result<()> {
    let table = Table::new(results, seeds, quick);
    save(&file(directory, page, "svg"), &curves::svg(results)?)?;
    save(&file(directory, page, "md"), &chapter(page, results, &table))?;
    save(&file(directory, page, "json"), &(serde_json::to_string_pretty(&table)? + "\n"))
}

/// Writes the page with all tables that there are. Returns its path.
pub(crate) fn write_summary(directory: &Path) -> Result<PathBuf> {
    let mut text = HEAD.to_owned();
    let mut plots = String::new();
    let mut missing = Vec::new();
    let mut counts = Counts::default();
    for page in all() {
        match Table::read(directory, page)? {
            Some(table) => {
                text += &table.row(page);
                counts = counts.and(Counts::of(&table.comparisons(page)));
                let _ = writeln!(plots, "\n[![{0}](results/{0}.svg)](results/{0}.md)", page.name());
            }
            None => missing.push(page.name()),
        }
    }
    text += &total(counts);
    if !missing.is_empty() {
        let _ = writeln!(text, "\nNot made yet: {}.", missing.join(", "));
    }
    let path = page_path(directory);
    save(&path, &(text + &plots + QUESTIONS)).map(|()| path)
}

/// The last line of the page's table.
fn total(counts: Counts) -> String {
    format!("| all | | | {} | |\n", counts.cells())
}

fn chapter(page: Page, results: &Results, table: &Table) -> String {
    let Page { experiment, published } = page;
    let seeds = table.seeds;
    let mut text = format!("# {}\n\n{}\n\n", page.name(), experiment.question);
    if let Some(published) = published {
        let _ = writeln!(text, "Published: {} ({}).\n", published.about, published.source);
    }
    let of = if seeds == 1 { "of one seed".to_owned() } else { format!("the median of {seeds} seeds") };
    let _ = writeln!(text, "Here: `{}`; {}. Each figure is {of}.", results.host.name, results.how);
    let _ = writeln!(text, "An operation is {}.", experiment.operation);
    if table.quick {
        let _ = writeln!(text, "{QUICK}");
    }
    if let Some(published) = published.filter(|published| !published.note.is_empty()) {
        let _ = writeln!(text, "\n{}", published.note);
    }
    let _ = writeln!(text, "\n![{0}]({0}.svg)", page.name());
    for workload in &results.workloads {
        let _ = writeln!(text, "\n**{}**: {}.\n", workload.name, workload.about);
        text += &rows(page, results, table, workload.name);
    }
    text += "\n";
    results.schemes.iter().for_each(|scheme| text += &format!("- `{}`: {}.\n", scheme.name, scheme.about));
    text
}

/// A line for each number of CPUs and scheme.
fn rows(page: Page, results: &Results, table: &Table, workload: &str) -> String {
    let published = page.published.filter(|published| published.workload == workload);
    let older = page.published.and_then(|published| published.older);
    let over = older.map_or_else(|| cpus_label(results.fewest()), |older| format!("`{older}`"));
    let mut text = format!("| CPUs | design | M/s | ± % | × {over} | efficiency | p99.9, ns | memory, % |");
    text += &heads(page);
    text += if published.is_some() { " published | ± % | × | direction | within ± 25 % |\n" } else { "\n" };
    text += "|---|---|---|---|---|---|---|---|";
    page.columns().iter().for_each(|_| text += "---|");
    text += if published.is_some() { "---|---|---|---|---|\n" } else { "\n" };
    for row in results.of(workload) {
        let gain = match older {
            Some(older) => results.over(row, older, row.cpus),
            None => results.scaling(row, results.fewest()),
        };
        let efficiency = row.efficiency().map_or_else(String::new, |summary| number(summary.median));
        let _ = write!(
            text,
            "| {} | {} | {} | {:.1} | {} | {efficiency} | {} | {} |",
            row.cpus,
            row.scheme,
            number(row.throughput().median / 1e6),
            row.deviation(),
            gain.map_or_else(String::new, |gain| number(gain.median)),
            row.p999_ns().map_or_else(String::new, |summary| format!("{:.0}", summary.median)),
            row.memory().map_or_else(String::new, |summary| format!("{:.0}", summary.median)),
        );
        for column in page.columns() {
            let _ = write!(text, " {} |", (column.figure)(row).map_or_else(String::new, number));
        }
        let cells = |published| format!(" {}", published_cells(page, table, published, (row.scheme, row.cpus)));
        text += &published.map_or_else(String::new, cells);
        text.push('\n');
    }
    text
}

/// Returns the heads of the columns that only this table has.
fn heads(page: Page) -> String {
    page.columns().iter().map(|column| format!(" {} |", column.head)).collect()
}

/// Returns the last cells of a chapter's line: the published figure of a scheme on so many CPUs,
/// and how ours compares with it.
fn published_cells(page: Page, table: &Table, published: &'static Published, (scheme, cpus): (&str, usize)) -> String {
    let is_its = |figure: &&Figure| figure.scheme == scheme && figure.cpus == cpus;
    let Some(figure) = published.figures.iter().find(is_its) else { return "| | | | |".to_owned() };
    let deviation = figure.deviation.map_or_else(String::new, |value| format!("{:.1}", 100.0 * value / figure.value));
    let compared = table.comparison(page, published, figure).map_or_else(
        || " |  | ".to_owned(),
        |comparison| {
            let is_close = if comparison.is_close() { "yes" } else { "no" };
            format!("{} | {} | {is_close}", number(comparison.theirs), comparison.direction().word())
        },
    );
    format!("{} {} | {deviation} | {compared} |", number(figure.value), published.unit)
}

/// Checks the page in `directory`: it must have all of today's tables. The tables in `wanted` must
/// also give nearly the same figures when they are measured again with one seed.
///
/// # Errors
/// What is stale, and how to make it anew.
pub(crate) fn check(directory: &Path, wanted: &[&str]) -> Result<String> {
    let read = |path: PathBuf| fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()));
    let summary = read(page_path(directory))?;
    ensure!(summary.starts_with(HEAD), "the page doesn't begin as it does today; {REWRITE}");
    ensure!(summary.ends_with(QUESTIONS), "the page doesn't end as it does today; {REWRITE}");
    let mut said = String::new();
    let mut counts = Counts::default();
    for page in all() {
        let (experiment, published) = (page.experiment, page.published);
        let (name, table) = (page.name(), Table::read(directory, page)?);
        let anew = anew(&name);
        let table = table.with_context(|| format!("there is no table {name}; {anew}"))?;
        let chapter = read(file(directory, page, "md"))?;
        let texts = published.map_or(["", ""], |published| [published.about, published.note]);
        let heads = heads(page);
        let texts = [experiment.question, heads.as_str()].into_iter().chain(texts);
        let stale = texts.into_iter().find(|text| !chapter.contains(text));
        ensure!(stale.is_none(), "the chapter of {name} lacks {:?}; {anew}", stale.unwrap_or_default());
        ensure!(summary.contains(&table.row(page)), "the page's line of {name} isn't its table's; {REWRITE}");
        counts = counts.and(Counts::of(&table.comparisons(page)));
        let schemes: Vec<&Scheme> = experiment.usual_schemes().collect();
        for workload in page.workloads() {
            for (cpus, scheme) in page.cpus().into_iter().flat_map(|cpus| schemes.iter().map(move |of| (cpus, of))) {
                let found = table.kept(page, (workload, scheme.name, cpus));
                let what = || format!("{name} has no {} in {workload} on {}; {anew}", scheme.name, cpus_label(cpus));
                found.with_context(what)?;
            }
        }
        for (published, figure) in published.iter().flat_map(|&it| it.figures.iter().map(move |figure| (it, figure))) {
            let (start, end) = (
                format!("| {} | {} | ", figure.cpus, figure.scheme),
                published_cells(page, &table, published, (figure.scheme, figure.cpus)),
            );
            let is_there = chapter.lines().any(|line| line.starts_with(&start) && line.ends_with(&end));
            ensure!(is_there, "the chapter of {name} has no line {start}… {end}; {anew}");
        }
        if wanted.contains(&name.as_str()) {
            said += &compare(page, &table)?;
        }
    }
    ensure!(summary.contains(&total(counts)), "the page's last line isn't that of its tables; {REWRITE}");
    Ok(said)
}

/// Makes a table's runs with one seed, and compares them with the stored figures.
fn compare(page: Page, table: &Table) -> Result<String> {
    let mut said = String::new();
    let results = page.run(1, false)?;
    for row in page.workloads().into_iter().flat_map(|workload| results.of(workload)) {
        let now = row.samples[&0].operations_per_s;
        let then = table.kept(page, (row.workload, row.scheme, row.cpus));
        let then = then.context("the check has looked for it")?.first_seed;
        let place = format!("{}, {} in {} on {}", page.name(), row.scheme, row.workload, cpus_label(row.cpus));
        if now > then * SAME || now < then / SAME {
            let [now, then] = [now, then].map(|value| number(value / 1e6));
            bail!("{place}: {now} M/s, and with the same seed {then} on the page; {}", anew(&page.name()));
        }
        let _ = writeln!(said, "{place}: {} M/s, as on the page", number(now / 1e6));
    }
    Ok(said)
}

const HEAD: &str = "# The published results, again

Pagefold builds on five designs that were published for Linux:
- finding a page of a cached file without a lock (Nick Piggin, 2005): the table `lookup-faults`;
- a lock for the LRU lists of each memory group (Alex Shi, 2021): `readtwice-group-a-cpu` and
  `readtwice-two-groups-a-cpu`;
- LRU lists that many CPUs change concurrently (Daniel Jordan, 2018): `exit-shared`,
  `page-fault-private` and `page-fault-shared`;
- locks over ranges (Davidlohr Bueso, 2019): `range-file`;
- a separate search position for swap slots on each CPU (Huang Ying, 2020): `swap-processes`.

`cargo bench-virtual results` repeats the eight published measurements, each with its workload and
its numbers of tasks. Each table compares the design before, the proposed design, and Pagefold as an
application uses it. All of them run on virtual CPUs. The [documentation of the
model](../crates/manycore/docs/model.md) says what virtual CPUs are, and when not to trust their
figures.

Ratios are compared, not absolute figures: the throughput of a design divided by that of the older
design or, in `lookup-faults`, by that of one task. Ours are ratios of medians. A ratio's direction
and its size are judged apart:
- A ratio above 1.03 is a gain, one below 1 / 1.03 is a loss, and any other is *none*.
- The direction is the *same* if both ratios, ours and the published one, are gains, both are
  losses, or both are none. It is *opposite* if one is a gain and the other a loss. If just one of
  them is none, it is neither.
- A ratio is *within ± 25 %* if the larger of the two is at most 1.25 times the smaller. So ratios
  near 1 may be within 25 % and have different directions.

The older designs are our own versions of them. In the experiments `lookup`, `range`, `page-fault`
and `swap`, one parameter of these designs, the time of one task's operation, is fitted to the
published table. In `readtwice` and `exit`, nothing is fitted. The last table, `preemption`, has no
published counterpart: it shows the slowest operations with 1.5 threads for each CPU and time slices
of 3 ms.

In the tables, *efficiency* is the throughput divided by that of a machine on which contention costs
nothing. *Memory* is the share of the total memory bandwidth (all sockets together) that was used.

`.ci/run` makes one table again with one seed, and compares the throughputs with those of the same
seed on this page; they may differ by 10 %. It is always `readtwice-two-groups-a-cpu`, because its
figures don't depend on how the program was built. (Those of `exit-shared` differ by a tenth from
build to build.) Of the other tables, `.ci/run` checks only that their texts, machines, designs,
task counts and verdicts are up to date. Their figures are of the code at the time when they were
made: `git log docs/results` says when.

| table | task counts | seeds | same direction | opposite | within ± 25 % | Pagefold ÷ best other design, most tasks |
|---|---|---|---|---|---|---|
";

const QUESTIONS: &str = "
What reviewers of these changes asked, and figures that answer it: [questions](questions.md).
";
