//! Pictures, as SVG text: scaling curves and profiles.

use crate::report::Report;
use plotters::coord::Shift;
use plotters::prelude::*;

/// Why a picture couldn't be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlotError {
    /// There is nothing to draw.
    #[error("nothing to draw: no points, or a figure that isn't finite")]
    Empty,
    /// An error of the drawing library.
    #[error("can't draw: {0}")]
    Drawing(String),
}

/// A name, and its figures by number of CPUs.
pub type Curve<'a> = (&'a str, Vec<(usize, f64)>);

const SIZE: (u32, u32) = (720, 440);

/// Draws throughput over the number of CPUs, with one curve for each of `curves`.
///
/// # Errors
/// [`PlotError`], if there are no points, or the drawing fails.
pub fn curves(title: &str, unit: &str, curves: &[Curve<'_>]) -> Result<String, PlotError> {
    let points = || curves.iter().flat_map(|(_, points)| points);
    let most_cpus = points().map(|point| point.0).max().ok_or(PlotError::Empty)?;
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    if !points().all(|point| point.1.is_finite()) || most <= 0.0 {
        return Err(PlotError::Empty);
    }
    let mut svg = String::new();
    draw(&mut svg, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(0..most_cpus, 0.0..most * 1.08)?;
        chart.configure_mesh().x_desc("CPUs").y_desc(unit).light_line_style(WHITE).draw()?;
        for (at, (name, points)) in curves.iter().enumerate() {
            let colour = Palette99::pick(at).to_rgba();
            let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3);
            let series = chart.draw_series(line)?.label(*name);
            series.legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        let labels = &mut chart.configure_series_labels();
        labels.position(SeriesLabelPosition::UpperRight).background_style(WHITE).border_style(BLACK).draw()?;
        Ok(())
    })?;
    Ok(svg)
}

/// Draws where a run spent its time: a bar for each of the most expensive source lines.
///
/// # Errors
/// [`PlotError`], if nothing took time, or the drawing fails.
pub fn profile(report: &Report) -> Result<String, PlotError> {
    /// Number of source lines shown.
    const SHOWN: usize = 10;
    let lines: Vec<_> = report.lines.iter().take(SHOWN).collect();
    if lines.is_empty() {
        return Err(PlotError::Empty);
    }
    let parts = |at: usize| {
        let shares = lines[at].shares;
        [shares.waiting, shares.transferring, shares.working, shares.system]
    };
    let most = (0..lines.len()).map(|at| parts(at).iter().sum()).fold(0.0, f64::max);
    let title = format!("{}, {} CPUs: % of CPU time", report.machine, report.cpus);
    let mut svg = String::new();
    draw(&mut svg, |area| {
        let bottom = lines.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(30)
            .build_cartesian_2d(0.0..most * 1.05, bottom..0.0)?;
        chart.configure_mesh().disable_y_axis().disable_y_mesh().light_line_style(WHITE).draw()?;
        for (part, name) in ["waiting", "transferring", "working", "system"].into_iter().enumerate() {
            let colour = Palette99::pick(part).to_rgba();
            let bars = (0..lines.len()).map(|at| {
                let from: f64 = parts(at)[..part].iter().sum();
                let (y, to) = (at as f64, from + parts(at)[part]);
                Rectangle::new([(from, y + 0.5), (to, y + 0.9)], colour.filled())
            });
            let series = chart.draw_series(bars)?.label(name);
            series.legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
        }
        let names = lines.iter().enumerate().map(|(at, line)| {
            let dot = if line.region.is_empty() { "" } else { "." };
            Text::new(format!("{}{dot}{}", line.line, line.region), (0.0, at as f64 + 0.15), ("sans-serif", 13))
        });
        chart.draw_series(names)?;
        let labels = &mut chart.configure_series_labels();
        labels.position(SeriesLabelPosition::LowerRight).background_style(WHITE).border_style(BLACK).draw()?;
        Ok(())
    })?;
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw(
    svg: &mut String,
    paint: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<(), PlotError> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let all = || {
        area.fill(&WHITE)?;
        paint(&area)?;
        area.present()?;
        Ok::<(), Box<dyn std::error::Error>>(())
    };
    all().map_err(|error| PlotError::Drawing(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Costs, Machine, Shape, work};

    #[test]
    fn curves_and_profiles_are_drawn() {
        let svg = curves("t", "M/s", &[("one", vec![(1, 1.0), (88, 2.0)]), ("two", vec![(1, 0.5)])]).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("two") && svg.contains("CPUs"));
        let machine = Machine::new(Shape::new(1, 2, 1).unwrap(), Costs::default()).unwrap();
        let report = machine.run_tasks(2, |_| work::cpu(1000)).unwrap();
        assert!(profile(&report).unwrap().contains("plot.rs"));
    }

    #[test]
    fn nothing_is_not_drawn() {
        assert_eq!(curves("t", "M/s", &[]).unwrap_err(), PlotError::Empty);
        assert_eq!(curves("t", "M/s", &[("one", vec![(1, f64::NAN)])]).unwrap_err(), PlotError::Empty);
    }
}
