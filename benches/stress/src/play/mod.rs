//! The threads that play a plan's steps.

mod acts;
mod broadcast;
mod loops;
mod queries;
mod visits;
mod write;

pub(crate) use queries::drop_queries;

use crate::{
    plan::{Index, Side, Step},
    player::{End, Player, World},
    token::Kind,
};
use netwheel::{HandlerRef, shutdown::ShutdownOptions};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

pub(crate) struct Actor {
    pub(crate) number: usize,
    pub(crate) world: Arc<World>,
}

impl Actor {
    /// Plays all steps, or those before a violation.
    pub(crate) fn run(&self) {
        let world = self.world.clone();
        for (number, step) in world.plan.threads[self.number].iter().enumerate() {
            if !world.report.is_clean() {
                return;
            }
            world.report.operation(self.number, number, step);
            self.play(step);
        }
    }

    fn play(&self, step: &Step) {
        let world = &self.world;
        match *step {
            Step::Connect { link } => world.connect(link),
            Step::Write { link, side, ref burst } => {
                self.with(link, side, |end, handler| write::burst(self, end, handler.channel(), burst));
            }
            Step::Act { link, side, ref act } => {
                let act = act.clone();
                self.with(link, side, |_, handler| {
                    let _ = handler.execute(move |player, ctx| acts::act(player, ctx, act));
                });
            }
            Step::Schedule { link, side, millis } => self.with(link, side, |end, handler| {
                let end = Arc::downgrade(end);
                // A handle or nothing, depending on the version of the library.
                let scheduled = handler.channel().schedule(Duration::from_millis(millis), move |ctx| {
                    if let Some(end) = end.upgrade() {
                        debug_assert!(!end.facts.inactive.load(SeqCst));
                    }
                    ctx.flush();
                    Ok(())
                });
                drop(scheduled);
            }),
            Step::Stats { link, side } => {
                self.with(link, side, |_, handler| drop(handler.call(|_, ctx| Ok(ctx.stats()))));
            }
            Step::ShutdownWrite { link, side } => self.with(link, side, |end, handler| {
                end.facts.will_close();
                handler.channel().shutdown_write();
            }),
            Step::Close { link, side } => self.with(link, side, |end, handler| {
                end.facts.will_close();
                let token = world.tokens.token(Kind::Closed);
                handler.channel().closed().on_complete(move |_| token.called());
                handler.channel().close();
            }),
            Step::CloseNow { link, side } => self.with(link, side, |end, handler| {
                end.facts.will_cut();
                handler.channel().close_now();
            }),
            Step::Reset { link, side } => self.with(link, side, |end, handler| {
                end.facts.will_cut();
                handler.channel().reset();
            }),
            Step::Queries { link, side, query, count } => self.with(link, side, |_, handler| {
                drop_queries(world, handler.channel(), query, count);
            }),
            Step::Broadcast { room, count, size, to, report } => {
                broadcast::broadcast(self, room, count, size, to, report);
            }
            Step::Rejoin { room, link, side } => self.with(link, side, |_, handler| {
                let room = &world.rooms[room];
                if !room.members.leave(handler.channel().id()) {
                    room.join(handler.channel());
                }
            }),
            Step::CloseRoom { room } => close_room(world, room),
            Step::Busy { group, event_loop, millis } => loops::busy(world, group, event_loop, millis),
            Step::LoopTasks { group, count } => loops::tasks(self, group, count),
            Step::Reconnect { server, visits } => visits::reconnect(self, server, visits),
            Step::Pool { server, size, visits } => visits::pool(self, server, size, visits),
            Step::Accepting { server, on } => {
                world.paused_servers.store(true, SeqCst);
                let _ = world.servers()[server].set_accepting(on);
            }
            Step::Pause { micros } => thread::sleep(Duration::from_micros(micros)),
            Step::Shutdown { group } => {
                world.shutting_down.store(true, SeqCst);
                let options = ShutdownOptions::new()
                    .quiet_period(Duration::from_millis(10))
                    .timeout(Duration::from_millis(300));
                let token = world.tokens.token(Kind::LoopTask);
                world.groups[group].shutdown(options).on_complete(move |_| token.called());
            }
        }
    }

    /// Calls `play` with the handle of the link's end, if it is connected.
    fn with(&self, link: Index, side: Side, play: impl FnOnce(&Arc<End>, &HandlerRef<Player>)) {
        let end = self.world.links[link].end(side);
        if let Some(handler) = end.handler() {
            play(end, &handler);
        }
    }
}

/// Closes all members of a room, and notes it at their ends first.
pub(crate) fn close_room(world: &Arc<World>, room: Index) {
    let _closing = world.rooms[room].gate.write().unwrap_or_else(PoisonError::into_inner);
    for link in &world.links {
        for end in [&link.client, &link.server] {
            if end.handler().is_some_and(|handler| world.rooms[room].members.contains(handler.channel().id()))
            {
                end.facts.will_close();
            }
        }
    }
    let token = world.tokens.token(Kind::Closed);
    world.rooms[room].members.close().on_complete(move |_| token.called());
}
