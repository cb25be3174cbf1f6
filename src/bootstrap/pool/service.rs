//! The operations of a pool: acquire, release, discard, close.
//!
//! Invariants: the place of a channel is returned or handed out even if a hook fails, panics or is
//! slow. The lock covers only the pool state. It is not held while code of the program runs, a
//! channel is closed or a completion is completed. One thread at a time hands out channels to the
//! waiters, in their order, including the channels that other threads release. A series of failures
//! is therefore a loop, not a recursion. Works on any thread.

use super::{
    AcquireTimeout, PoolOrder,
    pool_state::{Acquired, Handed, PoolState, Release, Waiter},
    pooled::{PoolOwner, PooledChannel},
};
use crate::{
    channel::{Channel, ChannelShared, Reuse},
    error::{Error, Resource, Result, caught},
    event_loop::{Attempt, ConnectCallback, EventLoop},
    group::EventLoopGroup,
    log_throttle::{PANICS, log_throttled, off_loop},
    machine::Mutex,
    sync::{Completer, Completion, Unwanted, cancellable_of_all},
};
use log::Level;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

pub(super) struct PoolSettings {
    pub(super) size: usize,
    pub(super) max_waiters: usize,
    pub(super) timeout: Duration,
    pub(super) on_timeout: AcquireTimeout,
    pub(super) order: PoolOrder,
}

/// The hooks of the program.
pub(super) struct PoolHooks<M> {
    pub(super) health_check: Option<Box<HealthCheck<M>>>,
    pub(super) on_acquire: Option<Box<OnAcquire<M>>>,
}

type HealthCheck<M> = dyn Fn(&Channel<M>) -> bool + Send + Sync;
type OnAcquire<M> = dyn Fn(&Channel<M>) -> Result + Send + Sync;
type ConnectFn = dyn Fn(Attempt, Box<dyn ConnectCallback>) + Send + Sync;

impl<M> Default for PoolHooks<M> {
    fn default() -> Self {
        PoolHooks { health_check: None, on_acquire: None }
    }
}

/// The state of a pool whose waiters are the completers of `acquire`.
type State<M> = PoolState<M, Completer<PooledChannel<M>>>;

/// A waiter, and the channel for it.
type NextPair<M> = (Waiter<Completer<PooledChannel<M>>>, Acquired<M>);

pub(super) struct PoolService<M: 'static> {
    pub(super) group: EventLoopGroup,
    settings: PoolSettings,
    call: Box<ConnectFn>,
    hooks: PoolHooks<M>,
    pub(super) pool_state: Mutex<State<M>>,
}

