//! A channel without a socket, for tests of pipelines.
//!
//! Always holds: it drives the very core that sockets drive; nothing happens but within a call of its methods,
//! on the calling thread; its time stands still until [`EmbeddedChannel::advance`].

use super::ManualClock;
use crate::{
    Channel, ChannelOptions, Clock, Error, Result,
    channel::{ChannelCore, Coarse, Delivery, Due, Flags, LoopServices, Mail, OutboundBudget, Outlet, Wish},
    clock::TimeSource,
    id::{ChannelId, Key},
    pipeline::ChannelPipeline,
    sync::{Inbox, Mailbox, loop_id, mailbox},
    timer::{Wheel, WheelBuilder},
};
use bytes::{Bytes, BytesMut};
use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

/// Mail that may wait for an embedded channel.
const MAX_MAIL: usize = 1 << 20;

/// A pipeline whose two ends are in the test's hands, on a manual clock.
///
/// Bytes go in with [`write_inbound`](EmbeddedChannel::write_inbound), bytes come out with
/// [`read_outbound`](EmbeddedChannel::read_outbound), time passes with [`advance`](EmbeddedChannel::advance). Its
/// [`channel`](EmbeddedChannel::channel) handle works from any thread; what it sends is handled by
/// [`run_pending`](EmbeddedChannel::run_pending), which the other methods call too.
///
/// There are no turns here: `reads_per_turn` and `writes_per_turn` limit nothing, and each call runs all that is due,
/// so a task that schedules itself again with no delay for ever never lets it return.
///
/// ```
/// use netwheel::{codec::LengthField, prelude::*, testing::EmbeddedChannel};
///
/// struct Echo;
/// impl Handler for Echo {
///     type In = bytes::Bytes;
///     type Out = bytes::Bytes;
///     fn read(&mut self, ctx: &mut Context<'_, Self>, frame: bytes::Bytes) -> Result {
///         ctx.write(frame)
///     }
/// }
///
/// let mut channel = EmbeddedChannel::new(Pipeline::new().codec(LengthField::u16()).handler(Echo));
/// channel.write_inbound(b"\0\x02hi\0\x04par")?;
/// assert_eq!(channel.read_outbound(), &b"\0\x02hi"[..]);
/// channel.write_inbound(b"t")?;
/// assert_eq!(channel.read_outbound(), &b"\0\x04part"[..]);
/// # Ok::<(), netwheel::Error>(())
/// ```
pub struct EmbeddedChannel<M> {
    core: ChannelCore,
    services: LoopServices,
    clock: ManualClock,
    mail: Arc<TestOutlet>,
    inbox: Inbox<Post>,
    /// Bytes that came while nothing was to be read.
    unread: BytesMut,
    sent: BytesMut,
    /// Bytes that the peer takes from now on; none: all.
    room: Option<usize>,
    ended: bool,
    message: PhantomData<fn(M)>,
}

struct TestOutlet {
    event_loop: u32,
    mailbox: Mailbox<Post>,
    time: TimeSource,
}

/// What comes from handles, and from groups.
enum Post {
    Mail(Mail),
    Broadcast(Box<Delivery>),
}

impl Outlet for TestOutlet {
    fn deliver(&self, _: Key, mail: Mail) -> Result<(), (Mail, Error)> {
        let always = mail.is_always_taken();
        let mail = Post::Mail(mail);
        let sent = if always { self.mailbox.put_always(mail) } else { self.mailbox.put(mail) };
        sent.map_err(|refused| match refused.value {
            Post::Mail(mail) => (mail, refused.reason),
            Post::Broadcast(_) => unreachable!("the same mail comes back"),
        })
    }

    fn broadcast(&self, delivery: Box<Delivery>) -> Result<(), (Box<Delivery>, Error)> {
        self.mailbox.put(Post::Broadcast(delivery)).map_err(|refused| match refused.value {
            Post::Broadcast(delivery) => (delivery, refused.reason),
            Post::Mail(..) => unreachable!("the same mail comes back"),
        })
    }

    fn now(&self) -> u64 {
        self.time.now()
    }

    fn in_event_loop(&self) -> bool {
        loop_id::current() == Some(self.event_loop)
    }
}

