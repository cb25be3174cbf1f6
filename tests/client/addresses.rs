//! Several addresses of one target: which are tried.

use crate::support::{
    loops::{end, one_loop},
    wait::done,
};
use bytes::Bytes;
use netwheel::{codec::RawBytes, prelude::*};
use std::{io::ErrorKind, net::TcpListener};

fn silent(_: &Peer) -> Pipeline<Bytes> {
    Pipeline::codec(RawBytes).on_read(|_, _| Ok(()))
}

#[test]
fn a_loop_that_has_ended_does_not_connect_to_the_next_address() {
    let group = one_loop();
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
    end(&group);
    let error = done(ClientBootstrap::new(&group).pipeline(silent).connect(&addresses[..])).unwrap_err();
    assert!(matches!(error, Error::ShutDown), "{error}");
    listeners[1].set_nonblocking(true).unwrap();
    assert_eq!(listeners[1].accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}
