//! A descriptor that outlives its channel, and a descriptor number that is reused: no event reaches
//! the wrong channel. Descriptor numbers belong to the process, so each test runs in a process of
//! its own.

#![cfg(target_os = "linux")]

use crate::own_process;
use crate::support::{
    loops::{Gate, settle, settle_until, single},
    resources,
    tcp::{assert_echoes, connect},
    wait::{self, PATIENCE},
};
use bytes::Bytes;
use netwheel::{
    Context, EventLoop, EventLoopGroup, Handler, Pipeline, Result, Server, ServerBootstrap, codec::RawBytes,
};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    os::fd::BorrowedFd,
};

/// Echoes its input, and closes at `bye`.
struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        if message.starts_with(b"bye") {
            ctx.close_now();
            return Ok(());
        }
        ctx.write(message)
    }
}

fn serve(group: &EventLoopGroup) -> Server {
    let server = ServerBootstrap::new(group).pipeline(|_| Pipeline::codec(RawBytes).handler(Echo));
    server.bind("127.0.0.1:0").unwrap()
}

/// Returns the descriptor of the server's end of a connection.
fn descriptor(stream: &TcpStream) -> i32 {
    resources::descriptor_of(stream.peer_addr().unwrap(), stream.local_addr().unwrap())
}

#[track_caller]
fn until_channels(event_loop: &EventLoop, channels: u64) {
    settle_until(event_loop, |metrics| metrics.channels == channels);
}

/// The test holds a duplicate of the socket, as a forked child would. Closing the original neither
/// disconnects the peer nor removes the socket from the poll.
#[test]
fn a_duplicated_descriptor_causes_no_stray_events() {
    own_process!();
    let (group, event_loop) = single(EventLoopGroup::builder());
    let server = serve(&group);
    for rebuilt in [false, true] {
        let mut peer = connect(server.local_address());
        assert_echoes(&mut peer);
        // SAFETY: the loop keeps the descriptor open as long as the connection exists.
        let theirs = unsafe { BorrowedFd::borrow_raw(descriptor(&peer)) }.try_clone_to_owned().unwrap();
        let mut duplicate = TcpStream::from(theirs);
        if rebuilt {
            // The old poll is closed, and its registrations with it.
            wait::done(event_loop.rebuild_poll().unwrap()).unwrap();
        }
        peer.write_all(b"bye").unwrap();
        until_channels(&event_loop, 0);

        // The next connection gets the slot that the channel had in the loop.
        let mut next = connect(server.local_address());
        assert_echoes(&mut next);
        settle(&event_loop);
        let before = event_loop.metrics();
        duplicate.set_nonblocking(false).unwrap();
        duplicate.set_read_timeout(Some(PATIENCE)).unwrap();
        for n in 0..100 {
            peer.write_all(b"are you there?").unwrap();
            let mut heard = [0; 14];
            duplicate.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"are you there?");
            if n % 10 == 0 {
                settle(&event_loop);
            }
        }
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(duplicate.read(&mut [0]).unwrap(), 0);
        settle(&event_loop);
        let after = event_loop.metrics();
        assert_eq!(after.wakes_io, before.wakes_io, "an event of a closed channel");
        assert_eq!((after.reads, after.wakes_premature), (before.reads, before.wakes_premature));
        // Settling takes three tasks or a few more. Each may cost a poll and a late wake.
        assert!(after.polls - before.polls < 200, "the loop spins: {} polls", after.polls - before.polls);
        assert_echoes(&mut next);
        drop(next);
        until_channels(&event_loop, 0);
    }
}

/// In one batch of events, one connection closes and the next is accepted with the same descriptor
/// number.
#[test]
fn a_descriptor_may_be_reused_within_one_batch_of_events() {
    own_process!();
    let (group, event_loop) = single(EventLoopGroup::builder());
    let server = serve(&group);
    let mut reused = 0;
    for round in 0..20 {
        let mut first = connect(server.local_address());
        assert_echoes(&mut first);
        until_channels(&event_loop, 1);
        let number = descriptor(&first);
        let gate = Gate::shut(&event_loop);
        let before = event_loop.metrics();
        first.write_all(b"bye").unwrap();
        if round % 2 == 1 {
            // Makes the event of the first connection report a hang-up as well.
            first.shutdown(Shutdown::Both).unwrap();
        }
        let mut second = connect(server.local_address());
        second.write_all(b"hello").unwrap();
        drop(gate);
        let mut back = [0; 5];
        second.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hello");
        settle(&event_loop);
        reused += usize::from(descriptor(&second) == number);
        let after = event_loop.metrics();
        assert_eq!((after.channels, after.accepted - before.accepted), (1, 1));
        assert_eq!(after.bytes_read - before.bytes_read, 8, "`bye` of the first, `hello` of the second");
        // The second connection is registered: removing the first from the poll did not remove the
        // second.
        assert_echoes(&mut second);
        assert_echoes(&mut second);
        drop((first, second));
        until_channels(&event_loop, 0);
    }
    assert!(reused > 0, "the descriptor number was never reused");
}
