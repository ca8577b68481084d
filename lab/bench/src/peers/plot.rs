//! Reports as a chart of the headline metric. Each workload has a panel, and all panels of a report
//! have the same scale.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{BLACK, Color, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE};

use crate::peers::metric::words;
use crate::peers::report::Report;
use crate::peers::table::{distinct, label_of, with_spread, workload_of};
use crate::record::Record;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const WIDTH: i32 = 860;
const LABELS: i32 = 150;
const BARS: i32 = 520;
const ROW: i32 = 20;
/// The title of a report.
const TITLE: i32 = 34;
/// The title of a panel.
const HEAD: i32 = 28;
/// Numbers of the ticks below a panel.
const TICKS: i32 = 26;
/// Machine and rounds below a report.
const FOOTER: i32 = 34;
const OURS: RGBColor = RGBColor(0xC4, 0x4E, 0x2C);
const THEIRS: RGBColor = RGBColor(0x7A, 0x8F, 0xA6);
const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);

/// If the largest value divided by the smallest exceeds this, the scale is logarithmic. Values are
/// then dots rather than bars, because the length of a bar would mean nothing.
const LINEAR_MAX: f64 = 12.0;

/// All panels of a report.
struct Chart<'a> {
    title: String,
    footer: String,
    scale: Scale,
    panels: Vec<Panel<'a>>,
}

/// One panel.
struct Panel<'a> {
    title: &'a str,
    records: Vec<&'a Record>,
}

/// Writes the chart of `reports` to `path`.
pub(crate) fn write(reports: &[Report], path: &Path, quick: bool) -> Result<()> {
    let charts: Vec<Chart<'_>> = reports.iter().map(|report| Chart::new(report, quick)).collect();
    let height: i32 = charts.iter().map(Chart::height).sum();
    let mut svg = String::new();
    {
        let size = (WIDTH.unsigned_abs(), height.max(1).unsigned_abs());
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&root, &charts).map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    }
    fs::write(path, svg).with_context(|| format!("cannot write the plot to {}", path.display()))
}

fn draw(root: &Area<'_>, charts: &[Chart<'_>]) -> Drawn {
    root.fill(&WHITE)?;
    let mut top = 0;
    for chart in charts {
        chart.draw(root, top)?;
        top += chart.height();
    }
    root.present()?;
    Ok(())
}

fn font<'a>(size: i32) -> TextStyle<'a> {
    ("sans-serif", size).into_font().into()
}

impl<'a> Chart<'a> {
    fn new(report: &'a Report, quick: bool) -> Self {
        let headline = || report.records.iter().filter(|record| record.metric == report.headline);
        let panel = |workload| Panel {
            title: workload,
            records: headline().filter(|record| workload_of(record) == workload).collect(),
        };
        let panels = distinct(headline().map(workload_of)).into_iter().map(panel);
        let panels: Vec<Panel<'_>> = panels.filter(Panel::compares).collect();
        let records: Vec<&Record> = panels.iter().flat_map(|panel| &panel.records).copied().collect();
        let scale = Scale::of(&records);
        let (words, log) = (words(report.headline), if scale.from.is_some() { "log scale, " } else { "" });
        let mut title = format!("{}: {} ({log}{})", report.experiment, words.name, words.better);
        if panels.is_empty() {
            title += ": nothing to compare";
        }
        let mut footer = report.records.first().map_or_else(String::new, |record| record.machine.clone());
        match report.rounds {
            Some(1) => footer += "; 1 round",
            Some(rounds) => footer += &format!("; {rounds} rounds"),
            None => footer += "; counted once",
        }
        if quick {
            footer += "; --quick: the figures mean nothing";
        }
        Self { title, footer, scale, panels }
    }

    fn height(&self) -> i32 {
        TITLE + self.panels.iter().map(Panel::height).sum::<i32>() + FOOTER
    }

    fn draw(&self, root: &Area<'_>, mut top: i32) -> Drawn {
        root.draw(&Text::new(self.title.clone(), (8, top + 10), font(16)))?;
        top += TITLE;
        for panel in &self.panels {
            panel.draw(root, top, &self.scale)?;
            top += panel.height();
        }
        root.draw(&Text::new(self.footer.clone(), (8, top + 4), font(11)))?;
        Ok(())
    }
}

