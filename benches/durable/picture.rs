//! The panels of a report, side by side in one SVG.

use crate::report::{Panel, Report};
use netwheel::{Error, Result};
use plotters::{coord::Shift, prelude::*};
use std::path::Path;

/// Width and height of a panel in pixels.
const PANEL: (u32, u32) = (480, 380);

const COLOURS: [RGBColor; 3] =
    [RGBColor(0x22, 0x22, 0x22), RGBColor(0xc4, 0x2e, 0x2e), RGBColor(0x24, 0x5c, 0xa6)];

pub(crate) fn draw(path: &Path, report: &Report) -> Result {
    let panels = report.panels.len();
    if panels == 0 {
        return Ok(());
    }
    let width = PANEL.0 * u32::try_from(panels).unwrap_or(1);
    let root = SVGBackend::new(path, (width, PANEL.1)).into_drawing_area();
    plot_all(&root, report).map_err(|e| Error::other(format!("drawing {}: {e}", path.display())))
}

type Drawn<B> = std::result::Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn plot_all<B: DrawingBackend>(root: &DrawingArea<B, Shift>, report: &Report) -> Drawn<B> {
    // Opaque, so that it is legible on a dark page.
    root.fill(&WHITE)?;
    for (area, panel) in root.split_evenly((1, report.panels.len())).iter().zip(&report.panels) {
        if panel.is_logarithmic { plot_logarithmic(area, panel)? } else { plot_linear(area, panel)? }
    }
    root.present()
}

/// Returns the largest coordinates.
fn ends(panel: &Panel) -> (f64, f64) {
    let points = panel.lines.iter().flat_map(|(_, line)| line);
    points.fold((1.0, 0.001), |(right, top), (x, y)| (right.max(*x), top.max(*y)))
}

/// Draws axes and lines. The two kinds of axes are two types, hence a macro.
macro_rules! plot {
    ($area:expr, $panel:expr, $x:expr, $y:expr, $position:expr) => {{
        let mut canvas = ChartBuilder::on($area)
            .caption(&$panel.title, ("sans-serif", 17))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(62)
            .build_cartesian_2d($x, $y)?;
        canvas
            .configure_mesh()
            .x_desc($panel.x)
            .y_desc($panel.y)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| if *y < 100.0 { format!("{y:.1}") } else { format!("{y:.0}") })
            .axis_desc_style(("sans-serif", 14))
            .label_style(("sans-serif", 12))
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .draw()?;
        for (n, (name, line)) in $panel.lines.iter().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            canvas
                .draw_series(LineSeries::new(line.iter().copied(), colour.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
        }
        canvas
            .configure_series_labels()
            .position($position)
            .label_font(("sans-serif", 12))
            .background_style(WHITE.mix(0.9))
            .border_style(BLACK.mix(0.3))
            .draw()
    }};
}

fn plot_linear<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panel: &Panel) -> Drawn<B> {
    let (right, top) = ends(panel);
    plot!(area, panel, 0.0..right, 0.0..top * 1.25, SeriesLabelPosition::UpperLeft)
}

fn plot_logarithmic<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panel: &Panel) -> Drawn<B> {
    let (right, top) = ends(panel);
    let points = panel.lines.iter().flat_map(|(_, line)| line);
    let bottom = points.fold(f64::INFINITY, |bottom, (_, y)| bottom.min(*y)).max(0.001);
    let (x, y) = ((1.0..right * 1.1).log_scale(), (bottom / 1.5..top * 2.0).log_scale());
    plot!(area, panel, x, y, SeriesLabelPosition::UpperLeft)
}
