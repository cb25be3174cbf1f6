//! The handle of a simulated socket, in place of a file descriptor.
//!
//! Invariants: the handle is four bytes, so a transport with this variant is no larger. Dropping it
//! closes the socket. Calls work on the world of the calling thread's machine; without one, which
//! is after the end of a simulation, they fail.

use super::{
    BindOptions,
    ids::SocketId,
    with_world,
    world::{Unseen, World},
};
use mio::{Interest, Registry, Token, event::Source};
use std::{
    io::{self, IoSlice},
    net::SocketAddr,
};

#[derive(Debug)]
pub(crate) struct SimulatedSocket(SocketId);

/// Calls `f` with the world and the node of the calling thread.
fn in_world<R>(f: impl FnOnce(&mut World, usize) -> io::Result<R>) -> io::Result<R> {
    let called = with_world(|machine, world| {
        let node = &world.nodes[machine.node];
        if node.life != machine.life || !node.is_up {
            return Err(io::ErrorKind::NetworkDown.into());
        }
        f(world, machine.node)
    });
    called.unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))
}

impl SimulatedSocket {
    pub(crate) fn listen(address: SocketAddr, backlog: usize, options: BindOptions) -> io::Result<Self> {
        in_world(|world, node| world.listen(node, address, backlog, options).map(SimulatedSocket))
    }

    pub(crate) fn connect(to: SocketAddr, local: Option<SocketAddr>) -> io::Result<Self> {
        in_world(|world, node| world.connect(node, local, to).map(SimulatedSocket))
    }

    pub(crate) fn bind_datagrams(address: SocketAddr, options: BindOptions) -> io::Result<Self> {
        in_world(|world, node| world.bind_datagrams(node, address, options).map(SimulatedSocket))
    }

    pub(crate) fn accept(&self) -> io::Result<(Self, SocketAddr)> {
        in_world(|world, _| {
            let (id, peer) = world.accept(self.0)?;
            Ok((SimulatedSocket(id), peer))
        })
    }

    /// Returns whether the socket has input or room without a pending event of the poll. `state` is
    /// the state of its channel, for a count of different states.
    pub(crate) fn unseen(&self, state: u64) -> Unseen {
        in_world(|world, _| Ok(world.unseen(self.0, state))).unwrap_or_default()
    }

    // Calls of sockets are not inlined, so that a socket of the system does not pay for them.
    #[cold]
    #[inline(never)]
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        in_world(|world, _| world.read(self.0, buffer))
    }

    pub(crate) fn peek(&self) -> io::Result<usize> {
        in_world(|world, _| world.peek(self.0))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        in_world(|world, _| world.write(self.0, &[bytes]))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let slices: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
        in_world(|world, _| world.write(self.0, &slices))
    }

    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        in_world(|world, _| world.shut_down_write(self.0))
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        in_world(|world, _| Ok(world.take_error(self.0)))
    }

    pub(crate) fn has_peer(&self) -> io::Result<()> {
        in_world(|world, _| world.has_peer(self.0))
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        in_world(|world, _| world.local_address(self.0))
    }

    /// Lets the close reset the connection instead of ending it.
    pub(crate) fn reset_on_close(&self) -> io::Result<()> {
        in_world(|world, _| {
            world.reset_on_close(self.0);
            Ok(())
        })
    }

    pub(crate) fn send_datagram(&self, bytes: &[u8], to: Option<SocketAddr>) -> io::Result<usize> {
        in_world(|world, _| world.send_datagram(self.0, bytes, to))
    }

    pub(crate) fn receive_datagram(&self, room: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        in_world(|world, _| world.receive_datagram(self.0, room))
    }

    pub(crate) fn connect_datagrams(&self, peer: Option<SocketAddr>) -> io::Result<()> {
        in_world(|world, _| world.connect_datagrams(self.0, peer))
    }
}

impl Drop for SimulatedSocket {
    fn drop(&mut self) {
        let _ = in_world(|world, _| {
            world.close(self.0);
            Ok(())
        });
    }
}

impl Source for SimulatedSocket {
    fn register(&mut self, _registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        in_world(|world, _| {
            if world.is_watched(self.0) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            world.watch(self.0, token, interests)
        })
    }

    fn reregister(&mut self, _registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        in_world(|world, _| {
            if !world.is_watched(self.0) {
                return Err(io::ErrorKind::NotFound.into());
            }
            world.watch(self.0, token, interests)
        })
    }

    fn deregister(&mut self, _registry: &Registry) -> io::Result<()> {
        in_world(|world, _| {
            if !world.is_watched(self.0) {
                return Err(io::ErrorKind::NotFound.into());
            }
            world.unwatch(self.0);
            Ok(())
        })
    }
}
