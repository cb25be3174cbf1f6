//! The end of a play: all messages arrive, and all links close.

use super::{
    acts::{Act, act},
    channels::World,
    kit::Draw,
    links::{End, Link, Side},
    uses::write,
};
use std::sync::Arc;

/// Waits until all messages on settled links have arrived. Checks writability and tasks then.
pub(super) fn come_to_rest(world: &World, links: &[Arc<Link>]) {
    world.play.wait_for_calm();
    for link in links {
        let is_still = || {
            link.read_again();
            let waits =
                |end: &End| end.is_settled() && end.facts(|facts| facts.streaming + facts.open_tasks) > 0;
            link.missing().is_none() && (!link.is_settled() || !waits(&link.client) && !waits(&link.server))
        };
        let text = || format!("link {} comes to rest: {:?}", link.client.link, describe(link));
        world.play.eventually(text, is_still);
        for (end, _) in link.ends() {
            let Some(handler) = end.handler() else { continue };
            let is_writable =
                || !link.is_settled() || link.missing().is_some() || handler.channel().is_writable();
            world.play.eventually(|| format!("link {} {:?} is writable", end.link, end.side), is_writable);
            let lost = end.facts(|facts| if facts.loses_tasks { 0 } else { facts.lost_tasks });
            world
                .play
                .must(lost == 0 || !end.is_settled(), || format!("link {}: {lost} tasks are lost", end.link));
        }
    }
}

pub(super) fn describe(link: &Link) -> String {
    let of = |end: &End| end.facts(|facts| format!("{facts:?}"));
    let missing = link.missing();
    format!(
        "{missing:?}; relayed {}; client {}; server {}",
        link.is_relayed,
        of(&link.client),
        of(&link.server)
    )
}

/// Closes all links from either side, with a few last words.
pub(super) fn close_all(world: &World, links: &[Arc<Link>], draw: &mut Draw) {
    for link in links {
        let side = draw.pick(&[Side::Client, Side::Server]);
        let end = if side == Side::Client { &link.client } else { &link.server };
        let end = if end.handler().is_some() { end } else { &link.client };
        let Some(handler) = end.handler() else { continue };
        if draw.chance(50) {
            write(world, end, handler.channel(), 0, 3000, draw);
        }
        let count = draw.below(4);
        let _ = handler.execute(move |player, ctx| {
            (0..count).for_each(|_| player.write_next(ctx, 1000, true));
            act(player, ctx, Act::Close)
        });
        end.will_close();
        handler.channel().close();
    }
    for link in links {
        let text = || format!("link {} ends: {}", link.client.link, describe(link));
        let has_ended = |end: &End| {
            end.facts(|facts| !facts.is_connecting && (!facts.is_active || facts.ended.is_some()))
        };
        let have_ended = || {
            // The cancellation of a connect may come too late, or the word of the end may be lost.
            let is_open = link.is_settled() || link.may_be_half_open();
            if let Some(handler) = link.client.handler().filter(|_| is_open) {
                link.client.will_close();
                handler.channel().close();
            }
            link.read_again();
            has_ended(&link.client) && has_ended(&link.server)
        };
        world.play.eventually(text, have_ended);
    }
}
