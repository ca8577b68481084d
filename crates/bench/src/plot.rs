//! Reports as a bar chart: the headline metric, a panel for each workload.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{PathElement, Rectangle, Text};
use plotters::style::{BLACK, Color, IntoFont, RGBColor, ShapeStyle, WHITE};

use crate::record::{Record, Report};
use crate::table::{distinct, label_of, with_spread, workload_of};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: i32 = 860;
const LABELS: i32 = 150;
const BARS: i32 = 520;
const ROW: i32 = 20;
const HEAD: i32 = 34;
const OURS: RGBColor = RGBColor(0xC4, 0x4E, 0x2C);
const THEIRS: RGBColor = RGBColor(0x7A, 0x8F, 0xA6);
const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);

/// Beyond this ratio of largest to smallest, bars grow with the logarithm.
const LINEAR_MAX: f64 = 12.0;

/// One panel.
struct Panel<'a> {
    title: String,
    records: Vec<&'a Record>,
}

/// Writes the chart of `reports` to `path`.
pub(crate) fn write(reports: &[Report], path: &Path) -> Result<()> {
    let panels: Vec<Panel<'_>> = reports.iter().flat_map(panels).collect();
    let height: i32 = panels.iter().map(Panel::height).sum();
    let root = SVGBackend::new(path, (WIDTH.unsigned_abs(), height.max(1).unsigned_abs())).into_drawing_area();
    draw(&root, &panels).map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
}

fn panels(report: &Report) -> Vec<Panel<'_>> {
    let headline = || report.records.iter().filter(|record| record.metric == report.headline);
    let panel = |workload| Panel {
        title: format!("{}: {workload} ({})", report.experiment, report.headline),
        records: headline().filter(|record| workload_of(record) == workload).collect(),
    };
    distinct(headline().map(workload_of)).into_iter().map(panel).collect()
}

fn draw(root: &Area<'_>, panels: &[Panel<'_>]) -> Result<(), Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    let mut top = 0;
    for panel in panels {
        panel.draw(root, top)?;
        top += panel.height();
    }
    root.present()?;
    Ok(())
}

impl Panel<'_> {
    fn height(&self) -> i32 {
        HEAD + ROW * i32::try_from(self.records.len()).unwrap_or(0) + 10
    }

    fn draw(&self, root: &Area<'_>, top: i32) -> Result<(), Box<dyn std::error::Error>> {
        let scale = Scale::of(&self.records);
        let bottom = top + self.height() - 10;
        root.draw(&Text::new(self.title.clone(), (8, top + 8), ("sans-serif", 14).into_font()))?;
        for mark in scale.marks() {
            let x = LABELS + scale.length(mark);
            root.draw(&PathElement::new([(x, top + HEAD - 4), (x, bottom)], ShapeStyle::from(&GRID)))?;
        }
        for (row, record) in (0..).zip(&self.records) {
            let y = top + HEAD + row * ROW;
            let color = if record.subject == "pagefold" { OURS } else { THEIRS };
            let end = LABELS + scale.length(record.value);
            root.draw(&Rectangle::new([(LABELS, y), (end, y + ROW - 6)], color.filled()))?;
            let spread = [record.min, record.max].map(|value| (LABELS + scale.length(value), y + ROW / 2 - 3));
            root.draw(&PathElement::new(spread, BLACK.stroke_width(1)))?;
            let font = || ("sans-serif", 12).into_font();
            root.draw(&Text::new(label_of(record), (8, y + 1), font()))?;
            root.draw(&Text::new(with_spread(record), (spread[1].0.max(end) + 6, y + 1), font()))?;
        }
        Ok(())
    }
}

/// From values to lengths of bars.
struct Scale {
    /// Where a logarithmic scale begins.
    from: Option<f64>,
    to: f64,
}

impl Scale {
    fn of(records: &[&Record]) -> Self {
        let to = records.iter().map(|record| record.max).fold(f64::MIN_POSITIVE, f64::max);
        let least = records.iter().map(|record| record.min).fold(to, f64::min);
        let logarithmic = least > 0.0 && to / least > LINEAR_MAX;
        Self { from: logarithmic.then_some(least / 2.0), to }
    }

    fn length(&self, value: f64) -> i32 {
        let share = match self.from {
            Some(from) => (value / from).ln() / (self.to / from).ln(),
            None => value / self.to,
        };
        (share.clamp(0.0, 1.0) * f64::from(BARS)) as i32
    }

    /// Powers of ten, their doubles and fives; at most about a dozen.
    fn marks(&self) -> Vec<f64> {
        let powers = (-9..12).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)));
        let least = self.from.unwrap_or(self.to / 10.0);
        powers.filter(|&mark| mark >= least && mark <= self.to).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;

    #[test]
    fn a_chart_names_everyone() {
        let mut report = Report::new("hit", "ratio", String::new());
        for (subject, value) in [("array", 1.0), ("pagefold", 1.2), ("moka", 50.0)] {
            report.add(subject, "8 B", "ratio", "x", Summary { median: value, min: value * 0.9, max: value * 1.1 });
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plot.svg");
        write(&[report], &path).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        for name in ["array", "pagefold", "moka", "1.20 (1.08-1.32)"] {
            assert!(svg.contains(name), "{name} is missing");
        }
    }
}