impl<M: 'static> EmbeddedChannel<M> {
    /// A connected channel with this pipeline: its handler's `active` has been called.
    pub fn new(pipeline: ChannelPipeline<M>) -> Self {
        Self::with(pipeline, &ChannelOptions::new(), ManualClock::new(), Duration::from_millis(1))
            .expect("the default settings are within their ranges")
    }

    /// As [`new`](EmbeddedChannel::new), with settings, a clock that others may share, and the tick of the wheel
    /// that idle timeouts are kept on (1 ms otherwise).
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn with(
        pipeline: ChannelPipeline<M>,
        options: &ChannelOptions,
        clock: ManualClock,
        wheel_tick: Duration,
    ) -> Result<Self> {
        let config = Arc::new(options.build()?);
        let wheel: Wheel<Coarse> = WheelBuilder::default().tick(wheel_tick).build()?;
        let event_loop = loop_id::next();
        let time = TimeSource::new(Arc::new(clock.clone()));
        let (mailbox, inbox) = mailbox(MAX_MAIL);
        let mail = Arc::new(TestOutlet { event_loop, mailbox, time: time.clone() });
        let mut services =
            LoopServices::new(time, wheel, mail.clone(), Arc::default(), OutboundBudget::unlimited());
        let id = ChannelId { event_loop, key: Key { index: 0, generation: 0 } };
        let core = ChannelCore::new(id, config, pipeline.into(), (None, None), &mut services);
        let mut channel = EmbeddedChannel {
            core,
            services,
            clock,
            mail,
            inbox,
            unread: BytesMut::new(),
            sent: BytesMut::new(),
            room: None,
            ended: false,
            message: PhantomData,
        };
        channel.within(|me| me.core.handle_active(&mut me.services));
        Ok(channel)
    }

    /// A handle to the channel.
    pub fn channel(&mut self) -> Channel<M> {
        Channel::new(self.core.state.share(&self.services))
    }

    /// The clock that this channel runs on.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Bytes from the peer, as one read; then whatever follows from them. No bytes are what a socket makes of a
    /// wake-up for nothing: a read that brings nothing.
    ///
    /// # Errors
    /// If the channel is closed.
    pub fn write_inbound(&mut self, bytes: &[u8]) -> Result {
        if self.is_closed() || self.ended {
            return Err(Error::Closed);
        }
        self.unread.extend_from_slice(bytes);
        let nothing = self.unread.is_empty();
        self.within(|me| {
            me.read();
            if nothing && me.core.state.is_open() && me.core.state.may_read() {
                me.core.handle_read_complete(&mut me.services);
            }
        });
        Ok(())
    }

    /// The peer ends its stream.
    pub fn end_inbound(&mut self) {
        self.ended = true;
        self.within(Self::read);
    }

    /// The connection breaks with this error.
    pub fn break_with(&mut self, error: std::io::Error) {
        self.within(|me| me.core.handle_io_error(&mut me.services, Error::io("reading", error)));
    }

    /// All bytes that the pipeline has sent since the last call.
    pub fn read_outbound(&mut self) -> Bytes {
        self.sent.split().freeze()
    }

    /// Limits what the peer takes from now on to `bytes`, like a socket whose buffer is nearly full; `None` lifts
    /// the limit.
    pub fn set_outbound_room(&mut self, bytes: Option<usize>) {
        self.room = bytes;
        self.core.state.unset(Flags::WRITE_BLOCKED);
        self.within(|_| {});
    }

    /// Moves the channel's time and runs what comes due, in order of time.
    ///
    /// Every deadline on the way is stopped at, so a callback sees the time at which it is due.
    pub fn advance(&mut self, by: Duration) {
        let target = self.clock.now() + by;
        loop {
            let next =
                self.services.next_deadline().map(|at| self.services.time.instant(at.max(self.services.now)));
            let stop = next.filter(|next| *next <= target);
            let Some(stop) = stop else { break };
            self.clock.advance(stop.saturating_duration_since(self.clock.now()));
            self.within(|_| {});
        }
        self.clock.advance(target.saturating_duration_since(self.clock.now()));
        self.within(|_| {});
    }

    /// Moves the channel's time at once, like a loop that was held up; what is overdue then runs.
    pub fn stall(&mut self, by: Duration) {
        self.clock.advance(by);
        self.within(|_| {});
    }

    /// Handles what waits: mail from handles, due tasks and timers, flushes; how much mail and timers that were.
    pub fn run_pending(&mut self) -> usize {
        self.within(|_| {})
    }

    /// Whether mail waits, or something is due now.
    pub fn has_pending(&self) -> bool {
        let now = self.services.time.now();
        !self.inbox.is_empty() || self.services.next_deadline().is_some_and(|at| at <= now)
    }

    /// Scheduled tasks and idle entries that wait for their time.
    pub fn timers(&self) -> usize {
        self.services.queue.len() + self.services.wheel.len()
    }

    /// How long until the next of them is due.
    pub fn next_timer(&self) -> Option<Duration> {
        let now = self.services.time.now();
        self.services.next_deadline().map(|at| Duration::from_nanos(at.saturating_sub(now)))
    }

    /// Bytes that are encoded and not yet taken.
    pub fn pending_bytes(&self) -> usize {
        self.core.state.pending_bytes()
    }

    /// Whether the peer was told that no more comes ([`shutdown_write`](crate::Scope::shutdown_write)).
    pub fn is_output_ended(&self) -> bool {
        self.core.state.has(Flags::OUTPUT_ENDED)
    }

    /// Whether the channel takes writes.
    pub fn is_open(&self) -> bool {
        self.core.state.is_open()
    }

    /// Whether the channel is closed and its handler's `inactive` was called.
    pub fn is_closed(&self) -> bool {
        self.core.state.has(Flags::CLOSED)
    }

    /// Closes the channel, as a handle would, and drops every timer.
    pub fn close(&mut self) {
        self.within(|me| me.core.handle_mail(&mut me.services, Mail::Close));
    }

    // ---- the driver ----------------------------------------------------------------------------------

    /// Does one thing as the loop's thread, then everything that follows from it.
    fn within(&mut self, act: impl FnOnce(&mut Self)) -> usize {
        let _entered = loop_id::enter(self.mail.event_loop);
        self.services.now = self.services.time.now().max(self.services.now);
        act(self);
        let mut handled = 0;
        loop {
            let before = handled;
            while let Some(post) = self.inbox.take() {
                handled += 1;
                match post {
                    Post::Mail(mail) if !self.is_closed() => self.core.handle_mail(&mut self.services, mail),
                    Post::Mail(..) => {}
                    // It is for this channel: there is no other one on this loop.
                    Post::Broadcast(mut delivery) => {
                        while delivery.next().is_some() {
                            delivery.write_to(&mut self.core, &mut self.services);
                        }
                    }
                }
            }
            handled += self.run_timers();
            self.attend();
            if handled == before && self.services.attention.is_empty() && self.inbox.is_empty() {
                return handled;
            }
        }
    }

    fn run_timers(&mut self) -> usize {
        let now = self.services.now;
        let mut fired = 0;
        while let Some(due) = self.services.queue.pop_due(now) {
            fired += 1;
            match due.value {
                Due::Channel(_, slot) => self.core.handle_task(&mut self.services, slot),
                // Only the close timeout is armed here.
                Due::Source(_) => self.core.state.request_close_now(),
                Due::Task(task) => drop(task.run(&self.services.time)),
            }
        }
        while self.services.wheel.next_expiry().is_some_and(|at| at <= now) {
            // A call may only have moved entries towards their time.
            let Some(coarse) = self.services.wheel.expire(now) else { continue };
            fired += 1;
            self.core.handle_coarse(&mut self.services, coarse.slot);
        }
        fired
    }

    fn attend(&mut self) {
        self.services.attention.clear();
        if self.is_closed() {
            return;
        }
        self.core.state.unset(Flags::LISTED.with(Flags::FLUSH));
        let wish = self.core.wish();
        if wish != Wish::CloseNow {
            self.flush();
        }
        let sent = self.core.state.pending_bytes() == 0;
        if wish == Wish::CloseNow || (wish == Wish::FlushAndClose && sent) {
            self.core.handle_closed(&mut self.services);
            self.core.handle_inactive(&mut self.services);
            return;
        }
        if wish == Wish::FlushAndEnd && sent {
            self.core.handle_output_ended(&mut self.services);
        }
        if wish == Wish::FlushAndClose {
            self.core.state.arm_close(&mut self.services);
        }
        if self.core.state.wants_read() {
            self.read();
        }
    }

    fn flush(&mut self) {
        while !self.core.state.has(Flags::CLOSE_NOW)
            && let Some(out) = self.core.state.outbound().filter(|out| !out.is_empty())
        {
            let front = out.front();
            let n = self.room.map_or(front.len(), |room| room.min(front.len()));
            if n == 0 {
                return;
            }
            self.sent.extend_from_slice(&front[..n]);
            self.room = self.room.map(|room| room - n);
            self.core.handle_written(&mut self.services, n);
        }
    }

    /// The same order of things as a read from a socket: what was kept, then one read's worth at a time.
    fn read(&mut self) {
        let mut complete = false;
        self.core.state.unset(Flags::MAYBE_READABLE);
        loop {
            let state = &mut self.core.state;
            let wanted = state.may_read();
            if !state.is_open() || !wanted || state.has(Flags::INPUT_ENDED) {
                if !self.unread.is_empty() || self.ended {
                    state.set(Flags::MAYBE_READABLE);
                }
                break;
            }
            let undecoded = state.take(Flags::UNDECODED) && !state.partial.is_empty();
            if !undecoded && self.unread.is_empty() {
                if self.ended {
                    if complete {
                        self.core.handle_read_complete(&mut self.services);
                    }
                    self.core.handle_end(&mut self.services);
                    complete = false;
                }
                break;
            }
            let mut input = std::mem::take(&mut state.partial);
            if !undecoded {
                let n = self.unread.len().min(state.config.read_size);
                input.extend_from_slice(&self.unread.split_to(n));
                state.traffic.read = self.services.now;
            }
            if state.take(Flags::READ_WANTED) {
                state.set(Flags::READ_GRANTED);
            }
            let mut input = input.freeze();
            loop {
                self.core.handle_input(&mut self.services, &mut input);
                if !self.core.state.take(Flags::FLUSH) {
                    break;
                }
                self.flush();
            }
            if self.core.state.is_open() {
                self.core.keep(&mut self.services, input);
            }
            self.core.state.unset(Flags::READ_GRANTED);
            complete = true;
        }
        if complete && self.core.state.is_open() {
            self.core.handle_read_complete(&mut self.services);
        }
    }
}

impl<M> fmt::Debug for EmbeddedChannel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedChannel")
            .field("handler", &self.core.handler_name())
            .field("open", &self.core.state.is_open())
            .finish_non_exhaustive()
    }
}
