//! Offloaded work whose result is no longer needed.

use crate::offload::{embedded, held_up, open, session, token, until};
use crate::support::{
    journal::Log,
    loops::{end, settle},
    wait::{PATIENCE, done, receive},
};
use netwheel::{
    channel::{ChannelOptions, TaskKey},
    prelude::*,
    worker_pool::WorkerPool,
};
use std::{io::Write, sync::mpsc::channel};

#[test]
fn work_and_callbacks_of_a_closed_channel_are_dropped() {
    let (pool, release) = held_up(10);
    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let log = Log::new();
    let ((work, works), (then, thens)) = (token(), token());
    let mut tokens = Some((work, then));
    let (channel, mut peer) = open(&group, &log, move |ctx, _, log| {
        let (work, then) = tokens.take().unwrap();
        let ran = log.clone();
        ctx.offload(
            move || {
                ran.push("ran".to_owned());
                drop(work);
            },
            move |me, _, _| {
                me.log.push("answered".to_owned());
                drop(then);
                Ok(())
            },
        )?;
        log.push("offloaded".to_owned());
        Ok(())
    });
    peer.write_all(b"go\n").unwrap();
    log.wait_len(1);
    channel.close();
    done(channel.closed()).unwrap();
    receive(&thens);
    assert_eq!(works.try_recv().ok(), None, "it is still in the pool's queue");
    drop(release);
    receive(&works);
    until(&pool, |metrics| metrics.skipped == 1);
    log.wait_len(2);
    assert_eq!(log.all(), ["offloaded", "inactive"], "neither ran");
    end(&group);
}

#[test]
fn a_result_that_arrives_after_the_close_is_dropped() {
    let pool = WorkerPool::builder().threads(1).build().unwrap();
    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let log = Log::new();
    let (release, released) = channel::<()>();
    let (begun, begins) = channel();
    let (answer, answers) = token();
    let mut parts = Some((begun, released, answer));
    let (channel, mut peer) = open(&group, &log, move |ctx, _, _| {
        let (begun, released, answer) = parts.take().unwrap();
        let work = move || {
            begun.send(()).unwrap();
            let _ = released.recv_timeout(PATIENCE);
            answer
        };
        ctx.offload(work, |me, _, _| {
            me.log.push("answered".to_owned());
            Ok(())
        })?;
        Ok(())
    });
    peer.write_all(b"go\n").unwrap();
    receive(&begins);
    channel.close();
    done(channel.closed()).unwrap();
    drop(release);
    receive(&answers);
    until(&pool, |metrics| metrics.finished == 1);
    log.wait_len(1);
    settle(group.next());
    assert_eq!(log.all(), ["inactive"]);
    end(&group);
}

#[test]
fn a_result_that_arrives_while_the_channel_closes_is_dropped() {
    let (mut channel, log) = embedded(ChannelOptions::new(), |ctx, _, _| {
        ctx.offload(
            || (),
            |me, _, done| {
                me.log.push("answered".to_owned());
                done
            },
        )?;
        ctx.write("last words".into())?;
        ctx.close();
        Ok(())
    });
    channel.set_outbound_room(Some(0));
    channel.write_inbound(b"go\n").unwrap();
    channel.run_pending();
    assert_eq!((log.all(), channel.is_closed()), (vec![], false), "the peer has not read the last bytes");
    channel.set_outbound_room(None);
    assert_eq!(log.all(), ["inactive"]);
}

#[test]
fn work_of_a_pipeline_is_dropped_with_it() {
    let (mut channel, log) = embedded(ChannelOptions::new(), |ctx, _, log| {
        let ran = log.clone();
        let work = move || ran.push("ran".to_owned());
        ctx.offload(work, |_, _, _| unreachable!("the handler was replaced"))?;
        let next = session(log, Box::new(|ctx, line, _| ctx.write(format!("new {line}").into())));
        ctx.replace_pipeline(next)?;
        Ok(())
    });
    channel.write_inbound(b"go\non\n").unwrap();
    channel.run_pending();
    assert_eq!((channel.read_outbound(), channel.is_open()), ("new on\n".into(), true));
    assert_eq!(log.all(), [""; 0]);
}

#[test]
fn cancelled_work_does_not_run_and_its_callback_is_not_called() {
    let mut keys: Vec<TaskKey> = Vec::new();
    let (mut channel, log) = embedded(ChannelOptions::new(), move |ctx, line, log| {
        match line {
            "cancel" => {
                let cancelled: Vec<_> = keys.drain(..).map(|key| ctx.cancel(key)).collect();
                log.push(format!("{cancelled:?}"));
            }
            line => {
                let (line, ran) = (line.to_owned(), log.clone());
                keys.push(ctx.offload(
                    move || ran.push(format!("ran {line}")),
                    |me, _, done| {
                        me.log.push("answered".to_owned());
                        done
                    },
                )?);
            }
        }
        Ok(())
    });
    channel.write_inbound(b"one\n").unwrap();
    channel.run_pending();
    channel.write_inbound(b"two\ncancel\nthree\n").unwrap();
    channel.run_pending();
    assert_eq!(log.all(), ["ran one", "answered", "[false, true]", "ran three", "answered"]);
}

#[test]
fn cancelled_work_makes_room_in_the_queue() {
    let (pool, release) = held_up(1);
    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let log = Log::new();
    let mut kept = None;
    let (_channel, mut peer) = open(&group, &log, move |ctx, line, log| {
        if line == "cancel" {
            assert!(ctx.cancel(kept.take().unwrap()));
            return Ok(());
        }
        match ctx.offload(
            || (),
            |me, _, done| {
                me.log.push("answered".to_owned());
                done
            },
        ) {
            Ok(key) => {
                kept = Some(key);
                log.push("taken".to_owned());
            }
            Err(refused) => log.push(refused.to_string()),
        }
        Ok(())
    });
    peer.write_all(b"work\nwork\ncancel\nwork\n").unwrap();
    log.wait_len(3);
    const FULL: &str = "the limit of 1 pending tasks of a worker pool is reached";
    assert_eq!(log.all(), ["taken", FULL, "taken"]);
    assert_eq!(pool.metrics().skipped, 1);
    drop(release);
    log.wait_len(4);
    assert_eq!(log.all()[3..], ["answered"]);
    end(&group);
}
