//! Client connections.
//!
//! A connection attempt has an id (`Attempt`) before its loop has received it, so it can be
//! cancelled at any time. The completion is then done immediately. The loop closes the socket and
//! cancels the timer when it reads the mail. Dropping the completion cancels too. The completion's
//! lock orders a cancel and a result that race. After a cancel the loop closes the channel. If the
//! result was delivered first, dropping the completion closes the channel.
//!
//! Invariant: an attempt is either in progress on its loop or has reported its result once. A
//! cancelled attempt leaves no channel for the program to close. Any thread may connect and cancel.

use super::dial::{ConnectOne, Race, check_attempt_delay};
use crate::{
    channel::{
        AnyPipeline, Channel, ChannelConfig, ChannelOptions, ChannelShared, HANDSHAKE_TIMEOUT, IntoPipeline,
        Peer, check_handshake_timeout, filter::Filter,
    },
    clock::nanos,
    error::{Error, Resource, Result},
    event_loop::{
        Assignment, Attempt, ChildSetup, ConnectCallback, Connecting, Connection, EventLoop, FilterFactory,
        FilterSetup, LoopShared,
    },
    group::EventLoopGroup,
    machine::Mutex,
    sync::{Completer, Completion, Unwanted, cancellable},
    transport::{Address, Stream, TcpOptions, ToAddress},
};
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// A builder for client connections. One bootstrap can make any number of connections.
///
/// | setting | default |
/// |---|---|
/// | `connect_timeout` | 30 s; zero: only the system's timeout |
/// | `connection_attempt_delay` | 250 ms, 10 ms to 2 s |
/// | `handshake_timeout` | 10 s, at least 1 ms |
/// | `local_address` | the system chooses |
/// | `tcp_options`, `channel_options` | see [`TcpOptions`], [`ChannelOptions`] |
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
#[doc(alias = "Bootstrap")]
#[doc(alias = "TcpStream")]
pub struct ClientBootstrap<F = ()> {
    pub(super) group: EventLoopGroup,
    options: TcpOptions,
    channel: ChannelOptions,
    connect_timeout: Duration,
    attempt_delay: Duration,
    handshake_timeout: Duration,
    filters: FilterSetup,
    local_address: Option<SocketAddr>,
    factory: F,
}

impl ClientBootstrap {
    /// Returns a builder with default settings. The loops of `group` serve the connections.
    pub fn new(group: &EventLoopGroup) -> Self {
        ClientBootstrap {
            group: group.clone(),
            options: TcpOptions::new(),
            channel: ChannelOptions::new(),
            connect_timeout: Duration::from_secs(30),
            attempt_delay: Duration::from_millis(250),
            handshake_timeout: HANDSHAKE_TIMEOUT,
            filters: FilterSetup::default(),
            local_address: None,
            factory: (),
        }
    }
}

