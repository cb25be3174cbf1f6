//! The timeline as SVG: deliveries per second of each fault, with what happened.

use crate::play::Outcome;
use std::fmt::Write;

const WIDTH: f64 = 800.0;
/// Height of the panel of a fault, with its title and its axis.
const PANEL: f64 = 150.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 32.0;
const BOTTOM: f64 = 24.0;

/// Returns the picture.
pub(crate) fn svg(outcomes: &[Outcome]) -> String {
    let height = PANEL * outcomes.len() as f64 + 10.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    let longest = outcomes.iter().map(|outcome| outcome.timeline.len()).max().unwrap_or(1).max(1);
    for (number, outcome) in outcomes.iter().enumerate() {
        panel(&mut text, outcome, number as f64 * PANEL, longest as f64);
    }
    text.push_str("</svg>\n");
    text
}

fn panel(text: &mut String, outcome: &Outcome, y: f64, longest: f64) {
    let (top, bottom) = (y + TOP, y + PANEL - BOTTOM);
    let most = f64::from(outcome.timeline.iter().copied().max().unwrap_or(1).max(1));
    let right = WIDTH - 15.0;
    let x_of = |second: f64| LEFT + (right - LEFT) * second / longest;
    let title = outcome.fault.title().replace('`', "");
    let _ = writeln!(text, "<text x=\"{LEFT}\" y=\"{}\" font-size=\"14\">{title}</text>", y + 18.0);
    let axis = format!("<path d=\"M{LEFT} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"#888888\"/>");
    let _ = writeln!(text, "{axis}");
    for (value, at) in [(most, top), (0.0, bottom)] {
        let x = LEFT - 6.0;
        let style = "font-size=\"11\" text-anchor=\"end\"";
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{}\" {style}>{value:.0}/s</text>", at + 4.0);
    }
    for second in (0..=longest as u32).step_by(10) {
        let (x, y) = (x_of(second.into()), bottom + 14.0);
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y}\" font-size=\"11\">{second} s</text>");
    }
    let mut line = String::new();
    for (second, deliveries) in outcome.timeline.iter().enumerate() {
        let height = (bottom - top) * f64::from(*deliveries) / most;
        let _ = write!(line, "{:.1},{:.1} ", x_of(second as f64 + 0.5), bottom - height);
    }
    let style = "fill=\"none\" stroke=\"#245ca6\" stroke-width=\"2\"";
    let _ = writeln!(text, "<polyline points=\"{}\" {style}/>", line.trim_end());
    for (at, what) in &outcome.marks {
        let x = x_of(at.as_secs_f64());
        let style = "stroke=\"#c42e2e\" stroke-dasharray=\"3 2\"";
        let _ = writeln!(text, "<path d=\"M{x:.1} {top}V{bottom}\" {style}/>");
        let (x, y, style) = (x + 3.0, top - 2.0, "font-size=\"11\" fill=\"#c42e2e\"");
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y}\" {style}>{what}</text>");
    }
}
