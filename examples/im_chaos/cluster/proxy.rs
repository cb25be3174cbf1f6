//! `CuttingProxy`: a proxy on a TCP port that passes bytes, holds them, or cuts connections.
//!
//! A held direction is not read, so its bytes wait in the buffers of the kernel. A network that
//! drops all packets has the same effect: the bytes arrive after its recovery, unless an end gives
//! up.

use netwheel::{
    bytes::Bytes,
    channel::{ChannelOptions, CloseCause, InputGuard},
    codec::RawBytes,
    net::Address,
    prelude::*,
};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The state of all connections through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Pass,
    /// Bytes of the client do not arrive, or bytes of the server, or both. New connections are
    /// accepted, and are held too.
    Hold {
        to_server: bool,
        to_client: bool,
    },
    /// Connections are reset, also new ones.
    Cut,
}

/// A proxy on a port of its own. Its server may move.
#[derive(Clone)]
pub(crate) struct CuttingProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    client: ClientBootstrap,
}

struct State {
    link: Link,
    target: Option<Address>,
    pipes: Vec<HandlerRef<Pipe>>,
    /// Connections that were accepted.
    accepted: u64,
}

impl CuttingProxy {
    /// Starts a proxy. Connections are reset until it has a target.
    ///
    /// # Errors
    /// If it cannot listen.
    pub(crate) fn start(group: &EventLoopGroup) -> Result<Self> {
        let options = ChannelOptions::new().half_close(true);
        let client = ClientBootstrap::new(group)
            .channel_options(options.clone())
            .connect_timeout(Duration::from_secs(2));
        let state = State { link: Link::Pass, target: None, pipes: Vec::new(), accepted: 0 };
        let shared = Arc::new(Shared { state: Mutex::new(state), client });
        let proxy = shared.clone();
        let server = ServerBootstrap::new(group)
            .channel_options(options)
            .pipeline(move |_peer| Pipeline::codec(RawBytes).handler(Pipe::front(proxy.clone())))
            .bind("127.0.0.1:0")?;
        Ok(CuttingProxy { address: server.local_address(), shared })
    }

    /// Returns the address for clients.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the server of new connections.
    pub(crate) fn set_target(&self, target: impl Into<Address>) {
        self.shared.lock().target = Some(target.into());
    }

    /// Changes the state of the link, also for open connections.
    pub(crate) fn set(&self, link: Link) {
        let mut state = self.shared.lock();
        state.link = link;
        state.pipes.retain(|pipe| pipe.channel().is_open());
        for pipe in &state.pipes {
            // Fails if the channel has closed.
            let _ = pipe.execute(move |pipe, ctx| pipe.apply(ctx, link));
        }
    }

    /// Resets all connections once. New ones are passed.
    pub(crate) fn reset_all(&self) {
        let mut state = self.shared.lock();
        std::mem::take(&mut state.pipes).iter().for_each(|pipe| pipe.channel().reset());
    }

    /// Returns how many connections were accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.shared.lock().accepted
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handler of one side of a connection. Forwards bytes to the other side.
struct Pipe {
    proxy: Arc<Shared>,
    other: Option<Channel<Bytes>>,
    /// Whether this is the side of the client.
    is_front: bool,
    /// Pauses reading until the other side is open.
    dialing: Option<InputGuard>,
}

impl Handler for Pipe {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let (link, target) = {
            let mut state = self.proxy.lock();
            state.pipes.push(ctx.handler_ref());
            state.accepted += u64::from(self.is_front);
            (state.link, state.target.clone())
        };
        self.apply(ctx, link)?;
        if self.is_front {
            let target = target.ok_or(Error::Closed)?;
            self.dialing = Some(ctx.pause_reading());
            let (proxy, front) = (self.proxy.clone(), ctx.channel());
            let client = self.proxy.client.clone();
            let dialed = client
                .pipeline(move |_peer| {
                    let (proxy, other) = (proxy.clone(), Some(front.clone()));
                    Pipeline::codec(RawBytes).handler(Pipe { proxy, other, is_front: false, dialing: None })
                })
                .connect(target);
            ctx.on_complete(dialed, |pipe, _, back| {
                pipe.other = Some(back?);
                pipe.dialing = None;
                Ok(())
            });
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        let Some(other) = &self.other else { return Err(Error::Closed) };
        other.write(bytes)?;
        if !other.is_writable() {
            let paused = ctx.pause_reading();
            other.writable().on_complete(move |_| drop(paused));
        }
        Ok(())
    }

    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        match &self.other {
            Some(other) => other.shutdown_write(),
            None => ctx.close(),
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, _: Error) -> Result {
        ctx.reset();
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        match (&self.other, ctx.close_cause()) {
            (Some(other), Some(CloseCause::Clean)) => other.close(),
            (Some(other), _) => other.reset(),
            (None, _) => {}
        }
        Ok(())
    }
}

impl Pipe {
    fn front(proxy: Arc<Shared>) -> Self {
        Pipe { proxy, other: None, is_front: true, dialing: None }
    }

    fn apply(&mut self, ctx: &mut Context<'_, Self>, link: Link) -> Result {
        match link {
            Link::Pass => ctx.set_auto_read(true),
            Link::Hold { to_server, to_client } => {
                ctx.set_auto_read(!if self.is_front { to_server } else { to_client });
            }
            Link::Cut => ctx.reset(),
        }
        Ok(())
    }
}
