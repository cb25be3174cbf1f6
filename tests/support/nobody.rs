//! Addresses without a server: ports that refuse connections, and a listener that does not respond.

use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr};

/// A port that refuses every connection. The socket is bound but not listening, so that no other
/// process can get the port.
pub(crate) struct Nobody {
    pub(crate) address: SocketAddr,
    _bound: Socket,
}

impl Nobody {
    pub(crate) fn new() -> Self {
        let (bound, address) = bound();
        Nobody { address, _bound: bound }
    }
}

fn bound() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

/// A listener that accepts no connections. Its queue is full, so the kernel drops every SYN.
#[cfg(target_os = "linux")]
pub(crate) struct BlackHole {
    pub(crate) address: SocketAddr,
    _full: (mio::net::TcpListener, std::net::TcpStream),
}

#[cfg(target_os = "linux")]
impl BlackHole {
    pub(crate) fn open() -> Self {
        let (socket, address) = bound();
        // A backlog of 0 has room for one connection.
        socket.listen(0).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut listener = mio::net::TcpListener::from_std(socket.into());
        let first = std::net::TcpStream::connect(address).unwrap();
        // Wait until the connection is in the queue.
        let mut poll = mio::Poll::new().unwrap();
        let mut events = mio::Events::with_capacity(1);
        poll.registry().register(&mut listener, mio::Token(0), mio::Interest::READABLE).unwrap();
        while events.is_empty() {
            poll.poll(&mut events, Some(std::time::Duration::from_secs(60))).unwrap();
        }
        BlackHole { address, _full: (listener, first) }
    }
}
