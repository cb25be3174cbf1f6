//! Servers and clients of the crate, and their simplest handlers.

use super::{
    recorder::{Event, Events, Recorder, SharedHook},
    tcp::ANY_PORT,
    wait::{PATIENCE, done},
};
use bytes::Bytes;
use netwheel::{
    Codec, Error, Peer, Pipeline,
    channel::ChannelOptions,
    codec::RawBytes,
    net::{TcpOptions, ToAddress},
    prelude::*,
};
use std::sync::{
    Arc, Mutex,
    mpsc::{self, Receiver, Sender},
};

// ---- plain handlers ----------------------------------------------------------------------------

/// A handler that echoes every message.
pub(crate) struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

/// A handler that discards every message.
pub(crate) struct Quiet;

impl Handler for Quiet {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

// ---- recorders over sockets --------------------------------------------------------------------

/// Options of a channel that ends in a recorder. Its close timeout is always long, so that a slow
/// machine is not mistaken for a peer that hangs.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) channel: ChannelOptions,
    pub(crate) tcp: TcpOptions,
}

impl Settings {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Reads only on request.
    pub(crate) fn explicit_read() -> Self {
        Self::channel(ChannelOptions::new().auto_read(false))
    }

    pub(crate) fn channel(channel: ChannelOptions) -> Self {
        Settings { channel, ..Settings::default() }
    }
}

/// Starts a server of raw bytes whose channels run `hook`.
pub(crate) fn serve<F>(group: &EventLoopGroup, settings: Settings, hook: F) -> (Server, Events)
where
    F: Fn(&mut Context<'_, Recorder>, &Event) -> Result + Send + Sync + 'static,
{
    serve_with(group, settings, RawBytes, hook)
}

/// Like [`serve`], with a codec.
pub(crate) fn serve_with<C, F>(
    group: &EventLoopGroup,
    settings: Settings,
    codec: C,
    hook: F,
) -> (Server, Events)
where
    C: Codec<Read = Bytes, Write = Bytes> + Clone + Send + Sync,
    F: Fn(&mut Context<'_, Recorder>, &Event) -> Result + Send + Sync + 'static,
{
    serve_at(ANY_PORT, group, settings, codec, hook)
}

/// Like [`serve_with`], over any transport.
pub(crate) fn serve_at<E, C, F>(
    at: E,
    group: &EventLoopGroup,
    settings: Settings,
    codec: C,
    hook: F,
) -> (Server<E::Address>, Events)
where
    E: ToAddress,
    C: Codec<Read = Bytes, Write = Bytes> + Clone + Send + Sync,
    F: Fn(&mut Context<'_, Recorder>, &Event) -> Result + Send + Sync + 'static,
{
    let (events, received) = mpsc::channel();
    let hook: SharedHook = Arc::new(hook);
    let server = ServerBootstrap::new(group)
        .channel_options(settings.channel.close_timeout(10 * PATIENCE))
        .tcp_options(settings.tcp)
        .pipeline(move |_| {
            let handler = Recorder::sending(events.clone(), hook.clone());
            Pipeline::codec(codec.clone()).handler(handler)
        })
        .bind(at)
        .unwrap();
    (server, Events(received))
}

/// A bootstrap of clients without framing.
pub(crate) type RawClient = ClientBootstrap<Arc<Factory>>;
type Factory = Box<dyn Fn(&Peer) -> Pipeline<Bytes> + Send + Sync>;

/// Returns the bootstrap of a client without framing that runs `hook`. Connect it with [`dial`] or
/// directly.
pub(crate) fn client<F>(group: &EventLoopGroup, settings: Settings, hook: F) -> (RawClient, Events)
where
    F: Fn(&mut Context<'_, Recorder>, &Event) -> Result + Send + Sync + 'static,
{
    let (events, received) = mpsc::channel();
    let hook: SharedHook = Arc::new(hook);
    let factory: Factory = Box::new(move |_| {
        let handler = Recorder::sending(events.clone(), hook.clone());
        Pipeline::codec(RawBytes).handler(handler)
    });
    let bootstrap = ClientBootstrap::new(group)
        .channel_options(settings.channel.close_timeout(10 * PATIENCE))
        .tcp_options(settings.tcp)
        .pipeline(factory);
    (bootstrap, Events(received))
}

/// Connects a client.
pub(crate) fn dial<F>(
    group: &EventLoopGroup,
    to: impl ToAddress,
    settings: Settings,
    hook: F,
) -> (Channel<Bytes>, Events)
where
    F: Fn(&mut Context<'_, Recorder>, &Event) -> Result + Send + Sync + 'static,
{
    let (bootstrap, events) = client(group, settings, hook);
    (done(bootstrap.connect(to)).unwrap(), events)
}

// ---- echo servers that report errors -----------------------------------------------------------

/// A closure that a connection runs on its loop at each read, before the echo.
pub(crate) type Action = dyn Fn() -> Result + Send + Sync;

struct ActingEcho {
    action: Arc<Action>,
    silent: bool,
    errors: Sender<Error>,
}

impl Handler for ActingEcho {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        (self.action)()?;
        if self.silent { Ok(()) } else { ctx.write(message) }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let _ = self.errors.send(error);
        ctx.close();
        Ok(())
    }
}

/// Starts an echo server. Returns it and a queue of the errors of its connections.
pub(crate) fn echo_server(group: &EventLoopGroup) -> (Server, Receiver<Error>) {
    serve_acting(group, false, || Ok(()))
}

/// Starts a server that never replies.
pub(crate) fn silent_server(group: &EventLoopGroup) -> (Server, Receiver<Error>) {
    serve_acting(group, true, || Ok(()))
}

/// Starts an echo server that runs `action` at each read.
pub(crate) fn acting_server(
    group: &EventLoopGroup,
    action: impl Fn() -> Result + Send + Sync + 'static,
) -> (Server, Receiver<Error>) {
    serve_acting(group, false, action)
}

fn serve_acting(
    group: &EventLoopGroup,
    silent: bool,
    action: impl Fn() -> Result + Send + Sync + 'static,
) -> (Server, Receiver<Error>) {
    let (errors, failed) = mpsc::channel();
    let action: Arc<Action> = Arc::new(action);
    let errors = Mutex::new(errors);
    let server = ServerBootstrap::new(group).pipeline(move |_peer| {
        let errors = errors.lock().unwrap().clone();
        Pipeline::codec(RawBytes).handler(ActingEcho { action: action.clone(), silent, errors })
    });
    (server.bind("127.0.0.1:0").unwrap(), failed)
}
