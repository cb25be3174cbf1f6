//! Line charts as SVG, with one line per setting and labelled axes.

use crate::record::Chart;
use netwheel::{Error, Result};
use plotters::prelude::*;
use std::path::Path;

/// Texts of a picture.
pub(crate) struct Words<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    /// Returns the label of a line.
    pub(crate) line: fn(u32) -> String,
}

/// Each line has its own mark width, so colours are not required to distinguish them.
const COLOURS: [RGBColor; 4] = [
    RGBColor(0xc4, 0x2e, 0x2e),
    RGBColor(0xd1, 0x7b, 0x0f),
    RGBColor(0x2a, 0x7d, 0x4f),
    RGBColor(0x24, 0x5c, 0xa6),
];

pub(crate) fn draw(path: &Path, chart: &Chart, words: &Words<'_>) -> Result {
    let root = SVGBackend::new(path, (800, 460)).into_drawing_area();
    plot(&root, chart, words).map_err(|e| Error::other(format!("drawing {}: {e}", path.display())))
}

fn plot<B: DrawingBackend>(
    root: &DrawingArea<B, plotters::coord::Shift>,
    chart: &Chart,
    words: &Words<'_>,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    // Opaque, so that it is legible on a dark page.
    root.fill(&WHITE)?;
    let lines: Vec<_> = chart.lines().collect();
    let points = || lines.iter().flat_map(|(_, line)| line);
    let right = points().map(|(x, _)| *x).max().unwrap_or(1);
    let top = points().map(|(_, y)| *y).fold(0.0, f64::max) * 1.08;
    let mut canvas = ChartBuilder::on(root)
        .caption(words.title, ("sans-serif", 19))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(58)
        .build_cartesian_2d(0..right, 0.0..top)?;
    canvas
        .configure_mesh()
        .x_desc(words.x)
        .y_desc(words.y)
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;
    for (n, (ratio, line)) in lines.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let style = colour.stroke_width(2);
        canvas
            .draw_series(LineSeries::new(line.iter().copied(), style).point_size(3))?
            .label((words.line)(*ratio))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(3)));
    }
    canvas
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(("sans-serif", 14))
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()
}
