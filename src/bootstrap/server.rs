//! The builder of a server.

use super::server_handle::Server;
use crate::{
    admission::{Admission, Gate},
    channel::{
        AnyPipeline, ChannelConfig, ChannelOptions, HANDSHAKE_TIMEOUT, IntoPipeline, MaxConnectionAge, Peer,
        check_handshake_timeout, filter::Filter,
    },
    error::{Error, Result},
    event_loop::{
        AcceptProgress, AnnouncesFor, ChildLoops, ChildSetup, EventLoop, FilterFactory, FilterSetup,
        ListenerGuard, ListenerShared, ListenerSource, LoopMail, ServerShared,
    },
    group::EventLoopGroup,
    transport::{Address, IntoListener, Listener, ListenerOptions, TcpOptions, ToAddress, socket_options},
};
use std::{fmt, sync::Arc, time::Duration};

/// A builder for a server: its listeners, the loops that serve its connections, and their pipeline.
///
/// | setting | default | range |
/// |---|---|---|
/// | `acceptor_group` | the group that serves the connections | |
/// | `listener_per_loop` | off: one listener; the group's chooser assigns connections | |
/// | `accepts_per_turn` | 64 connections | 1 or more |
/// | `handshake_timeout` | 10 s | 1 ms or more |
/// | `max_connection_age` | no limit | see [`MaxConnectionAge`] |
/// | `admission` | all connections, see [`Admission`] | |
/// | `accepting` | on | |
/// | `listener_options` | see [`ListenerOptions`] | |
/// | `tcp_options`, `channel_options` | see [`TcpOptions`], [`ChannelOptions`] | |
///
/// ```no_run
/// # use netwheel::{codec::RawBytes, net::{ListenerOptions, TcpOptions}, prelude::*};
/// # struct Echo;
/// # impl Handler for Echo {
/// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// # fn main() -> Result {
/// let group = EventLoopGroup::new()?;
/// let server = ServerBootstrap::new(&group)
///     .listener_options(ListenerOptions::new().backlog(1024))
///     .tcp_options(TcpOptions::new().nodelay(true))
///     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Echo))
///     .bind("127.0.0.1:7000")?;
/// server.closed().wait()
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
#[doc(alias = "TcpListener")]
#[doc(alias = "ServerSocketChannel")]
pub struct ServerBootstrap<F = ()> {
    settings: ServerSettings,
    factory: F,
}

/// All settings except for the factory.
#[derive(Debug, Clone)]
struct ServerSettings {
    /// `None` for the group of the children.
    acceptors: Option<EventLoopGroup>,
    children: EventLoopGroup,
    listener: ListenerOptions,
    listener_per_loop: bool,
    accepts_per_turn: usize,
    admission: Admission,
    child: TcpOptions,
    channel: ChannelOptions,
    accepting: bool,
    filters: FilterSetup,
    handshake_timeout: Duration,
    max_connection_age: Option<MaxConnectionAge>,
}

impl ServerBootstrap {
    /// Returns a builder with default settings. The loops of `group` accept and serve the
    /// connections.
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
            filters: FilterSetup::default(),
            handshake_timeout: HANDSHAKE_TIMEOUT,
            max_connection_age: None,
        };
        ServerBootstrap { settings, factory: () }
    }
}

impl<F> ServerBootstrap<F> {
    /// Sets another group whose loops accept the connections, so that a burst of new connections
    /// does not delay established ones.
    pub fn acceptor_group(mut self, group: &EventLoopGroup) -> Self {
        self.settings.acceptors = Some(group.clone());
        self
    }

    /// Gives each loop a listener of its own (`SO_REUSEPORT`); each loop serves the connections
    /// that it accepts. Off by default. Unix only.
    ///
    /// The kernel spreads the connections over the loops by a hash of the addresses, and
    /// connections do not move between threads. This pays off for servers that accept very many
    /// short connections. In other cases one listener and the group's
    /// [`Chooser`](crate::group::Chooser) are better:
    ///
    /// - The hash does not consider load. A small number of connections is spread unevenly, and an
    ///   overloaded loop gets as many connections as the others. Only Linux (since 3.9) spreads
    ///   connections; on other systems one listener may get all of them.
    /// - Any process of the same user may bind to the same port and silently gets part of the
    ///   connections. This includes a second copy of the server that was started by mistake.
    /// - Each listener has its own backlog. When a listener closes, the kernel resets the
    ///   connections that wait in its backlog (but see `net.ipv4.tcp_migrate_req`). A replaced
    ///   server therefore loses connections, unless its sockets are
    ///   [adopted](ServerBootstrap::adopt).
    ///
    /// The limits of [`admission`](ServerBootstrap::admission) apply to the whole server; the
    /// backlog and `accepts_per_turn` apply to each listener. With an
    /// [`acceptor_group`](ServerBootstrap::acceptor_group), its loops listen, and connections go to
    /// the loops of the other group.
    pub fn listener_per_loop(mut self, on: bool) -> Self {
        self.settings.listener_per_loop = on;
        self
    }

