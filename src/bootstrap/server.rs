//! Starting a server.

use super::resolve;
use crate::{
    Completion, Error, EventLoopGroup, Result,
    channel::ChannelOptions,
    event_loop::{ChildSetup, Listening, LoopMail, Peer, ServerClosed, ServerGuard, ServerShared},
    pipeline::{AnyPipeline, IntoPipeline},
    sync::completion,
    transport::{Listener, ListenerOptions, TcpOptions, tcp},
};
use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, PoisonError},
};

/// Settings of a server: where connections are accepted, who serves them, and with which pipeline.
///
/// ```no_run
/// # use netwheel::prelude::*;
/// # use netwheel::codec::RawBytes;
/// # struct Echo;
/// # impl Handler for Echo {
/// #   type In = bytes::Bytes; type Out = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// # fn main() -> Result {
/// let group = EventLoopGroup::new()?;
/// let server = ServerBootstrap::new(&group)
///     .backlog(1024)
///     .child_options(TcpOptions::new().nodelay(true))
///     .pipeline(|_peer| Pipeline::new().codec(RawBytes).handler(Echo))
///     .bind("127.0.0.1:7000")?;
/// server.closed().wait()
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ServerBootstrap<F = ()> {
    acceptors: EventLoopGroup,
    children: EventLoopGroup,
    listener: ListenerOptions,
    child: TcpOptions,
    channel: ChannelOptions,
    accepting: bool,
    factory: F,
}

impl ServerBootstrap {
    /// A server whose connections are served by the loops of `group`, which also accept them.
    pub fn new(group: &EventLoopGroup) -> Self {
        ServerBootstrap {
            acceptors: group.clone(),
            children: group.clone(),
            listener: ListenerOptions::new(),
            child: TcpOptions::new(),
            channel: ChannelOptions::new(),
            accepting: true,
            factory: (),
        }
    }
}

impl<F> ServerBootstrap<F> {
    /// Has connections accepted by the loops of another group, so that a burst of them does not delay those that
    /// are there.
    pub fn acceptor_group(mut self, group: &EventLoopGroup) -> Self {
        self.acceptors = group.clone();
        self
    }

    /// Connections that may wait to be accepted.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.listener = self.listener.backlog(connections);
        self
    }

    /// Whether a restarted server may bind at once to the address of its predecessor; on by default.
    pub fn reuse_address(mut self, on: bool) -> Self {
        self.listener = self.listener.reuse_address(on);
        self
    }

    /// Whether several listeners may bind to the same address.
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.listener = self.listener.reuse_port(on);
        self
    }

    /// All options of the listening socket at once.
    pub fn listener_options(mut self, options: ListenerOptions) -> Self {
        self.listener = options;
        self
    }

    /// Socket options of accepted connections.
    pub fn child_options(mut self, options: TcpOptions) -> Self {
        self.child = options;
        self
    }

    /// Channel settings of accepted connections: water marks, limits, budgets.
    pub fn channel_options(mut self, options: ChannelOptions) -> Self {
        self.channel = options;
        self
    }

    /// Whether connections are accepted from the start (the default) or only once
    /// [`Server::set_accepting`] says so.
    pub fn accepting(mut self, on: bool) -> Self {
        self.accepting = on;
        self
    }

    /// What makes the pipeline of each connection, on that connection's loop. An error or a panic in it closes
    /// that connection only.
    pub fn pipeline<G, P>(self, factory: G) -> ServerBootstrap<G>
    where
        G: Fn(&Peer) -> P + Send + Sync + 'static,
        P: IntoPipeline,
    {
        let ServerBootstrap { acceptors, children, listener, child, channel, accepting, factory: _ } = self;
        ServerBootstrap { acceptors, children, listener, child, channel, accepting, factory }
    }
}

