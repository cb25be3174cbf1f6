//! Broadcasts to a room, with and without a condition, and their reports.

use super::Actor;
use crate::{
    frame::{Frame, Kind},
    plan::{Index, Members},
    report::Invariant,
    token,
};
use std::sync::atomic::Ordering::SeqCst;

pub(super) fn broadcast(actor: &Actor, room: Index, count: u32, size: usize, to: Members, report: bool) {
    let world = &actor.world;
    let members = &world.rooms[room].members;
    for _ in 0..count {
        let number = world.rooms[room].next[actor.number].fetch_add(1, SeqCst);
        let producer = actor.number as u8;
        let message = Frame { link: room as u32, producer, kind: Kind::Broadcast, number }.encode(size);
        let sent = match to {
            Members::All => members.broadcast(message),
            Members::Except => match members.channels().first() {
                Some(member) => members.broadcast_except(member.id(), message),
                None => continue,
            },
            Members::Writable => members.broadcast_where(|member| member.is_writable(), message),
            Members::Some => {
                let mut chosen = false;
                let every_second = move |_: &netwheel::Channel<bytes::Bytes>| {
                    chosen = !chosen;
                    chosen
                };
                members.broadcast_where(every_second, message)
            }
        };
        let Ok(sent) = sent else { continue };
        if !report {
            world.rooms[room].unreported.fetch_add(sent.members() as u64, SeqCst);
            continue;
        }
        let (token, shared, expected) =
            (world.tokens.token(token::Kind::Broadcast), world.report.clone(), sent.members());
        let weak = std::sync::Arc::downgrade(world);
        sent.report().on_complete(move |result| {
            token.called();
            // A loop that has ended counts its members as unreached, or fails the report.
            let Ok(report) = result else { return };
            let sum = report.written
                + report.dropped
                + report.refused
                + report.closed
                + report.failed
                + report.gone
                + report.unreached;
            if report.members != expected || sum != report.members {
                shared.violation(Invariant::Broadcasts, format!("of {expected} members: {report:?}"));
            }
            if let Some(world) = weak.upgrade() {
                world.rooms[room].reported.fetch_add(report.written as u64, SeqCst);
            }
        });
    }
}
