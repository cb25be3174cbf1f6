//! A client that reconnects: its settings and its handle. `reconnect_state` is the state machine.
//!
//! The client is in exactly one phase, with one operation under way: a timer, an attempt or a
//! channel. The operation owns the client; the handle only sends requests. However the operation
//! ends (it fails, it is cancelled, or a loop that shuts down drops it), it reports so once, on the
//! client's loop, and the next phase begins or the client ends. So no operation can be forgotten.
//! Mail of the client is always accepted by the loop's queue, and its timer does not count against
//! the limit of scheduled tasks, because a client has at most one of each.
//!
//! Invariant: settings are refused before anything starts. Any thread may start a client or use the
//! handle. The hook is called on the client's loop.

mod backoff;
mod handle;
mod reconnect_state;

pub use backoff::Backoff;
pub use handle::ReconnectingChannel;

use super::client::{Call, ClientBootstrap};
use crate::{
    Channel, Error, Resource, Result,
    event_loop::{LoopShared, Peer},
    pipeline::IntoPipeline,
    transport::{Address, ToAddress},
};
use reconnect_state::{Attempting, ReconnectState};
use std::{fmt, ops::ControlFlow, sync::Arc, time::Duration};

/// What a client that stays connected goes through; told to the hook of [`ReconnectBuilder::on_event`].
#[non_exhaustive]
pub enum ReconnectEvent<'a, M> {
    /// An attempt begins.
    Connecting {
        /// Its number, from 1, since the last connection that held.
        attempt: u32,
        /// Where to.
        address: &'a Address,
    },
    /// An attempt has succeeded; the handler's `active` comes next.
    Connected {
        /// The attempt's number.
        attempt: u32,
        /// The channel.
        channel: &'a Channel<M>,
    },
    /// An attempt has failed.
    Failed {
        /// Its number.
        attempt: u32,
        /// Why.
        error: &'a Error,
        /// How long until the next attempt; none if there is no other.
        next: Option<Duration>,
    },
    /// The connection is lost, whoever closed it.
    Lost {
        /// How long it has held.
        held: Duration,
        /// How long until the next attempt; none if there is no other.
        next: Option<Duration>,
    },
}

// Messages need not be `Debug`, as they would have to if this were derived.
impl<M> fmt::Debug for ReconnectEvent<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReconnectEvent::Connecting { attempt, address } => {
                f.debug_struct("Connecting").field("attempt", attempt).field("address", address).finish()
            }
            ReconnectEvent::Connected { attempt, channel } => {
                f.debug_struct("Connected").field("attempt", attempt).field("channel", channel).finish()
            }
            ReconnectEvent::Failed { attempt, error, next } => {
                let mut debug = f.debug_struct("Failed");
                debug.field("attempt", attempt).field("error", error).field("next", next).finish()
            }
            ReconnectEvent::Lost { held, next } => {
                f.debug_struct("Lost").field("held", held).field("next", next).finish()
            }
        }
    }
}

type Hook<M> = Box<dyn Fn(ReconnectEvent<'_, M>) -> ControlFlow<()> + Send + Sync>;

/// A client that is about to stay connected; made by [`ClientBootstrap::reconnect`].
#[must_use]
pub struct ReconnectBuilder<F, M> {
    bootstrap: ClientBootstrap<Arc<F>>,
    backoff: Backoff,
    hook: Option<Hook<M>>,
}

impl<F, P> ClientBootstrap<Arc<F>>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline,
{
    /// A client that connects again whenever its connection is lost or cannot be made, after a delay that `backoff` says.
    ///
    /// ```
    /// # use netwheel::{Backoff, ReconnectEvent, codec::RawBytes, prelude::*};
    /// # use std::ops::ControlFlow;
    /// # struct Quiet;
    /// # impl Handler for Quiet {
    /// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
    /// #   fn read(&mut self, _: &mut Context<'_, Self>, _: bytes::Bytes) -> Result { Ok(()) }
    /// # }
    /// # fn main() -> Result {
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let client = ClientBootstrap::new(&group)
    ///     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Quiet))
    ///     .reconnect(Backoff::new())
    ///     .on_event(|event| {
    ///         if let ReconnectEvent::Failed { attempt, error, next: Some(delay) } = event {
    ///             println!("attempt {attempt}: {error}; again in {delay:?}");
    ///         }
    ///         ControlFlow::Continue(())
    ///     })
    ///     .connect("127.0.0.1:9")?;
    /// if let Some(channel) = client.channel() {
    ///     channel.write("hello".into())?;
    /// }
    /// client.close();
    /// client.closed().wait()
    /// # }
    /// ```
    pub fn reconnect(&self, backoff: Backoff) -> ReconnectBuilder<F, P::Message> {
        ReconnectBuilder { bootstrap: self.clone(), backoff, hook: None }
    }
}

impl<F, P> ReconnectBuilder<F, P::Message>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline,
{
    /// Has `hook` called on the client's loop with each attempt, each success, each failure and each loss; it stops the
    /// client by answering [`ControlFlow::Break`]. It must not block. A panic in it is logged, and the client goes on.
    pub fn on_event(
        mut self,
        hook: impl Fn(ReconnectEvent<'_, P::Message>) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Begins: the first attempt is made without a delay, by the group's next loop, which serves all that follow.
    ///
    /// A host name is resolved here, once, which may block; if it has several addresses, attempts go round them.
    ///
    /// # Errors
    /// If a setting is out of its range, the name has no address, the loop's queue is full, or the loop is shut down.
    /// That nobody answers is no error here: that is what it is for.
    pub fn connect(self, address: impl ToAddress) -> Result<ReconnectingChannel<P::Message>> {
        let ReconnectBuilder { bootstrap, backoff, hook } = self;
        backoff.check()?;
        let config = bootstrap.check()?;
        let addresses = address.addresses()?;
        let event_loop = bootstrap.group.next().clone();
        let caller = event_loop.clone();
        let call = move |peer, attempt, done| {
            let call = Call { peer, config: config.clone(), attempt, done };
            let load = &caller.shared.load;
            let Some(assignment) = load.assign(config.weight) else {
                let limit = load.limit();
                return call.done.failed(Error::Full { resource: Resource::Connections, limit });
            };
            // The first one was admitted by the loop; that its queue is full now must not keep the client away.
            bootstrap.call(&caller, assignment, call, LoopShared::submit_always);
        };
        let reconnect_state = ReconnectState::new(event_loop, addresses, Box::new(call), hook, backoff);
        let reconnect_state = Arc::new(reconnect_state);
        let pending = Attempting::new(reconnect_state.clone());
        reconnect_state.event_loop.execute(move || pending.take(ReconnectState::try_to_connect))?;
        Ok(ReconnectingChannel { reconnect_state })
    }
}

impl<F: fmt::Debug, M> fmt::Debug for ReconnectBuilder<F, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReconnectBuilder")
            .field("bootstrap", &self.bootstrap)
            .field("backoff", &self.backoff)
            .finish()
    }
}