impl<M: 'static> PoolService<M> {
    pub(super) fn new(
        group: EventLoopGroup,
        settings: PoolSettings,
        call: Box<ConnectFn>,
        hooks: PoolHooks<M>,
    ) -> Arc<Self> {
        let pool_state = Mutex::new(PoolState::new(settings.size, settings.order));
        Arc::new(PoolService { group, settings, call, hooks, pool_state })
    }

    // ---- acquiring ------------------------------------------------------------------------------

    pub(super) fn acquire(self: &Arc<Self>) -> Completion<PooledChannel<M>> {
        let mut pool_state = self.pool_state.lock();
        let number = pool_state.next_number();
        let me = Arc::downgrade(self);
        // Waiting on any of these loops could deadlock, because its handler might have to release a
        // channel.
        let (completer, completion) = cancellable_of_all(self.group.loop_ids(), move |unwanted| {
            if let Unwanted::Result(channel) = unwanted {
                // Dropping the channel returns it.
                return drop::<PooledChannel<M>>(channel);
            }
            let waiter = me.upgrade().and_then(|me| me.pool_state.lock().wait_no_more(number));
            if let Some(timer) = waiter.and_then(|waiter| waiter.timer) {
                timer.cancel();
            }
        });
        if pool_state.is_closed() {
            drop(pool_state);
            completer.complete(Err(Error::Closed));
            return completion;
        }
        // Waiters are served first, even if a channel is free at present.
        let mut slot = if pool_state.waiters() == 0 { pool_state.take() } else { None };
        if slot.is_none()
            && self.settings.timeout.is_zero()
            && self.settings.on_timeout == AcquireTimeout::Open
        {
            slot = Some(pool_state.begin());
        }
        if let Some(slot) = slot {
            drop(pool_state);
            self.serve(completer, slot);
            return completion;
        }
        if self.settings.timeout.is_zero() {
            drop(pool_state);
            completer.complete(Err(self.timed_out()));
            return completion;
        }
        let limit = self.settings.max_waiters;
        let waiting = pool_state.wait(Waiter { number, completer, timer: None }, limit);
        drop(pool_state);
        match waiting {
            Ok(()) => self.set_alarm(number, self.settings.timeout),
            Err(waiter) => {
                waiter.completer.complete(Err(Error::Full { resource: Resource::PoolWaiters, limit }))
            }
        }
        completion
    }

    fn timed_out(&self) -> Error {
        Error::TimedOut { operation: "acquiring a channel", after: self.settings.timeout }
    }

    fn set_alarm(self: &Arc<Self>, number: u64, left: Duration) {
        let event_loop = self.group.next_for_timers().clone();
        let due = event_loop.after(left);
        let alarm = Alarm { service: Arc::downgrade(self), number, event_loop: event_loop.clone(), due };
        // The number of these timers is bounded by the number of waiters.
        let timer = event_loop.schedule_for_reply(due, move || alarm.ring());
        // A refused alarm has been dropped, which sets another one or completes the acquire.
        let Ok(timer) = timer else { return };
        let mut pool_state = self.pool_state.lock();
        match pool_state.waiter(number) {
            Some(waiter) => waiter.timer = Some(timer),
            None => {
                drop(pool_state);
                timer.cancel();
            }
        }
    }

    /// Moves an alarm that has not rung, because its loop ends, to another loop.
    fn move_alarm(self: &Arc<Self>, alarm: &Alarm<M>) {
        // No waiter has this number if the alarm has rung or was cancelled.
        if self.pool_state.lock().waiter(alarm.number).is_none() {
            return;
        }
        if self.group.next_for_timers().is_shutting_down() {
            return self.expire(alarm.number, Error::ShutDown);
        }
        let left = alarm.due.saturating_sub(alarm.event_loop.now());
        self.set_alarm(alarm.number, Duration::from_nanos(left));
    }

    /// Ends the wait of an acquire, with a new channel or an error.
    fn expire(self: &Arc<Self>, number: u64, why: Error) {
        let opens = self.settings.on_timeout == AcquireTimeout::Open && matches!(why, Error::TimedOut { .. });
        let (waiter, slot) = {
            let mut pool_state = self.pool_state.lock();
            let Some(waiter) = pool_state.wait_no_more(number) else { return };
            (waiter, opens.then(|| pool_state.begin()))
        };
        match slot {
            Some(slot) => self.serve(waiter.completer, slot),
            None => waiter.completer.complete(Err(why)),
        }
    }

    /// Serves the waiters as long as channels are available.
    fn serve_waiters(self: &Arc<Self>) {
        if !self.pool_state.lock().begin_to_serve() {
            return;
        }
        while let Some((waiter, slot)) = self.next_pair() {
            if let Some(timer) = waiter.timer {
                timer.cancel();
            }
            self.serve(waiter.completer, slot);
        }
    }

    fn next_pair(&self) -> Option<NextPair<M>> {
        self.pool_state.lock().next_pair()
    }

    fn serve(self: &Arc<Self>, completer: Completer<PooledChannel<M>>, slot: Acquired<M>) {
        let mut channel = match slot {
            Acquired::Used(channel) => channel,
            Acquired::New(attempt) => return self.make(completer, attempt),
        };
        loop {
            if channel.is_open() && channel.reuse() == Reuse::Now && self.is_healthy(&channel) {
                match self.admit(&channel) {
                    Ok(Handed::Out) => return self.give(completer, channel, true),
                    Ok(Handed::TooLate) => return self.refuse(completer, &channel, Error::Closed),
                    Ok(Handed::Gone) => {}
                    Err(e) => return self.refuse(completer, &channel, e),
                }
            }
            let slot = self.pool_state.lock().exchange(channel.id());
            channel.close();
            match slot {
                Acquired::Used(another) => channel = another,
                Acquired::New(attempt) => return self.make(completer, attempt),
            }
        }
    }

    fn is_healthy(&self, channel: &Channel<M>) -> bool {
        let Some(check) = &self.hooks.health_check else { return true };
        let mut healthy = false;
        if let Some(message) = caught(|| healthy = check(channel)) {
            log_throttled!(
                off_loop(),
                PANICS,
                Level::Error,
                "the health check of a channel pool panicked: {message}"
            );
        }
        healthy
    }

    fn admit(&self, channel: &Channel<M>) -> Result<Handed> {
        if let Some(hook) = &self.hooks.on_acquire {
            let mut result = Ok(());
            if let Some(message) = caught(|| result = hook(channel)) {
                result = Err(Error::panicked(message));
            }
            result?;
        }
        Ok(self.pool_state.lock().hand_out(channel.id()))
    }

    fn give(self: &Arc<Self>, completer: Completer<PooledChannel<M>>, channel: Channel<M>, is_reused: bool) {
        // If the completion was dropped, the channel is dropped and returned.
        completer.complete(Ok(PooledChannel::new(channel, self.clone(), is_reused)));
    }

    fn refuse(self: &Arc<Self>, completer: Completer<PooledChannel<M>>, channel: &Channel<M>, why: Error) {
        self.pool_state.lock().take_off(channel.id());
        channel.close();
        completer.complete(Err(why));
        self.serve_waiters();
    }

    // ---- opening --------------------------------------------------------------------------------

    fn make(self: &Arc<Self>, completer: Completer<PooledChannel<M>>, attempt: Attempt) {
        let making = Making { attempt: attempt.clone(), whom: Some((self.clone(), completer)) };
        (self.call)(attempt, Box::new(making));
    }

    fn made(
        self: &Arc<Self>,
        completer: Completer<PooledChannel<M>>,
        attempt: &Attempt,
        channel: Channel<M>,
    ) {
        self.pool_state.lock().made(attempt, &channel);
        let (me, id) = (Arc::downgrade(self), channel.id());
        channel.closed().on_complete(move |_| {
            let Some(me) = me.upgrade() else { return };
            let freed = me.pool_state.lock().has_closed(id);
            if freed {
                me.serve_waiters();
            }
        });
        match self.admit(&channel) {
            Ok(Handed::Out) => self.give(completer, channel, false),
            // Opening another channel could repeat without end.
            Ok(Handed::Gone | Handed::TooLate) => self.refuse(completer, &channel, Error::Closed),
            Err(e) => self.refuse(completer, &channel, e),
        }
    }

    fn not_made(self: &Arc<Self>, completer: Completer<PooledChannel<M>>, attempt: &Attempt, why: Error) {
        self.pool_state.lock().end_attempt(attempt);
        completer.complete(Err(why));
        self.serve_waiters();
    }

    pub(super) fn close(&self) {
        let (waiters, free, making) = self.pool_state.lock().close();
        for waiter in waiters {
            if let Some(timer) = waiter.timer {
                timer.cancel();
            }
            waiter.completer.complete(Err(Error::Closed));
        }
        free.iter().for_each(Channel::close);
        making.iter().for_each(|attempt| attempt.cancel(&self.group.next_for_timers().shared));
    }
}

