//! Operations of a handler in the play `equipment`, which threads request.

use super::{
    keeper::{End, Keeper, Recorder},
    kit::{Draw, MS, SECOND, lock},
    wire,
};
use bytes::Bytes;
use netwheel::{codec::RawBytes, prelude::*, testing::simulation::sometimes, time::Periodic};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

/// Lets the handler of one end do something.
pub(super) fn use_end(end: &Arc<End>, draw: &mut Draw) {
    let Some(handler) = lock(&end.handler).clone() else { return };
    let (length, pause) = (draw.pick(&[0, 1, 30, 5000]), draw.millis(60));
    let bytes = Bytes::from((0..length).map(|n| (n * 31 + draw.below(256)) as u8).collect::<Vec<_>>());
    let choice = draw.below(10);
    let _ = handler.execute(move |keeper: &mut Keeper, ctx| {
        let end = keeper.end.clone();
        match choice {
            0..=2 => ctx.write(bytes)?,
            3 => keeper.spawn(ctx, bytes, pause),
            4 => {
                ctx.set_wire_log(None);
                lock(&end.records).get_or_insert_with(|| wire::len(&end.target));
            }
            5 => keeper.replace(ctx),
            6 => {
                let idle = IdleTimeouts::new().writer(20 * SECOND).jitter(SECOND);
                ctx.set_idle_timeouts(idle);
                end.must(ctx.idle_timeouts() == idle, || "other idle timeouts".to_owned());
                ctx.reset_idle_of(IdleState::Writer);
                ctx.reset_idle();
            }
            7 => {
                let limits = ctx.time_limits().write(90 * SECOND);
                ctx.set_time_limits(limits);
                end.must(ctx.time_limits() == limits && !limits.is_off(), || "other limits".to_owned());
            }
            8 => {
                let (before, guard) = (ctx.held_bytes(), ctx.hold_input(100));
                end.must(guard.bytes() == 100 && ctx.held_bytes() == before + 100, || format!("{guard:?}"));
                drop(guard);
                end.must(ctx.held_bytes() == before, || "released bytes are held".to_owned());
            }
            _ => keeper.tick(ctx),
        }
        Ok(())
    });
}

/// Owned by a callback that may be dropped only when its channel has ended.
struct Callback {
    end: Arc<End>,
    channel: Channel<Bytes>,
    is_called: bool,
}

impl Callback {
    fn called(mut self) {
        self.is_called = true;
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        let is_lost = !self.is_called
            && !self.end.is_replaced.load(SeqCst)
            && self.channel.is_open()
            && !self.end.is_over.load(SeqCst);
        self.end.must(!is_lost, || "the result of a future is lost".to_owned());
    }
}

impl Keeper {
    /// Spawns a future that sends a message from the executor.
    fn spawn(&mut self, ctx: &mut Context<'_, Self>, bytes: Bytes, pause: Duration) {
        let (completer, completion) = ctx.completer::<u32>();
        ctx.schedule(pause, move |_, _| {
            completer.complete(Ok(7));
            Ok(())
        });
        let (channel, length) = (ctx.channel(), bytes.len());
        let callback = Callback { end: self.end.clone(), channel: channel.clone(), is_called: false };
        let future = async move {
            let number = completion.await?;
            channel.send(bytes).await.map_err(|refused| refused.into_parts().1)?;
            Ok::<_, Error>(number)
        };
        let spawned = ctx.spawn(future, move |me: &mut Self, ctx, result| {
            callback.called();
            if let Ok(Ok(number)) = result {
                sometimes("a future has sent a message");
                me.end.must(number == 7, || format!("the result of a future is {number}"));
                let stats = ctx.stats();
                me.end.must(stats.messages_written > 0, || format!("{length} bytes of a future: {stats:?}"));
            }
            Ok(())
        });
        let is_open = ctx.is_open();
        self.end.must(spawned.is_ok() || !is_open, || "a future is refused".to_owned());
    }

    /// Replaces the pipeline by one with another attribute. The others stay.
    fn replace(&mut self, ctx: &mut Context<'_, Self>) {
        let (end, marks) = (self.end.clone(), ctx.attributes().len());
        let is_logged = lock(&end.records).is_none();
        let before = ctx.attributes_mut().insert(AtomicU32::new(marks as u32)).is_some();
        let removed = ctx.attributes_mut().remove::<AtomicU32>();
        end.must(!before && removed.is_some_and(|mark| mark.into_inner() == marks as u32), || {
            "an attribute is not the one that was inserted".to_owned()
        });
        end.is_replaced.store(true, SeqCst);
        let keeper = Keeper { end: end.clone(), ..*self };
        let builder = Pipeline::codec(RawBytes).attribute(AtomicBool::new(true));
        let builder = if is_logged { builder.wire_log(end.wire_log()) } else { builder };
        let stage = Recorder { end: end.clone(), due: None };
        let _ = ctx.replace_pipeline(builder.stage(stage).handler(keeper));
    }

    /// Lets a periodic task with jitter run a few times.
    fn tick(&mut self, ctx: &mut Context<'_, Self>) {
        let (begun, mut runs) = (ctx.now(), 0);
        let periodic = Periodic::fixed_delay(40 * MS).jitter(20 * MS);
        let _ = ctx.schedule_periodic(periodic, move |me: &mut Self, ctx| {
            runs += 1;
            // Jitter delays runs.
            let least = 40 * MS * runs;
            me.end.must(ctx.now() >= begun + least, || format!("run {runs} is early"));
            if runs == 4 { Err(Error::Cancelled) } else { Ok(()) }
        });
    }
}
