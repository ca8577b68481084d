//! One HTML page about all experiments. It needs no other files: it contains its styles and
//! pictures.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::beside::Beside;
use super::cost_scaling::CostScaling;
use super::curves;
use super::experiment::Experiment;
use super::results::Results;
use super::table::{self, Table, about_run, cpus_label};
use super::verdict::{self, Outcome, Verdict};
use crate::output::QUICK;

/// An experiment on the page.
pub(crate) struct Chapter {
    experiment: &'static Experiment,
    /// One for each machine.
    pub(crate) parts: Vec<Part>,
    /// Real figures, if there are any.
    pub(crate) beside: Option<Beside>,
}

/// An experiment on one machine.
pub(crate) struct Part {
    /// All runs.
    pub(crate) results: Results,
    /// The most CPUs again, with other costs, if that was asked for.
    pub(crate) scaling: Option<CostScaling>,
}

impl Chapter {
    /// Without figures yet.
    pub(crate) fn new(experiment: &'static Experiment) -> Self {
        Self { experiment, parts: Vec::new(), beside: None }
    }

    fn verdicts(&self) -> impl Iterator<Item = (&str, Verdict)> {
        self.parts.iter().flat_map(|part| {
            verdict::of(&part.results).into_iter().map(|verdict| (part.results.host.name.as_str(), verdict))
        })
    }
}

/// Makes the directory, before anything takes long.
pub(crate) fn prepare(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make the directory {}", directory.display()))
}

/// Where it will be.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join("index.html")
}

/// Writes the page, which says what is still `to_come`.
pub(crate) fn write(path: &Path, chapters: &[Chapter], to_come: &[&str], quick: bool) -> Result<()> {
    let page = page(chapters, to_come, quick)?.into_string();
    fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))
}

/// What a terminal shows when the page is done.
pub(crate) fn summary(chapters: &[Chapter], path: &Path) -> String {
    let mut text = String::new();
    for chapter in chapters {
        for (machine, verdict) in chapter.verdicts() {
            text += &format!("{} on {machine}: {verdict}\n", chapter.experiment.name);
        }
        if let Some(beside) = &chapter.beside {
            text += &format!("{}: {}: {}\n", chapter.experiment.name, beside.title(), beside.summary());
        }
    }
    text + &format!("{}\n", path.display())
}

const STYLE: &str = "body{font:15px/1.45 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:.6em 0;font-variant-numeric:tabular-nums}\
    td,th{padding:.15em .7em;text-align:right}th{border-bottom:1px solid #888}td.text,th.text{text-align:left}\
    tr.last td{border-bottom:1px solid #ddd}pre{font-size:12px;overflow-x:auto;background:#f6f6f4;padding:.8em}\
    .Agrees{color:#1a6b2d}.Differs{color:#8a6100}.Contradicts{color:#a32015}.quiet{color:#666}\
    svg{max-width:100%;height:auto}";

fn page(chapters: &[Chapter], to_come: &[&str], quick: bool) -> Result<Markup> {
    let chapters: Vec<Markup> = chapters.iter().map(chapter_markup).collect::<Result<_>>()?;
    Ok(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "Pagefold on many CPUs" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Pagefold on many CPUs" }
                @if quick { p.Contradicts { (QUICK) } }
                p {
                    "Real code on virtual CPUs. What they are, and when not to believe them: "
                    code { "crates/manycore/docs/model.md" }
                    ". Efficiency: throughput over that of the same run in which contention costs nothing. A shared \
                    write is one to a line that another CPU touched last."
                }
                @for chapter in &chapters { (chapter) }
                @if !to_come.is_empty() { p.Contradicts { "Not measured yet: " (to_come.join(", ")) "." } }
            }
        }
    })
}

fn chapter_markup(chapter: &Chapter) -> Result<Markup> {
    let experiment = chapter.experiment;
    let parts: Vec<Markup> = chapter.parts.iter().map(part_markup).collect::<Result<_>>()?;
    Ok(html! {
        h2 { (experiment.name) }
        p { (experiment.question) " An operation is " (experiment.operation) "." }
        dl { @for scheme in experiment.usual_schemes() { dt { b { (scheme.name) } } dd { (scheme.about) } } }
        @for published in experiment.published {
            p.quiet { "Published: " (published.about) ". " (published.source) "." }
        }
        h3 { "What agrees, and what doesn't" }
        ul { @for (machine, verdict) in chapter.verdicts() { (verdict_markup(machine, &verdict)) } }
        @for part in &parts { (part) }
        @if let Some(beside) = &chapter.beside {
            h3 { "Real beside virtual" }
            p { (beside.title()) ". " (beside.summary()) "." }
            (table_markup(&beside.table()))
        }
    })
}

fn verdict_markup(machine: &str, verdict: &Verdict) -> Markup {
    let class = match verdict.outcome {
        Outcome::Agrees => "Agrees",
        Outcome::Differs => "Differs",
        Outcome::Contradicts => "Contradicts",
    };
    html! { li class=(class) { (machine) ": " (verdict.to_string()) } }
}

fn part_markup(part: &Part) -> Result<Markup> {
    let results = &part.results;
    let profiles =
        results.rows.iter().filter(|row| row.cpus == results.most()).filter_map(|row| Some((row, row.report()?)));
    Ok(html! {
        h3 { (results.experiment.name) " on " (results.host.name) }
        p.quiet { (about_run(results)) "." }
        (PreEscaped(curves::svg(results)?))
        @for workload in &results.workloads {
            h4 { (workload.name) }
            p { (workload.about) "." }
            (table_markup(&table::of(results, workload)))
        }
        @if let Some(scaling) = &part.scaling {
            h4 { "Other costs" }
            p { (scaling.title()) "." }
            pre { (scaling.lines().join("\n")) }
        }
        h4 { "Profiles on " (cpus_label(results.most())) }
        @for (row, report) in profiles {
            details {
                summary { (row.workload) ", " (row.scheme) }
                pre { (report.to_string()) }
            }
        }
    })
}

fn table_markup(table: &Table) -> Markup {
    let class = |column: usize| if table.is_text(column) { "text" } else { "" };
    html! {
        table {
            thead {
                tr { @for (column, head) in table.head.iter().enumerate() { th class=(class(column)) { (head) } } }
            }
            tbody {
                @for (at, row) in table.rows.iter().enumerate() {
                    tr.last[table.breaks.contains(&(at + 1))] {
                        @for (column, cell) in row.iter().enumerate() { td class=(class(column)) { (cell) } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_was_interrupted_says_what_is_missing() {
        let page = |to_come: &[&str]| page(&[], to_come, false).unwrap().into_string();
        assert!(page(&["range", "exit"]).contains("Not measured yet: range, exit."));
        assert!(!page(&[]).contains("Not measured yet"));
    }
}
