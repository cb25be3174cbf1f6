//! What a handler does on its loop when a thread asks for it.

use crate::{life::TaskToken, network::pipeline, plan::Act, player::Player};
use netwheel::prelude::*;
use std::{
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

pub(super) fn act(player: &mut Player, ctx: &mut Context<'_, Player>, act: Act) -> Result {
    match act {
        Act::Write { count, size, tracked } => {
            (0..count).for_each(|_| player.write_next(ctx, size, tracked));
        }
        Act::Stream { count, size } => {
            note(player, |facts| {
                facts.streaming.store(count, SeqCst);
                facts.stream_size.store(size as u32, SeqCst);
            });
            player.stream(ctx);
        }
        Act::Flush => ctx.flush(),
        Act::AutoReadOff { millis } => {
            ctx.set_auto_read(false);
            // If the loop refuses the task, the round turns it on when it comes to rest.
            let me = ctx.handler_ref();
            ctx.read();
            resume(ctx, millis, move || {
                let _ = me.execute(|_, ctx| {
                    ctx.set_auto_read(true);
                    Ok(())
                });
            });
        }
        Act::HoldInput { millis, bytes } => {
            let guard = ctx.hold_input(bytes);
            resume(ctx, millis, move || drop(guard));
        }
        Act::PauseReading { millis } => {
            let guard = ctx.pause_reading();
            resume(ctx, millis, move || drop(guard));
        }
        Act::Replace { wire } => {
            let successor = player.successor();
            if ctx.replace_pipeline(pipeline(wire, successor)).is_ok() {
                player.life.replaced.fetch_add(1, SeqCst);
            }
        }
        Act::Offload { micros } => {
            let token = TaskToken::new(&player.life);
            let refused = ctx.offload(
                move || thread::sleep(Duration::from_micros(micros)),
                move |player, ctx, _| {
                    token.ran();
                    player.write_next(ctx, 50, false);
                    Ok(())
                },
            );
            if refused.is_err() {
                player.life.loses_tasks.store(true, SeqCst);
            }
        }
        Act::Spawn { count } => spawn(player, ctx, count),
        Act::Schedule { count, millis, cancel } => {
            for n in 0..count {
                let token = TaskToken::new(&player.life);
                let cancelled = token.cancelled();
                let began = Instant::now();
                let delay = Duration::from_millis(millis);
                let key = ctx.schedule(delay, move |player: &mut Player, ctx| {
                    token.ran();
                    debug_assert!(began.elapsed() >= delay);
                    player.write_next(ctx, 20, false);
                    Ok(())
                });
                if cancel && n % 2 == 0 {
                    cancelled.store(true, SeqCst);
                    ctx.cancel(key);
                }
            }
        }
        Act::OnComplete { millis } => {
            let (completer, completion) = ctx.completer::<u64>();
            let token = TaskToken::new(&player.life);
            ctx.on_complete(completion, move |player, ctx, _| {
                token.ran();
                player.write_next(ctx, 10, true);
                Ok(())
            });
            resume(ctx, millis, move || completer.complete(Ok(millis)));
        }
        Act::Fail => {
            if let Some(end) = &player.end {
                end.facts.failed.store(true, SeqCst);
            }
            return Err("the plan wants an error".into());
        }
        Act::ShutdownWrite => {
            note(player, |facts| facts.will_close());
            ctx.shutdown_write();
        }
        Act::Close => {
            note(player, |facts| facts.will_close());
            ctx.close();
        }
        Act::CloseWith { size } => {
            note(player, |facts| facts.will_close());
            player.write_next(ctx, size, true);
            ctx.close();
        }
        Act::CloseNow => {
            note(player, |facts| facts.will_cut());
            ctx.close_now();
        }
        Act::Reset => {
            if ctx.is_open() {
                note(player, |facts| facts.will_reset());
            }
            ctx.reset();
        }
    }
    Ok(())
}

fn note(player: &Player, note: impl FnOnce(&crate::link::Facts)) {
    if let Some(end) = &player.end {
        note(&end.facts);
    }
}

/// Runs `what` after a while, on a worker's or the loop's thread, also when the channel has closed.
fn resume(ctx: &Context<'_, Player>, millis: u64, what: impl FnOnce() + Send + 'static) {
    let Some(event_loop) = ctx.channel().event_loop() else { return };
    // If the loop is full, `what` runs now: it is dropped with the task otherwise.
    match event_loop.schedule(Duration::from_millis(millis), || ()) {
        Ok(task) => task.completion().on_complete(move |_| what()),
        Err(_) => what(),
    }
}

fn spawn(player: &mut Player, ctx: &mut Context<'_, Player>, count: u32) {
    let (channel, life) = (ctx.channel(), player.life.clone());
    let token = TaskToken::new(&life);
    let future = async move {
        for _ in 0..count {
            let _ = channel.writable().is_done();
            std::future::ready(()).await;
        }
        count
    };
    let spawned = ctx.spawn(future, move |player, ctx, _| {
        token.ran();
        player.write_next(ctx, 30, false);
        Ok(())
    });
    if spawned.is_err() {
        life.loses_tasks.store(true, SeqCst);
    }
}
