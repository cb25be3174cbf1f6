//! Tasks that a channel runs later, once or periodically: their handles, their limit, and what ends
//! them.

#![allow(clippy::unit_arg, reason = "most tasks return the unit of their only call")]

mod handles;
mod limits;
mod loops;
mod model;
mod periodic;

use crate::support::{
    channels::embedded_with,
    journal::Log,
    recorder::{Event, Recorder},
};
use bytes::Bytes;
use netwheel::{
    HandlerRef,
    channel::ChannelOptions,
    testing::{EmbeddedChannel, ManualClock},
    time::ScheduledTask,
};
use std::{
    sync::mpsc::channel,
    time::{Duration, Instant},
};

/// An embedded channel whose handler logs its calls and stays open after errors, and a reference to
/// the handler.
fn session(options: &ChannelOptions) -> (EmbeddedChannel<Bytes>, HandlerRef<Recorder>, Log) {
    let (sender, handlers) = channel();
    let log = Log::new();
    let recorder = Recorder::exactly(&log, move |ctx, event| {
        if event.is_active() {
            sender.send(ctx.handler_ref()).unwrap();
        }
        if matches!(event, Event::Read(line) if &line[..] == b"close") {
            ctx.close();
        }
        Ok(())
    });
    let channel = embedded_with(options, recorder);
    log.take();
    (channel, handlers.recv().unwrap(), log)
}

/// Like [`session`], with default options and without the reference.
fn plain() -> (EmbeddedChannel<Bytes>, Log) {
    let (channel, _, log) = session(&ChannelOptions::new());
    (channel, log)
}

/// Returns the result of a task that has ended.
#[track_caller]
fn result<T>(task: ScheduledTask<T>) -> netwheel::Result<T> {
    assert!(task.is_done(), "the task has not ended");
    task.completion().wait()
}

/// The error of a task that has ended, as text.
#[track_caller]
fn failure<T>(task: ScheduledTask<T>) -> String {
    result(task).err().expect("the task has failed").to_string()
}

/// Returns how long after `start` the task is due.
fn due(task: &ScheduledTask, start: Instant) -> Option<Duration> {
    task.deadline().map(|at| at - start)
}

/// Returns the time of a manual clock as an instant.
fn instant(clock: &ManualClock) -> Instant {
    netwheel::time::Clock::now(clock)
}
