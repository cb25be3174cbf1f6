//! Tasks of loops.

use super::Actor;
use crate::{plan::Index, player::World, token::Kind};
use netwheel::{EventLoop, time::Periodic};
use std::{sync::Arc, thread, time::Duration};

fn event_loop(world: &World, group: Index, number: Index) -> &EventLoop {
    let loops = world.groups[group].event_loops();
    &loops[number % loops.len()]
}

/// Blocks a loop, as a slow handler does.
pub(super) fn busy(world: &Arc<World>, group: Index, number: Index, millis: u64) {
    let _ = event_loop(world, group, number).execute(move || thread::sleep(Duration::from_millis(millis)));
}

pub(super) fn tasks(actor: &Actor, group: Index, count: u32) {
    let world = &actor.world;
    for n in 0..count {
        let event_loop = event_loop(world, group, n as usize);
        let delay = Duration::from_millis(u64::from(n));
        match n % 4 {
            0 => {
                let token = world.tokens.token(Kind::LoopTask);
                event_loop.call(|| 1).on_complete(move |_| token.called());
            }
            1 => {
                let Ok(task) = event_loop.schedule(delay, || 1) else { continue };
                if n % 8 == 1 {
                    task.cancel();
                }
                let token = world.tokens.token(Kind::LoopTask);
                task.completion().on_complete(move |_| token.called());
            }
            2 => {
                let mut runs = 0;
                let periodic = event_loop.schedule_periodic(
                    Periodic::fixed_delay(Duration::from_millis(1)),
                    move || {
                        runs += 1;
                        if runs < 5 { Ok(()) } else { Err("the plan wants it to end".into()) }
                    },
                );
                let Ok(task) = periodic else { continue };
                let token = world.tokens.token(Kind::LoopTask);
                task.completion().on_complete(move |_| token.called());
            }
            _ => drop(event_loop.execute_lazily(|| ())),
        }
    }
}
