//! A read that returns fewer bytes than fit, although more are available: the kernel ends a read at
//! the urgent mark of the stream.

#![cfg(target_os = "linux")]

use crate::support::{
    loops::{Gate, settle, single},
    wait::PATIENCE,
};
use bytes::Bytes;
use netwheel::{EventLoopGroup, codec::RawBytes, prelude::*};
use socket2::SockRef;
use std::{
    io::Write,
    net::TcpStream,
    sync::mpsc::{Sender, channel},
};

struct Collects(Sender<Bytes>);

impl Handler for Collects {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        let _ = self.0.send(bytes);
        Ok(())
    }
}

/// A read ends at urgent data. Bytes behind it cause no further event if they had already arrived.
#[test]
fn bytes_behind_urgent_data_are_read() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    let (sender, received) = channel();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(Collects(sender.clone())))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut client = TcpStream::connect(server.local_address()).unwrap();
    client.set_nodelay(true).unwrap();
    client.write_all(b"begin").unwrap();
    assert_eq!(received.recv_timeout(PATIENCE).unwrap(), "begin");
    settle(&event_loop);

    let gate = Gate::shut(&event_loop);
    client.write_all(b"before").unwrap();
    SockRef::from(&client).send_out_of_band(b"!").unwrap();
    client.write_all(b"behind").unwrap();
    drop(gate);
    let mut all = Vec::new();
    while !all.ends_with(b"behind") {
        let bytes = received.recv_timeout(PATIENCE / 20);
        all.extend_from_slice(
            &bytes.unwrap_or_else(|_| panic!("received only {:?}", Bytes::from(all.clone()))),
        );
    }
    assert_eq!(all, b"beforebehind");
}
