//! The channel core: a state machine that does no I/O.
//!
//! Bytes, readiness, commands and time go in through `handle_*`; bytes to write, the wish to close and calls to
//! the handler come out. The socket loop and the embedded test channel are two drivers of it.
//!
//! Always holds: a callback is never called from within another; an error or a panic in one reaches the
//! handler's `error` at most once and closes this channel only; `inactive` is the last call and is made if and
//! only if `active` was; another pipeline takes over between two calls (`replace`). Runs on the channel's loop; it owns its pipeline, not its socket.
//!
//! A driver calls `handle_*`, then does what [`ChannelCore::wish`] says.

use super::replace::AT_ONCE;
use super::{
    channel_group::Outcome,
    config::ChannelConfig,
    limits::Reached,
    mail::Mail,
    memory::Memory,
    outbound_budget::Loan,
    services::{Coarse, Due, LoopServices},
    shaping::Way,
    state::{ChannelState, Flags},
    timers::TASKS,
};
use crate::{
    Error, PeerError, Result,
    error::{drop_guarded, panic_message},
    id::ChannelId,
    pipeline::{AnyPipeline, EncodingMemo, Event, Links, SharedMessage},
};
use bytes::Bytes;
use std::{
    any::Any,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

pub(crate) struct ChannelCore {
    pub(crate) state: ChannelState,
    pub(super) links: Box<dyn Links>,
}

/// A decoding that is going on.
#[derive(Debug)]
pub(crate) struct Reading {
    memory: Memory,
    /// Messages that had been read before it.
    messages: u64,
}

/// What a channel wants of its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Nothing,
    /// Send what waits.
    Flush,
    /// Send what waits, then tell the peer that no more comes.
    FlushAndEnd,
    /// Send what waits, then close.
    FlushAndClose,
    /// Close at once.
    CloseNow,
}

impl ChannelCore {
    pub(crate) fn new(
        id: ChannelId,
        config: Arc<ChannelConfig>,
        pipeline: AnyPipeline,
        addresses: (Option<SocketAddr>, Option<SocketAddr>),
        services: &mut LoopServices,
    ) -> Self {
        let mut state = ChannelState::new(id, config, services.now, addresses.0, addresses.1);
        state.set_idle(services, pipeline.idle);
        state.set_time_limits(services, pipeline.limits);
        state.extras = pipeline.extras;
        state.set_traffic_shaping(services, pipeline.traffic);
        ChannelCore { state, links: pipeline.links }
    }

