//! Starting a server.

use super::Server;
use crate::{
    Admission, Error, EventLoop, EventLoopGroup, Result,
    admission::Gate,
    channel::{AnyPipeline, ChannelConfig, ChannelOptions},
    event_loop::{
        AcceptProgress, ChildLoops, ChildSetup, ListenerGuard, ListenerShared, ListenerSource, LoopMail,
        Peer, ServerShared,
    },
    pipeline::IntoPipeline,
    transport::{Address, IntoListener, Listener, ListenerOptions, TcpOptions, ToAddress, socket_options},
};
use std::{fmt, sync::Arc};

/// Settings of a server: where connections are accepted, who serves them, and with which pipeline.
///
/// | setting | default | range |
/// |---|---|---|
/// | `acceptor_group` | the group that serves | |
/// | `listener_per_loop` | off: one listener, and the group's chooser | |
/// | `accepts_per_turn` | 64 connections | 1 or more |
/// | `admission` | everybody: see [`Admission`] | |
/// | `accepting` | on | |
/// | `backlog`, `reuse_address`, `reuse_port`, `remove_stale_socket`, `listener_options` | see [`ListenerOptions`] | |
/// | `tcp_options`, `channel_options` | see [`TcpOptions`], [`ChannelOptions`] | |
///
/// ```no_run
/// # use netwheel::prelude::*;
/// # use netwheel::codec::RawBytes;
/// # struct Echo;
/// # impl Handler for Echo {
/// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// # fn main() -> Result {
/// let group = EventLoopGroup::new()?;
/// let server = ServerBootstrap::new(&group)
///     .backlog(1024)
///     .tcp_options(TcpOptions::new().nodelay(true))
///     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Echo))
///     .bind("127.0.0.1:7000")?;
/// server.closed().wait()
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ServerBootstrap<F = ()> {
    settings: ServerSettings,
    factory: F,
}

/// All but the factory.
#[derive(Debug, Clone)]
struct ServerSettings {
    /// None: the children's.
    acceptors: Option<EventLoopGroup>,
    children: EventLoopGroup,
    listener: ListenerOptions,
    listener_per_loop: bool,
    accepts_per_turn: usize,
    admission: Admission,
    child: TcpOptions,
    channel: ChannelOptions,
    accepting: bool,
}

impl ServerBootstrap {
    /// A server whose connections are served by the loops of `group`, which also accept them.
    pub fn new(group: &EventLoopGroup) -> Self {
        let settings = ServerSettings {
            acceptors: None,
            children: group.clone(),
            listener: ListenerOptions::new(),
            listener_per_loop: false,
            accepts_per_turn: 64,
            admission: Admission::new(),
            child: TcpOptions::new(),
            channel: ChannelOptions::new(),
            accepting: true,
        };
        ServerBootstrap { settings, factory: () }
    }
}

impl<F> ServerBootstrap<F> {
    /// Has connections accepted by the loops of another group, so that a burst of them does not delay those that
    /// are there.
    pub fn acceptor_group(mut self, group: &EventLoopGroup) -> Self {
        self.settings.acceptors = Some(group.clone());
        self
    }

