//! A loop that handles a message of another thread at once, before that thread continues. The
//! thread is notified of each pause that it has seen, and the handler of each write above the high
//! mark.

use crate::support::{
    tcp::{ANY_PORT, connect},
    wait::{done, receive},
};
use crate::writability::zeros;
use bytes::Bytes;
use netwheel::{
    ClientBootstrap, Codec, Result, buffer::OutboundBuffer, codec::RawBytes, prelude::*, relay::Relay,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Sender, channel},
    thread,
};

/// A codec that passes bytes on and does not estimate sizes.
struct Unestimated;

impl Codec for Unestimated {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        RawBytes.decode(input)
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

/// A handler that reports each change of writability.
struct Watched(Sender<bool>);

impl Handler for Watched {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn writability_changed(&mut self, _: &mut Context<'_, Self>, writable: bool) -> Result {
        let _ = self.0.send(writable);
        Ok(())
    }
}

/// Starts a server whose connections each run on a thread of their own.
fn server(serve: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let connection = connection.unwrap();
            thread::spawn(move || serve(connection));
        }
    });
    address
}

/// Reads until the end of the stream.
fn discard(mut connection: TcpStream) {
    let _ = std::io::copy(&mut connection, &mut std::io::sink());
}

/// The usual loop of a producer: waits until the channel is writable, then writes.
#[test]
fn a_producer_of_messages_of_unknown_size_is_notified_after_its_first_message() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let address = server(discard);
    let client =
        ClientBootstrap::new(&group).pipeline(|_| Pipeline::codec(Unestimated).handler(Watched(channel().0)));
    for _ in 0..1000 {
        let connection = done(client.connect(address)).unwrap();
        for _ in 0..3 {
            done(connection.writable()).unwrap();
            connection.write(zeros(10)).unwrap();
        }
        connection.close();
    }
}

#[test]
fn a_relay_of_messages_of_unknown_size_does_not_stop_after_the_first() {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let target = server(|mut connection| {
        let mut buffer = [0; 1024];
        while let Ok(n @ 1..) = connection.read(&mut buffer) {
            if connection.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
    });
    let connector = group.clone();
    let proxy = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let client = ClientBootstrap::new(&connector);
            Pipeline::codec(Unestimated).handler(Relay::dial(move |front: Channel<Bytes>| {
                client
                    .pipeline(move |_| Pipeline::codec(Unestimated).handler(Relay::to(front.clone())))
                    .connect(target)
            }))
        })
        .bind(ANY_PORT)
        .unwrap();
    for _ in 0..500 {
        let mut peer = connect(proxy.local_address());
        peer.set_nodelay(true).unwrap();
        for _ in 0..3 {
            peer.write_all(b"line\n").unwrap();
            let mut answer = [0; 5];
            peer.read_exact(&mut answer).expect("an answer in time");
            assert_eq!(&answer, b"line\n");
        }
    }
}

#[test]
fn the_handler_is_notified_of_each_write_of_a_handle_above_the_high_mark() {
    for estimated in [true, false] {
        let group = EventLoopGroup::builder().threads(1).build().unwrap();
        let address = server(discard);
        for _ in 0..300 {
            let (sender, changes) = channel();
            let client = ClientBootstrap::new(&group);
            let connection = if estimated {
                let client =
                    client.pipeline(move |_| Pipeline::codec(RawBytes).handler(Watched(sender.clone())));
                done(client.connect(address))
            } else {
                let client =
                    client.pipeline(move |_| Pipeline::codec(Unestimated).handler(Watched(sender.clone())));
                done(client.connect(address))
            };
            let connection = connection.unwrap();
            for _ in 0..2 {
                connection.write(zeros(100_000)).unwrap();
                assert_eq!([receive(&changes), receive(&changes)], [false, true]);
            }
            connection.close();
        }
    }
}
