//! Reports as pictures.

mod hit_rate;
mod latency;

use std::error::Error;
use std::path::Path;

use anyhow::anyhow;
use plotters::chart::SeriesLabelPosition;
use plotters::prelude::*;

use crate::failure::Failure;
use crate::output;

pub(crate) use hit_rate::write as write_hit_rate;
pub(crate) use latency::write as write_latency;

/// Size of a picture.
const PIXELS: (u32, u32) = (800, 500);

/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito, 2008). If
/// there are more groups than colours, only the total is drawn.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
];

/// A curve with its name.
struct Curve<'a> {
    name: &'a str,
    style: ShapeStyle,
    points: Vec<(f64, f64)>,
}

impl<'a> Curve<'a> {
    /// Returns a curve for the total, and one for each group if there are several and enough
    /// colours.
    fn all(groups: &[&'a str], points: impl Fn(Option<usize>) -> Vec<(f64, f64)>) -> Vec<Self> {
        let groups = if (2..=COLORS.len()).contains(&groups.len()) { groups } else { &[] };
        let group =
            |(number, (&name, color)): (usize, (&&'a str, RGBColor))| Self::thin(name, color, points(Some(number)));
        let total = Self::thick("total", points(None));
        groups.iter().zip(COLORS).enumerate().map(group).chain([total]).collect()
    }

    /// Returns a curve for `own`, and one for each of the others.
    fn beside(own: &'a str, others: &[&'a str], points: impl Fn(&str) -> Vec<(f64, f64)>) -> Vec<Self> {
        let others = others.iter().zip(COLORS).map(|(name, color)| Self::thin(name, color, points(name)));
        others.chain([Self::thick(own, points(own))]).collect()
    }

    fn thin(name: &'a str, color: RGBColor, points: Vec<(f64, f64)>) -> Self {
        Self { name, style: color.stroke_width(1), points }
    }

    fn thick(name: &'a str, points: Vec<(f64, f64)>) -> Self {
        Self { name, style: BLACK.stroke_width(2), points }
    }
}

/// Draws the curves and their legend.
fn draw_curves<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    curves: Vec<Curve<'_>>,
    point_size: u32,
    corner: SeriesLabelPosition,
) -> Result<(), Box<dyn Error>>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    for Curve { name, style, points } in curves {
        let series = chart.draw_series(LineSeries::new(points, style).point_size(point_size));
        series
            .map_err(|error| error.to_string())?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    let labels = &mut chart.configure_series_labels();
    labels.position(corner).background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    Ok(())
}

/// Saves the picture that `draw` draws to `path`.
fn save(path: &Path, draw: impl FnOnce(&mut String) -> Result<(), Box<dyn Error>>) -> Result<(), Failure> {
    let mut svg = String::new();
    draw(&mut svg).map_err(|error| anyhow!("can't draw {}: {error}", path.display()))?;
    output::write(path, svg.as_bytes())
}
