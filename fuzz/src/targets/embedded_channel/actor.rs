//! The handler: it records its callbacks, and reacts to them as the input says.

use super::{
    journal::{Call, Journal},
    pipelines,
    plan::{Framing, Reaction},
};
use netwheel::{
    Context, Error, Handler, IdleEvent, IdleTimeouts, Result,
    bytes::Bytes,
    channel::{InputGuard, TaskKey},
    time::Periodic,
};
use std::time::Duration;

pub(super) struct Actor {
    journal: Journal,
    pipeline: u32,
    framing: Framing,
    guards: Vec<InputGuard>,
    task: Option<TaskKey>,
}

impl Actor {
    pub(super) fn new(journal: &Journal, framing: Framing) -> Self {
        let pipeline = journal.next_pipeline();
        Actor { journal: journal.clone(), pipeline, framing, guards: Vec::new(), task: None }
    }

    /// Records a callback and reacts to it. `otherwise` is called if the input has no reaction.
    fn act(
        &mut self,
        ctx: &mut Context<'_, Self>,
        call: Call,
        otherwise: impl FnOnce(&mut Context<'_, Self>),
    ) -> Result {
        let result = match self.journal.begin(self.pipeline, call) {
            Some(reaction) => self.react(ctx, reaction),
            None => {
                otherwise(ctx);
                Ok(())
            }
        };
        self.journal.end();
        result
    }

    fn react(&mut self, ctx: &mut Context<'_, Self>, reaction: Reaction) -> Result {
        match reaction {
            Reaction::Nothing => Ok(()),
            Reaction::Write(size) => ctx.write(self.journal.handler_message(size)),
            Reaction::WriteTracked(size) => {
                let message = self.journal.handler_message(size);
                let written = ctx.write_tracked(message)?;
                self.journal.track_handler(written);
                Ok(())
            }
            Reaction::WriteThrice(size) => {
                (0..3).try_for_each(|_| ctx.write(self.journal.handler_message(size)))
            }
            Reaction::Flush => {
                ctx.flush();
                Ok(())
            }
            Reaction::Close => {
                ctx.close();
                Ok(())
            }
            Reaction::CloseWith(size) => ctx.close_with(self.journal.handler_message(size)),
            Reaction::CloseNow => {
                ctx.close_now();
                Ok(())
            }
            Reaction::Reset => {
                ctx.reset();
                Ok(())
            }
            Reaction::ShutdownWrite => {
                ctx.shutdown_write();
                Ok(())
            }
            Reaction::Fail => Err(Error::other("on purpose")),
            Reaction::Schedule(millis) => {
                let delay = Duration::from_millis(millis.into());
                let task = ctx.schedule(delay, |me: &mut Self, ctx| me.act(ctx, Call::Task, |_| ()));
                self.task = Some(task);
                Ok(())
            }
            Reaction::SchedulePeriodic(millis) => {
                let period = Duration::from_millis(u64::from(millis) + 10);
                let tick = |me: &mut Self, ctx: &mut Context<'_, Self>| me.act(ctx, Call::Task, |_| ());
                self.task = Some(ctx.schedule_periodic(Periodic::fixed_rate(period), tick)?);
                Ok(())
            }
            Reaction::CancelTask => {
                self.task.take().map(|task| ctx.cancel(task));
                Ok(())
            }
            Reaction::Replace(framing, stages) => {
                if std::mem::discriminant(&framing) != std::mem::discriminant(&self.framing) {
                    self.journal.replace_framing();
                }
                ctx.replace_pipeline(pipelines::make(framing, stages, Actor::new(&self.journal, framing)))
            }
            Reaction::AutoRead(on) => {
                ctx.set_auto_read(on);
                Ok(())
            }
            Reaction::Read => {
                ctx.read();
                Ok(())
            }
            Reaction::PauseReading => {
                self.guards.push(ctx.pause_reading());
                Ok(())
            }
            Reaction::HoldInput(bytes) => {
                self.guards.push(ctx.hold_input(usize::from(bytes) << 13));
                Ok(())
            }
            Reaction::ReleaseInput => {
                self.guards.clear();
                Ok(())
            }
            Reaction::Offload => {
                let answer =
                    |me: &mut Self, ctx: &mut Context<'_, Self>, _| me.act(ctx, Call::Answer, |_| ());
                ctx.offload(|| (), answer).map(drop).map_err(Error::from)
            }
            Reaction::Idle(millis) => {
                let millis = Duration::from_millis(u64::from(millis) + 10);
                ctx.set_idle_timeouts(IdleTimeouts::new().reader(millis).writer(millis * 2).all(millis * 3));
                Ok(())
            }
        }
    }
}

impl Handler for Actor {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.act(ctx, Call::Active, |_| ())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.act(ctx, Call::Read(message.len()), |_| ())
    }

    fn read_complete(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.act(ctx, Call::ReadComplete, |_| ())
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        self.act(ctx, Call::Writability(writable), |_| ())
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        self.act(ctx, Call::Idle, |ctx| ctx.close())
    }

    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.act(ctx, Call::ReadClosed, |ctx| ctx.close())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.act(ctx, Call::Error(error.to_string()), |ctx| ctx.close())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.act(ctx, Call::Inactive, |_| ())
    }
}
