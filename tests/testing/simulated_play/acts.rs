//! Operations of a handler on its loop, which threads request.

use super::{
    frames::Wire,
    kit::{Draw, MS, Play},
    links::End,
    player::{Player, later},
};
use netwheel::{prelude::*, testing::simulation::sleep, time::Periodic};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Write { count: u64, size: usize, tracked: bool },
    Stream { count: u32, size: usize },
    Flush,
    AutoReadOff { pause: Duration },
    HoldInput { pause: Duration, bytes: usize },
    PauseReading { pause: Duration },
    Replace { wire: Wire },
    Offload { pause: Duration },
    Schedule { count: u64, delay: Duration, cancels: bool },
    Tick { period: Duration, runs: u32 },
    OnComplete { delay: Duration },
    Busy { time: Duration },
    Fail,
    ShutdownWrite,
    Close,
    CloseWith { size: usize },
    CloseNow,
    Reset,
}

impl Act {
    /// Draws something after which the connection goes on.
    pub(super) fn harmless(draw: &mut Draw, size: usize) -> Self {
        match draw.below(18) {
            0..=3 => Act::Write { count: 1 + draw.below(20), size, tracked: draw.chance(50) },
            4 | 5 => Act::Stream { count: 1 + draw.below(60) as u32, size },
            6 => Act::Flush,
            7 | 8 => Act::AutoReadOff { pause: draw.millis(300) },
            9 => Act::HoldInput { pause: draw.millis(200), bytes: draw.pick(&[1, 100, 1 << 20]) },
            10 => Act::PauseReading { pause: draw.millis(200) },
            11 => Act::Replace { wire: draw.pick(&Wire::ALL) },
            12 => Act::Offload { pause: draw.millis(50) },
            13 | 14 => {
                Act::Schedule { count: 1 + draw.below(8), delay: draw.millis(300), cancels: draw.chance(30) }
            }
            15 => Act::Tick { period: MS + draw.millis(50), runs: 1 + draw.below(5) as u32 },
            16 => Act::OnComplete { delay: draw.millis(100) },
            _ => Act::Busy { time: draw.millis(20) },
        }
    }

    /// Draws something that ends the connection, or half of it.
    pub(super) fn ending(draw: &mut Draw, size: usize) -> Self {
        match draw.below(8) {
            0 => Act::Fail,
            1 => Act::ShutdownWrite,
            2 | 3 => Act::Close,
            4 => Act::CloseWith { size },
            5 => Act::CloseNow,
            _ => Act::Reset,
        }
    }
}

/// Owned by a task of a channel. Counts the task as lost if it is dropped without a reason.
struct Task {
    play: Play,
    end: Option<Arc<End>>,
    is_over: Arc<AtomicBool>,
}

impl Task {
    fn new(player: &Player) -> Self {
        let end = player.end.clone();
        if let Some(end) = &end {
            end.facts(|facts| facts.open_tasks += 1);
        }
        Task { play: player.links.play.clone(), end, is_over: Arc::default() }
    }

