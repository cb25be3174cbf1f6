//! Many channels without sockets, on one loop's services and one manual clock.
//!
//! Invariants: its channels have the same driver as channels with sockets. Everything happens
//! within a call of its methods, on the calling thread. Its time stands still until
//! [`EmbeddedLoop::advance`]. A call ends when nothing is left to do at the current time. So its
//! cost depends on the ready channels and due timers, not on the number of channels. Channels are
//! identified by their ids.

use super::{
    mail_sender::{TestMail, TestMailSender},
    memory_transport::MemoryTransport,
    slot::EmbeddedSlot,
};
use crate::{
    admission::WorkLimits,
    channel::{
        ChannelConfig, ChannelCore, ChannelShared, Due, LoopServices, Mail, OutboundBudget, Pipeline,
        TimerToken,
        driver::{ChannelDriver, LoopIo, Next, Ready},
    },
    clock::{END_OF_TIME, ManualClock, TimeSource, nanos},
    error::{Error, Result},
    executor::{Executor, Spawn},
    id::{ChannelId, Key},
    log_throttle::LogThrottle,
    machine::Mutex,
    sync::{Inbox, loop_id, mailbox},
    timer::{Wheel, WheelBuilder},
    worker_pool::WorkerPool,
};
use bytes::Bytes;
use slab::Slab;
use std::{fmt, sync::Arc, time::Duration};

/// The maximum number of waiting messages for the channels of one embedded loop.
const MAX_MAIL: usize = 1 << 20;

/// A loop of channels without sockets, for testing pipelines that need several channels. Use it for
/// rooms, gateways and the like. An [`EmbeddedChannel`](super::EmbeddedChannel) is such a loop with
/// one channel.
///
/// Pass input with [`write_inbound`](EmbeddedLoop::write_inbound), take output with
/// [`read_outbound`](EmbeddedLoop::read_outbound), and advance the time of all channels with
/// [`advance`](EmbeddedLoop::advance). Handles to the channels work on any thread. Their requests
/// are handled by [`run_pending`](EmbeddedLoop::run_pending), which the other methods call too.
///
/// A call runs passes, like the turns of a loop, until nothing is left to do at the current time.
/// `reads_per_turn` and `writes_per_turn` interrupt a channel's I/O, and the next pass continues
/// it. If a task keeps rescheduling itself without a delay, the call never returns. As on any loop,
/// entries that are due at the same time run in this order: scheduled tasks (the heap), then
/// timeouts (the wheel).
///
/// Nothing happens between two calls. So waiting for a completion of these channels on the thread
/// of the loop fails with [`Error::WouldDeadlock`], as it does in a callback, unless it is done.
/// Other threads can wait.
///
/// ```
/// use netwheel::{codec::Line, prelude::*, testing::EmbeddedLoop};
/// use std::time::Duration;
///
/// struct Quiet;
/// impl Handler for Quiet {
///     type Read = bytes::Bytes;
///     type Write = bytes::Bytes;
///     fn read(&mut self, ctx: &mut Context<'_, Self>, line: bytes::Bytes) -> Result {
///         ctx.write(line)
///     }
///     fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
///         ctx.close();
///         Ok(())
///     }
/// }
///
/// let mut event_loop = EmbeddedLoop::new();
/// let idle = IdleTimeouts::new().reader(Duration::from_secs(60));
/// let mut open = || event_loop.open(Pipeline::codec(Line::new()).idle(idle).handler(Quiet));
/// let (one, other) = (open(), open());
/// event_loop.advance(Duration::from_secs(40));
/// event_loop.write_inbound(one, b"hi\n")?;
/// assert_eq!(event_loop.read_outbound(one), &b"hi\n"[..]);
/// event_loop.advance(Duration::from_secs(40));
/// assert!(event_loop.is_open(one) && event_loop.is_closed(other));
/// # Ok::<(), netwheel::Error>(())
/// ```
pub struct EmbeddedLoop {
    slots: Slab<EmbeddedSlot>,
    /// The number of channels opened so far. It is the generation of the next one, so an id is
    /// never reused.
    opened: u32,
    config: Arc<ChannelConfig>,
    io: LoopIo,
    clock: ManualClock,
    mail: Arc<TestMailSender>,
    inbox: Inbox<TestMail>,
    /// Marks this thread as the only one that runs the loop, so that a `wait` on it fails.
    _owned: loop_id::Owned,
    /// Channels that have closed in this pass.
    inactive: Vec<Key>,
}

