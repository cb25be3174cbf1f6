//! Client connections.
//!
//! A connection attempt has an id (`Attempt`) before its loop has received it, so it can be
//! cancelled at any time: the completion is done at once, and the loop closes the socket and
//! cancels the timer when it reads the mail. Dropping the completion cancels too. The completion's
//! lock orders a cancel and a result that race. After a cancel the loop closes the channel; a
//! result that was delivered first is closed by the drop of the completion.
//!
//! Invariant: an attempt is either under way on its loop or has reported its result once. A
//! cancelled attempt leaves no channel that the program would have to close. Any thread may connect
//! and cancel.

use crate::{
    Channel, Completion, Error, EventLoop, EventLoopGroup, Resource, Result,
    channel::{AnyPipeline, ChannelConfig, ChannelOptions, ChannelShared},
    clock::nanos,
    error::SendError,
    event_loop::{
        Assignment, Attempt, CancelConnect, ChildSetup, ConnectCallback, Connecting, Connection, LoopMail,
        LoopShared, Peer,
    },
    pipeline::IntoPipeline,
    sync::{Completer, Unwanted, cancellable},
    transport::{Address, Stream, TcpOptions, ToAddress},
};
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Settings of connections that a program makes; one bootstrap makes any number of them.
///
/// | setting | default |
/// |---|---|
/// | `connect_timeout` | 30 s; zero: none but the system's |
/// | `local_address` | the system chooses |
/// | `options`, `channel_options` | see [`TcpOptions`], [`ChannelOptions`] |
///
/// ```no_run
/// # use netwheel::prelude::*;
/// # use netwheel::codec::Line;
/// # struct Printer;
/// # impl Handler for Printer {
/// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
/// #   fn read(&mut self, _: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { println!("{m:?}"); Ok(()) }
/// # }
/// # fn main() -> Result {
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let client = ClientBootstrap::new(&group).pipeline(|_peer| Pipeline::codec(Line::new()).handler(Printer));
/// let channel = client.connect("127.0.0.1:7000").wait()?;
/// channel.write("hello".into())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ClientBootstrap<F = ()> {
    pub(super) group: EventLoopGroup,
    options: TcpOptions,
    channel: ChannelOptions,
    connect_timeout: Duration,
    local_address: Option<SocketAddr>,
    factory: F,
}

impl ClientBootstrap {
    /// Connections that are served by the loops of `group`.
    pub fn new(group: &EventLoopGroup) -> Self {
        ClientBootstrap {
            group: group.clone(),
            options: TcpOptions::new(),
            channel: ChannelOptions::new(),
            connect_timeout: Duration::from_secs(30),
            local_address: None,
            factory: (),
        }
    }
}

impl<F> ClientBootstrap<F> {
    /// Socket options.
    pub fn options(mut self, options: TcpOptions) -> Self {
        self.options = options;
        self
    }

    /// Channel settings: water marks, limits, budgets.
    pub fn channel_options(mut self, options: ChannelOptions) -> Self {
        self.channel = options;
        self
    }

    /// How long making a connection may take.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The address of this end; port 0 takes a free one. Not for Unix sockets, whose clients have no name.
    pub fn local_address(mut self, address: SocketAddr) -> Self {
        self.local_address = Some(address);
        self
    }

    /// What makes the pipeline of each connection, on that connection's loop, once it is there.
    pub fn pipeline<G, P>(self, factory: G) -> ClientBootstrap<Arc<G>>
    where
        G: Fn(&Peer) -> P + Send + Sync + 'static,
        P: IntoPipeline,
    {
        let ClientBootstrap { group, options, channel, connect_timeout, local_address, factory: _ } = self;
        let factory = Arc::new(factory);
        ClientBootstrap { group, options, channel, connect_timeout, local_address, factory }
    }
}

