//! NewDatagramChannel datagram channels.
//!
//! Always holds: wrong settings, and addresses that cannot be had, are refused before anything is begun. Any thread opens.

use crate::{
    DatagramChannel, DatagramHandler, Error, EventLoopGroup, Result,
    datagram::{
        DatagramConfig, DatagramGuard, DatagramLinks, DatagramShared, NewDatagramChannel, TypedHandler,
    },
    event_loop::LoopMail,
    transport::{Resolve, UdpOptions, UdpSocket},
};
use std::{
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
};

/// Settings of datagram channels; one bootstrap opens any number of them.
///
/// | setting | default | range |
/// |---|---|---|
/// | `options` | see [`UdpOptions`] | |
/// | `connect` | no peer: everybody's datagrams come | |
/// | `datagrams_per_turn` | 64 | 1 or more |
/// | `max_outbound` | 1 MiB | 1 byte or more |
/// | `max_scheduled_tasks` | 1024 | 1 to 65,536 |
///
/// ```no_run
/// # use bytes::Bytes;
/// # use netwheel::{DatagramBootstrap, DatagramContext, DatagramHandler, EventLoopGroup, Result, UdpOptions};
/// # use std::net::SocketAddr;
/// # struct Echo;
/// # impl DatagramHandler for Echo {
/// #     fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result {
/// #         Ok(ctx.send_to(datagram, from)?)
/// #     }
/// # }
/// # fn main() -> Result {
/// let group = EventLoopGroup::new()?;
/// let channel = DatagramBootstrap::new(&group)
///     .options(UdpOptions::new().receive_buffer(1 << 20))
///     .handler(|| Echo)
///     .bind("0.0.0.0:7000")?;
/// channel.send_to("hello", "192.0.2.1:7000".parse().unwrap())?;
/// channel.closed().wait()
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct DatagramBootstrap<F = ()> {
    group: EventLoopGroup,
    options: UdpOptions,
    peer: Option<SocketAddr>,
    config: DatagramConfig,
    factory: F,
}

impl DatagramBootstrap {
    /// Channels on the loops of `group`.
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
    /// Socket options.
    pub fn options(mut self, options: UdpOptions) -> Self {
        self.options = options;
        self
    }

    /// Gives the channel a peer from the start; see [`DatagramScope::connect`](crate::DatagramScope::connect).
    pub fn connect(mut self, peer: SocketAddr) -> Self {
        self.peer = Some(peer);
        self
    }

    /// Datagrams that are read in one turn of the loop; what is left is read in the next one. As many of those that wait
    /// are sent in one turn.
    pub fn datagrams_per_turn(mut self, datagrams: usize) -> Self {
        self.config.datagrams_per_turn = datagrams;
        self
    }

    /// Bytes that may wait to be sent while the kernel takes no more, and 96 for each datagram. One more is refused and
    /// handed back; those that wait are not dropped for it. Where nothing waits there is room for one, however long.
    pub fn max_outbound(mut self, bytes: usize) -> Self {
        self.config.max_outbound = bytes;
        self
    }

    /// Scheduled tasks and timeouts of a channel that may wait for their time.
    pub fn max_scheduled_tasks(mut self, tasks: usize) -> Self {
        self.config.max_scheduled_tasks = tasks;
        self
    }

    /// What makes the handler of each channel, on that channel's loop.
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
    /// Opens a channel on the group's next loop. Port 0 takes a free one, see [`DatagramChannel::local_address`]; for a
    /// client bind to `0.0.0.0:0` or `[::]:0`. A host name is resolved here, which may block; the first of its addresses
    /// that can be bound is taken.
    ///
    /// What comes in between waits in the socket; the handler's `active` is called before it reads.
    ///
    /// # Errors
    /// If a setting is out of its range, the address cannot be bound, the peer or a group not be had, or the loop is shut
    /// down.
    pub fn bind(&self, address: impl ToSocketAddrs) -> Result<DatagramChannel> {
        self.options.check()?;
        self.config.check()?;
        let mut bound = Err(Error::Closed);
        for address in address.addresses()?.iter().filter_map(crate::Address::as_tcp) {
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
        let factory = self.factory.clone();
        let channel = NewDatagramChannel {
            socket,
            peer: self.peer,
            config: self.config.clone(),
            handler: Box::new(move || Box::new(TypedHandler(factory())) as Box<dyn DatagramLinks>),
            shared: DatagramGuard(shared.clone()),
        };
        let opened = event_loop.shared.submit(LoopMail::Open(Box::new(channel)), 0);
        opened?;
        Ok(DatagramChannel::new(shared))
    }
}
