//! Checks after the end of all loops: lives, completions, and what ends say about their streams.

use crate::{
    player::{End, Link, World},
    report::Invariant,
};
use std::sync::{Arc, atomic::Ordering::SeqCst};

pub(crate) fn after_the_end(world: &Arc<World>) {
    for life in world.lives() {
        if let Some(fault) = life.fault_at_the_end() {
            world.report.violation(Invariant::Lifecycle, fault);
        }
        if life.open_tasks() > 0 {
            let detail = format!("{} tasks of an ended channel were not dropped", life.open_tasks());
            world.report.violation(Invariant::Completions, detail);
        }
    }
    let open = world.tokens.open();
    if !open.is_empty() {
        world.report.violation(Invariant::Completions, format!("never completed: {open:?}"));
    }
    honest_ends(world);
    broadcasts(world);
}

/// Checks the channel ends recorded so far.
pub(crate) fn honest_ends(world: &World) {
    for link in &world.links {
        ended(world, link, &link.client, &link.server);
        ended(world, link, &link.server, &link.client);
    }
}

/// Checks what `end` has seen of the stream of `peer`.
///
/// A peer that closes with unread input resets its connection, and bytes on their way are lost. A
/// relay passes that on, except through a Unix socket: there the reset looks like a clean end.
fn ended(world: &World, link: &Link, end: &End, peer: &End) {
    if !end.facts.saw_clean_end() || world.ended_early(link) {
        return;
    }
    let name = || {
        let relayed = if link.relayed { ", through a relay" } else { "" };
        format!(
            "link {} {:?}{relayed} [{}; peer: {}]",
            end.link,
            end.side,
            end.facts.describe(),
            peer.facts.describe()
        )
    };
    if peer.facts.was_reset() && link.passes_resets {
        world
            .report
            .violation(Invariant::HonestEnd, format!("{} saw a clean end, but the peer was reset", name()));
    } else if (link.passes_resets || !link.relayed)
        && peer.facts.is_graceful()
        && !peer.facts.was_cut()
        && !peer.facts.failed.load(SeqCst)
        && !peer.facts.late.load(SeqCst)
        && let Some(missing) = end.input.unconfirmed_arrival()
    {
        world.report.violation(Invariant::HonestEnd, format!("{} saw a clean end, but {missing}", name()));
    }
}

impl World {
    /// A relay that shuts down ends both of its sides, regardless of its two peers.
    fn ended_early(&self, link: &Link) -> bool {
        link.relayed && self.shutting_down.load(SeqCst)
    }
}

fn broadcasts(world: &World) {
    for (number, room) in world.rooms.iter().enumerate() {
        let [reported, unreported, arrived] =
            [&room.reported, &room.unreported, &room.arrived].map(|count| count.load(SeqCst));
        if arrived > reported + unreported {
            let detail = format!(
                "room {number}: {arrived} messages have arrived, {reported} were reported as written, {unreported} sent without a report"
            );
            world.report.violation(Invariant::Broadcasts, detail);
        }
    }
}
