//! The hit-rate curve as a picture.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use plotters::chart::SeriesLabelPosition;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use policies::Policy;

use super::{Curve, PIXELS, draw_curves, save};
use crate::failure::Failure;
use crate::policy_report::PAGEFOLD;
use crate::report::{Row, RunReport};
use crate::units;

/// The share of the axis that a label takes.
const LABEL_SHARE: f64 = 0.08;

/// Writes the hit rate of each run over its budget as SVG, for each group and in total.
///
/// # Errors
/// Errors of the system when the file is written.
pub(crate) fn write(path: &Path, title: &str, runs: &[RunReport]) -> Result<(), Failure> {
    save(path, |svg| draw(svg, title, runs))
}

fn draw(svg: &mut String, title: &str, runs: &[RunReport]) -> Result<(), Box<dyn Error>> {
    // Doubling the memory is one step to the right.
    let memory = |run: &RunReport| (run.shared_bytes.max(1) as f64).log2();
    let has_policies = runs.iter().any(|run| run.policies.is_some());
    let is_pages = runs.iter().any(|run| run.pages.is_some());
    let area = SVGBackend::with_string(svg, PIXELS).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(16)
        .margin_right(36)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(MemoryAxis::new(runs.iter().map(memory).collect()), 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc(if is_pages { "memory for pages" } else { "memory budget" })
        .max_light_lines(1)
        .y_desc(if has_policies { "accesses without a load, %" } else { "hit rate, % of page lookups" })
        .y_label_formatter(&|percent| format!("{percent:.0}"))
        .draw()?;

    let points = |row: &dyn Fn(&RunReport) -> Option<f64>| {
        let mut points: Vec<_> = runs.iter().filter_map(|run| Some((memory(run), row(run)? * 100.0))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let names: Vec<&str> =
        runs.first().map_or(&[][..], |run| &run.groups).iter().map(|row| row.name.as_str()).collect();
    let curves = if has_policies {
        let policies = Policy::ALL.map(Policy::name);
        Curve::beside(PAGEFOLD, &policies, |policy| points(&|run| not_loaded(run, policy)))
    } else {
        Curve::all(&names, |group| match group {
            Some(number) => points(&|run| run.groups.get(number).and_then(|row: &Row| row.hit_rate)),
            None => points(&|run| run.total.hit_rate),
        })
    };
    // Curves rise to the right: one of these corners is empty.
    let best = curves.iter().flat_map(|curve| &curve.points).map(|point| point.1 / 100.0).fold(0.0, f64::max);
    let corner = if best < 0.6 { SeriesLabelPosition::UpperLeft } else { SeriesLabelPosition::LowerRight };
    draw_curves(&mut chart, curves, 3, corner)?;
    drop(chart);
    area.present()?;
    Ok(())
}

/// Returns the share of accesses for which a policy, or Pagefold, loaded no page. Pagefold may load
/// more pages than there are accesses, because pages that were read ahead and never used count as
/// loads. The share is then 0.
fn not_loaded(run: &RunReport, policy: &str) -> Option<f64> {
    let rows = &run.policies.as_ref()?.rows;
    let miss_rate = rows.iter().find(|row| row.policy == policy)?.miss_rate?;
    Some((1.0 - miss_rate).max(0.0))
}

/// The horizontal axis: logarithms of budgets.
struct MemoryAxis {
    range: Range<f64>,
    /// The budgets for which there is room for a label.
    labelled: Vec<f64>,
}

impl MemoryAxis {
    fn new(mut places: Vec<f64>) -> Self {
        places.sort_by(f64::total_cmp);
        let (first, last) = (places.first().copied().unwrap_or(0.0), places.last().copied().unwrap_or(0.0));
        let range = first..last.max(first + 1e-9);
        let room = (range.end - range.start) * LABEL_SHARE;
        places.dedup_by(|next, kept| *next - *kept < room);
        Self { range, labelled: places }
    }
}

impl Ranged for MemoryAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { vec![] } else { self.labelled.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for MemoryAxis {
    fn format(log2: &f64) -> String {
        units::bytes(log2.exp2().round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn each_group_and_the_total_have_a_line() {
        let picture = |runs: &[RunReport]| {
            let mut svg = String::new();
            draw(&mut svg, "a <title> & more", runs).unwrap();
            svg
        };
        let mut runs = [sample(2 << 20), sample(1 << 20)];
        let svg = picture(&runs);
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("1 MiB") && svg.contains("2 MiB") && svg.contains("&lt;title&gt;"), "{svg}");
        runs.iter_mut().for_each(|run| run.groups.clear());
        let lines = |svg: &str| svg.matches("<polyline").count();
        assert_eq!(lines(&svg) - lines(&picture(&runs)), 4, "two groups, with two lines in the legend");
    }

    #[test]
    fn equal_budgets_are_no_empty_range() {
        draw(&mut String::new(), "t", &[sample(1 << 20), sample(1 << 20)]).unwrap();
    }
}