    pub(crate) fn handler_name(&self) -> &'static str {
        (self.links.handler_type())()
    }

    // ---- input ---------------------------------------------------------------------------------------

    /// The channel is connected.
    pub(crate) fn handle_active(&mut self, services: &mut LoopServices) {
        self.state.set(Flags::ACTIVE);
        self.state.arm_watch(services);
        self.event(services, Event::Active);
    }

    /// Bytes came (they stand behind those that were kept): decodes them and hands the messages on. What is left
    /// of `input` is not decoded: the driver gives it back ([`ChannelCore::keep`]) or, after a flush, calls again.
    pub(crate) fn handle_input(&mut self, services: &mut LoopServices, input: &mut Bytes) {
        self.deliver(services, input, false);
    }

    fn deliver(&mut self, services: &mut LoopServices, input: &mut Bytes, last: bool) {
        if !self.state.has(Flags::HEARD) && !input.is_empty() {
            self.state.note_first_byte();
        }
        while self.state.may_deliver() {
            let (before, messages) = (input.len(), services.tally.messages_read);
            let replaced = services.replaced;
            let failed =
                self.call(services, |links, state, services| links.read(state, services, input, last));
            if input.len() < before {
                self.state.unset(Flags::STUCK);
                self.state.set(Flags::MOVED);
            }
            if services.replaced != replaced {
                // What is left is for the pipeline that has taken over.
                if input.is_empty() {
                    break;
                }
                continue;
            }
            if !self.state.has(Flags::SERVED) && services.tally.messages_read > messages {
                self.state.note_first_message();
            }
            if !failed {
                break;
            }
            // The handler may have chosen to go on. A codec that fails without taking a byte will fail again.
            if input.is_empty() && !last {
                break;
            }
            if input.len() == before && self.stuck() {
                log::warn!("channel {}: the codec fails and takes no byte; closing", self.state.id());
                self.state.request_close();
                self.state.want_attention(services);
                break;
            }
        }
    }

    /// Notes that decoding failed without taking a byte; whether it did so the last time as well.
    fn stuck(&mut self) -> bool {
        let was = self.state.has(Flags::STUCK);
        self.state.set(Flags::STUCK);
        was
    }

    /// Bytes are about to be decoded; what it answers goes to [`ChannelCore::end_input`] behind that.
    pub(crate) fn begin_input(&mut self, services: &LoopServices, memory: Memory) -> Reading {
        self.state.grant_read();
        Reading { memory, messages: services.tally.messages_read }
    }

    /// Bytes are decoded as far as they can be now, and `rest` is left of them.
    pub(crate) fn end_input(&mut self, services: &mut LoopServices, reading: Reading, rest: Bytes) {
        if self.state.is_open() {
            self.keep(services, rest, reading.memory);
        }
        self.state.end_grant(services.tally.messages_read == reading.messages);
    }

    /// Keeps what was not decoded for the next time.
    fn keep(&mut self, services: &mut LoopServices, rest: Bytes, memory: Memory) {
        debug_assert!(self.state.partial.is_empty());
        self.state.note_kept(services, rest.len());
        if rest.is_empty() {
            return;
        }
        let limit = self.state.config.max_inbound;
        let starved = self.state.may_deliver();
        if !starved {
            // Not the peer's fault, and bounded: nothing more is read before this is decoded.
            self.state.set(Flags::UNDECODED);
        } else if rest.len() > limit {
            let length = rest.len() as u64;
            self.fail(services, PeerError::TooLong { what: "undecoded input", length, limit }.into());
            self.state.request_close();
            self.after(services);
            return;
        }
        self.state.partial = memory.keep(rest, starved);
    }

    /// The bytes at hand are read.
    pub(crate) fn handle_read_complete(&mut self, services: &mut LoopServices) {
        self.event(services, Event::ReadComplete);
    }

    /// The peer has ended its stream: what was kept is decoded for the last time, then the channel closes, or goes on in
    /// one direction if it may.
    pub(crate) fn handle_end(&mut self, services: &mut LoopServices) {
        let mut rest = std::mem::take(&mut self.state.partial);
        // A flush interrupts the delivery, and so does auto-read off; but there is no later read to take it up again. The
        // driver flushes soon.
        let mut flush = false;
        loop {
            let before = rest.len();
            self.state.set(Flags::READ_GRANTED);
            self.deliver(services, &mut rest, true);
            let flushes = self.state.take(Flags::FLUSH);
            flush |= flushes;
            let paused = self.state.is_open() && !self.state.may_deliver();
            if !(flushes || paused && !rest.is_empty() && rest.len() < before) {
                break;
            }
        }
        if flush {
            self.state.set(Flags::FLUSH);
        }
        self.state.unset(Flags::READ_GRANTED);
        // For a pipeline that takes over from here on.
        self.state.partial = rest;
        let replaced = services.replaced;
        if self.state.is_open() {
            self.event(services, Event::ReadComplete);
        }
        if services.replaced != replaced && self.state.is_open() {
            // It hears of the end by itself, behind what is left for it.
            self.state.set(Flags::MAYBE_READABLE);
            self.state.want_attention(services);
            return;
        }
        if self.state.config.half_close && self.state.is_open() && !self.state.has(Flags::OUTPUT_ENDED) {
            self.state.set(Flags::INPUT_ENDED);
            self.event(services, Event::InputShutdown);
        } else {
            self.state.request_close();
        }
        self.state.want_attention(services);
    }

    /// The peer was told that no more comes. With both directions at their end, so is the channel.
    pub(crate) fn handle_output_ended(&mut self, services: &mut LoopServices) {
        self.state.set(Flags::OUTPUT_ENDED);
        if self.state.has(Flags::INPUT_ENDED) {
            self.state.request_close();
            self.state.want_attention(services);
        }
    }

    /// The connection broke. A channel that is closing anyway just closes.
    pub(crate) fn handle_io_error(&mut self, services: &mut LoopServices, error: Error) {
        self.state.note_cause(|| error.again());
        if self.state.is_open() {
            self.fail(services, error);
        }
        self.state.request_close_now();
        self.after(services);
    }

    /// The kernel took `n` bytes.
    pub(crate) fn handle_written(&mut self, services: &mut LoopServices, n: usize) {
        self.state.consume_outbound(n, services.now);
        self.state.return_outbound(services);
        self.tell_writability(services);
    }

    /// The channel's entry on the wheel is due: stages are called, the handler is told of quiet, then of a time limit.
    fn handle_watch(&mut self, services: &mut LoopServices) {
        let (traffic, now, replaced) = (self.state.traffic, services.now, services.replaced);
        let paused =
            !self.state.may_read() || self.state.has(Flags::INPUT_ENDED) || self.state.was_held_up(Way::Read);
        let writing_paused = self.state.was_held_up(Way::Write);
        let Some(watch) = self.state.watch_is_due() else { return };
        let events = watch.idle.take_due(traffic, now);
        let stages = watch.take_stages(now);
        let reached = watch.limits.as_mut().and_then(|limits| {
            if paused {
                limits.pause(now);
            }
            if writing_paused {
                limits.pause_writing(now);
            }
            limits.take_reached(traffic, now)
        });
        // Armed before the handler is told: an error in it must not end the watch.
        self.state.arm_watch(services);
        if stages && self.state.is_open() {
            self.event(services, Event::StageTimer);
        }
        for event in events.into_iter().flatten() {
            // The handler may have closed the channel, or turned this kind off, when it was told of the one before.
            if self.state.is_open() && self.state.watches(event.state) && services.replaced == replaced {
                self.event(services, Event::Idle(event));
            }
        }
        // The limits of a pipeline that was replaced meanwhile are no longer the channel's.
        let holds = self.state.is_open() && services.replaced == replaced;
        if let Some(Reached { error, send }) = reached.filter(|_| holds) {
            self.state.note_cause(|| error.again());
            self.fail(services, error);
            if send {
                self.state.request_close();
            } else {
                self.state.request_close_now();
            }
            self.after(services);
        }
    }

    /// What was kept on the wheel is due.
    pub(crate) fn handle_coarse(&mut self, services: &mut LoopServices, slot: u32) {
        match slot {
            Coarse::WATCH => self.handle_watch(services),
            _ => self.handle_task(services, slot),
        }
    }

    /// A scheduled task is due, or a limit of traffic lets the channel go on.
    pub(crate) fn handle_task(&mut self, services: &mut LoopServices, slot: u32) {
        if slot == Due::SHAPER {
            self.state.shaper_is_due(services);
            return;
        }
        let Some(task) = self.state.take_due_task(slot) else { return };
        if !self.state.is_open() {
            drop_guarded(task);
            return;
        }
        self.call(services, |links, state, services| links.run(state, services, task));
    }

    /// Mail from a handle.
    pub(crate) fn handle_mail(&mut self, services: &mut LoopServices, mail: Mail) {
        if let (Mail::Message(_) | Mail::Notify(..), Some(shared)) = (&mail, &self.state.shared) {
            shared.dequeued();
        }
        match mail {
            // Whoever sent it raced with the close; it is nobody's error.
            Mail::Message(_) | Mail::Notify(..) | Mail::Run(_) | Mail::Schedule(..)
                if !self.state.is_open() =>
            {
                drop_guarded(mail)
            }
            // Likewise, with the end of the output.
            Mail::Message(message) if self.state.has(Flags::END_OUTPUT) => drop_guarded(message),
            Mail::Message(message) => {
                self.call(services, |links, state, services| {
                    match write(links, state, services, message) {
                        // Whoever sent it raced with the replacement of the pipeline; it is nobody's error.
                        Err(Error::Replaced) => {
                            log::debug!("channel {}: dropped a message for a replaced pipeline", state.id());
                            Ok(())
                        }
                        written => written,
                    }
                });
            }
            Mail::Notify(message, confirmation) => {
                let mut confirmation = Some(confirmation);
                self.call(services, |links, state, services| {
                    let written = state.may_confirm().and_then(|()| write(links, state, services, message));
                    let Some(confirmation) = confirmation.take() else { return Ok(()) };
                    match written {
                        Ok(()) => state.confirm(confirmation),
                        // Whoever wrote it is told, and nobody else.
                        refused => confirmation.complete(refused),
                    }
                    Ok(())
                });
            }
            Mail::Run(task) => {
                self.call(services, |links, state, services| links.run(state, services, task));
            }
            Mail::Schedule(deadline, task) => {
                self.state.schedule(services, deadline, task);
                self.after(services);
            }
            Mail::Answer(task) => match self.state.take_answered(task) {
                Some(task) if self.state.is_open() => {
                    self.call(services, |links, state, services| links.run(state, services, task));
                }
                gone => drop_guarded(gone),
            },
            Mail::Released => self.state.release(services),
            Mail::EndOutput => {
                self.state.request_end_of_output();
                self.state.want_attention(services);
            }
            Mail::Close => {
                self.state.request_close();
                self.state.want_attention(services);
            }
            Mail::CloseNow => {
                self.state.request_close_now();
                self.state.want_attention(services);
            }
        }
    }

    /// A message that many channels get. That it cannot be encoded is not told to the handler: whoever wrote it hears of it.
    pub(crate) fn handle_broadcast(
        &mut self,
        services: &mut LoopServices,
        message: &dyn SharedMessage,
        memo: &mut EncodingMemo,
    ) -> Outcome {
        if !self.state.is_open() || self.state.has(Flags::END_OUTPUT) {
            return Outcome::Gone;
        }
        let mut outcome = Outcome::Failed(None);
        self.call(services, |links, state, services| {
            state.before_write();
            match links.write_shared(state, message, memo) {
                Ok(()) => {
                    state.after_write(services);
                    outcome = Outcome::Written;
                    Ok(())
                }
                Err(error) => not_taken(state, services, error, &mut outcome),
            }
        });
        outcome
    }

    /// The loop is shutting down.
    pub(crate) fn handle_shutdown(&mut self, services: &mut LoopServices) {
        if self.state.is_open() {
            self.event(services, Event::Shutdown);
        }
    }

    /// The socket is closed: ends timers and tells who waits for it. `inactive` comes later.
    pub(crate) fn handle_closed(&mut self, services: &mut LoopServices) {
        self.state.end(services);
        if let Some(shared) = &self.state.shared {
            shared.set_closed();
        }
    }

    /// The last call: tells the handler that it is over.
    pub(crate) fn handle_inactive(&mut self, services: &mut LoopServices) {
        if !self.state.take(Flags::ACTIVE) {
            return;
        }
        if let Err(error) = self.tell(services, Event::Inactive) {
            services.tally.channel_errors += 1;
            log::warn!("channel {} ({}): in inactive: {error}", self.state.id(), self.handler_name());
        }
        // A task or a timer armed in `inactive` has nobody to run for.
        self.state.end(services);
    }

    // ---- output --------------------------------------------------------------------------------------

    /// What the driver should do now.
    #[inline]
    pub(crate) fn wish(&self) -> Wish {
        if self.state.has(Flags::CLOSE_NOW) {
            Wish::CloseNow
        } else if self.state.has(Flags::CLOSING) {
            Wish::FlushAndClose
        } else if self.state.wants_to_end_output() {
            Wish::FlushAndEnd
        } else if self.state.pending_bytes() > 0 {
            Wish::Flush
        } else {
            Wish::Nothing
        }
    }

    // ---- inside --------------------------------------------------------------------------------------

    fn event(&mut self, services: &mut LoopServices, event: Event) {
        self.state.log_event(&event);
        self.call(services, |links, state, services| links.event(state, services, event));
    }

    /// Calls into the pipeline: with a buffer to write to, and with errors and panics caught. Whether it failed.
    #[inline]
    fn call(
        &mut self,
        services: &mut LoopServices,
        call: impl FnOnce(&mut dyn Links, &mut ChannelState, &mut LoopServices) -> Result,
    ) -> bool {
        self.state.borrow_outbound(services);
        let failed = match self.enter(services, call) {
            Ok(Ok(())) => false,
            Ok(Err(error)) => {
                self.forget_replacement(services);
                self.fail(services, error);
                true
            }
            Err(panic) => {
                self.forget_replacement(services);
                let message = panic_message(panic);
                let (id, name) = (self.state.id(), self.handler_name());
                log::error!("channel {id} ({name}): panicked: {message}; closing this channel");
                // Half a message may have been encoded when it panicked: nothing more of this channel is sent.
                self.state.note_cause(|| Error::Panicked(message.clone()));
                self.fail(services, Error::Panicked(message));
                self.state.request_close_now();
                true
            }
        };
        self.after(services);
        failed
    }

    /// Calls into the pipeline; while that lasts, the loop is seen to be in this channel.
    #[inline]
    fn enter(
        &mut self,
        services: &mut LoopServices,
        call: impl FnOnce(&mut dyn Links, &mut ChannelState, &mut LoopServices) -> Result,
    ) -> thread::Result<Result> {
        let ChannelCore { state, links } = self;
        state.now = services.now;
        services.whereabouts.enter_channel(state.key(), links.handler_type());
        let result = catch_unwind(AssertUnwindSafe(|| call(&mut **links, state, services)));
        services.whereabouts.leave();
        result
    }

    /// Tells the handler something; a panic becomes an error.
    fn tell(&mut self, services: &mut LoopServices, event: Event) -> Result {
        self.state.log_event(&event);
        match self.enter(services, |links, state, services| links.event(state, services, event)) {
            Ok(result) => result,
            Err(panic) => Err(Error::Panicked(panic_message(panic))),
        }
    }

    /// Tells the handler something behind another call; what it fails with goes to its `error`.
    pub(super) fn tell_or_fail(&mut self, services: &mut LoopServices, event: Event) {
        if let Err(error) = self.tell(services, event) {
            let panicked = matches!(error, Error::Panicked(_));
            self.forget_replacement(services);
            self.fail(services, error);
            if panicked {
                self.state.request_close_now();
            }
        }
    }

    /// Tells the handler of an error; one that fails itself is logged, and closes the channel.
    #[cold]
    pub(super) fn fail(&mut self, services: &mut LoopServices, error: Error) {
        if self.state.has(Flags::CLOSED) {
            return;
        }
        services.tally.channel_errors += 1;
        // Not every error comes from a call, and the handler may have something to say to its peer.
        self.state.borrow_outbound(services);
        let was_open = self.state.is_open();
        let again = self.state.ledger.is_some().then(|| error.again());
        let told = self.tell(services, Event::Error(error));
        // What ends in a close was its cause.
        if let Some(again) = again.filter(|_| was_open && (told.is_err() || !self.state.is_open())) {
            self.state.note_cause(|| again);
        }
        if let Err(error) = told {
            services.tally.channel_errors += 1;
            log::warn!("channel {} ({}): in error: {error}", self.state.id(), self.handler_name());
            self.state.request_close_now();
        }
    }

    /// After every call: gives an unused buffer back, tells of writability, and gets the driver's attention.
    #[inline]
    fn after(&mut self, services: &mut LoopServices) {
        if self.state.has(Flags::REPLACED) {
            self.take_over(services);
        }
        if self.state.has(Flags::TASK_REFUSED) {
            self.tell_refused(services);
        }
        self.note_written(services);
        self.state.return_outbound(services);
        self.tell_writability(services);
        if self.state.pending_bytes() > 0 || self.state.wants_driver() {
            self.state.want_attention(services);
        }
    }

    /// The watch hears of what the handler has written, and of what it wants to be woken for.
    #[inline]
    fn note_written(&mut self, services: &mut LoopServices) {
        self.state.note_pending(services.now);
        if self.state.has(Flags::ARM) {
            self.state.arm_watch(services);
        }
    }

    /// Tells the handler that a task which it scheduled was dropped.
    #[cold]
    fn tell_refused(&mut self, services: &mut LoopServices) {
        for _ in 0..AT_ONCE {
            if !self.state.take(Flags::TASK_REFUSED) {
                return;
            }
            let limit = self.state.config.max_scheduled_tasks;
            self.fail(services, Error::Full { what: TASKS, limit });
            self.take_over(services);
        }
        // It schedules one more each time it is told: that would go on for ever.
        if self.state.take(Flags::TASK_REFUSED) {
            log::warn!("channel {}: schedules a task whenever one is refused; closing", self.state.id());
            self.state.request_close();
        }
    }

    #[inline]
    fn tell_writability(&mut self, services: &mut LoopServices) {
        // What the handler writes when it is told may flip it once more. That is told at once: the bytes may all be
        // gone before the next look, and a writer that waits for the flip back would wait for ever.
        while let Some(writable) = self.state.update_writable()
            && self.state.has(Flags::ACTIVE)
            && self.state.is_open()
        {
            self.tell_flip(services, writable);
        }
    }

    #[cold]
    fn tell_flip(&mut self, services: &mut LoopServices, writable: bool) {
        self.state.borrow_outbound(services);
        self.tell_or_fail(services, Event::Writability(writable));
        self.take_over(services);
        self.note_written(services);
        self.state.return_outbound(services);
        self.state.want_attention(services);
    }
}

