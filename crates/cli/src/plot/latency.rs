//! Draws the latencies of reads and of writes over percentiles, in two pictures side by side.
//!
//! On the horizontal axis, the distances from 90 % to 99 %, from 99 % to 99.9 %, and so on are
//! equal. The vertical axis is logarithmic.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use plotters::chart::SeriesLabelPosition;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;

use super::{Curve, PIXELS, draw_curves, save};
use crate::failure::Failure;
use crate::report::{Latency, Percentile, Row, RunReport};
use crate::units;

/// Writes the latencies of `run` as SVG, for each group and in total.
///
/// # Errors
/// Errors of the system when the file is written.
pub(crate) fn write(path: &Path, title: &str, run: &RunReport) -> Result<(), Failure> {
    save(path, |svg| draw(svg, title, run))
}

/// Selects the latencies of reads or of writes of a row, and their number.
type Kind = fn(&Row) -> Option<(&Latency, u64)>;

const KINDS: [(&str, Kind); 2] = [
    ("reads", |row| Some((row.latency.as_ref()?, row.reads))),
    ("writes", |row| Some((row.write_latency.as_ref()?, row.writes))),
];

fn draw(svg: &mut String, title: &str, run: &RunReport) -> Result<(), Box<dyn Error>> {
    let kinds: Vec<_> = KINDS.into_iter().filter(|(_, kind)| kind(&run.total).is_some()).collect();
    let panels = kinds.len().max(1);
    let area = SVGBackend::with_string(svg, (PIXELS.0 * panels as u32, PIXELS.1)).into_drawing_area();
    area.fill(&WHITE)?;
    for ((name, kind), panel) in kinds.into_iter().zip(area.split_evenly((1, panels))) {
        draw_kind(&panel, &format!("{title}: {name}"), run, kind)?;
    }
    area.present()?;
    Ok(())
}

fn draw_kind(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    run: &RunReport,
    kind: Kind,
) -> Result<(), Box<dyn Error>> {
    let names: Vec<_> = run.groups.iter().map(|row| row.name.as_str()).collect();
    let curves = Curve::all(&names, |group| {
        let row = group.map_or(Some(&run.total), |group| run.groups.get(group));
        row.and_then(kind).map_or_else(Vec::new, points)
    });
    let places = || curves.iter().flat_map(|curve| &curve.points);
    let least = places().map(|point| point.1).fold(f64::MAX, f64::min).max(1.0);
    let most = places().map(|point| point.1).fold(least, f64::max);
    let right = places().map(|point| point.0).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(16)
        .margin_right(36)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(PercentileAxis { end: right }, (least / 1.5..most * 1.5).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("percent of operations that took no longer")
        .y_desc("time of an operation")
        .max_light_lines(1)
        .y_label_formatter(&|ns| units::nanoseconds(ns.round() as u64))
        .draw()?;
    draw_curves(&mut chart, curves, 0, SeriesLabelPosition::UpperLeft)
}

/// Returns the points of a curve: *nines* (2 for 99 %, 3 for 99.9 %) and nanoseconds. The slowest
/// of `ops` operations is drawn at `log10(ops)` nines, because its true place, 100 %, would be
/// infinitely far to the right.
fn points((latency, ops): (&Latency, u64)) -> Vec<(f64, f64)> {
    let end = (ops.max(1) as f64).log10();
    let place = |point: &Percentile| (nines(point.percent).min(end), point.ns.max(1) as f64);
    latency.percentiles.iter().map(place).collect()
}

/// Returns 1 for 90 %, 2 for 99 %, and so on.
fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).log10()
}

/// The horizontal axis: nines.
struct PercentileAxis {
    end: f64,
}

impl Ranged for PercentileAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (value / self.end * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return vec![];
        }
        // Each whole number of nines that fits gets a label. So do 0 % and 50 %, to the left of
        // these.
        let whole = (1..=9).map(f64::from).filter(|nines| *nines <= self.end);
        [0.0, nines(50.0)].into_iter().chain(whole).collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.end
    }
}

impl ValueFormatter<f64> for PercentileAxis {
    fn format(nines: &f64) -> String {
        let percent = 100.0 - 100.0 * 10_f64.powf(-nines);
        format!("{percent:.*}", (nines.floor() as usize).saturating_sub(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    fn picture(run: &RunReport) -> String {
        let mut svg = String::new();
        draw(&mut svg, "a <title>", run).unwrap();
        svg
    }

    #[test]
    fn reads_and_writes_have_a_picture_each() {
        let mut run = sample(1 << 20);
        let svg = picture(&run);
        assert!(svg.contains("&lt;title&gt;: reads") && !svg.contains("writes") && svg.contains("width=\"800\""));
        for text in ["\n0\n", "\n50\n", "\n90\n", "\n99\n", "total", "10.0 µs"] {
            assert!(svg.contains(text), "{text:?} in {svg}");
        }
        run.total.write_latency = run.total.latency.clone();
        run.groups[0].write_latency = run.groups[0].latency.clone();
        let svg = picture(&run);
        assert!(svg.contains(": reads") && svg.contains(": writes") && svg.contains("width=\"1600\""), "{svg}");
        run.groups.clear();
        let lines = |svg: &str| svg.matches("<polyline").count();
        assert_eq!(
            lines(&svg) - lines(&picture(&run)),
            7,
            "three curves, with a line each in the legends, and an empty one's"
        );
    }

    #[test]
    fn nothing_done_is_an_empty_picture() {
        let mut run = sample(1 << 20);
        (run.total.latency, run.total.write_latency) = (None, None);
        assert!(picture(&run).starts_with("<svg"));
    }

    #[test]
    fn nines_are_even_steps() {
        assert_eq!([0.0, 90.0, 99.0].map(nines).map(|nines| (nines * 1e6).round() / 1e6), [0.0, 1.0, 2.0]);
        assert_eq!(
            [0.0, 1.0, 2.0, 3.0, 4.0].map(|nines| PercentileAxis::format(&nines)),
            ["0", "90", "99", "99.9", "99.99"]
        );
    }
}
