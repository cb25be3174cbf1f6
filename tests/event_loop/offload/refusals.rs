//! Offloaded work that is refused.

use crate::offload::{Session, embedded, held_up, open};
use crate::support::{journal::Log, loops::end, wait::receive};
use netwheel::{channel::ChannelOptions, prelude::*, worker_pool::WorkerPool};
use std::{io::Write, sync::mpsc::channel, time::Duration};

#[test]
fn a_full_pool_hands_the_work_back() {
    let (pool, release) = held_up(2);
    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let log = Log::new();
    let (handed_back, backs) = channel();
    let (_channel, mut peer) = open(&group, &log, move |ctx, line, log| {
        let (line, sent) = (line.to_owned(), log.clone());
        let work = move || {
            sent.push(format!("work {line}"));
            line
        };
        let then = |me: &mut Session, _: &mut Context<'_, Session>, line: Result<String>| {
            me.log.push(format!("then {}", line?));
            Ok(())
        };
        if let Err(refused) = ctx.offload(work, then) {
            let (value, reason) = refused.into_parts();
            handed_back.send((value(), reason.to_string())).unwrap();
        }
        Ok(())
    });
    peer.write_all(b"a\nb\nc\n").unwrap();
    let (line, reason) = receive(&backs);
    assert_eq!((&*line, &*reason), ("c", "the limit of 2 pending tasks of a worker pool is reached"));
    assert_eq!(log.all(), ["work c"], "the refused work did not run");
    let metrics = pool.metrics();
    assert_eq!((metrics.pending, metrics.running, metrics.refused), (2, 1, 1));
    let refused = pool.execute(|| "handed back").unwrap_err();
    assert_eq!((refused.into_inner())(), "handed back");
    drop(release);
    log.wait_len(5);
    assert_eq!(log.all().iter().filter(|line| line.starts_with("then")).count(), 2);
    end(&group);
}

#[test]
fn running_work_counts_towards_the_task_limit_of_the_channel() {
    let options = ChannelOptions::new().max_scheduled_tasks(2);
    let (mut channel, log) = embedded(options, |ctx, line, log| {
        let refused = match line {
            "timer" => {
                ctx.schedule(Duration::from_secs(1), |_, _| Ok(()));
                None
            }
            _ => ctx.offload(|| (), |_, _, done| done).err().map(|refused| refused.into_parts().1),
        };
        log.push(format!("{line} {}", refused.map_or("taken".to_owned(), |e| e.to_string())));
        Ok(())
    });
    channel.write_inbound(b"timer\nwork\nwork\n").unwrap();
    const FULL: &str = "work the limit of 2 scheduled tasks of a channel is reached";
    assert_eq!(log.all(), ["timer taken", "work taken", FULL]);
    channel.run_pending();
    channel.write_inbound(b"work\n").unwrap();
    assert_eq!(log.all()[3..], ["work taken"]);
}

#[test]
fn a_closing_channel_refuses_work() {
    let (mut channel, log) = embedded(ChannelOptions::new(), |ctx, _, log| {
        ctx.close();
        let refused = ctx.offload(|| (), |_, _, done| done).unwrap_err();
        log.push(refused.error().to_string());
        Ok(())
    });
    channel.write_inbound(b"go\n").unwrap();
    assert_eq!(log.all(), ["the channel is closed", "inactive"]);
}

#[test]
fn settings_out_of_range_are_refused_when_built() {
    let builder = WorkerPool::builder;
    for (builder, setting) in [
        (builder().threads(0), "threads"),
        (builder().threads(1025), "threads"),
        (builder().max_pending(0), "max_pending"),
        (builder().idle_timeout(Duration::ZERO), "idle_timeout"),
        (builder().name("a\0b"), "name"),
    ] {
        let refused = builder.build().unwrap_err();
        assert!(matches!(&refused, Error::Setting(e) if e.setting() == setting), "{refused}");
    }
}