    /// Sets the number of connections that a listener accepts in one turn of its loop. The default
    /// is 64. Further connections wait for the next turn, so that a burst does not delay
    /// established connections. Rejected connections count as well. Those that an overloaded loop
    /// refuses do not: it refuses up to 1024 more.
    pub fn accepts_per_turn(mut self, connections: usize) -> Self {
        self.settings.accepts_per_turn = connections;
        self
    }

    /// Sets the rules for admitting connections. By default all connections are admitted.
    pub fn admission(mut self, admission: Admission) -> Self {
        self.settings.admission = admission;
        self
    }

    /// Sets the options of the listening socket: backlog, shared addresses, stale socket files.
    pub fn listener_options(mut self, options: ListenerOptions) -> Self {
        self.settings.listener = options;
        self
    }

    /// Sets the socket options of accepted connections.
    pub fn tcp_options(mut self, options: TcpOptions) -> Self {
        self.settings.child = options;
        self
    }

    /// Sets the channel options of accepted connections: water marks, limits, budgets.
    pub fn channel_options(mut self, options: ChannelOptions) -> Self {
        self.settings.channel = options;
        self
    }

    /// Sets whether the server accepts connections from the start (the default) or only after
    /// [`Server::set_accepting`].
    pub fn accepting(mut self, on: bool) -> Self {
        self.settings.accepting = on;
        self
    }

    /// Adds a byte [filter](crate::filter) to each connection. Several filters stack in the order
    /// of the calls: the first one is next to the socket.
    ///
    /// The factory is called on the connection's loop. A panic in it closes that connection only.
    /// The pipeline is created when all filters are established. A connection whose handshake fails
    /// never gets a pipeline. It is counted
    /// ([`LoopMetrics::handshakes_failed`](crate::metrics::LoopMetrics::handshakes_failed)) and
    /// logged at level `debug`, at most ten lines per loop in ten seconds.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use netwheel::{
    ///     codec::RawBytes,
    ///     filter::{Filter, FilterContext, FilterState},
    ///     prelude::*,
    /// };
    ///
    /// /// Flips bits in both directions.
    /// struct Flip;
    ///
    /// impl Filter for Flip {
    ///     fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
    ///         input.iter_mut().for_each(|byte| *byte ^= 0x55);
    ///         ctx.deliver(input);
    ///         Ok(input.len())
    ///     }
    ///     fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
    ///         ctx.output().extend(plain.iter().map(|byte| byte ^ 0x55));
    ///         Ok(())
    ///     }
    ///     fn sealed_len(&self, plain: usize) -> usize {
    ///         plain
    ///     }
    ///     fn state(&self) -> FilterState {
    ///         FilterState::Established
    ///     }
    /// }
    /// # struct Echo;
    /// # impl Handler for Echo {
    /// #   type Read = Bytes; type Write = Bytes;
    /// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: Bytes) -> Result { ctx.write(m) }
    /// # }
    /// # fn main() -> Result {
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let server = ServerBootstrap::new(&group)
    ///     .filter(|_peer| Flip)
    ///     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Echo))
    ///     .bind("127.0.0.1:0")?;
    /// # server.close().wait()
    /// # }
    /// ```
    pub fn filter<G, T>(self, factory: G) -> Self
    where
        G: Fn(&Peer) -> T + Send + Sync + 'static,
        T: Filter,
    {
        self.filter_with(Arc::new(move |peer: &Peer| Ok(Box::new(factory(peer)) as Box<dyn Filter>)))
    }

    /// Like [`filter`](ServerBootstrap::filter), for a factory that may fail.
    pub(crate) fn filter_with(mut self, factory: Arc<FilterFactory>) -> Self {
        self.settings.filters.add(factory);
        self
    }

    /// Like [`filter_with`](ServerBootstrap::filter_with), below all other filters. `check` is the
    /// result of checking its settings.
    pub(crate) fn filter_first(mut self, factory: Arc<FilterFactory>, check: Result) -> Self {
        self.settings.filters.add_first(factory);
        if let Err(error) = check {
            self.settings.filters.refuse(error);
        }
        self
    }

    /// Sets the peers for which a filter announces another address. Their own address is neither
    /// filtered nor counted. The total limits apply to them when they are accepted.
    pub(crate) fn announces_for(mut self, announces_for: Arc<AnnouncesFor>) -> Self {
        self.settings.filters.set_announces_for(announces_for);
        self
    }

