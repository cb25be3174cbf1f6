//! Operations of threads with the handles of a link.

use super::{
    acts::{Act, act},
    channels::World,
    frames::{Frame, Kind},
    kit::{Draw, PATIENCE},
    links::End,
    rest::describe,
};
use bytes::Bytes;
use netwheel::prelude::*;
use std::sync::Arc;

/// Uses one end of a link, from a thread.
pub(super) fn use_end(
    world: &World,
    end: &Arc<End>,
    producer: u8,
    draw: &mut Draw,
    stale: &mut Vec<Channel<Bytes>>,
) {
    if draw.chance(20) && !stale.is_empty() {
        let channel = &stale[draw.below(stale.len() as u64) as usize];
        return use_stale(world, channel, draw);
    }
    let Some(handler) = end.handler() else { return };
    let channel = handler.channel().clone();
    let size = draw.pick(&[0, 10, 100, 3000]);
    match draw.below(100) {
        0..50 => write(world, end, &channel, producer, size, draw),
        50..85 => {
            let chosen = Act::harmless(draw, size);
            let _ = handler.execute(move |player, ctx| act(player, ctx, chosen));
        }
        85..91 => {
            let chosen = Act::ending(draw, size);
            let _ = handler.execute(move |player, ctx| act(player, ctx, chosen));
        }
        91 | 92 => {
            end.will_close();
            channel.shutdown_write();
        }
        93 | 94 => {
            end.will_close();
            let token = world.play.token("closed");
            channel.closed().on_complete(move |_| token.called());
            channel.close();
        }
        95 => {
            end.facts(|facts| facts.is_cut = true);
            channel.close_now();
        }
        96 => {
            end.facts(|facts| facts.is_cut = true);
            channel.reset();
        }
        _ => {
            let play = world.play.clone();
            let stats = handler.call(|_, ctx| Ok((ctx.stats(), ctx.is_writable())));
            let token = play.token("stats");
            stats.on_complete(move |_| token.called());
        }
    }
    stale.push(channel);
}

/// Uses a handle, whose channel has probably ended. Only an ended one may be closed here.
fn use_stale(world: &World, channel: &Channel<Bytes>, draw: &mut Draw) {
    if channel.close_cause().is_none() {
        return;
    }
    world.play.must(!channel.is_open() && !channel.is_writable(), || "an ended channel is open".to_owned());
    match draw.below(5) {
        0 => channel.close(),
        1 => channel.close_now(),
        2 => channel.reset(),
        3 => channel.shutdown_write(),
        _ => {
            let message = Frame { link: u32::MAX, producer: 0, kind: Kind::Data, number: 0 }.encode(1);
            world
                .play
                .must(channel.write(message).is_err(), || "an ended channel accepts messages".to_owned());
        }
    }
}

/// How a producer obeys writability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    Blind,
    Check,
    Wait,
}

pub(super) fn write(
    world: &World,
    end: &End,
    channel: &Channel<Bytes>,
    producer: u8,
    size: usize,
    draw: &mut Draw,
) {
    let (pace, tracked) = (draw.pick(&[Pace::Blind, Pace::Check, Pace::Wait]), draw.chance(50));
    let name = || format!("link {} {:?}", end.link, end.side);
    for _ in 0..=draw.below(15) {
        let permitted = match pace {
            Pace::Blind => false,
            Pace::Check => channel.is_writable(),
            Pace::Wait => match wait(world, end, channel) {
                Some(permitted) => permitted,
                None => return,
            },
        };
        if pace != Pace::Blind && !permitted {
            continue;
        }
        let number = end.output.next(producer);
        let message = Frame { link: end.link, producer, kind: Kind::Data, number }.encode(size);
        end.output.accepted(producer);
        let refused = if tracked {
            let confirmed = channel.write_tracked(message);
            confirmed.map(|confirmed| {
                let (token, stream) = (world.play.token("a tracked write"), end.output.clone());
                confirmed.on_complete(move |result| {
                    token.called();
                    if result.is_ok() {
                        stream.confirmed(producer, number);
                    }
                });
            })
        } else {
            channel.write(message)
        };
        let Err(refused) = refused else { continue };
        end.output.refused(producer);
        if refused.is_closed() {
            return;
        }
        world.play.must(!permitted || !matches!(refused.error(), Error::Full { .. }), || {
            format!("{}: a write with a permit was refused: {:#}", name(), refused.error())
        });
    }
}

/// Waits until the channel is writable. `None` if it has ended.
fn wait(world: &World, end: &End, channel: &Channel<Bytes>) -> Option<bool> {
    let link = world.links.get(end.link)?;
    for _ in 0..30 {
        if let Ok(result) = channel.writable().wait_timeout(PATIENCE / 30) {
            return result.is_ok().then_some(true);
        }
        // The loop of the peer may have refused to read again.
        link.read_again();
    }
    let waits_in_vain = end.is_settled() || end.has_ended();
    world.play.must(!waits_in_vain, || {
        format!("link {} {:?}: not writable for {PATIENCE:?}: {}", end.link, end.side, describe(&link))
    });
    None
}