impl Default for EmbeddedLoop {
    fn default() -> Self {
        Self::new()
    }
}

impl EmbeddedLoop {
    /// Creates a loop without channels, with default settings.
    pub fn new() -> Self {
        Self::builder().build().expect("the default settings are within their ranges")
    }

    pub(super) fn create(config: ChannelConfig, clock: ManualClock, wheel_tick: Duration) -> Result<Self> {
        let config = Arc::new(config);
        let wheel: Wheel<TimerToken> = WheelBuilder::default().tick(wheel_tick).build()?;
        let event_loop = loop_id::next();
        let time = TimeSource::new(Arc::new(clock.clone()));
        let (mailbox, inbox) = mailbox(MAX_MAIL);
        let limits = Mutex::default();
        let mail = Arc::new(TestMailSender { event_loop, mailbox, time: time.clone(), limits });
        let services = LoopServices::new(
            time,
            wheel,
            mail.clone(),
            Arc::default(),
            Arc::new(LogThrottle::new("embedded")),
            OutboundBudget::unlimited(),
            WorkerPool::by_hand(),
        );
        let io = LoopIo::new(services, Arc::default());
        Ok(EmbeddedLoop {
            slots: Slab::new(),
            opened: 0,
            config,
            io,
            clock,
            mail,
            inbox,
            _owned: loop_id::own(event_loop),
            inactive: Vec::new(),
        })
    }

    /// Sets the executor of [`Context::spawn`](crate::Context::spawn). There is none otherwise.
    pub fn set_executor(&mut self, executor: impl Spawn) {
        self.io.services.executor = Executor::new(executor);
    }

    /// Sets whether the loop refuses deferrable work, as a loop that misses its
    /// [`overload_target`](crate::group::EventLoopGroupBuilder::overload_target) does. Off by
    /// default.
    ///
    /// While it is on, [`Context::admit`](crate::Context::admit) refuses work of each class, and
    /// the loop refuses broadcasts of [bulk](crate::channel::ChannelGroupBuilder::bulk) groups.
    /// The hint is between 0.1 and 0.3 seconds.
    pub fn set_overloaded(&mut self, on: bool) {
        let services = &mut self.io.services;
        services.limits = on.then(|| Arc::new(WorkLimits::refusing(services.random.clone())));
        (*self.mail.limits.lock()).clone_from(&services.limits);
    }

