//! A datagram handler that reports every call to the test thread, and plain UDP sockets as peers.

use super::{recorder::Events, wait::PATIENCE};
use bytes::Bytes;
use netwheel::{
    DatagramBootstrap, Error, EventLoopGroup, Result,
    datagram::{DatagramChannel, DatagramContext, DatagramHandler},
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
    /// The text of the error, and its kind if it is an I/O error.
    Error(String, Option<std::io::ErrorKind>),
    Shutdown,
    Inactive,
}

/// A closure of the test that runs in each call.
pub(crate) type Hook = Arc<dyn Fn(&mut DatagramContext<'_, Probe>, &Event) -> Result + Send + Sync>;

/// Runs the hook and then reports the call to the test.
pub(crate) struct Probe {
    events: Sender<Event>,
    hook: Hook,
}

impl Probe {
    fn call(&mut self, ctx: &mut DatagramContext<'_, Self>, event: Event) -> Result {
        let result = (self.hook)(ctx, &event);
        // Fails if the test has already finished.
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

/// Echoes every datagram.
pub(crate) fn echo(ctx: &mut DatagramContext<'_, Probe>, event: &Event) -> Result {
    if let Event::Read(datagram, from) = event {
        ctx.write_to(datagram.clone(), *from)?;
    }
    Ok(())
}

impl Events<Event> {
    /// Returns the next datagram. Only `active` and writability events may precede it.
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

    /// Returns the text and kind of the next error. Only `active` may precede it.
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

/// Opens a channel on 127.0.0.1 whose handler runs `hook`.
pub(crate) fn open(
    group: &EventLoopGroup,
    hook: impl Fn(&mut DatagramContext<'_, Probe>, &Event) -> Result + Send + Sync + 'static,
) -> (DatagramChannel, Events<Event>) {
    open_with(DatagramBootstrap::new(group), hook)
}

/// Like [`open`], with settings.
pub(crate) fn open_with(
    bootstrap: DatagramBootstrap,
    hook: impl Fn(&mut DatagramContext<'_, Probe>, &Event) -> Result + Send + Sync + 'static,
) -> (DatagramChannel, Events<Event>) {
    let (events, received) = mpsc::channel();
    let hook: Hook = Arc::new(hook);
    // The bootstrap is consumed with the factory in it, so only handlers hold senders afterwards.
    let channel = bootstrap
        .handler(move || Probe { events: events.clone(), hook: hook.clone() })
        .bind("127.0.0.1:0")
        .unwrap();
    (channel, Events(received))
}

/// A plain UDP socket with a read timeout.
pub(crate) fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Returns the next datagram that a plain socket receives.
#[track_caller]
pub(crate) fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 65_536];
    let (n, from) = socket.recv_from(&mut buffer).unwrap();
    buffer.truncate(n);
    (buffer, from)
}
