//! A datagram handler that tells the test thread of every call, and peers that are not ours.

use super::{recorder::Events, wait::PATIENCE};
use bytes::Bytes;
use netwheel::{
    DatagramBootstrap, DatagramChannel, DatagramContext, DatagramHandler, Error, EventLoopGroup, Result,
};
use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
};

/// One call of a handler.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Active,
    Read(Bytes, SocketAddr),
    Writable(bool),
    /// The text of the error, and its kind if it is one of I/O.
    Error(String, Option<std::io::ErrorKind>),
    Shutdown,
    Inactive,
}

/// What a test wants done in each call.
pub(crate) type Hook = Arc<dyn Fn(&mut DatagramContext<'_, Probe>, &Event) -> Result + Send + Sync>;

/// Does what the hook does, and tells the test of every call.
pub(crate) struct Probe {
    events: Sender<Event>,
    hook: Hook,
}

impl Probe {
    fn call(&mut self, ctx: &mut DatagramContext<'_, Self>, event: Event) -> Result {
        let result = (self.hook)(ctx, &event);
        // The test may have seen enough and be gone.
        let _ = self.events.send(event);
        result
    }
}

impl DatagramHandler for Probe {
    fn active(&mut self, ctx: &mut DatagramContext<'_, Self>) -> Result {
        self.call(ctx, Event::Active)
    }

    fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result {
        self.call(ctx, Event::Read(datagram, from))
    }

    fn writability_changed(&mut self, ctx: &mut DatagramContext<'_, Self>, writable: bool) -> Result {
        self.call(ctx, Event::Writable(writable))
    }

    fn error(&mut self, ctx: &mut DatagramContext<'_, Self>, error: Error) -> Result {
        self.call(ctx, Event::Error(format!("{error:#}"), error.io_kind()))
    }

    fn shutdown(&mut self, ctx: &mut DatagramContext<'_, Self>) -> Result {
        ctx.close();
        self.call(ctx, Event::Shutdown)
    }

    fn inactive(&mut self, ctx: &mut DatagramContext<'_, Self>) -> Result {
        self.call(ctx, Event::Inactive)
    }
}

/// Does nothing.
pub(crate) fn silent(_: &mut DatagramContext<'_, Probe>, _: &Event) -> Result {
    Ok(())
}

/// Sends back what comes.
pub(crate) fn echo(ctx: &mut DatagramContext<'_, Probe>, event: &Event) -> Result {
    if let Event::Read(datagram, from) = event {
        ctx.send_to(datagram.clone(), *from)?;
    }
    Ok(())
}

impl Events<Event> {
    /// The next datagram; nothing but `active` and writability may come before it.
    #[track_caller]
    pub(crate) fn datagram(&self) -> (Bytes, SocketAddr) {
        loop {
            match self.next() {
                Event::Read(datagram, from) => return (datagram, from),
                Event::Active | Event::Writable(_) => {}
                other => panic!("{other:?} instead of a datagram"),
            }
        }
    }

    /// The kind of the next error; nothing but `active` may come before it.
    #[track_caller]
    pub(crate) fn error(&self) -> (String, Option<std::io::ErrorKind>) {
        loop {
            match self.next() {
                Event::Error(text, kind) => return (text, kind),
                Event::Active => {}
                other => panic!("{other:?} instead of an error"),
            }
        }
    }
}

/// A channel on 127.0.0.1 whose handler does what `hook` does.
pub(crate) fn open(
    group: &EventLoopGroup,
    hook: impl Fn(&mut DatagramContext<'_, Probe>, &Event) -> Result + Send + Sync + 'static,
) -> (DatagramChannel, Events<Event>) {
    open_with(DatagramBootstrap::new(group), hook)
}

/// As `open`, with settings.
pub(crate) fn open_with(
    bootstrap: DatagramBootstrap,
    hook: impl Fn(&mut DatagramContext<'_, Probe>, &Event) -> Result + Send + Sync + 'static,
) -> (DatagramChannel, Events<Event>) {
    let (events, received) = mpsc::channel();
    let hook: Hook = Arc::new(hook);
    // The bootstrap goes with the factory in it: only handlers can tell from here on.
    let channel = bootstrap
        .handler(move || Probe { events: events.clone(), hook: hook.clone() })
        .bind("127.0.0.1:0")
        .unwrap();
    (channel, Events(received))
}

/// A socket that is not ours, and gives up rather than hang.
pub(crate) fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// The next datagram at a socket that is not ours.
#[track_caller]
pub(crate) fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 65_536];
    let (n, from) = socket.recv_from(&mut buffer).unwrap();
    buffer.truncate(n);
    (buffer, from)
}
