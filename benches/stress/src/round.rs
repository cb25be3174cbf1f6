//! One round: a world is built from a plan, played, brought to rest, ended and checked.

use crate::{
    check,
    plan::{Ending, Plan},
    play::{self, Actor},
    player::World,
    report::{Invariant, Report},
    resources::spinning,
    watchdog::{MAX_WAIT, Watchdog, describe},
};
use netwheel::{Completion, Error, shutdown::ShutdownOptions};
use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

pub(crate) fn play(plan: Plan, report: &Arc<Report>, watchdog: &Watchdog) {
    let world = match World::build(plan, report.clone()) {
        Ok(world) => world,
        Err(error) => {
            return report.violation(Invariant::NoFault, format!("the world cannot be built: {error:#}"));
        }
    };
    watchdog.watch(Some(world.clone()));
    report.enter("connecting");
    for link in (0..world.links.len()).filter(|link| world.plan.links[*link].early) {
        world.connect(link);
    }
    report.enter("playing");
    let actor = |number: usize| {
        let actor = Actor { number, world: world.clone() };
        let name = format!("player-{number}");
        thread::Builder::new().name(name).spawn(move || actor.run()).expect("a thread can be started")
    };
    let actors: Vec<_> = (0..world.plan.threads.len()).map(actor).collect();
    for actor in actors {
        if actor.join().is_err() {
            report.violation(Invariant::NoFault, "a thread of the program has panicked");
        }
    }
    for server in world.servers() {
        let _ = server.set_accepting(true);
    }
    report.enter("coming to rest");
    check::come_to_rest(&world);
    check::honest_ends(&world);
    report.enter("resting");
    if report.is_clean() {
        check::at_rest(&world);
    }
    report.enter("ending");
    end(&world);
    report.enter("checking");
    if report.is_clean() {
        check::after_the_end(&world);
    }
    watchdog.watch(None);
    world.let_go();
}

fn end(world: &Arc<World>) {
    world.ending.store(true, SeqCst);
    match world.plan.ending {
        Ending::Shutdown => {}
        Ending::CloseAll => {
            for end in world.links.iter().flat_map(|link| [&link.client, &link.server]) {
                if let Some(handler) = end.handler() {
                    end.facts.will_close();
                    handler.channel().close();
                }
            }
        }
        Ending::CloseRooms => (0..world.rooms.len()).for_each(|room| play::close_room(world, room)),
    }
    world.shutting_down.store(true, SeqCst);
    let timeout = Duration::from_millis(500);
    let options = || ShutdownOptions::new().quiet_period(Duration::from_millis(20)).timeout(timeout);
    let shutdowns: Vec<_> = world.groups.iter().map(|group| group.shutdown(options())).collect();
    for (group, shutdown) in shutdowns.into_iter().enumerate() {
        if let Err(fault) = wait(shutdown, timeout) {
            let names = ["clients", "relays", "servers"];
            let spins = spinning(Duration::from_millis(300));
            let state = describe(world);
            let detail =
                format!("the shutdown of the {} {fault}; loops that spin: {spins:?}{state}", names[group]);
            return world.report.violation(Invariant::Progress, detail);
        }
    }
}

fn wait<T>(mut completion: Completion<T>, timeout: Duration) -> Result<(), String> {
    let until = Instant::now() + timeout + MAX_WAIT;
    let mut turn = timeout + Duration::from_secs(1);
    loop {
        completion = match completion.wait_timeout(turn) {
            Ok(Ok(_) | Err(Error::ShutDown)) => return Ok(()),
            Ok(Err(error)) => return Err(format!("fails: {error:#}")),
            Err(pending) => pending,
        };
        turn = Duration::from_millis(500);
        // Loops that work to the end of their shutdown do not work for a second.
        if Instant::now() > until || !spinning(2 * turn).is_empty() && !completion.is_done() {
            return Err(format!("does not end, with a timeout of {timeout:?}"));
        }
    }
}
