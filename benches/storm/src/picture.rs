//! The timeline of a storm as SVG: attempts and logins, clients that wait, and the round trips of
//! the established clients.

use crate::figures::Seconds;
use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, ValueFormatter},
    },
    prelude::*,
};
use std::{io, ops::Range, path::Path};

/// Seconds before the storm that are shown.
const BEFORE: f64 = -5.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

struct Line {
    column: &'static str,
    label: &'static str,
    colour: RGBColor,
}

const RED: RGBColor = RGBColor(0xc4, 0x2e, 0x2e);
const ORANGE: RGBColor = RGBColor(0xd1, 0x7b, 0x0f);
const GREEN: RGBColor = RGBColor(0x2a, 0x7d, 0x4f);
const BLUE: RGBColor = RGBColor(0x24, 0x5c, 0xa6);

const RATES: [Line; 3] = [
    Line { column: "attempts", label: "attempts", colour: ORANGE },
    Line { column: "gave_up", label: "given up", colour: RED },
    Line { column: "entered", label: "clients that got in", colour: GREEN },
];
const WAITING: [Line; 1] = [Line { column: "waiting", label: "clients that are not in", colour: BLUE }];
const CHAT: [Line; 3] = [
    Line { column: "chat_max_ms", label: "slowest", colour: RED },
    Line { column: "chat_p99_ms", label: "p99", colour: ORANGE },
    Line { column: "chat_p50_ms", label: "median", colour: GREEN },
];

/// Draws the picture.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn draw(path: &Path, title: &str, seconds: &Seconds) -> io::Result<()> {
    let root = SVGBackend::new(path, (800, 700)).into_drawing_area();
    plot(&root, title, seconds).map_err(|e| io::Error::other(format!("drawing {}: {e}", path.display())))
}

fn plot(root: &Area<'_>, title: &str, seconds: &Seconds) -> Drawn {
    // Opaque, so that it is legible on a dark page.
    root.fill(&WHITE)?;
    let root = root.titled(title, ("sans-serif", 19))?;
    let panels = root.split_evenly((3, 1));
    for (area, unit, lines) in [(&panels[0], "per second", &RATES[..]), (&panels[1], "clients", &WAITING[..])]
    {
        let (right, top) = extent(lines, seconds);
        panel(area, unit, lines, seconds, (BEFORE..right, 0.0..top * 1.08))?;
    }
    let (right, top) = extent(&CHAT, seconds);
    let milliseconds = (0.1..top.max(100.0) * 1.5).log_scale();
    panel(&panels[2], "chat round trip, ms", &CHAT, seconds, (BEFORE..right, milliseconds))?;
    root.present()
}

/// Returns the last second, and the largest value of the lines.
fn extent(lines: &[Line], seconds: &Seconds) -> (f64, f64) {
    let points = lines.iter().flat_map(|line| seconds.points(line.column, BEFORE));
    points.fold((1.0, 1.0), |(right, top): (f64, f64), (x, y)| (right.max(x), top.max(y)))
}

fn panel<Y>(area: &Area<'_>, unit: &str, lines: &[Line], seconds: &Seconds, (x, y): (Range<f64>, Y)) -> Drawn
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("seconds since the beginning of the storm").y_desc(unit);
    mesh.axis_desc_style(("sans-serif", 14)).label_style(("sans-serif", 12));
    mesh.light_line_style(TRANSPARENT).bold_line_style(BLACK.mix(0.12)).draw()?;
    for line in lines {
        let colour = line.colour;
        chart
            .draw_series(LineSeries::new(seconds.points(line.column, BEFORE), colour.stroke_width(2)))?
            .label(line.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(3)));
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperRight).label_font(("sans-serif", 13));
    labels.background_style(WHITE.mix(0.9)).border_style(BLACK.mix(0.3)).draw()
}