impl<F> ClientBootstrap<F> {
    /// Sets the socket options.
    pub fn tcp_options(mut self, options: TcpOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the channel options: water marks, limits, budgets.
    pub fn channel_options(mut self, options: ChannelOptions) -> Self {
        self.channel = options;
        self
    }

    /// Sets the timeout of a connection attempt to one address, until the transport is connected.
    /// The default is 30 s. Filters have a time of their own, see
    /// [`handshake_timeout`](ClientBootstrap::handshake_timeout).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the time after which the next address is tried if a target has several addresses. The
    /// default is 250 ms, the connection attempt delay of [RFC
    /// 8305](https://www.rfc-editor.org/rfc/rfc8305) (Happy Eyeballs), whose range applies: 10 ms
    /// to 2 s.
    #[doc(alias = "happy_eyeballs")]
    pub fn connection_attempt_delay(mut self, delay: Duration) -> Self {
        self.attempt_delay = delay;
        self
    }

    /// Adds a byte [filter](crate::filter) to each connection. Several filters stack in the order
    /// of the calls: the first one is next to the socket.
    ///
    /// The factory is called on the connection's loop when the transport is connected. A panic in
    /// it fails the `connect`. The pipeline is created, and the `connect` completes, when all
    /// filters are established.
    pub fn filter<G, T>(self, factory: G) -> Self
    where
        G: Fn(&Peer) -> T + Send + Sync + 'static,
        T: Filter,
    {
        self.filter_with(Arc::new(move |peer: &Peer| Ok(Box::new(factory(peer)) as Box<dyn Filter>)))
    }

    /// Like [`filter`](ClientBootstrap::filter), for a factory that may fail.
    pub(crate) fn filter_with(mut self, factory: Arc<FilterFactory>) -> Self {
        self.filters.add(factory);
        self
    }

    /// Like [`filter_with`](ClientBootstrap::filter_with), below all other filters.
    pub(crate) fn filter_first(mut self, factory: Arc<FilterFactory>) -> Self {
        self.filters.add_first(factory);
        self
    }

    /// Like [`filter_with`](ClientBootstrap::filter_with), above all other filters.
    #[cfg(feature = "websocket")]
    pub(super) fn filter_last(mut self, factory: Arc<FilterFactory>) -> Self {
        self.filters.set_top(factory);
        self
    }

    /// Sets the time in which all filters together must be established, after the transport is
    /// connected. Then the `connect` fails with [`Error::TimedOut`]. The default is 10 s. Without
    /// filters it has no effect.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Sets the local address of the connections. Port 0 selects a free port. Cannot be used with
    /// Unix sockets, whose clients are unnamed.
    pub fn local_address(mut self, address: SocketAddr) -> Self {
        self.local_address = Some(address);
        self
    }

    /// Checks the settings and returns the configuration of the channels of a target with this
    /// name.
    ///
    /// # Errors
    /// [`Error::Setting`] if a setting is out of range.
    pub(super) fn check(&self, host: Option<Arc<str>>) -> Result<Arc<ChannelConfig>> {
        self.options.check()?;
        check_attempt_delay(self.attempt_delay)?;
        let handshake_timeout = check_handshake_timeout(self.handshake_timeout)?;
        let linger = self.options.lingers();
        Ok(Arc::new(ChannelConfig {
            linger,
            handshake_timeout,
            host,
            outgoing: true,
            ..self.channel.build()?
        }))
    }

    /// Sets the factory of pipelines. It is called once for each connection, on that connection's
    /// loop, after the connection is established.
    pub fn pipeline<G, P>(self, factory: G) -> ClientBootstrap<Arc<G>>
    where
        G: Fn(&Peer) -> P + Send + Sync + 'static,
        P: IntoPipeline,
    {
        ClientBootstrap {
            factory: Arc::new(factory),
            group: self.group,
            options: self.options,
            channel: self.channel,
            connect_timeout: self.connect_timeout,
            attempt_delay: self.attempt_delay,
            handshake_timeout: self.handshake_timeout,
            filters: self.filters,
            local_address: self.local_address,
        }
    }
}

impl<F, P> ClientBootstrap<Arc<F>>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline,
{
    /// Connects to `address` on the group's next loop. Completes before the handler's `active` is
    /// called.
    ///
    /// Resolves a host name, which may block. If there are several addresses, they are tried as in
    /// RFC 8305 (Happy Eyeballs): with alternating families, and the next one when the one before
    /// has failed or takes longer than the
    /// [connection attempt delay](ClientBootstrap::connection_attempt_delay). The first connection
    /// is used, and the other attempts are cancelled. At most 16 addresses are tried. With a
    /// [`local_address`](ClientBootstrap::local_address), only those of its family are. If all
    /// attempts fail, the error is the first one that a peer has caused, or else the last one.
    ///
    /// Dropping the completion, or [`Completion::cancel`], cancels the attempt and closes the
    /// socket. If the connection is established at the same time, its handler may receive `active`,
    /// followed by `inactive`. With
    /// [`Completion::detach`] the handler keeps the channel.
    ///
    /// # Errors
    /// - [`Error::TimedOut`] if the peer does not answer in time, or its handshake takes too long.
    /// - [`Error::Cancelled`] if it was cancelled.
    /// - [`Error::Setting`] if a setting is out of range.
    /// - [`Error::Full`] if each loop has reached its limit of connections.
    /// - [`Error::ShutDown`] if the loop is shut down.
    /// - The error of a filter that is not established.
    /// - [`Error::Io`] if the system reports an error. `operation` is "resolving an address",
    ///   "opening a socket", "setting a socket's options", "binding the local address", "watching a
    ///   connection", or "connecting" if the peer refuses.
    ///
    /// On Linux, connecting to a Unix socket whose listener has a full backlog fails with
    /// `WouldBlock` immediately. On other systems the connection is refused.
    pub fn connect(&self, address: impl ToAddress) -> Completion<Channel<P::Message>> {
        self.connect_assigned(address, |config| self.assign(config))
    }

