//! A handler that forwards the messages of one channel to another channel.
//!
//! Invariants: at most one message beyond the target's high water mark is queued. While the target
//! is not writable, the source is not read. The end of the other side depends on the cause alone
//! ([`CloseCause`]), so the order of events at an end is irrelevant. Each relay runs on its own
//! channel's loop and has only a handle to the other channel, so the two may be on different loops.

use crate::{
    channel::{Channel, CloseCause, IdleEvent, InputGuard},
    error::{Error, Result},
    pipeline::{Context, Handler},
    sync::Completion,
};

/// A handler that forwards each message of its channel to another channel. It is the building block
/// of proxies and gateways.
///
/// A connection through a proxy consists of two channels, each with a relay to the other.
/// [`Relay::dial`] returns the relay of the accepted channel, which opens the second channel.
/// [`Relay::to`] returns the relay of the second channel.
///
/// | on this channel | on the other channel |
/// |---|---|
/// | a message is read | the message is written |
/// | reading pauses | while it is not [writable](Channel::is_writable) |
/// | the peer ends its stream, with [`half_close`](crate::channel::ChannelOptions::half_close) on | [`shutdown_write`](Channel::shutdown_write) |
/// | the channel closes [cleanly](CloseCause::Clean) | [`close`](Channel::close): forwarded messages are flushed first |
/// | the channel ends for any other [cause](CloseCause): a reset, a cut, a time limit, a codec error, a failed connect | [`reset`](Channel::reset) |
/// | an idle timeout that closes a channel [by default](Handler::idle) expires | [`reset`](Channel::reset), and this channel is reset, too: a relay does not know whether a message is complete |
/// | its loop shuts down | nothing: both channels stay open until a peer ends, or are reset at the timeout of the shutdown |
/// | it has reached its [maximum age](crate::channel::MaxConnectionAge) | nothing: both channels stay open until a peer ends, or are reset at the end of the grace time |
///
/// Memory for one direction is therefore bounded by one read and the high water mark. Enable
/// `half_close` for both channels. Otherwise a peer that ends its stream after its request closes
/// the connection before the response arrives.
///
/// ```no_run
/// use netwheel::{
///     ClientBootstrap,
///     channel::ChannelOptions,
///     relay::Relay,
///     codec::RawBytes,
///     prelude::*,
/// };
///
/// fn main() -> Result {
///     let group = EventLoopGroup::builder().threads(2).build()?;
///     let options = ChannelOptions::new().half_close(true);
///     let (connector, back) = (group.clone(), options.clone());
///     let server = ServerBootstrap::new(&group)
///         .channel_options(options)
///         .pipeline(move |_| {
///             let client = ClientBootstrap::new(&connector).channel_options(back.clone());
///             Pipeline::codec(RawBytes).handler(Relay::dial(move |front| {
///                 client
///                     .pipeline(move |_| Pipeline::codec(RawBytes).handler(Relay::to(front.clone())))
///                     .connect("127.0.0.1:7001")
///             }))
///         })
///         .bind("127.0.0.1:7000")?;
///     server.closed().wait()
/// }
/// ```
pub struct Relay<M> {
    target: Target<M>,
}

enum Target<M> {
    NotDialed(Box<Dial<M>>),
    Dialing,
    Connected(Channel<M>),
}

type Dial<M> = dyn FnOnce(Channel<M>) -> Completion<Channel<M>>;

/// The dialed channel. On drop it ends as the channel of the relay does, unless it was taken.
struct Unclaimed<M: 'static> {
    dialed: Option<Channel<M>>,
    relay: Channel<M>,
}

impl<M: 'static> Unclaimed<M> {
    fn take(mut self) -> Option<Channel<M>> {
        self.dialed.take()
    }
}

impl<M: 'static> Drop for Unclaimed<M> {
    fn drop(&mut self) {
        if let Some(dialed) = self.dialed.take() {
            self.relay.closed().on_complete(move |cause| pass_on(&dialed, cause));
        }
    }
}