    /// Sets the time in which all filters of a connection together must be established. Then the
    /// connection is closed. The default is 10 s. Without filters it has no effect.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.settings.handshake_timeout = timeout;
        self
    }

    /// Sets the age at which a connection is drained, so that its client connects anew. Unlimited
    /// by default. [`MaxConnectionAge`] describes the order of events and how ages are spread.
    ///
    /// ```
    /// use netwheel::{channel::{MaxConnectionAge, ShutdownCause}, codec::Line, prelude::*};
    /// use bytes::Bytes;
    /// use std::time::Duration;
    ///
    /// struct Session;
    ///
    /// impl Handler for Session {
    ///     type Read = Bytes;
    ///     type Write = Bytes;
    ///
    ///     fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
    ///         ctx.write(line)
    ///     }
    ///
    ///     fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
    ///         if ctx.shutdown_cause() == Some(ShutdownCause::MaxAge) {
    ///             ctx.write("bye, connect again".into())?;
    ///         }
    ///         ctx.close();
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # fn main() -> Result {
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let server = ServerBootstrap::new(&group)
    ///     .max_connection_age(MaxConnectionAge::new(Duration::from_secs(3600)))
    ///     .pipeline(|_peer| Pipeline::codec(Line::new()).handler(Session))
    ///     .bind("127.0.0.1:0")?;
    /// # server.close().wait()
    /// # }
    /// ```
    #[doc(alias = "MAX_CONNECTION_AGE")]
    #[doc(alias = "maxConnectionAge")]
    pub fn max_connection_age(mut self, age: MaxConnectionAge) -> Self {
        self.settings.max_connection_age = Some(age);
        self
    }

    /// Sets the factory of pipelines. It is called once for each connection, on that connection's
    /// loop, after its filters are established. An error or a panic in it closes that connection
    /// only.
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
    /// Listens on `address` and starts accepting. Port 0 selects a free port, see
    /// [`Server::local_address`].
    ///
    /// Resolves a host name, which may block, and uses the first address that can be bound.
    ///
    /// A [`UnixAddress`](crate::net::UnixAddress) listens on a Unix socket. This method creates the
    /// socket file. It is removed when the server closes, unless another file has replaced it. A
    /// killed server leaves its file behind, see
    /// [`remove_stale_socket`](ListenerOptions::remove_stale_socket).
    ///
    /// # Errors
    /// - [`Error::Setting`] if a setting is out of range, or if `listener_per_loop` is on for a
    ///   Unix socket, because a path has one socket only.
    /// - [`Error::Io`] if the address cannot be bound.
    /// - [`Error::Full`] if a loop's queue is full.
    /// - [`Error::ShutDown`] if the loops are shut down.
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

    /// Accepts connections from a socket that is already listening. A predecessor, a supervisor or
    /// a service manager may have opened it, so that connections are not refused during a restart.
    ///
    /// The socket keeps its options and backlog; the listener options of this builder are ignored.
    /// Two servers may share a listening socket
    /// ([`TcpListener::try_clone`](std::net::TcpListener::try_clone)). Each connection then goes to
    /// one of them.
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
    /// A service manager that opens sockets (systemd, with `LISTEN_FDS`) passes descriptors by
    /// number. The crate `listenfd` turns them into listeners:
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
    /// // The first socket that the unit file lists, or a new one.
    /// let server = match listenfd::ListenFd::from_env().take_tcp_listener(0)? {
    ///     Some(handed_over) => bootstrap.adopt(handed_over)?,
    ///     None => bootstrap.bind("127.0.0.1:7000")?,
    /// };
    /// # server.closed().wait()
    /// # }
    /// ```
    ///
    /// A descriptor that the program owns (`OwnedFd`, on Unix) becomes a listener with
    /// `TcpListener::from`. A `UnixListener` of std can be adopted too. Its socket file is not
    /// removed when the server closes.
    ///
    /// # Errors
    /// - [`Error::Setting`] if a setting is out of range, or if `listener_per_loop` is on, because
    ///   there is one socket only.
    /// - [`Error::Io`] if the socket cannot be made non-blocking.
    /// - [`Error::Full`] if a loop's queue is full.
    /// - [`Error::ShutDown`] if the loops are shut down.
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
        self.settings.filters.check()?;
        if *accepts_per_turn == 0 {
            return Err(Error::setting("accepts_per_turn", 0, "1 connection or more"));
        }
        let handshake_timeout = check_handshake_timeout(self.settings.handshake_timeout)?;
        let max_age = self.settings.max_connection_age.map(|age| age.check()).transpose()?;
        let gate = Arc::new(Gate::new(admission.clone()));
        let factory = self.factory;
        let setup = Arc::new(ChildSetup {
            factory: Box::new(move |peer| Ok(AnyPipeline::from(factory(peer).into_pipeline()?))),
            config: Arc::new(ChannelConfig {
                linger: child.lingers(),
                handshake_timeout,
                max_age,
                ..channel.build()?
            }),
            options: child.clone(),
            filters: self.settings.filters.clone().for_server(gate.clone()),
        });
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

    /// Returns the loop of listener `n`.
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
