//! Four pictures in one SVG: the cost of each operation, by the number of resident timers. Both
//! axes are logarithmic.

use crate::{Series, script::COLUMNS};
use netwheel::{Error, Result};
use plotters::{coord::Shift, prelude::*};
use std::path::Path;

/// Indices of the drawn operations in [`COLUMNS`].
const DRAWN: [usize; 4] = [0, 1, 2, 4];

/// In the order of lines.
const COLOURS: [RGBColor; 9] = [
    RGBColor(0xc4, 0x2e, 0x2e),
    RGBColor(0x22, 0x22, 0x22),
    RGBColor(0xe0, 0x8a, 0x7a),
    RGBColor(0x24, 0x5c, 0xa6),
    RGBColor(0x6f, 0xa8, 0xdc),
    RGBColor(0x2a, 0x7d, 0x4f),
    RGBColor(0xd1, 0x7b, 0x0f),
    RGBColor(0x7a, 0x4f, 0x9a),
    RGBColor(0x8a, 0x8a, 0x8a),
];

pub(crate) fn draw(path: &Path, all: &[Series]) -> Result {
    let root = SVGBackend::new(path, (1000, 820)).into_drawing_area();
    plot_all(&root, all).map_err(|e| Error::other(format!("drawing {}: {e}", path.display())))
}

type Drawn<B> = std::result::Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn plot_all<B: DrawingBackend>(root: &DrawingArea<B, Shift>, all: &[Series]) -> Drawn<B> {
    // Opaque, so that it is legible on a dark page.
    root.fill(&WHITE)?;
    for (n, (area, column)) in root.split_evenly((2, 2)).iter().zip(DRAWN).enumerate() {
        plot(area, all, column, n == 0)?;
    }
    root.present()
}

fn plot<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    all: &[Series],
    column: usize,
    legend: bool,
) -> Drawn<B> {
    let costs = || DRAWN.iter().flat_map(|column| all.iter().map(|series| series.cost(*column)[1]));
    let (bottom, top) = (costs().fold(f64::INFINITY, f64::min) / 1.5, costs().fold(1.0, f64::max) * 8.0);
    let right = all.iter().map(|series| series.timers).max().unwrap_or(1) as f64;
    let mut canvas = ChartBuilder::on(area)
        .caption(COLUMNS[column], ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(38)
        .y_label_area_size(56)
        .build_cartesian_2d((1e3..right * 1.2).log_scale(), (bottom..top).log_scale())?;
    canvas
        .configure_mesh()
        .x_desc("resident timers")
        .y_desc("nanoseconds")
        .x_label_formatter(&|x| format!("10^{:.0}", x.log10()))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .axis_desc_style(("sans-serif", 14))
        .label_style(("sans-serif", 12))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;
    let mut names: Vec<&str> = Vec::new();
    for series in all {
        if !names.contains(&series.name) {
            names.push(series.name);
        }
    }
    for (n, name) in names.into_iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let of_line = all.iter().filter(|series| series.name == name);
        let points = of_line.map(|series| (series.timers as f64, series.cost(column)[1]));
        let line = LineSeries::new(points, colour.stroke_width(2)).point_size(3);
        let drawn = canvas.draw_series(line)?;
        if legend {
            drawn
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
        }
    }
    if legend {
        canvas
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(("sans-serif", 12))
            .background_style(WHITE.mix(0.9))
            .border_style(BLACK.mix(0.3))
            .draw()?;
    }
    Ok(())
}