/// Writes a message that a handle brought.
fn write(
    links: &mut dyn Links,
    state: &mut ChannelState,
    services: &mut LoopServices,
    message: Box<dyn Any + Send>,
) -> Result {
    state.before_write();
    match links.write(state, message) {
        Ok(()) => {
            state.after_write(services);
            Ok(())
        }
        Err(error) => state.write_failed(services, error),
    }
}

/// What becomes of a broadcast where it was not written; the error is one that the handler is to be told.
#[cold]
fn not_taken(
    state: &mut ChannelState,
    services: &mut LoopServices,
    error: Error,
    outcome: &mut Outcome,
) -> Result {
    if Loan::is_full(&error) {
        let refused = state.write_failed(services, error);
        *outcome = match refused {
            Ok(()) => Outcome::Dropped,
            Err(_) if state.is_open() => Outcome::Refused,
            Err(_) => Outcome::Closed,
        };
        return refused;
    }
    *outcome = if matches!(error, Error::Closed | Error::Replaced) {
        Outcome::Gone
    } else {
        Outcome::Failed(Some(error))
    };
    Ok(())
}

impl Drop for ChannelCore {
    /// Should the loop itself fail, nobody is left waiting for a channel of it.
    fn drop(&mut self) {
        if let Some(shared) = &self.state.shared {
            shared.set_closed();
        }
    }
}
