//! Where offloaded work runs, and which handler receives its result.

use crate::offload::{embedded, open, until};
use crate::support::{journal::Log, loops::end, wait::receive};
use netwheel::{channel::ChannelOptions, prelude::*, worker_pool::WorkerPool};
use std::{
    io::{Read, Write},
    rc::Rc,
    sync::mpsc::channel,
    thread,
};

#[test]
fn the_work_runs_on_a_worker_and_its_callback_on_the_loop_with_the_handler() {
    let group = EventLoopGroup::builder().threads(1).name("serving").build().unwrap();
    let log = Log::new();
    let (_channel, mut peer) = open(&group, &log, |ctx, line, _| {
        let line = line.to_owned();
        let asked_on = thread::current().id();
        // Values that are not `Send` can be captured by the callback.
        let stays = Rc::new("stays");
        ctx.offload(
            move || (line, thread::current().name().unwrap().to_owned(), thread::current().id()),
            move |me, ctx, answer| {
                let (line, name, worker) = answer?;
                assert_eq!(thread::current().id(), asked_on);
                assert_ne!(worker, asked_on);
                me.log.push(name);
                ctx.write(format!("{line} {stays} {}", me.mine).into())
            },
        )?;
        Ok(())
    });
    peer.write_all(b"it\n").unwrap();
    let mut answer = [0; 14];
    peer.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"it stays mine\n");
    assert_eq!(log.all(), ["netwheel-worker-0"]);
    until(group.workers(), |metrics| metrics.finished == 1);
    end(&group);
}

#[test]
fn the_callback_never_runs_within_another_callback_and_may_offload_again() {
    let (mut channel, log) = embedded(ChannelOptions::new(), |ctx, _, log| {
        ctx.offload(
            || 1,
            |me, ctx, one| {
                me.log.push(format!("first {}", one?));
                let again = ctx.offload(
                    || 2,
                    |me, _, two| {
                        me.log.push(format!("second {}", two?));
                        Ok(())
                    },
                );
                me.log.push("asked again".to_owned());
                again.map(drop).map_err(Error::from)
            },
        )?;
        log.push("asked".to_owned());
        Ok(())
    });
    channel.write_inbound(b"go\n").unwrap();
    assert_eq!(log.all(), ["asked"], "an embedded channel runs work only in run_pending");
    assert!(channel.has_pending());
    assert_eq!(channel.run_pending(), 4, "two jobs and two callbacks");
    assert_eq!(log.all(), ["asked", "first 1", "asked again", "second 2"]);
    assert!(!channel.has_pending());
    assert_eq!(channel.run_pending(), 0);
}

#[test]
fn a_panic_in_the_work_is_reported_only_to_its_callback() {
    let (mut channel, log) = embedded(ChannelOptions::new(), |ctx, line, _| {
        let line = line.to_owned();
        ctx.offload(
            move || assert_eq!(line, "good", "not that"),
            |me, _, answer| {
                me.log.push(match answer {
                    Err(Error::Panicked(message)) => format!("panicked: {}", message.lines().next().unwrap()),
                    answer => format!("{answer:?}"),
                });
                Ok(())
            },
        )?;
        Ok(())
    });
    channel.write_inbound(b"bad\ngood\n").unwrap();
    channel.run_pending();
    let told = log.all();
    assert!(told[0].starts_with("panicked: assertion"), "{told:?}");
    assert_eq!(told[1..], ["Ok(())"]);
    assert!(channel.is_open());
}

#[test]
fn a_panic_in_the_work_does_not_end_the_thread() {
    let pool = WorkerPool::builder().threads(1).build().unwrap();
    pool.execute(|| panic!("on purpose")).unwrap();
    let (done, is_done) = channel();
    pool.execute(move || done.send(())).unwrap();
    receive(&is_done);
    until(&pool, |metrics| metrics.finished == 2);
    assert_eq!((pool.metrics().panicked, pool.metrics().threads), (1, 1), "the thread survives");
}

#[test]
fn an_error_of_the_callback_goes_to_the_handler() {
    let (mut channel, log) = embedded(ChannelOptions::new(), |ctx, _, _| {
        ctx.offload(|| std::io::Error::other("no such user"), |_, _, e| Err(Error::other(e?)))?;
        Ok(())
    });
    channel.write_inbound(b"go\n").unwrap();
    channel.run_pending();
    assert_eq!(log.all(), ["error: no such user", "inactive"]);
}
