//! Pools of the play `clients`: each channel has one user, and the hooks choose the channel for
//! each user.

use super::{
    clients::bootstrap,
    kit::{Draw, MS, PATIENCE, Play, SECOND, lock},
};
use netwheel::{
    ChannelId,
    codec::Line,
    pool::{AcquireTimeout, PoolOrder},
    prelude::*,
    testing::simulation::{sleep, sometimes},
};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

pub(super) fn pool(play: &Play, group: &EventLoopGroup, draw: &mut Draw) -> Result {
    let size = 1 + draw.below(3) as usize;
    let opens_more = draw.chance(30);
    let pool = bootstrap(group)
        .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|_ctx, _line| Ok(())))
        .pool()
        .size(size)
        .max_waiters(20)
        .order(draw.pick(&[PoolOrder::Lifo, PoolOrder::Fifo]))
        .acquire_timeout(draw.pick(&[50 * MS, 2 * SECOND]))
        .on_timeout(if opens_more { AcquireTimeout::Open } else { AcquireTimeout::Fail })
        .build("server:7000")?;
    let taken = Arc::new(Mutex::new(BTreeSet::<ChannelId>::new()));
    let mut held = Vec::new();
    for n in 0..2 + draw.below(10) {
        let acquiring = pool.acquire();
        play.must(opens_more || pool.acquired() <= size, || {
            format!("{} of {size} channels", pool.acquired())
        });
        match draw.below(4) {
            0 => drop(acquiring),
            1 => {
                let (token, shared, taken) = (play.token("a channel of a pool"), play.clone(), taken.clone());
                acquiring.on_complete(move |result| {
                    token.called();
                    let Ok(channel) = result else { return };
                    shared.must(lock(&taken).insert(channel.id()), || {
                        "a channel was acquired twice".to_owned()
                    });
                    let _ = channel.write("by a callback".into());
                    lock(&taken).remove(&channel.id());
                    match n % 3 {
                        0 => channel.discard(),
                        1 => channel.close(),
                        _ => drop(channel),
                    }
                });
            }
            _ => match acquiring.wait_timeout(PATIENCE) {
                Ok(Ok(channel)) => {
                    let id = channel.id();
                    play.must(lock(&taken).insert(id), || "a channel was acquired twice".to_owned());
                    let _ = channel.write("by a thread".into());
                    held.push(channel);
                }
                Ok(Err(_)) => sometimes("a pool has no channel"),
                Err(_) => play.violation("a channel of a pool is never acquired".to_owned()),
            },
        }
        if held.len() >= size || draw.chance(30) && !held.is_empty() {
            let channel = held.remove(draw.below(held.len() as u64) as usize);
            lock(&taken).remove(&channel.id());
            match draw.below(4) {
                0 => channel.discard(),
                1 => channel.reset(),
                2 => drop(pool.release(channel)),
                _ => drop(channel),
            }
        }
        sleep(draw.millis(60));
    }
    for channel in held {
        // It may be handed to the next caller at once.
        lock(&taken).remove(&channel.id());
        drop(channel);
    }
    pool.close();
    play.must(pool.is_closed(), || "a closed pool is open".to_owned());
    let refused = pool.acquire().wait_timeout(PATIENCE).map(|result| result.is_err());
    play.must(refused.is_ok_and(|refused| refused), || "a closed pool has a channel".to_owned());
    play.eventually(|| format!("{} channels are returned", pool.acquired()), || pool.acquired() == 0);
    play.eventually(|| format!("{} waiters end", pool.waiters()), || pool.waiters() == 0);
    Ok(())
}

/// Uses a pool that checks its channels. One that was found sick is not handed out again.
pub(super) fn hooked_pool(play: &Play, group: &EventLoopGroup, draw: &mut Draw) -> Result {
    let (sick, admitted) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(Mutex::new(BTreeSet::new())));
    let (of_check, of_hook) = (sick.clone(), admitted.clone());
    let (seed, often) = (Mutex::new(Draw::new()), draw.pick(&[0, 30, 60]));
    let refusals = Mutex::new(Draw::new());
    let pool = bootstrap(group)
        .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|_ctx, _line| Ok(())))
        .pool()
        .size(2)
        .max_waiters(1)
        .acquire_timeout(draw.pick(&[Duration::ZERO, SECOND]))
        .on_timeout(draw.pick(&[AcquireTimeout::Fail, AcquireTimeout::Open]))
        .health_check(move |channel| {
            let is_healthy = !lock(&seed).chance(often);
            if !is_healthy {
                lock(&of_check).insert(channel.id());
            }
            is_healthy
        })
        .on_acquire(move |channel| {
            if lock(&refusals).chance(20) {
                return Err("the hook wants no channel".into());
            }
            lock(&of_hook).insert(channel.id());
            Ok(())
        })
        .build("server:7000")?;
    for _ in 0..5 + draw.below(10) {
        let more = pool.acquire();
        match pool.acquire().wait_timeout(PATIENCE) {
            Ok(Ok(channel)) => {
                let id = channel.id();
                play.must(!lock(&sick).contains(&id), || "a sick channel is handed out".to_owned());
                play.must(lock(&admitted).contains(&id), || "a hook was not called".to_owned());
                if draw.chance(50) {
                    sleep(draw.millis(30));
                }
            }
            Ok(Err(_)) => sometimes("a hook refuses a channel"),
            Err(_) => play.violation("a channel of a pool is never acquired".to_owned()),
        }
        drop(more);
    }
    pool.close();
    play.eventually(|| format!("{pool:?} gets its channels back"), || pool.acquired() == 0);
    play.must(pool.free() == 0 && pool.waiters() == 0, || format!("{pool:?} is closed"));
    Ok(())
}