    /// Like [`connect`](ClientBootstrap::connect), but on this loop, which may belong to another
    /// group.
    ///
    /// A proxy that has both channels of a connection on one loop exchanges messages without
    /// waking another thread.
    ///
    /// ```
    /// # use netwheel::{net::ToAddress, prelude::*};
    /// # use bytes::Bytes;
    /// # type Factory = std::sync::Arc<fn(&Peer) -> Pipeline<Bytes>>;
    /// /// Connects to `target` on the loop of `front`.
    /// fn dial(
    ///     client: &ClientBootstrap<Factory>,
    ///     front: &Channel<Bytes>,
    ///     target: impl ToAddress,
    /// ) -> Completion<Channel<Bytes>> {
    ///     match front.event_loop() {
    ///         Some(event_loop) => client.connect_on(&event_loop, target),
    ///         None => client.connect(target), // `front` is an embedded channel of a test
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Full`] if this loop has reached its limit of connections, whether or not others
    /// have room. Otherwise the errors of [`connect`](ClientBootstrap::connect).
    pub fn connect_on(
        &self,
        event_loop: &EventLoop,
        address: impl ToAddress,
    ) -> Completion<Channel<P::Message>> {
        self.connect_assigned(address, |config| {
            let load = &event_loop.shared.load;
            let full = || Error::Full { resource: Resource::Connections, limit: load.limit() };
            Ok((event_loop, load.assign(config.weight).ok_or_else(full)?))
        })
    }

    fn connect_assigned<'a>(
        &self,
        address: impl ToAddress,
        assign: impl FnOnce(&ChannelConfig) -> Result<(&'a EventLoop, Assignment)>,
    ) -> Completion<Channel<P::Message>> {
        let prepared = self.check(address.host()).and_then(|config| {
            let addresses = address.addresses()?;
            let (event_loop, assignment) = assign(&config)?;
            Ok((config, addresses, event_loop, assignment))
        });
        let (config, addresses, event_loop, assignment) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => return Completion::ready(Err(e)),
        };
        let attempt = Attempt::new();
        let (shared, cancelled) = (event_loop.shared.clone(), attempt.clone());
        let undo = move |unwanted: Unwanted<Channel<P::Message>>| match unwanted {
            Unwanted::Operation => cancelled.cancel(&shared),
            Unwanted::Result(channel) => channel.close_now(),
        };
        let (completer, completion) = cancellable(Some(event_loop.shared.id), undo);
        let call = Call { config, attempt, done: Box::new(ConnectWaiter(completer)) };
        self.call(event_loop, assignment, addresses, call, Connecting::submit);
        completion
    }

    /// Returns the loop of the next connection, and the connection's assignment to it.
    ///
    /// # Errors
    /// [`Error::Full`] if each loop has reached its limit of connections.
    pub(super) fn assign(&self, config: &ChannelConfig) -> Result<(&EventLoop, Assignment)> {
        let full = |limit| Error::Full { resource: Resource::Connections, limit };
        self.group.assign(config.weight).map_err(full)
    }

    /// Starts an attempt, on any thread. Always reports the result to `done`, on this thread or on
    /// the loop. There is at least one address.
    pub(super) fn call(
        &self,
        event_loop: &EventLoop,
        assignment: Assignment,
        mut addresses: Vec<Address>,
        call: Call,
        submit: fn(Connecting, &LoopShared),
    ) {
        self.keep_usable(&mut addresses);
        if addresses.len() == 1 {
            return self.call_one(event_loop, assignment, addresses.swap_remove(0), call, submit);
        }
        let Call { config, attempt, done } = call;
        let (me, event_loop, first) = (self.clone(), event_loop.clone(), Mutex::new(Some(assignment)));
        let caller = event_loop.clone();
        let connect: Box<ConnectOne> = Box::new(move |peer, attempt, done| {
            let call = Call { config: config.clone(), attempt, done };
            let first = first.lock().take();
            let load = &caller.shared.load;
            match first.or_else(|| load.assign(config.weight)) {
                Some(assignment) => me.call_one(&caller, assignment, peer, call, submit),
                None => {
                    call.done.failed(Error::Full { resource: Resource::Connections, limit: load.limit() })
                }
            }
        });
        Race::begin(event_loop, addresses, self.attempt_delay, connect, &attempt, done);
    }

    /// Removes the addresses that cannot be connected to from the local address, because they have
    /// another family. Keeps all if no other is left, so that the error says it.
    fn keep_usable(&self, addresses: &mut Vec<Address>) {
        let Some(local) = self.local_address else { return };
        let is_usable =
            |address: &Address| address.as_tcp().is_some_and(|tcp| tcp.is_ipv4() == local.is_ipv4());
        if addresses.iter().any(is_usable) {
            addresses.retain(is_usable);
        }
    }

    fn call_one(
        &self,
        event_loop: &EventLoop,
        assignment: Assignment,
        peer: Address,
        call: Call,
        submit: fn(Connecting, &LoopShared),
    ) {
        let Call { config, attempt, done } = call;
        let stream = match Stream::connect(&peer, self.local_address, &self.options) {
            Ok(stream) => stream,
            // Stop counting the connection before reporting the failure.
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
            filters: self.filters.for_client(),
        });
        let timeout = nanos(self.connect_timeout);
        let connection = Connection { stream, assignment, peer, local: None, setup };
        submit(Connecting::new(connection, done, attempt, timeout), &event_loop.shared);
    }
}

/// One connection attempt.
pub(super) struct Call {
    pub(super) config: Arc<ChannelConfig>,
    pub(super) attempt: Attempt,
    pub(super) done: Box<dyn ConnectCallback>,
}

/// Opens a connection to one of several addresses.
pub(super) type ConnectTo = dyn Fn(Vec<Address>, Attempt, Box<dyn ConnectCallback>) + Send + Sync;

/// Returns a function that opens connections, each on the next loop of the bootstrap's group. The
/// attempts can be cancelled on any loop.
pub(super) fn connector<F, P>(
    bootstrap: ClientBootstrap<Arc<F>>,
    config: Arc<ChannelConfig>,
) -> Box<ConnectTo>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline,
{
    Box::new(move |addresses, attempt, done| {
        match bootstrap.assign(&config) {
            Ok((event_loop, assignment)) => {
                // The caller does not know the loop.
                let on_loop = Attempt::new();
                let (part, shared) = (on_loop.clone(), event_loop.shared.clone());
                attempt.cancels_with(move || part.cancel(&shared));
                let call = Call { config: config.clone(), attempt: on_loop, done };
                bootstrap.call(event_loop, assignment, addresses, call, Connecting::submit);
            }
            Err(e) => done.failed(e),
        }
    })
}

/// The completer of the caller that requested the connection.
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

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use crate::{channel::Pipeline, codec::RawBytes};
    use bytes::Bytes;
    use std::{net::TcpListener, sync::mpsc};

    /// Always wants the connection, and reports the result.
    struct Reports(mpsc::Sender<Result>);

    impl ConnectCallback for Reports {
        fn is_wanted(&self) -> bool {
            true
        }

        fn connected(self: Box<Self>, _: Arc<ChannelShared>) {
            self.0.send(Ok(())).unwrap();
        }

        fn failed(self: Box<Self>, error: Error) {
            self.0.send(Err(error)).unwrap();
        }
    }

    /// A cancel that precedes the attempt is not lost, for one address and for several.
    #[test]
    fn an_attempt_that_was_cancelled_before_it_began_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let group = EventLoopGroup::builder().threads(1).build().unwrap();
        let client = ClientBootstrap::new(&group)
            .pipeline(|_peer| Pipeline::codec(RawBytes).on_read(|_, _: Bytes| Ok(())));
        let config = client.check(None).unwrap();
        for addresses in 1..=3 {
            let (event_loop, assignment) = client.assign(&config).unwrap();
            let (result, results) = mpsc::channel();
            let attempt = Attempt::new();
            attempt.cancel(&event_loop.shared);
            let call = Call { config: config.clone(), attempt, done: Box::new(Reports(result)) };
            client.call(event_loop, assignment, vec![address.clone(); addresses], call, Connecting::submit);
            let result = results.recv().unwrap();
            assert!(matches!(result, Err(Error::Cancelled)), "{addresses} addresses: {result:?}");
        }
    }
}
