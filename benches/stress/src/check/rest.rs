//! The checks after the threads have stopped: accepted bytes have arrived, and no waiter is left.

use crate::{
    plan::Query,
    play::drop_queries,
    player::{End, Link, World},
    report::Invariant,
    resources::{heap, spinning},
    watchdog::MAX_WAIT,
};
use netwheel::Error;
use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

/// Waits until all bytes written on settled links have arrived.
pub(crate) fn come_to_rest(world: &Arc<World>) {
    for end in world.links.iter().flat_map(|link| [&link.client, &link.server]) {
        read_again(end);
    }
    let mut last = (0, Instant::now());
    loop {
        if !world.report.is_clean() || world.shutting_down.load(SeqCst) {
            return;
        }
        let waiting = first_waiting(world);
        let received = |link: &Link| link.client.input.total_received() + link.server.input.total_received();
        let moved = world.links.iter().map(received).sum::<u64>();
        if moved != last.0 {
            last = (moved, Instant::now());
        }
        let still = last.1.elapsed();
        match waiting {
            Some(waiting) if still > MAX_WAIT => {
                let detail = format!("nothing has moved for {MAX_WAIT:?}: {waiting}");
                return world.report.violation(Invariant::Delivery, detail);
            }
            // Messages of links whose policy drops some, and of links that end, move as well.
            None if still > Duration::from_millis(30) => return,
            _ => thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Turns on auto-read, which a loop with a full queue may have refused.
fn read_again(end: &End) {
    let read = || {
        let Some(handler) = end.handler() else { return Ok(()) };
        handler.execute(|_, ctx| {
            ctx.set_auto_read(true);
            Ok(())
        })
    };
    eventually(|| !matches!(read(), Err(Error::Full { .. })));
}

fn settled(link: &Link) -> bool {
    link.client.is_settled() && link.server.is_settled()
}

fn first_waiting(world: &World) -> Option<String> {
    world.links.iter().enumerate().filter(|(_, link)| settled(link)).find_map(|(number, link)| {
        let up = link.client.output.missing().map(|missing| format!("from client to server {missing}"));
        let down = || link.server.output.missing().map(|missing| format!("from server to client {missing}"));
        let missing =
            up.or_else(down).or_else(|| unwritten(&link.client)).or_else(|| unwritten(&link.server))?;
        // A link that ends during the wait is not checked for delivery.
        settled(link).then(|| {
            let relayed = if link.relayed { " (relayed)" } else { "" };
            format!("link {number}{relayed}: {missing}; {}; {}", state(&link.client), state(&link.server))
        })
    })
}

fn unwritten(end: &End) -> Option<String> {
    let left = end.facts.streaming.load(SeqCst);
    (left > 0).then(|| format!("{:?} has {left} messages to write when it becomes writable", end.side))
}

fn state(end: &End) -> String {
    let Some(handler) = end.handler() else { return format!("{:?} has no handler", end.side) };
    let stats = handler.call(|_, ctx| {
        let text = format!(
            "auto-read {}, held {}, pending {}, writable {}",
            ctx.auto_read(),
            ctx.held_bytes(),
            ctx.pending_bytes(),
            ctx.is_writable()
        );
        Ok(text)
    });
    match stats.wait_timeout(Duration::from_millis(500)) {
        Ok(Ok(text)) => format!("{:?}: {text}", end.side),
        _ => format!("{:?} does not answer", end.side),
    }
}

/// Checks a world in which nothing moves.
pub(crate) fn at_rest(world: &Arc<World>) {
    if world.shutting_down.load(SeqCst) {
        return;
    }
    tasks(world);
    writability(world);
    spins(world);
    dropped_queries(world);
}

/// What still ends, or drops messages, may take its time on a busy machine, but ends.
fn spins(world: &World) {
    if spinning(Duration::from_millis(50)).is_empty() {
        return;
    }
    // A link that ends may still send a long queue, through relays that read a few bytes at a time.
    let spins = || {
        let before = bytes_read(world);
        let spins = spinning(Duration::from_millis(500));
        if bytes_read(world) == before { spins } else { vec![] }
    };
    let Some(spins) = (0..8).map(|_| spins()).reduce(|last, now| if last.is_empty() { last } else { now })
    else {
        return;
    };
    if !spins.is_empty() {
        let detail = format!("nothing happens, and loops spin: {}", spins.join(", "));
        world.report.violation(Invariant::Progress, detail);
    }
}

/// Returns the number of bytes that all loops have read.
fn bytes_read(world: &World) -> u64 {
    let metrics = world.groups.iter().flat_map(|group| group.metrics());
    metrics.map(|metrics| metrics.bytes_read).sum()
}

/// Waits for `done`, and returns whether it came.
fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + MAX_WAIT;
    while !done() {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}

fn tasks(world: &World) {
    for life in world.lives() {
        if !eventually(|| !life.is_open() || life.open_tasks() == 0) {
            let detail = format!("{} tasks of an open channel have not run", life.open_tasks());
            world.report.violation(Invariant::Completions, detail);
            return;
        }
        let lost = life.lost_tasks();
        // A channel that closes drops its tasks first, and calls `inactive` later.
        if lost > 0 && !eventually(|| !life.is_open()) {
            world
                .report
                .violation(Invariant::Completions, format!("an open channel has dropped {lost} tasks"));
        }
    }
}

fn writability(world: &Arc<World>) {
    for link in &world.links {
        for end in [&link.client, &link.server] {
            let Some(handler) = end.handler() else { continue };
            if !settled(link) || !end.input_is_read(link) {
                continue;
            }
            if !eventually(|| !settled(link) || handler.channel().is_writable()) {
                let detail = format!(
                    "link {} {:?} is not writable, though everything has arrived; {}",
                    end.link,
                    end.side,
                    state(end)
                );
                world.report.violation(Invariant::Writability, detail);
                return;
            }
        }
    }
}

impl End {
    /// Whether everything that this end has written is known to be read: links whose policy drops
    /// messages cannot tell.
    fn input_is_read(&self, link: &Link) -> bool {
        self.output.missing().is_none() && settled(link)
    }
}

/// Drops many completions of each query. Any growth of the heap is memory that they keep.
fn dropped_queries(world: &Arc<World>) {
    const COUNT: u32 = 4000;
    /// Below 16 bytes for each completion.
    const LIMIT: usize = 16 * COUNT as usize;
    let Some((end, handler)) = world
        .links
        .iter()
        .filter(|link| settled(link))
        .find_map(|link| Some((&link.client, link.client.handler()?)))
    else {
        return;
    };
    for query in Query::ALL {
        // Something else may grow at the same time, but not three times in a row.
        let grows = (0..3).all(|_| {
            let before = heap();
            drop_queries(world, handler.channel(), query, COUNT);
            thread::sleep(Duration::from_millis(1));
            heap().saturating_sub(before) > LIMIT
        });
        if grows && end.is_settled() {
            let detail = format!(
                "{COUNT} dropped completions of {query:?} keep more than {LIMIT} bytes, three times in a row"
            );
            world.report.violation(Invariant::DroppedQueries, detail);
        }
    }
}