/// Ends a channel as the other one has ended.
fn pass_on<M>(channel: &Channel<M>, cause: Result<CloseCause>) {
    match cause {
        Ok(CloseCause::Clean) => channel.close(),
        _ => channel.reset(),
    }
}

impl<M: Send + 'static> Relay<M> {
    /// Returns a relay to an open channel.
    pub fn to(target: Channel<M>) -> Self {
        Relay { target: Target::Connected(target) }
    }

    /// Returns a relay that opens the other channel when its own channel is connected. It reads
    /// nothing before the other channel is open.
    ///
    /// `dial` is called once, on this channel's loop, with a handle to this channel. It usually
    /// returns the completion of [`ClientBootstrap::connect`](crate::ClientBootstrap::connect). If
    /// that fails, or the queue of this channel's loop is full then, this channel is reset. If this
    /// channel closes first, the other channel is closed as soon as it is open.
    pub fn dial(dial: impl FnOnce(Channel<M>) -> Completion<Channel<M>> + 'static) -> Self {
        Relay { target: Target::NotDialed(Box::new(dial)) }
    }

    fn connected(&mut self, ctx: &mut Context<'_, Self>, target: Result<Unclaimed<M>>) -> Result {
        let target = target?.take().ok_or(Error::Closed)?;
        let waits = !target.is_writable();
        self.target = Target::Connected(target);
        if waits {
            self.pause(ctx);
        }
        Ok(())
    }

    /// Pauses reading until the other channel is writable or closed. If it is closed, the next
    /// write detects that.
    fn pause(&self, ctx: &mut Context<'_, Self>) {
        if let Target::Connected(target) = &self.target {
            let paused: InputGuard = ctx.pause_reading();
            target.writable().on_complete(move |_| drop(paused));
        }
    }
}

impl<M: Send + 'static> Handler for Relay<M> {
    type Read = M;
    type Write = M;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        match std::mem::replace(&mut self.target, Target::Dialing) {
            Target::NotDialed(dial) => {
                let (paused, me, relay) = (ctx.pause_reading(), ctx.handler_ref(), ctx.channel());
                dial(ctx.channel()).on_complete(move |target| {
                    let owner = relay.clone();
                    let target = target.map(|target| Unclaimed { dialed: Some(target), relay: owner });
                    // Refused or dropped if this channel has closed. `Unclaimed` then ends the
                    // other channel.
                    let refused = me.execute(move |relay, ctx| relay.connected(ctx, target)).err();
                    if matches!(refused, Some(Error::Full { .. })) {
                        // Nothing else would end this channel.
                        relay.reset();
                    }
                    drop(paused);
                });
            }
            target => self.target = target,
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: M) -> Result {
        let Target::Connected(target) = &self.target else { return Err(Error::Closed) };
        match target.write(message) {
            Ok(()) if target.is_writable() => {}
            Ok(()) => self.pause(ctx),
            Err(refused) if matches!(refused.error(), Error::Closed) => {
                // Its end says whether this channel is closed or reset.
                let (paused, me) = (ctx.pause_reading(), ctx.channel());
                target.closed().on_complete(move |cause| {
                    pass_on(&me, cause);
                    drop(paused);
                });
            }
            Err(refused) => return Err(refused.into()),
        }
        Ok(())
    }

    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        match &self.target {
            Target::Connected(target) => target.shutdown_write(),
            _ => ctx.close(),
        }
        Ok(())
    }

    /// Resets a channel that other handlers close: an orderly close would look like the end of a
    /// complete stream.
    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        if ctx.ends_when_idle(event) {
            ctx.reset();
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        log::debug!("channel {}: the relay failed: {error:#}", ctx.id());
        ctx.reset();
        Ok(())
    }

    /// Keeps the channel open: a relay does not know where an exchange ends.
    fn shutdown(&mut self, _: &mut Context<'_, Self>) -> Result {
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Target::Connected(target) = &self.target {
            pass_on(target, ctx.close_cause().ok_or(Error::Closed));
        }
        Ok(())
    }
}