    /// Connections that may wait to be accepted.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.settings.listener = self.settings.listener.backlog(connections);
        self
    }

    /// Whether a restarted server may bind at once to the address of its predecessor; on by default.
    pub fn reuse_address(mut self, on: bool) -> Self {
        self.settings.listener = self.settings.listener.reuse_address(on);
        self
    }

    /// Whether other listeners, also of other processes of the same user, may bind to the same address and take a part
    /// of the connections. To have each loop of this server listen see
    /// [`listener_per_loop`](ServerBootstrap::listener_per_loop), which implies it.
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.settings.listener = self.settings.listener.reuse_port(on);
        self
    }

    /// Whether a socket file that a killed predecessor has left, and on which nobody listens, is removed; off by default.
    /// See [`ListenerOptions::remove_stale_socket`].
    pub fn remove_stale_socket(mut self, on: bool) -> Self {
        self.settings.listener = self.settings.listener.remove_stale_socket(on);
        self
    }

    /// Has each loop listen for itself (`SO_REUSEPORT`), and serve what it accepts; off by default. Unix only.
    ///
    /// The kernel then spreads connections over the loops, by a hash of the addresses, and no connection goes from one
    /// thread to another: worth it where very many short connections are accepted. If not, one listener and the group's
    /// [`Chooser`](crate::Chooser) are better:
    ///
    /// - the hash knows nothing of load: few connections are spread unevenly, and a loop that is held up gets its share
    ///   as any other. Only Linux (since 3.9) spreads at all; elsewhere one of the listeners may get everything.
    /// - any process of the same user may bind to the same port, and silently gets a part of the connections: also a
    ///   second copy of the server that was started by mistake, which would otherwise be told that the port is taken.
    /// - each listener has a backlog of its own. When one ends, the kernel resets the connections that wait in it (but
    ///   see `net.ipv4.tcp_migrate_req`), so a server that is replaced that way loses some; one that is adopted does not.
    ///
    /// Limits of [`admission`](ServerBootstrap::admission) are those of the whole server, backlog and accepts per turn
    /// those of each listener. With an [`acceptor_group`](ServerBootstrap::acceptor_group) its loops listen, and
    /// connections go to the loops of the other group as they do with one listener.
    pub fn listener_per_loop(mut self, on: bool) -> Self {
        self.settings.listener_per_loop = on;
        self
    }

    /// Connections that a listener accepts in one turn of its loop, 64 by default; the others wait for the next turn, so
    /// that a burst of them does not keep out those that are there. Connections that are not let in count as well.
    pub fn accepts_per_turn(mut self, connections: usize) -> Self {
        self.settings.accepts_per_turn = connections;
        self
    }

    /// Who may connect, and how many at once; everybody unless it is set.
    pub fn admission(mut self, admission: Admission) -> Self {
        self.settings.admission = admission;
        self
    }

    /// All options of the listening socket at once.
    pub fn listener_options(mut self, options: ListenerOptions) -> Self {
        self.settings.listener = options;
        self
    }

    /// Socket options of accepted connections.
    pub fn tcp_options(mut self, options: TcpOptions) -> Self {
        self.settings.child = options;
        self
    }

    /// Channel settings of accepted connections: water marks, limits, budgets.
    pub fn channel_options(mut self, options: ChannelOptions) -> Self {
        self.settings.channel = options;
        self
    }

    /// Whether connections are accepted from the start (the default) or only once
    /// [`Server::set_accepting`] says so.
    pub fn accepting(mut self, on: bool) -> Self {
        self.settings.accepting = on;
        self
    }

    /// What makes the pipeline of each connection, on that connection's loop. An error or a panic in it closes
    /// that connection only.
    pub fn pipeline<G, P>(self, factory: G) -> ServerBootstrap<G>
    where
        G: Fn(&Peer) -> P + Send + Sync + 'static,
        P: IntoPipeline,
    {
        ServerBootstrap { settings: self.settings, factory }
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
    /// A [`UnixAddress`](crate::UnixAddress) listens on a Unix socket: its file is made here, and removed when the server
    /// ends, unless another one has taken its place. A server that is killed leaves it; see
    /// [`remove_stale_socket`](ServerBootstrap::remove_stale_socket).
    ///
    /// # Errors
    /// If a setting is out of its range, the address cannot be bound, or the loops are shut down; if `listener_per_loop`
    /// is on for a Unix socket, of which there is one for a name.
    pub fn bind<E: ToAddress>(self, address: E) -> Result<Server<E::Address>> {
        let ServerSettings { listener: options, listener_per_loop, .. } = &self.settings;
        options.check()?;
        let mut options = options.clone();
        let mut listeners = 1;
        if *listener_per_loop {
            options = options.reuse_port(socket_options::check_reuse_port("listener_per_loop")?);
            listeners = self.settings.acceptors().event_loops().len();
        }
        let mut result = Err(Error::Closed);
        for address in address.addresses()? {
            if *listener_per_loop && address.as_tcp().is_none() {
                return Err(Error::setting("listener_per_loop", true, "off for a Unix socket"));
            }
            let listening = Listener::listen_all(&address, &options, listeners);
            result = listening.map_err(|e| Error::io("listening", e));
            if result.is_ok() {
                break;
            }
        }
        self.serve(result?, E::named)
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
    /// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
    /// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
    /// # }
    /// # fn main() -> Result {
    /// let handed_over = TcpListener::bind("127.0.0.1:0").map_err(|e| Error::other(e))?;
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let server = ServerBootstrap::new(&group)
    ///     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Echo))
    ///     .adopt(handed_over)?;
    /// # server.close().wait()
    /// # }
    /// ```
    ///
    /// A service manager that opens sockets (systemd, by `LISTEN_FDS`) hands over descriptors by number. A crate like
    /// `listenfd` knows how they are told, and makes listeners of them:
    ///
    /// ```no_run
    /// # use netwheel::{codec::RawBytes, prelude::*};
    /// # struct Echo;
    /// # impl Handler for Echo {
    /// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
    /// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
    /// # }
    /// # fn main() -> Result {
    /// # let group = EventLoopGroup::new()?;
    /// let bootstrap =
    ///     ServerBootstrap::new(&group).pipeline(|_peer| Pipeline::codec(RawBytes).handler(Echo));
    /// // The first of the sockets that the unit file lists, or one of our own if nobody handed one over.
    /// let server = match listenfd::ListenFd::from_env().take_tcp_listener(0)? {
    ///     Some(handed_over) => bootstrap.adopt(handed_over)?,
    ///     None => bootstrap.bind("127.0.0.1:7000")?,
    /// };
    /// # server.closed().wait()
    /// # }
    /// ```
    ///
    /// A descriptor that the program owns already (`OwnedFd`, on Unix) becomes a listener with `TcpListener::from`. A
    /// `UnixListener` of std is adopted likewise; its socket file stays when the server ends.
    ///
    /// # Errors
    /// If a setting is out of its range, the socket cannot be made non-blocking, or the loops are shut down; if
    /// `listener_per_loop` is on, since there is one socket only.
    pub fn adopt<L: IntoListener>(self, listener: L) -> Result<Server<L::Address>> {
        if self.settings.listener_per_loop {
            return Err(Error::setting("listener_per_loop", true, "off where a listener is adopted"));
        }
        let listener = listener.adopt().map_err(|e| Error::io("adopting a listener", e))?;
        self.serve(vec![listener], L::named)
    }

    fn serve<A: fmt::Debug>(
        self,
        listeners: Vec<Listener>,
        named: fn(Address) -> Option<A>,
    ) -> Result<Server<A>> {
        let ServerSettings { child, channel, accepts_per_turn, admission, accepting, .. } = &self.settings;
        child.check()?;
        admission.check()?;
        if *accepts_per_turn == 0 {
            return Err(Error::setting("accepts_per_turn", 0, "1 connection or more"));
        }
        let factory = self.factory;
        let setup = Arc::new(ChildSetup {
            factory: Box::new(move |peer| Ok(AnyPipeline::from(factory(peer).into_pipeline()?))),
            config: Arc::new(ChannelConfig { linger: child.lingers(), ..channel.build()? }),
            options: child.clone(),
        });
        let gate = Arc::new(Gate::new(admission.clone()));
        let address = listeners[0].local_address().map_err(|e| Error::io("listening", e))?;
        let other = || Error::other(format!("{address} is of another transport"));
        let name = named(address.clone()).ok_or_else(other)?;
        let shared = Arc::new(ServerShared::new(listeners.len()));
        let mut server = Server::new(name, shared.clone());
        for (n, listener) in listeners.into_iter().enumerate() {
            let listener_shared = Arc::new(ListenerShared::new(shared.clone()));
            let source = ListenerSource {
                listener,
                address: address.clone(),
                children: self.settings.children(),
                setup: setup.clone(),
                gate: gate.clone(),
                accepts_per_turn: *accepts_per_turn,
                shared: ListenerGuard(listener_shared.clone()),
                accepting: *accepting,
                progress: AcceptProgress::default(),
            };
            let acceptor = self.settings.acceptor(n).clone();
            if let Err(refused) = acceptor.shared.submit(LoopMail::Open(Box::new(source)), 0) {
                server.close_listeners();
                return Err(refused.into());
            }
            server.add(acceptor, listener_shared);
        }
        Ok(server)
    }
}

impl ServerSettings {
    fn acceptors(&self) -> &EventLoopGroup {
        self.acceptors.as_ref().unwrap_or(&self.children)
    }

    /// The loop of listener number `n`.
    fn acceptor(&self, n: usize) -> &EventLoop {
        let acceptors = self.acceptors();
        if self.listener_per_loop { &acceptors.event_loops()[n] } else { acceptors.next() }
    }

    /// Returns the loops that serve the connections; `None` for the loop that accepts them.
    fn children(&self) -> Option<Arc<dyn ChildLoops>> {
        let own = self.listener_per_loop && self.acceptors.is_none();
        (!own).then(|| Arc::new(self.children.clone()) as Arc<dyn ChildLoops>)
    }
}
