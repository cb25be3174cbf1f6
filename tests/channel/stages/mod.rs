//! Stages: the order of their events, their tasks, and their pauses of reading.

mod events;
mod login;
mod pauses;
mod pauses_model;
mod reports;
mod tasks;

use crate::support::journal::Log;
use bytes::Bytes;
use netwheel::{Stage, StageContext, prelude::*};

/// What a probe does in a callback; `None` stands for the default of [`Stage`].
type React = Box<dyn FnMut(&mut StageContext<'_, Probe>, &str) -> Option<Result>>;

/// A stage that passes messages on, records each call, and runs a closure of the test.
struct Probe {
    name: &'static str,
    log: Log,
    react: React,
}

impl Probe {
    fn new(name: &'static str, log: &Log) -> Self {
        Probe::with(name, log, |_, _| None)
    }

    fn with(
        name: &'static str,
        log: &Log,
        react: impl FnMut(&mut StageContext<'_, Probe>, &str) -> Option<Result> + 'static,
    ) -> Self {
        Probe { name, log: log.clone(), react: Box::new(react) }
    }

    fn call(&mut self, ctx: &mut StageContext<'_, Self>, event: &str) -> Option<Result> {
        self.note(event);
        (self.react)(ctx, event)
    }

    fn note(&self, event: &str) {
        self.log.push(format!("{} {event}", self.name));
    }
}

fn text(message: &[u8]) -> String {
    String::from_utf8_lossy(message).into_owned()
}

impl Stage for Probe {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn active(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        self.call(ctx, "active").unwrap_or(Ok(()))
    }

    /// An `Ok` of the closure keeps the message.
    fn read(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        match self.call(ctx, &format!("read {}", text(&message))) {
            None => Ok(Some(message)),
            Some(result) => result.map(|()| None),
        }
    }

    /// An `Ok` of the closure keeps the message.
    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        let result = self.call(ctx, &format!("write {}", text(&message)));
        result.unwrap_or_else(|| ctx.write(message))
    }

    fn read_complete(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        self.call(ctx, "read_complete").unwrap_or(Ok(()))
    }

    fn writability_changed(&mut self, ctx: &mut StageContext<'_, Self>, writable: bool) -> Result {
        self.call(ctx, &format!("writable {writable}")).unwrap_or(Ok(()))
    }

    fn read_closed(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        self.call(ctx, "read_closed").unwrap_or(Ok(()))
    }

    fn timer(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        self.call(ctx, "timer").unwrap_or(Ok(()))
    }

    fn error(&mut self, ctx: &mut StageContext<'_, Self>, error: Error) -> Result {
        self.call(ctx, &format!("error {error}")).unwrap_or(Err(error))
    }

    fn inactive(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        self.call(ctx, "inactive").unwrap_or(Ok(()))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.note("drop");
    }
}
