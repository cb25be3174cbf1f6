//! One SVG with a panel of bars for each scenario: user time, then system time, per operation; or
//! memory.

use crate::{
    results::{MEMORY, Results, Rounds, SYSTEM, USER},
    scenario::Scenario,
    tables::value,
};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::{io, path::Path};

const PANELS_ACROSS: usize = 2;
const PANEL_WIDTH: u32 = 520;
/// Height of a panel without its bars.
const PANEL_FRAME: u32 = 46;
const HEADING: u32 = 34;
const BAR: i32 = 14;
const STEP: i32 = 20;
/// Horizontal position where names end and bars start, and the length of the longest bar.
const LEFT: i32 = 116;
const LONGEST: f64 = 274.0;

/// Colours of user time (dark) and system time (light), of the crate and of the other servers.
const OWN: [RGBColor; 2] = [RGBColor(0xc4, 0x2e, 0x2e), RGBColor(0xe8, 0xb0, 0xa8)];
const OTHERS: [RGBColor; 2] = [RGBColor(0x24, 0x5c, 0xa6), RGBColor(0xb4, 0xcd, 0xe8)];

/// Draws the picture.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn draw(path: &Path, scenarios: &[Scenario], results: &Results) -> io::Result<()> {
    let drawn: Vec<&Scenario> =
        scenarios.iter().filter(|scenario| !results.of(scenario.name).is_empty()).collect();
    let rows = drawn.len().div_ceil(PANELS_ACROSS).max(1);
    let bars = drawn.iter().map(|scenario| results.of(scenario.name).len()).max().unwrap_or(0);
    let height = PANEL_FRAME + STEP as u32 * bars as u32;
    let size = (PANEL_WIDTH * PANELS_ACROSS as u32, height * rows as u32 + HEADING);
    let root = SVGBackend::new(path, size).into_drawing_area();
    plot(&root, &drawn, rows, results)
        .map_err(|e| io::Error::other(format!("drawing {}: {e}", path.display())))
}

type Area<B> = DrawingArea<B, Shift>;
type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn plot<B: DrawingBackend>(
    root: &Area<B>,
    scenarios: &[&Scenario],
    rows: usize,
    results: &Results,
) -> Drawn<B> {
    // Opaque, so that it is legible on a dark page.
    root.fill(&WHITE)?;
    let (heading, rest) = root.split_vertically(HEADING);
    let about = "Server CPU time per operation: user (dark), system (light); idle: memory per connection; storm: p99 of the echo";
    write(&heading, about, (12, 20), 15, HPos::Left)?;
    for (area, scenario) in rest.split_evenly((rows, PANELS_ACROSS)).iter().zip(scenarios) {
        panel(area, scenario, &results.of(scenario.name))?;
    }
    root.present()
}

fn panel<B: DrawingBackend>(area: &Area<B>, scenario: &Scenario, servers: &[(&str, Rounds<'_>)]) -> Drawn<B> {
    write(area, &format!("{}: {}", scenario.name, scenario.about), (12, 16), 13, HPos::Left)?;
    let parts = |rounds: &Rounds<'_>| -> [f64; 2] {
        if scenario.load.is_idle() {
            [rounds.median(MEMORY).unwrap_or(0.0).max(0.0), 0.0]
        } else if scenario.load.is_storm() {
            [rounds.median("p99_us").unwrap_or(0.0), 0.0]
        } else {
            [USER, SYSTEM].map(|part| rounds.median(part).unwrap_or(0.0))
        }
    };
    let longest =
        servers.iter().map(|(_, rounds)| parts(rounds).iter().sum::<f64>()).fold(f64::MIN_POSITIVE, f64::max);
    let Some((_, base)) = servers.first() else { return Ok(()) };
    for (n, (name, rounds)) in servers.iter().enumerate() {
        let top = 30 + n as i32 * STEP;
        let middle = top + BAR / 2;
        let colours = if name.starts_with("netwheel") { OWN } else { OTHERS };
        let mut end = LEFT;
        for (part, colour) in parts(rounds).into_iter().zip(colours) {
            let begin = end;
            end += (part / longest * LONGEST) as i32;
            area.draw(&Rectangle::new([(begin, top), (end, top + BAR)], colour.filled()))?;
        }
        write(area, name, (LEFT - 6, middle), 12, HPos::Right)?;
        let text = value(scenario, rounds, base).unwrap_or_default();
        write(area, &text, (end + 6, middle), 12, HPos::Left)?;
    }
    Ok(())
}

fn write<B: DrawingBackend>(area: &Area<B>, text: &str, at: (i32, i32), size: i32, side: HPos) -> Drawn<B> {
    let style = ("sans-serif", size).into_text_style(area).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_string(), at, style))
}
