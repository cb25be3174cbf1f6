//! Opens a store: the time until the first timer fires, and the memory of the process afterwards.

use crate::{
    TOPIC,
    figures::{say, say_memory},
};
use netwheel::{
    Error, EventLoopGroup, Result,
    durable::{Due, DurableTimers, Late, Retry, SqliteStore, Topic},
};
use std::{
    path::Path,
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

/// The longest time until the first timer fires.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn play(path: &Path, settle: Duration, is_due: bool) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let (sender, fired) = channel();
    let handler = move |due: Due<String>| {
        let _ = sender.send(Instant::now());
        due.done();
    };
    let begun = Instant::now();
    let builder = DurableTimers::builder(SqliteStore::open(path)?);
    say("open_ms", begun.elapsed().as_secs_f64() * 1000.0);
    let timers = builder.topic(Topic::new(TOPIC, Late::RunOnce, Retry::never(), handler)).start(&group)?;
    if is_due {
        let first = fired.recv_timeout(PATIENCE).map_err(|_| Error::other("no timer fired"))?;
        say("first_fire_ms", (first - begun).as_secs_f64() * 1000.0);
    }
    thread::sleep(settle);
    say("fires", fired.try_iter().count() as f64 + f64::from(u8::from(is_due)));
    let metrics = timers.metrics();
    say("pending", metrics.pending as f64);
    say("loaded", metrics.loaded as f64);
    say_memory();
    timers.close().wait()
}