impl<M: 'static> PoolOwner<M> for PoolService<M> {
    fn release(self: Arc<Self>, channel: &Channel<M>) -> Result {
        let released = self.pool_state.lock().release(channel);
        match released {
            Release::Kept => {
                self.serve_waiters();
                Ok(())
            }
            Release::Later(result) => {
                let (me, returned) = (Arc::downgrade(&self), channel.clone());
                channel.when_idle(move || match me.upgrade() {
                    // A closed pool closes the channel.
                    Some(me) => drop(me.release(&returned)),
                    None => returned.close(),
                });
                result
            }
            Release::Close(result) => {
                channel.close();
                self.serve_waiters();
                result
            }
        }
    }

    fn discard(self: Arc<Self>, channel: &Channel<M>) {
        self.pool_state.lock().take_off(channel.id());
        channel.close();
        self.serve_waiters();
    }
}

impl<M: 'static> Drop for PoolService<M> {
    fn drop(&mut self) {
        self.close();
    }
}

/// A channel that is being opened for an acquire.
struct Making<M: 'static> {
    attempt: Attempt,
    /// `None` once the result was reported.
    whom: Option<ForWhom<M>>,
}

type ForWhom<M> = (Arc<PoolService<M>>, Completer<PooledChannel<M>>);

impl<M: 'static> ConnectCallback for Making<M> {
    fn is_wanted(&self) -> bool {
        // Also if the acquire was cancelled: the channel becomes free.
        self.whom.as_ref().is_some_and(|(service, _)| !service.pool_state.lock().is_closed())
    }

    fn connected(mut self: Box<Self>, channel: Arc<ChannelShared>) {
        if let Some((service, completer)) = self.whom.take() {
            service.made(completer, &self.attempt, Channel::new(channel));
        }
    }

    fn failed(mut self: Box<Self>, error: Error) {
        if let Some((service, completer)) = self.whom.take() {
            let closed = service.pool_state.lock().is_closed();
            service.not_made(completer, &self.attempt, if closed { Error::Closed } else { error });
        }
    }
}

impl<M: 'static> Drop for Making<M> {
    fn drop(&mut self) {
        // A loop that ends drops its pending attempts.
        if let Some((service, completer)) = self.whom.take() {
            service.not_made(completer, &self.attempt, Error::ShutDown);
        }
    }
}

/// The timeout of an acquire. It rings, or is dropped by a loop that shuts down, which moves it.
struct Alarm<M: 'static> {
    service: Weak<PoolService<M>>,
    number: u64,
    event_loop: EventLoop,
    /// When it rings, in the time of the loop.
    due: u64,
}

impl<M: 'static> Alarm<M> {
    fn ring(self) {
        if let Some(service) = self.service.upgrade() {
            let why = service.timed_out();
            service.expire(self.number, why);
        }
    }
}

impl<M: 'static> Drop for Alarm<M> {
    fn drop(&mut self) {
        if let Some(service) = self.service.upgrade() {
            service.move_alarm(self);
        }
    }
}
