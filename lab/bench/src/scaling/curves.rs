//! Throughput over the number of CPUs, as SVG. Each workload has a panel, each scheme a line;
//! published figures are shown as well.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, Cross, PathElement};
use plotters::prelude::IntoLogRange;
use plotters::series::LineSeries;
use plotters::style::{BLACK, Color, Palette, Palette99, RGBColor, WHITE};

use super::experiment::OURS;
use super::labels::number;
use super::results::Results;
use super::verdict;
use super::workload::Workload;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const WIDTH: u32 = 760;
const PANEL: u32 = 400;
const OUR_COLOUR: RGBColor = RGBColor(0xC4, 0x4E, 0x2C);

/// Writes the plot of `results` to `path`.
pub(crate) fn write(results: &Results, path: &Path) -> Result<()> {
    fs::write(path, svg(results)?).with_context(|| format!("cannot write the plot to {}", path.display()))
}

/// The plot as text.
pub(crate) fn svg(results: &Results) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg, results).map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    Ok(svg)
}

fn draw(svg: &mut String, results: &Results) -> Drawn {
    let panels = results.workloads.len();
    let height = PANEL * u32::try_from(panels.max(1))?;
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    for (workload, area) in results.workloads.iter().zip(root.split_evenly((panels.max(1), 1))) {
        panel(results, workload, &area)?;
    }
    root.present()?;
    Ok(())
}

/// Both axes are logarithmic, so a power of the number of CPUs is a straight line.
fn panel(results: &Results, workload: &Workload, area: &Area<'_>) -> Drawn {
    let points = |scheme: &str| -> Vec<(f64, f64)> {
        let rows = results.of(workload.name).filter(|row| row.scheme == scheme);
        rows.map(|row| (row.cpus as f64, (row.throughput().median / 1e6).max(1e-6))).collect()
    };
    let published = published_points(results, workload);
    let all = results.schemes.iter().flat_map(|scheme| points(scheme.name)).map(|(_, value)| value);
    let values: Vec<f64> = all.chain(published.iter().map(|point| point.2)).collect();
    let (least, most) =
        values.iter().fold((f64::MAX, 0.0_f64), |(least, most), &value| (least.min(value), most.max(value)));
    let (fewest, most_cpus) = (results.fewest() as f64, results.most() as f64);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}: {}, {}", results.experiment.name, workload.name, results.host.name), ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(58)
        .build_cartesian_2d((fewest * 0.95..most_cpus * 1.6).log_scale(), (least / 1.4..most * 1.4).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("CPUs (log scale)")
        .y_desc("million operations/s (log scale)")
        .light_line_style(WHITE)
        .x_label_formatter(&|cpus| format!("{cpus:.0}"))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    for (at, scheme) in results.schemes.iter().enumerate() {
        let colour = colour_of(at, scheme.name);
        let line = LineSeries::new(points(scheme.name), colour.stroke_width(2)).point_size(3);
        let line = chart.draw_series(line)?.label(scheme.name);
        line.legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    let mut labelled = false;
    for (scheme, cpus, value) in published {
        let at = results.schemes.iter().position(|known| known.name == scheme).unwrap_or(0);
        let mark = Cross::new((cpus, value), 6, colour_of(at, scheme).stroke_width(2));
        let marks = chart.draw_series([mark])?;
        if !labelled {
            marks.label("published, × ours on 1 CPU").legend(|(x, y)| Cross::new((x + 9, y), 5, BLACK.stroke_width(2)));
            labelled = true;
        }
    }
    if results.cpus.len() == 1 {
        chart.draw_series(values.iter().map(|&value| Circle::new((fewest, value), 3, BLACK.filled())))?;
    }
    let labels = &mut chart.configure_series_labels();
    labels.position(SeriesLabelPosition::LowerLeft).background_style(WHITE.mix(0.8)).draw()?;
    Ok(())
}

/// The published figures, converted to our machine. The base is the figure with the fewest CPUs, of
/// the same scheme, or of the older design if there is one. A point is our throughput at the base,
/// times the published gain over the base.
fn published_points(results: &Results, workload: &Workload) -> Vec<(&'static str, f64, f64)> {
    let figures = verdict::published(results, workload.name)
        .flat_map(|published| published.figures.iter().map(move |figure| (published, figure)));
    let point = |(published, figure): (&super::experiment::Published, &'static super::experiment::Figure)| {
        let base = published.first(published.older.unwrap_or(figure.scheme))?;
        let row = results.row(workload.name, base.scheme, base.cpus)?;
        let value = row.throughput().median / 1e6 * published.ratio(figure, base);
        (figure.cpus <= results.most()).then_some((figure.scheme, figure.cpus as f64, value))
    };
    figures.filter_map(point).collect()
}

fn colour_of(at: usize, scheme: &str) -> RGBColor {
    if scheme == OURS {
        return OUR_COLOUR;
    }
    let (red, green, blue) = Palette99::COLORS[(at + 1) % Palette99::COLORS.len()];
    RGBColor(red, green, blue)
}
