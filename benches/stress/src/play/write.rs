//! Writes by a handle: blindly, or with backpressure.

use super::Actor;
use crate::{
    frame::{Frame, Kind},
    plan::{Pace, WriteBurst},
    player::End,
    report::Invariant,
    token,
    watchdog::MAX_WAIT,
};
use bytes::Bytes;
use netwheel::{Channel, Error, SendError};
use std::sync::Arc;

pub(super) fn burst(actor: &Actor, end: &Arc<End>, channel: &Channel<Bytes>, burst: &WriteBurst) {
    // A handle of its own, whose permit no other thread uses.
    let channel = channel.clone();
    for _ in 0..burst.count {
        let permitted = match burst.pace {
            Pace::Blind => false,
            Pace::Check => channel.is_writable(),
            Pace::Wait => match wait(actor, end, &channel) {
                Some(permitted) => permitted,
                None => return,
            },
        };
        if burst.pace == Pace::Check && !permitted {
            continue;
        }
        match write(actor, end, &channel, burst) {
            Ok(()) => {}
            Err(refused) if permitted && matches!(refused.error(), Error::Full { .. }) => {
                let detail = format!(
                    "link {} {:?}: a write with a permit was refused: {:#}",
                    end.link,
                    end.side,
                    refused.error()
                );
                actor.world.report.violation(Invariant::Writability, detail);
            }
            Err(refused) if refused.is_closed() => return,
            Err(_) => {}
        }
    }
}

/// Waits until the channel is writable. `None` if the channel has ended, or waits for too long.
fn wait(actor: &Actor, end: &Arc<End>, channel: &Channel<Bytes>) -> Option<bool> {
    match channel.writable().wait_timeout(MAX_WAIT) {
        Ok(Ok(())) => Some(true),
        Ok(Err(_)) => None,
        Err(pending) => {
            let pending_bytes = end
                .handler()
                .and_then(|handler| handler.call(|_, ctx| Ok(ctx.stats())).wait_timeout(MAX_WAIT).ok())
                .and_then(Result::ok)
                .map(|stats| stats.pending_bytes);
            // Bytes that wait for the peer are backpressure; the peer's own checks find a peer
            // that does not read.
            if pending_bytes == Some(0) && !pending.is_done() && channel.is_open() {
                let detail = format!(
                    "link {} {:?}: not writable for {MAX_WAIT:?}, though no byte is pending; writable now: {}",
                    end.link,
                    end.side,
                    channel.is_writable()
                );
                actor.world.report.violation(Invariant::Writability, detail);
            }
            drop(pending);
            None
        }
    }
}

fn write(
    actor: &Actor,
    end: &Arc<End>,
    channel: &Channel<Bytes>,
    burst: &WriteBurst,
) -> Result<(), SendError<Bytes>> {
    let producer = actor.number as u8;
    let number = end.output.next(producer);
    let message = Frame { link: end.link as u32, producer, kind: Kind::Data, number }.encode(burst.size);
    // A key of its own, so that no message is replaced.
    let key = (number % 2 == 1).then_some(u64::from(producer) << 32 | u64::from(number));
    if burst.tracked {
        let confirmed = match key {
            None => channel.write_tracked(message)?,
            Some(key) => channel.write_tracked_latest(key, message)?,
        };
        end.output.accepted(producer);
        let (token, stream) = (actor.world.tokens.token(token::Kind::Tracked), end.output.clone());
        confirmed.on_complete(move |result| {
            token.called();
            if result.is_ok() {
                stream.confirmed(producer, number);
            }
        });
    } else {
        match key {
            None => channel.write(message)?,
            Some(key) => channel.write_latest(key, message)?,
        }
        end.output.accepted(producer);
    }
    Ok(())
}