impl<F, P> ClientBootstrap<Arc<F>>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline,
{
    /// Connects to `address` on the group's next loop; completes before the handler's `active` is called.
    ///
    /// A host name is resolved here, which may block; its first address is taken. Dropping the
    /// completion, or [`Completion::cancel`], cancels the attempt and closes the socket. If the
    /// connection is established at the same time, its handler may receive `active`, followed by
    /// `inactive`. With [`Completion::detach`] the handler keeps the channel.
    ///
    /// The completion fails with [`Error::TimedOut`] if the peer does not answer in time, [`Error::Cancelled`] if it was
    /// cancelled, [`Error::Setting`] if a setting is out of its range, [`Error::Full`] if each loop has as many connections
    /// as it may have, [`Error::ShutDown`] if the loop is; and with [`Error::Io`] if the system refuses, which says in
    /// `during` what it was about: "resolving an address", "binding the local address", or "connecting", if the peer
    /// refuses. A Unix socket whose listener has a full backlog answers `WouldBlock` at once, on Linux; elsewhere it refuses.
    pub fn connect(&self, address: impl ToAddress) -> Completion<Channel<P::Message>> {
        let prepared = self.check().and_then(|config| {
            let peer = address.addresses()?.swap_remove(0);
            let (event_loop, assignment) = self.assign(&config)?;
            Ok((config, peer, event_loop, assignment))
        });
        let (config, peer, event_loop, assignment) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => return Completion::ready(Err(e)),
        };
        let attempt = Attempt::default();
        let (shared, cancelled) = (event_loop.shared.clone(), attempt.clone());
        let undo = move |unwanted: Unwanted<Channel<P::Message>>| match unwanted {
            // Refused by a loop that has ended, and its attempts with it.
            Unwanted::Operation => {
                drop(shared.submit_always(LoopMail::Source(Box::new(CancelConnect(cancelled.clone())))))
            }
            Unwanted::Result(channel) => channel.close_now(),
        };
        let (completer, completion) = cancellable(Some(event_loop.shared.id), undo);
        let call = Call { peer, config, attempt, done: Box::new(ConnectWaiter(completer)) };
        self.call(event_loop, assignment, call, LoopShared::submit_now);
        completion
    }

    /// The loop of the next connection, and the connection's place there.
    ///
    /// # Errors
    /// If each loop has as many connections as it may have.
    pub(super) fn assign(&self, config: &ChannelConfig) -> Result<(&EventLoop, Assignment)> {
        let full = |limit| Error::Full { resource: Resource::Connections, limit };
        self.group.assign(config.weight).map_err(full)
    }

    /// What connections are made with.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub(super) fn check(&self) -> Result<Arc<ChannelConfig>> {
        self.options.check()?;
        Ok(Arc::new(ChannelConfig { linger: self.options.lingers(), ..self.channel.build()? }))
    }

    /// Begins an attempt, on any thread; whatever comes of it, `done` hears of it, here or on the loop.
    pub(super) fn call(
        &self,
        event_loop: &EventLoop,
        assignment: Assignment,
        call: Call,
        submit: impl FnOnce(&LoopShared, LoopMail) -> Result<(), SendError<LoopMail>>,
    ) {
        let Call { peer, config, attempt, done } = call;
        let stream = match Stream::connect(&peer, self.local_address, &self.options) {
            Ok(stream) => stream,
            // Who hears that it failed finds it no longer counted.
            Err(e) => {
                drop(assignment);
                return done.failed(e);
            }
        };
        let (factory, peer) = (self.factory.clone(), peer.as_tcp());
        let setup = Arc::new(ChildSetup {
            factory: Box::new(move |peer| Ok(AnyPipeline::from(factory(peer).into_pipeline()?))),
            config,
            options: self.options.clone(),
        });
        let timeout = nanos(self.connect_timeout);
        let connection = Connection { stream, assignment, peer, local: None, setup };
        let connecting = Connecting::new(connection, done, attempt, timeout);
        if let Err(refused) = submit(&event_loop.shared, LoopMail::Open(Box::new(connecting))) {
            let (mail, error) = refused.into_parts();
            if let Some(connecting) = mail.into_new_source::<Connecting>() {
                connecting.fail(error);
            }
        }
    }
}

/// One attempt to connect.
pub(super) struct Call {
    pub(super) peer: Address,
    pub(super) config: Arc<ChannelConfig>,
    pub(super) attempt: Attempt,
    pub(super) done: Box<dyn ConnectCallback>,
}

/// Who asked for the connection.
struct ConnectWaiter<M>(Completer<Channel<M>>);

impl<M: 'static> ConnectCallback for ConnectWaiter<M> {
    fn is_wanted(&self) -> bool {
        self.0.is_pending()
    }

    fn connected(self: Box<Self>, shared: Arc<ChannelShared>) {
        let channel = Channel::new(shared);
        if !self.0.deliver(Ok(channel.clone())) {
            channel.close_now();
        }
    }

    fn failed(self: Box<Self>, error: Error) {
        self.0.complete(Err(error));
    }
}
