//! Random pauses of several stages, compared with a model: every line is delivered once, in order,
//! and none while a stage pauses.

use super::Probe;
use crate::support::journal::Log;
use netwheel::{codec::Line, prelude::*, testing::EmbeddedChannel};
use proptest::prelude::*;
use std::{cell::Cell, collections::VecDeque, rc::Rc, time::Duration};

const STAGES: usize = 3;

/// What happens to the channel.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The peer sends a line that has no effect.
    Line,
    /// The peer sends a line at which these stages pause, as a bit mask.
    Pausing(u8),
    /// A part of a line, without its end.
    Part,
    /// A task of a stage runs, and resumes reading.
    Resume(usize),
    Flip,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Line),
        2 => (1u8..8).prop_map(Step::Pausing),
        1 => Just(Step::Part),
        4 => (0..STAGES).prop_map(Step::Resume),
        1 => Just(Step::Flip),
    ];
    prop::collection::vec(step, 1..60)
}

/// The stages that pause, and the lines that wait.
#[derive(Default)]
struct Model {
    paused: u8,
    auto_read_off: bool,
    waiting: VecDeque<(String, u8)>,
    partial: String,
    delivered: Vec<String>,
}

impl Model {
    fn deliver(&mut self) {
        while self.paused == 0 && !self.auto_read_off {
            let Some((line, pauses)) = self.waiting.pop_front() else { return };
            self.delivered.push(line);
            self.paused |= pauses;
        }
    }
}

/// A stage that pauses at the lines whose mask has its bit, and resumes when the test asks for it.
fn stage(index: usize, log: &Log, resume: Rc<Cell<bool>>) -> Probe {
    fn poll(ctx: &mut netwheel::StageContext<'_, Probe>, resume: Rc<Cell<bool>>) {
        ctx.schedule(Duration::from_millis(1), move |_, ctx| {
            if resume.take() {
                ctx.resume_reading();
            }
            poll(ctx, resume);
            Ok(())
        });
    }
    Probe::with("stage", log, move |ctx, event| {
        if event == "active" {
            poll(ctx, resume.clone());
        } else if let Some(line) = event.strip_prefix("read ") {
            let mask: u8 = line.split(' ').next_back().and_then(|mask| mask.parse().ok()).unwrap_or(0);
            if mask & 1 << index != 0 {
                ctx.pause_reading();
            }
        }
        None
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_pauses_deliver_each_line_once_and_in_order(steps in steps()) {
        let log = Log::new();
        let resume: [Rc<Cell<bool>>; STAGES] = Default::default();
        let [a, b, c] = [0, 1, 2].map(|index| stage(index, &log, resume[index].clone()));
        let seen = Log::new();
        let lines = seen.clone();
        let pipeline = Pipeline::codec(Line::new()).stage(a).stage(b).stage(c);
        let pipeline = pipeline.on_read(move |_, line| {
            lines.push(super::text(&line));
            Ok(())
        });
        let mut channel = EmbeddedChannel::new(pipeline);
        let mut model = Model::default();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Line | Step::Pausing(_) => {
                    let mask = if let Step::Pausing(mask) = step { mask } else { 0 };
                    let line = format!("line {number} {mask}");
                    channel.write_inbound(format!("{line}\n").as_bytes()).unwrap();
                    let line = std::mem::take(&mut model.partial) + &line;
                    model.waiting.push_back((line, mask));
                }
                Step::Part => {
                    channel.write_inbound(b"part ").unwrap();
                    model.partial.push_str("part ");
                }
                Step::Resume(stage) => {
                    resume[stage].set(true);
                    channel.advance(Duration::from_millis(2));
                    model.paused &= !(1 << stage);
                }
                Step::Flip => {
                    model.auto_read_off = !model.auto_read_off;
                    let on = !model.auto_read_off;
                    channel.channel().execute(move |ctx| { ctx.set_auto_read(on); Ok(()) }).unwrap();
                    channel.run_pending();
                }
            }
            model.deliver();
            prop_assert_eq!(seen.all(), model.delivered.clone());
        }
    }
}
