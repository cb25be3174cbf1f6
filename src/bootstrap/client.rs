//! Making connections.

use super::resolve;
use crate::{
    Channel, Completion, Error, EventLoop, EventLoopGroup, Result,
    channel::{ChannelConfig, ChannelOptions, ChannelShared},
    clock::nanos,
    event_loop::{Assignment, ChildSetup, Connected, Connecting, LoopMail, Peer},
    pipeline::{AnyPipeline, IntoPipeline},
    sync::{Completer, completion},
    transport::{Stream, TcpOptions, tcp},
};
use std::{
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

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
/// #   type In = bytes::Bytes; type Out = bytes::Bytes;
/// #   fn read(&mut self, _: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { println!("{m:?}"); Ok(()) }
/// # }
/// # fn main() -> Result {
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let client = ClientBootstrap::new(&group).pipeline(|_peer| Pipeline::new().codec(Line::new()).handler(Printer));
/// let channel = client.connect("127.0.0.1:7000").wait()?;
/// channel.write("hello".into())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ClientBootstrap<F = ()> {
    group: EventLoopGroup,
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

    /// The address of this end; port 0 takes a free one.
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
    /// A host name is resolved here, which may block; its first address is taken.
    ///
    /// The completion fails with [`Error::Io`] if the peer refuses, [`Error::TimedOut`] if it does not answer,
    /// [`Error::Setting`] if a setting is out of its range, [`Error::Full`] if each loop has as many connections as it may
    /// have, [`Error::ShutDown`] if the loop is.
    pub fn connect(&self, address: impl ToSocketAddrs) -> Completion<Channel<P::Message>> {
        let config = match self.channel.build() {
            Ok(config) => Arc::new(config),
            Err(e) => return Completion::ready(Err(e)),
        };
        let (event_loop, assignment) = match self.group.assign(config.weight) {
            Ok(assigned) => assigned,
            Err(limit) => {
                return Completion::ready(Err(Error::Full { what: "connections of each event loop", limit }));
            }
        };
        let (completer, completion) = completion(Some(event_loop.shared.id));
        if let Err((completer, e)) = self.begin(event_loop, assignment, config, address, completer) {
            completer.complete(Err(e));
        }
        completion
    }

    #[expect(clippy::type_complexity, reason = "the completer comes back with the error")]
    fn begin(
        &self,
        event_loop: &EventLoop,
        assignment: Assignment,
        config: Arc<ChannelConfig>,
        address: impl ToSocketAddrs,
        completer: Completer<Channel<P::Message>>,
    ) -> std::result::Result<(), (Completer<Channel<P::Message>>, Error)> {
        let opened = (|| -> Result<_> {
            self.options.check()?;
            let peer = resolve(address)?[0];
            let stream = tcp::connect(peer, self.local_address, &self.options)
                .map_err(|e| Error::io("connecting", e))?;
            Ok((peer, stream))
        })();
        let (peer, stream) = match opened {
            Ok(opened) => opened,
            // Who hears that it failed finds it no longer counted.
            Err(e) => {
                drop(assignment);
                return Err((completer, e));
            }
        };
        let factory = self.factory.clone();
        let setup = Arc::new(ChildSetup {
            factory: Box::new(move |peer| Ok(AnyPipeline::from(factory(peer).into_pipeline()?))),
            config,
            options: self.options.clone(),
        });
        let connecting = Connecting {
            assignment,
            stream: Stream::Tcp(stream),
            peer,
            setup,
            done: Box::new(Waiting(completer)),
            timeout: nanos(self.connect_timeout),
            deadline: None,
        };
        if let Err(refused) = event_loop.shared.submit(LoopMail::Connect(Box::new(connecting)), 0)
            && let LoopMail::Connect(connecting) = refused.value
        {
            connecting.refuse(refused.reason);
        }
        Ok(())
    }
}

/// Who asked for the connection.
struct Waiting<M>(Completer<Channel<M>>);

impl<M: 'static> Connected for Waiting<M> {
    fn connected(self: Box<Self>, shared: Arc<ChannelShared>) {
        self.0.complete(Ok(Channel::new(shared)));
    }

    fn failed(self: Box<Self>, error: Error) {
        self.0.complete(Err(error));
    }
}