    /// Opens a connected channel with this pipeline. The handler's `active` has been called when
    /// this returns.
    ///
    /// # Panics
    /// If there are 2^32 channels.
    pub fn open<M: 'static>(&mut self, pipeline: Pipeline<M>) -> ChannelId {
        let index = u32::try_from(self.slots.vacant_key()).expect("fewer than 2^32 channels");
        let key = Key { index, generation: self.opened };
        self.opened = self.opened.wrapping_add(1);
        let id = ChannelId { event_loop: self.mail.event_loop, key };
        self.within(|me| {
            let (config, services) = (me.config.clone(), &mut me.io.services);
            let core = ChannelCore::new(id, config, pipeline.into(), (None, None), services);
            me.slots.insert(EmbeddedSlot::new(core));
            me.on(key, ChannelDriver::activate);
        });
        id
    }

    /// Returns the clock of the channels.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Returns the number of channels that were opened and not removed.
    pub fn channels(&self) -> usize {
        self.slots.len()
    }

    /// Delivers bytes from the peer as one read, then runs everything that follows. An empty slice
    /// simulates a spurious wakeup: a read that returns no bytes.
    ///
    /// # Errors
    /// [`Error::Closed`] if the channel is closed or was removed, or if its inbound stream has
    /// ended.
    pub fn write_inbound(&mut self, id: ChannelId, bytes: &[u8]) -> Result {
        if !self.slot_mut(id).is_some_and(EmbeddedSlot::takes_input) {
            return Err(Error::Closed);
        }
        self.change(id, |transport| transport.receive(bytes));
        Ok(())
    }

    /// Ends the inbound stream, as if the peer had shut down its write half.
    pub fn end_inbound(&mut self, id: ChannelId) {
        self.change(id, MemoryTransport::end);
    }

    /// Takes all bytes that the channel has sent since the last call. Returns no bytes if the
    /// channel was removed. The output buffer is handed over and not reused.
    pub fn read_outbound(&mut self, id: ChannelId) -> Bytes {
        self.slot_mut(id).map_or_else(Bytes::new, |slot| slot.sent(MemoryTransport::take_sent))
    }

    /// Closes the channel like [`Channel::close`](crate::Channel::close): pending writes are sent
    /// first.
    pub fn close(&mut self, id: ChannelId) {
        self.act(id, |driver, io| driver.call(io, |core, services| core.handle_mail(services, Mail::Close)));
    }

    /// Removes the channel and drops its handler. A channel that is still open is closed
    /// immediately.
    pub fn remove(&mut self, id: ChannelId) {
        self.act(id, |driver, io| {
            driver.call(io, |core, services| core.handle_mail(services, Mail::CloseNow))
        });
        if self.slot(id).is_some() {
            drop(self.slots.remove(id.key.index as usize));
        }
    }

    /// Returns whether the channel accepts writes.
    pub fn is_open(&self, id: ChannelId) -> bool {
        self.slot(id).is_some_and(EmbeddedSlot::is_open)
    }

    /// Returns whether the channel is closed, so that its handler's `inactive` was called and it
    /// was dropped, or the channel was removed.
    pub fn is_closed(&self, id: ChannelId) -> bool {
        self.slot(id).is_none_or(EmbeddedSlot::is_closed)
    }

    /// Advances the time of all channels and runs everything that becomes due, in order of time.
    ///
    /// The clock stops at every deadline on the way, so a callback sees the time at which it is
    /// due. A repeating timer, such as an idle timeout, stops once per period, so the call takes
    /// time in proportion to `by`. Saturates after 584 years. Later deadlines never come.
    pub fn advance(&mut self, by: Duration) {
        let target = self.io.services.time.now().saturating_add(nanos(by)).min(END_OF_TIME);
        // Mail may schedule tasks, and the clock has to stop at their deadlines too.
        self.within(|_| {});
        loop {
            let next = self.io.services.next_deadline().map(|at| at.max(self.io.services.now));
            let Some(stop) = next.filter(|next| *next <= target) else { break };
            if self.move_to(stop) < stop {
                break;
            }
        }
        self.move_to(target);
    }

    /// Advances the time to `target` and runs all due timers. Returns the new time, which is
    /// earlier than `target` if the clock has saturated.
    fn move_to(&mut self, target: u64) -> u64 {
        self.clock.advance(Duration::from_nanos(target.saturating_sub(self.io.services.time.now())));
        self.within(|_| {});
        self.io.services.now
    }

    /// Advances the time in one step, like a loop that was held up. Overdue timers run afterwards.
    /// Saturates after 584 years. Later deadlines never come.
    pub fn stall(&mut self, by: Duration) {
        self.clock.advance(by);
        self.within(|_| {});
    }

    /// Handles everything that is pending: mail from handles, due tasks and timers, flushes, and
    /// work passed to [`offload`](crate::Context::offload). Only this method runs offloaded work.
    /// Returns the number of messages, timers and pieces of work that it has handled.
    ///
    /// There are no worker threads here. The work runs on the calling thread, in the order of
    /// submission, and the handlers then receive the results.
    pub fn run_pending(&mut self) -> usize {
        let mut handled = self.within(|_| {});
        loop {
            let works = self.io.services.workers.run_waiting();
            if works == 0 {
                return handled;
            }
            handled += works + self.within(|_| {});
        }
    }

    /// Returns whether mail, work or a due timer is pending.
    pub fn has_pending(&self) -> bool {
        let now = self.io.services.time.now();
        self.io.services.workers.has_waiting()
            || !self.inbox.is_empty()
            || self.io.services.next_deadline().is_some_and(|at| at <= now)
    }

    /// Returns the number of scheduled tasks and idle entries that are not due yet.
    pub fn timers(&self) -> usize {
        self.io.services.queue.len() + self.io.services.wheel.len()
    }

    /// Returns the time until the next scheduled task or idle entry is due.
    pub fn next_timer(&self) -> Option<Duration> {
        let now = self.io.services.time.now();
        self.io.services.next_deadline().map(|at| Duration::from_nanos(at.saturating_sub(now)))
    }

    // ---- the loop -------------------------------------------------------------------------------

    pub(super) fn slot(&self, id: ChannelId) -> Option<&EmbeddedSlot> {
        let own = id.event_loop == self.mail.event_loop;
        self.slots.get(id.key.index as usize).filter(|slot| own && slot.key() == id.key)
    }

    pub(super) fn slot_mut(&mut self, id: ChannelId) -> Option<&mut EmbeddedSlot> {
        let own = id.event_loop == self.mail.event_loop;
        self.slots.get_mut(id.key.index as usize).filter(|slot| own && slot.key() == id.key)
    }

    /// Returns the state that handles to the channel share.
    pub(crate) fn share(&mut self, id: ChannelId) -> Option<Arc<ChannelShared>> {
        let slot = self.slots.get_mut(id.key.index as usize).filter(|slot| slot.key() == id.key)?;
        Some(slot.share(&self.io.services))
    }

    /// Calls `act` for one channel, if it still exists, on behalf of the loop's thread. Then runs
    /// everything that follows.
    pub(crate) fn act(
        &mut self,
        id: ChannelId,
        act: impl FnOnce(&mut ChannelDriver<MemoryTransport>, &mut LoopIo) -> Next,
    ) {
        self.within(|me| {
            if me.slot(id).is_some() {
                me.on(id.key, act);
            }
        });
    }

    /// Changes the transport of a channel. Then handles the event that a poll would report, and
    /// everything that follows.
    pub(crate) fn change(&mut self, id: ChannelId, change: impl FnOnce(&mut MemoryTransport) -> Ready) {
        self.act(id, |driver, io| match driver.transport.as_mut().map(change) {
            Some(ready) if !ready.is_empty() => driver.handle_ready(io, ready),
            _ => Next::Stay,
        });
    }

    /// Calls `act` for one channel, if it has a handler.
    pub(crate) fn on(
        &mut self,
        key: Key,
        act: impl FnOnce(&mut ChannelDriver<MemoryTransport>, &mut LoopIo) -> Next,
    ) -> bool {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.key() == key);
        let Some(slot) = slot else { return false };
        let Some(driver) = slot.driver() else { return false };
        let next = act(driver, &mut self.io);
        if slot.proceed(&mut self.io, next) {
            self.inactive.push(key);
        }
        true
    }

    /// Calls the core of one channel, if it has a handler.
    fn call(&mut self, key: Key, call: impl FnOnce(&mut ChannelCore, &mut LoopServices)) -> bool {
        self.on(key, |driver, io| driver.call(io, call))
    }

    /// Calls `act` on behalf of the loop's thread. Then runs everything that follows, in passes
    /// like the turns of a loop.
    pub(crate) fn within(&mut self, act: impl FnOnce(&mut Self)) -> usize {
        let _entered = loop_id::enter(self.mail.event_loop);
        let services = &mut self.io.services;
        services.now = services.time.now().max(services.now);
        services.log.report(services.now);
        self.io.begin_turn();
        act(self);
        let mut handled = 0;
        loop {
            let before = handled;
            handled += self.run_mail();
            handled += self.run_timers();
            self.attend();
            self.end_closed();
            let left = !self.io.services.attention.is_empty() || !self.io.carried_over.is_empty();
            if handled == before && !left && self.inbox.is_empty() {
                return handled;
            }
            self.io.begin_turn();
            self.read_carried_over();
        }
    }

    /// Reads the channels that the last pass carried over.
    fn read_carried_over(&mut self) {
        for _ in 0..self.io.carried_over.len() {
            let Some(key) = self.io.carried_over.pop_front() else { break };
            self.on(key, ChannelDriver::read);
        }
    }

    fn run_mail(&mut self) -> usize {
        let mut handled = 0;
        while let Some(post) = self.inbox.take() {
            handled += 1;
            match post {
                TestMail::Mail(key, mail) => {
                    self.on(key, |driver, io| {
                        if driver.core.state.status.is_closed() {
                            return Next::Stay;
                        }
                        driver.call(io, |core, services| core.handle_mail(services, mail))
                    });
                }
                TestMail::Broadcast(mut delivery) => {
                    while let Some(recipient) = delivery.next() {
                        let (key, mut recipient) = (recipient.key(), Some(recipient));
                        self.call(key, |core, services| {
                            if let Some(recipient) = recipient.take() {
                                core.handle_delivery(services, &mut delivery, recipient);
                            }
                        });
                        if let Some(recipient) = recipient {
                            self.io.services.tally.deliveries += 1;
                            delivery.skip(recipient);
                        }
                    }
                }
            }
        }
        handled
    }

    fn run_timers(&mut self) -> usize {
        let now = self.io.services.now;
        let mut fired = 0;
        while let Some(due) = self.io.services.queue.pop_due(now) {
            fired += 1;
            match due.value {
                Due::Channel(token) => self.run_channel_timer(token),
                // All sources here are channels, and no server has accepted them.
                Due::Source(_) | Due::Ages => {}
                Due::Task(task) => drop(task.run(&self.io.services.time)),
            }
        }
        while self.io.services.wheel.next_expiry().is_some_and(|at| at <= now) {
            // `expire` may only move entries towards their time, without returning one.
            let Some(token) = self.io.services.wheel.expire(now) else { continue };
            fired += 1;
            self.run_channel_timer(token);
        }
        fired
    }

    fn run_channel_timer(&mut self, token: TimerToken) {
        let key = self.slots.get(token.index() as usize).map(EmbeddedSlot::key);
        if let Some(key) = key.filter(|key| token.is_for(*key)) {
            self.on(key, |driver, io| driver.handle_timer(io, token.timer()));
        }
    }

    /// Flushes and closes channels at the end of a pass.
    fn attend(&mut self) {
        let mut listed = std::mem::take(&mut self.io.services.attention);
        for key in listed.drain(..) {
            self.on(key, ChannelDriver::attend);
        }
        if self.io.services.attention.is_empty() {
            self.io.services.attention = listed;
        }
    }

    /// Calls `inactive` of the channels that have closed in this pass, and drops their handlers.
    fn end_closed(&mut self) {
        for key in std::mem::take(&mut self.inactive) {
            if let Some(slot) = self.slots.get_mut(key.index as usize).filter(|slot| slot.key() == key) {
                slot.end(&mut self.io.services);
            }
        }
    }
}

impl Drop for EmbeddedLoop {
    fn drop(&mut self) {
        self.io.services.log.finish(self.io.services.now);
    }
}

impl fmt::Debug for EmbeddedLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLoop")
            .field("channels", &self.channels())
            .field("timers", &self.timers())
            .finish_non_exhaustive()
    }
}