impl Panel<'_> {
    /// At least two rows, and something in them.
    fn compares(&self) -> bool {
        let rows = distinct(self.records.iter().map(|record| label_of(record)));
        rows.len() > 1 && self.records.iter().any(|record| record.max > 0.0)
    }

    fn height(&self) -> i32 {
        HEAD + ROW * i32::try_from(self.records.len()).unwrap_or(0) + TICKS
    }

    fn draw(&self, root: &Area<'_>, top: i32, scale: &Scale) -> Drawn {
        let bottom = top + self.height() - TICKS;
        root.draw(&Text::new(self.title.to_owned(), (8, top + 6), font(13)))?;
        for mark in scale.marks() {
            let x = LABELS + scale.length(mark);
            root.draw(&PathElement::new([(x, top + HEAD - 4), (x, bottom + 2)], ShapeStyle::from(&GRID)))?;
            let style = font(11).pos(Pos::new(HPos::Center, VPos::Top));
            root.draw(&Text::new(tick(mark), (x, bottom + 5), style))?;
        }
        for (row, record) in (0..).zip(&self.records) {
            let y = top + HEAD + row * ROW;
            let middle = y + ROW / 2 - 3;
            let color = if record.subject == "pagefold" { OURS } else { THEIRS };
            let end = LABELS + scale.length(record.value);
            if scale.from.is_none() {
                root.draw(&Rectangle::new([(LABELS, y), (end, y + ROW - 6)], color.filled()))?;
            }
            let spread = [record.min, record.max].map(|value| (LABELS + scale.length(value), middle));
            root.draw(&PathElement::new(spread, BLACK.stroke_width(1)))?;
            if scale.from.is_some() {
                root.draw(&Circle::new((end, middle), 5, color.filled()))?;
            }
            root.draw(&Text::new(label_of(record), (8, y + 1), font(12)))?;
            root.draw(&Text::new(with_spread(record), (spread[1].0.max(end) + 9, y + 1), font(12)))?;
        }
        Ok(())
    }
}

/// A tick's number, without digits that say nothing.
fn tick(value: f64) -> String {
    // Ticks are products, which have rounding errors; nine decimals hide them.
    let text = format!("{value:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// From values to lengths of bars or places of dots.
struct Scale {
    /// Where a logarithmic scale begins.
    from: Option<f64>,
    to: f64,
}

/// Powers of ten, their doubles and fives.
fn round_numbers() -> impl DoubleEndedIterator<Item = f64> {
    (-9..12).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)))
}

impl Scale {
    fn of(records: &[&Record]) -> Self {
        let to = records.iter().map(|record| record.max).fold(f64::MIN_POSITIVE, f64::max);
        let least = records.iter().map(|record| record.min).fold(to, f64::min);
        if least <= 0.0 || to / least <= LINEAR_MAX {
            return Self { from: None, to };
        }
        // Round numbers at both ends, so that both have a tick.
        let from = round_numbers().rev().find(|&mark| mark < 0.97 * least).unwrap_or(least / 2.0);
        Self { from: Some(from), to: round_numbers().find(|&mark| mark >= to).unwrap_or(to) }
    }

    fn length(&self, value: f64) -> i32 {
        let share = match self.from {
            Some(from) => (value / from).ln() / (self.to / from).ln(),
            None => value / self.to,
        };
        (share.clamp(0.0, 1.0) * f64::from(BARS)) as i32
    }

    /// About a dozen at most.
    fn marks(&self) -> Vec<f64> {
        let Some(from) = self.from else {
            let step = round_numbers().find(|&step| self.to / step <= 8.0).unwrap_or(self.to);
            return (0..=8).map(|number| f64::from(number) * step).filter(|&mark| mark <= self.to).collect();
        };
        let marks: Vec<f64> = round_numbers().filter(|&mark| mark >= from && mark <= self.to).collect();
        let every = if marks.len() > 13 { 3 } else { 1 };
        marks.into_iter().step_by(every).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output;
    use crate::summary::Summary;

    fn drawn(figures: &[(&str, &str, f64)], quick: bool) -> String {
        let mut report = Report::new("hit", "cpu_ratio_ordinary", String::new());
        report.rounds = Some(7);
        for &(subject, workload, value) in figures {
            let summary = Summary { median: value, min: value * 0.9, max: value * 1.1 };
            report.add(subject, workload, "cpu_ratio_ordinary", "x", summary);
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plot.svg");
        output::prepare_plot(&path).unwrap();
        assert!(!path.exists());
        write(&[report], &path, quick).unwrap();
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_chart_names_everyone_and_says_what_it_shows() {
        let svg = drawn(&[("array", "8 B", 1.0), ("pagefold", "8 B", 1.2), ("moka", "8 B", 50.0)], true);
        let texts =
            ["array", "pagefold", "moka", "1.20 (1.08-1.32)", "log scale, lower is better", "7 rounds; --quick"];
        for text in
            texts.into_iter().chain(["CPU time, × raw array in ordinary pages", "<circle", "\n0.5\n", "\n100\n"])
        {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
    }

    #[test]
    fn panels_share_a_scale_and_those_without_comparison_are_left_out() {
        let figures = [("array", "8 B", 1.0), ("moka", "8 B", 3.0), ("array", "100 B", 0.0), ("moka", "100 B", 0.0)];
        let svg = drawn(&[&figures[..], &[("moka", "4 KiB", 2.0)]].concat(), false);
        assert!(svg.contains("8 B") && !svg.contains("100 B") && !svg.contains("4 KiB"), "{svg}");
        assert!(!svg.contains("log scale") && !svg.contains("<circle") && !svg.contains("--quick"), "{svg}");
        assert!(drawn(&[("moka", "8 B", 2.0)], false).contains("nothing to compare"));
    }
}