    fn ran(self) {
        self.is_over.store(true, SeqCst);
        if let Some(end) = &self.end {
            self.play
                .must(!end.has_ended(), || format!("link {}: a task of a closed channel runs", end.link));
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let (Some(end), is_over) = (&self.end, self.is_over.load(SeqCst)) else { return };
        end.facts(|facts| {
            facts.open_tasks -= 1;
            facts.lost_tasks += u32::from(!is_over);
        });
    }
}

pub(super) fn act(player: &mut Player, ctx: &mut Context<'_, Player>, act: Act) -> Result {
    match act {
        Act::Write { count, size, tracked } => (0..count).for_each(|_| player.write_next(ctx, size, tracked)),
        Act::Stream { count, size } => {
            if let Some(end) = &player.end {
                end.facts(|facts| (facts.streaming, facts.stream_size) = (count, size));
            }
            player.stream(ctx);
        }
        Act::Flush => ctx.flush(),
        Act::AutoReadOff { pause } => {
            ctx.set_auto_read(false);
            let me = ctx.handler_ref();
            ctx.read();
            later(ctx, pause, move || read_again(me));
        }
        Act::HoldInput { pause, bytes } => {
            let guard = ctx.hold_input(bytes);
            later(ctx, pause, move || drop(guard));
        }
        Act::PauseReading { pause } => {
            let guard = ctx.pause_reading();
            later(ctx, pause, move || drop(guard));
        }
        Act::Replace { wire } => {
            let successor = player.successor();
            if let Some(end) = &player.end {
                end.facts(|facts| facts.loses_tasks = true);
            }
            let _ = ctx.replace_pipeline(wire.pipeline(successor));
        }
        Act::Offload { pause } => {
            let task = Task::new(player);
            let refused = ctx.offload(
                move || sleep(pause),
                move |player: &mut Player, ctx, _| {
                    task.ran();
                    player.write_next(ctx, 50, false);
                    Ok(())
                },
            );
            if let (Err(_), Some(end)) = (refused, &player.end) {
                end.facts(|facts| facts.loses_tasks = true);
            }
        }
        Act::Schedule { count, delay, cancels } => schedule(player, ctx, count, delay, cancels),
        Act::Tick { period, runs } => {
            let (mut left, play, begun) = (runs, player.links.play.clone(), ctx.now());
            let _ = ctx.schedule_periodic(Periodic::fixed_rate(period), move |player: &mut Player, ctx| {
                play.must(ctx.now() >= begun + period, || "a periodic task runs too early".to_owned());
                player.write_next(ctx, 5, false);
                left -= 1;
                if left == 0 { Err(Error::Cancelled) } else { Ok(()) }
            });
        }
        Act::OnComplete { delay } => {
            let (completer, completion) = ctx.completer::<u64>();
            let task = Task::new(player);
            ctx.on_complete(completion, move |player, ctx, result| {
                task.ran();
                player.links.play.must(result.is_ok_and(|value| value == 7), || "another result".to_owned());
                player.write_next(ctx, 10, true);
                Ok(())
            });
            later(ctx, delay, move || completer.complete(Ok(7)));
        }
        Act::Busy { time } => sleep(time),
        Act::Fail => {
            // What was written is sent, and the connection ends in order.
            if let Some(end) = &player.end {
                end.facts(|facts| facts.is_cut = true);
            }
            return Err("the play wants an error".into());
        }
        Act::ShutdownWrite => {
            close(player);
            ctx.shutdown_write();
        }
        Act::Close => {
            close(player);
            ctx.close();
        }
        Act::CloseWith { size } => {
            close(player);
            player.write_next(ctx, size, true);
            ctx.close();
        }
        Act::CloseNow => {
            // Nothing may be unsent, so the peer may see a clean end.
            if let Some(end) = &player.end {
                end.facts(|facts| facts.is_cut = true);
            }
            ctx.close_now();
        }
        Act::Reset => {
            if ctx.is_open() {
                cut(player);
            }
            ctx.reset();
        }
    }
    Ok(())
}

/// Turns on auto-read. A loop with a full queue may refuse this.
pub(super) fn read_again(me: HandlerRef<Player>) {
    let _ = me.execute(|_, ctx| {
        ctx.set_auto_read(true);
        Ok(())
    });
}

fn schedule(player: &mut Player, ctx: &mut Context<'_, Player>, count: u64, delay: Duration, cancels: bool) {
    for n in 0..count {
        let (task, begun) = (Task::new(player), ctx.now());
        let is_over = task.is_over.clone();
        let key = ctx.schedule(delay, move |player: &mut Player, ctx| {
            let early = ctx.now() < begun + delay;
            player.links.play.must(!early, || "a task runs too early".to_owned());
            task.ran();
            player.write_next(ctx, 20, false);
            Ok(())
        });
        if cancels && n % 2 == 0 {
            is_over.store(true, SeqCst);
            ctx.cancel(key);
            player.links.play.must(!ctx.cancel(key), || "a task was cancelled twice".to_owned());
            player
                .links
                .play
                .must(ctx.deadline(key).is_none(), || "a cancelled task has a deadline".to_owned());
        }
    }
}

fn close(player: &Player) {
    if let Some(end) = &player.end {
        end.will_close();
    }
}

fn cut(player: &Player) {
    if let Some(end) = &player.end {
        end.will_cut();
    }
}
