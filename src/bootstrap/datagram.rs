//! The builder of datagram channels.
//!
//! Invariant: invalid settings and addresses that cannot be bound are refused before a channel is
//! opened. Any thread may open channels.

use crate::{
    datagram::{
        DatagramChannel, DatagramConfig, DatagramGuard, DatagramHandler, DatagramInbox, DatagramLinks,
        DatagramShared, NewDatagramChannel, TypedHandler,
    },
    error::{Error, Result},
    event_loop::LoopMail,
    group::EventLoopGroup,
    transport::{UdpOptions, UdpSocket, resolve},
};
use std::{
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
};

/// A builder for datagram channels. One bootstrap can open any number of channels.
///
/// | setting | default | range |
/// |---|---|---|
/// | `udp_options` | see [`UdpOptions`] | |
/// | `connect` | no peer: datagrams from all addresses are received | |
/// | `datagrams_per_turn` | 64 | 1 or more |
/// | `max_outbound` | 1 MiB | 1 byte or more |
/// | `max_scheduled_tasks` | 1024 | 1 to 65,536 |
///
/// ```no_run
/// # use bytes::Bytes;
/// # use netwheel::{
/// #     DatagramBootstrap,
/// #     EventLoopGroup,
/// #     Result,
/// #     datagram::{DatagramContext, DatagramHandler},
/// #     net::UdpOptions,
/// # };
/// # use std::net::SocketAddr;
/// # struct Echo;
/// # impl DatagramHandler for Echo {
/// #     fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result {
/// #         Ok(ctx.write_to(datagram, from)?)
/// #     }
/// # }
/// # fn main() -> Result {
/// let group = EventLoopGroup::new()?;
/// let channel = DatagramBootstrap::new(&group)
///     .udp_options(UdpOptions::new().receive_buffer(1 << 20))
///     .handler(|| Echo)
///     .bind("0.0.0.0:7000")?;
/// channel.write_to("hello", "192.0.2.1:7000".parse().unwrap())?;
/// channel.closed().wait()
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
#[doc(alias = "UdpSocket")]
#[doc(alias = "NioDatagramChannel")]
pub struct DatagramBootstrap<F = ()> {
    group: EventLoopGroup,
    options: UdpOptions,
    peer: Option<SocketAddr>,
    config: DatagramConfig,
    factory: F,
}

impl DatagramBootstrap {
    /// Returns a builder with default settings. The loops of `group` serve the channels.
    pub fn new(group: &EventLoopGroup) -> Self {
        DatagramBootstrap {
            group: group.clone(),
            options: UdpOptions::new(),
            peer: None,
            config: DatagramConfig::default(),
            factory: (),
        }
    }
}

impl<F> DatagramBootstrap<F> {
    /// Sets the socket options.
    pub fn udp_options(mut self, options: UdpOptions) -> Self {
        self.options = options;
        self
    }

    /// Connects the channel to a peer from the start. See
    /// [`DatagramContext::connect`](crate::datagram::DatagramContext::connect).
    pub fn connect(mut self, peer: SocketAddr) -> Self {
        self.peer = Some(peer);
        self
    }

    /// Sets the number of datagrams that are read in one turn of the loop. The default is 64.
    /// Further datagrams are read in the next turn. The same limit applies to sending queued
    /// datagrams.
    pub fn datagrams_per_turn(mut self, datagrams: usize) -> Self {
        self.config.datagrams_per_turn = datagrams;
        self
    }

    /// Sets the limit of bytes that may be queued while the kernel accepts no more. The default is
    /// 1 MiB. Each datagram counts as its length plus 96 bytes. A datagram beyond the limit is
    /// refused and handed back; queued datagrams are not dropped. If the queue is empty, one
    /// datagram of any length is accepted.
    pub fn max_outbound(mut self, bytes: usize) -> Self {
        self.config.max_outbound = bytes;
        self
    }

    /// Sets the limit of pending scheduled tasks and timeouts of a channel. The default is 1024.
    pub fn max_scheduled_tasks(mut self, tasks: usize) -> Self {
        self.config.max_scheduled_tasks = tasks;
        self
    }

    /// Sets the factory of handlers. It is called once for each channel, on that channel's loop.
    pub fn handler<G, H>(self, factory: G) -> DatagramBootstrap<Arc<G>>
    where
        G: Fn() -> H + Send + Sync + 'static,
        H: DatagramHandler,
    {
        let DatagramBootstrap { group, options, peer, config, factory: _ } = self;
        DatagramBootstrap { group, options, peer, config, factory: Arc::new(factory) }
    }
}

impl<F, H> DatagramBootstrap<Arc<F>>
where
    F: Fn() -> H + Send + Sync + 'static,
    H: DatagramHandler,
{
    /// Opens a channel on the group's next loop. Port 0 selects a free port, see
    /// [`DatagramChannel::local_address`]. A client binds to `0.0.0.0:0` or `[::]:0`.
    ///
    /// Resolves a host name, which may block, and uses the first address that can be bound.
    /// Datagrams that arrive before the channel is open wait in the socket. The handler's `active`
    /// is called before it reads.
    ///
    /// # Errors
    /// - [`Error::Setting`] if a setting is out of range.
    /// - [`Error::Io`] if the address cannot be bound, the peer cannot be connected, or a multicast
    ///   group cannot be joined.
    /// - [`Error::Full`] if the loop's queue is full, or [`Error::ShutDown`] if the loop is shut
    ///   down.
    pub fn bind(&self, address: impl ToSocketAddrs) -> Result<DatagramChannel> {
        self.options.check()?;
        self.config.check()?;
        let mut bound = Err(Error::Closed);
        for address in resolve(address)?.iter().filter_map(crate::transport::Address::as_tcp) {
            bound = UdpSocket::bind(address, &self.options);
            if bound.is_ok() {
                break;
            }
        }
        let socket = bound?;
        let local = socket.local_address().map_err(|e| Error::io("binding", e))?;
        if let Some(peer) = self.peer {
            socket.connect(peer)?;
        }
        let event_loop = self.group.next();
        let shared =
            Arc::new(DatagramShared::new(event_loop.shared.clone(), local, self.config.max_outbound));
        let inbox = DatagramInbox::new();
        let factory = self.factory.clone();
        let channel = NewDatagramChannel {
            socket,
            peer: self.peer,
            config: self.config.clone(),
            handler: Box::new(move || Box::new(TypedHandler(factory())) as Box<dyn DatagramLinks>),
            shared: DatagramGuard(shared.clone()),
            inbox: inbox.clone(),
        };
        let opened = event_loop.shared.submit(LoopMail::Open(Box::new(channel)), 0);
        opened?;
        Ok(DatagramChannel::new(shared, inbox))
    }
}