impl<F, P> ServerBootstrap<F>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline,
{
    /// Listens on `address`, and accepts from now on. Port 0 takes a free one, see [`Server::local_address`].
    /// A host name is resolved here, which may block; the first of its addresses that can be bound is taken.
    ///
    /// # Errors
    /// If a setting is out of its range, the address cannot be bound, or the loops are shut down.
    pub fn bind(self, address: impl ToSocketAddrs) -> Result<Server> {
        self.listener.check()?;
        let mut result = Err(Error::Closed);
        for address in resolve(address)? {
            result = tcp::listen(address, &self.listener).map_err(|e| Error::io("listening", e));
            if result.is_ok() {
                break;
            }
        }
        let listener = result?;
        self.serve(Listener::Tcp(listener))
    }

    /// Accepts from a socket that listens already: one that a predecessor, a supervisor or a service manager has
    /// opened and handed over, so that no connection is refused while servers change.
    ///
    /// Its own options and backlog stay as they are; those set here for listening are not used. Two servers may share
    /// one listening socket ([`TcpListener::try_clone`](std::net::TcpListener::try_clone)): each connection goes to one
    /// of them.
    ///
    /// ```
    /// # use netwheel::{codec::RawBytes, prelude::*};
    /// # use std::net::TcpListener;
    /// # struct Echo;
    /// # impl Handler for Echo {
    /// #   type In = bytes::Bytes; type Out = bytes::Bytes;
    /// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
    /// # }
    /// # fn main() -> Result {
    /// let handed_over = TcpListener::bind("127.0.0.1:0").map_err(|e| Error::other(e))?;
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let server = ServerBootstrap::new(&group)
    ///     .pipeline(|_peer| Pipeline::new().codec(RawBytes).handler(Echo))
    ///     .adopt(handed_over)?;
    /// # server.close().wait()
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a setting is out of its range, the socket cannot be made non-blocking, or the loops are shut down.
    pub fn adopt(self, listener: std::net::TcpListener) -> Result<Server> {
        let listener = tcp::adopt(listener).map_err(|e| Error::io("adopting a listener", e))?;
        self.serve(Listener::Tcp(listener))
    }

    fn serve(self, listener: Listener) -> Result<Server> {
        self.child.check()?;
        let config = Arc::new(self.channel.build()?);
        let address = listener.local_address().map_err(|e| Error::io("listening", e))?;
        let factory = self.factory;
        let setup = Arc::new(ChildSetup {
            factory: Box::new(move |peer| Ok(AnyPipeline::from(factory(peer).into_pipeline()?))),
            config,
            options: self.child,
        });
        let shared = Arc::new(ServerShared::default());
        let acceptor = self.acceptors.next().clone();
        let listening = Listening {
            listener,
            address,
            children: self.children,
            setup,
            shared: ServerGuard(shared.clone()),
            accepting: self.accepting,
            paused: false,
            failing: false,
        };
        acceptor.shared.submit(LoopMail::Listen(Box::new(listening)), 0).map_err(|refused| refused.reason)?;
        Ok(Server { address, acceptor, shared })
    }
}

/// A listening server; dropping the handle lets it run.
#[derive(Clone)]
pub struct Server {
    address: SocketAddr,
    acceptor: crate::EventLoop,
    shared: Arc<ServerShared>,
}

impl Server {
    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections, or leaves them waiting in the listener's backlog; those that are there stay.
    ///
    /// # Errors
    /// If the acceptor's queue is full, or the acceptor is shut down.
    pub fn set_accepting(&self, on: bool) -> Result {
        let mail = LoopMail::Accepting(self.shared.clone(), on);
        self.acceptor.shared.submit(mail, 0).map_err(|refused| refused.reason)
    }

    /// Stops listening; connections that were accepted stay.
    pub fn close(&self) -> Completion {
        // A full queue must not keep anybody from closing; a loop that has ended has closed its listeners.
        let _ = self.acceptor.shared.submit_always(LoopMail::CloseListener(self.shared.clone()));
        self.closed()
    }

    /// Completes when it no longer listens: closed, shut down with its loop, or failed.
    pub fn closed(&self) -> Completion {
        match &mut *self.shared.closed.lock().unwrap_or_else(PoisonError::into_inner) {
            ServerClosed::Done => Completion::ready(Ok(())),
            ServerClosed::Awaited(waiting) => {
                let (completer, completion) = completion(Some(self.acceptor.shared.id));
                waiting.push(completer);
                completion
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).field("acceptor", &self.acceptor).finish()
    }
}
