//! Datagram channels: each datagram arrives or fails independently, and the channel continues.

mod bounds;
mod failures;
mod life;
mod multicast;
mod sending;

use bytes::Bytes;
use netwheel::{
    Result,
    datagram::{DatagramContext, DatagramHandler},
};
use std::{net::SocketAddr, sync::mpsc};

struct Tell(mpsc::Sender<Bytes>);

impl DatagramHandler for Tell {
    fn read(&mut self, _: &mut DatagramContext<'_, Self>, datagram: Bytes, _: SocketAddr) -> Result {
        let _ = self.0.send(datagram);
        Ok(())
    }
}
