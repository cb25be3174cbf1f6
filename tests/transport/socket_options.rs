//! Effects of socket options that a peer can observe. The tests beside `TcpOptions` check that each
//! option is set and read back.

use crate::support::{
    loops::{end, metrics, one_loop, some_turns, the_loop},
    recorder::{Event, Recorder, silent},
    servers::{Settings, dial, serve},
    tcp::{ANY_PORT, connect, patient, read_all},
    wait::{PATIENCE, done, wait_until},
};
use netwheel::{channel::ChannelOptions, net::TcpOptions, prelude::*, worker_pool::WorkerPool};
use socket2::{Domain, Socket, Type};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    time::Duration,
};

/// Longer than any test waits.
const VERY_LONG: Duration = Duration::from_secs(3600);

fn with(options: TcpOptions) -> Settings {
    Settings { tcp: options, ..Settings::new() }
}

/// Closes when it reads something.
fn close_on_read(ctx: &mut Context<'_, Recorder>, event: &Event) -> Result {
    if matches!(event, Event::Read(_)) {
        ctx.close();
    }
    Ok(())
}

/// Connects a client to which a server can send almost nothing before it reads.
fn narrow(to: std::net::SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    patient(&stream);
    stream
}

/// Returns the events of a client when a server with these options closes.
fn events_of_a_client(options: TcpOptions) -> Vec<Event> {
    let group = one_loop();
    let (server, events) = serve(&group, with(options), close_on_read);
    let (channel, received) = dial(&group, server.local_address(), Settings::new(), silent);
    channel.write("close, please".into()).unwrap();
    let received = received.until_inactive();
    assert!(
        !events.until_inactive().iter().any(|event| matches!(event, Event::Error(_))),
        "the server has no error"
    );
    end(&group);
    received
}

/// T-17: with a linger of zero, a close is a reset. The peer gets an error, then the end.
#[test]
fn t_17_with_a_linger_of_zero_the_peer_gets_a_reset() {
    let received = events_of_a_client(TcpOptions::new().linger(Duration::ZERO));
    let errors: Vec<_> = received.iter().filter(|event| matches!(event, Event::Error(_))).collect();
    assert!(matches!(&errors[..], [Event::Error(e)] if e.starts_with("reading failed")), "{received:?}");
    assert_eq!(received.last(), Some(&Event::Inactive));
}

/// T-17: without linger, the peer gets a clean end.
#[test]
fn t_17_without_linger_the_peer_gets_no_error() {
    let received = events_of_a_client(TcpOptions::new());
    assert!(!received.iter().any(|event| matches!(event, Event::Error(_))), "{received:?}");
}

/// T-17: likewise if the client closes.
#[test]
fn t_17_a_client_may_reset_as_well() {
    let group = one_loop();
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    for (options, expected) in [
        (TcpOptions::new(), None),
        (TcpOptions::new().linger(Duration::ZERO), Some(ErrorKind::ConnectionReset)),
    ] {
        let (channel, _events) = dial(&group, listener.local_addr().unwrap(), with(options), silent);
        let mut peer = listener.accept().unwrap().0;
        patient(&peer);
        channel.close();
        assert_eq!(peer.read(&mut [0]).err().map(|e| e.kind()), expected);
    }
    end(&group);
}

/// Size of the server's reply: more than a client from `narrow` can receive without reading, and
/// less than the kernel buffers.
const ANSWER: usize = 64 * 1024;

fn answer_and_close(ctx: &mut Context<'_, Recorder>, event: &Event) -> Result {
    if matches!(event, Event::Read(_)) {
        ctx.write(vec![7; ANSWER].into())?;
        ctx.close();
    }
    Ok(())
}

/// T-18: a close that waits for the peer does so on a worker, and the loop continues.
#[test]
fn t_18_a_close_that_lingers_does_not_block_the_loop() {
    let pool = WorkerPool::builder().threads(1).build().unwrap();
    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let options = TcpOptions::new().linger(VERY_LONG).send_buffer(4 * ANSWER);
    let (server, events) = serve(&group, with(options), answer_and_close);
    let mut peer = narrow(server.local_address());
    peer.write_all(b"?").unwrap();
    let channel = events.channel();
    events.until_inactive();
    done(channel.closed()).unwrap();
    some_turns(&group);
    wait_until("the work runs", || pool.metrics().running == 1);
    assert_eq!(pool.metrics().finished, 0, "the close waits for its peer");
    assert_eq!(the_loop(&group).connections(), 1, "its socket is still open");
    assert_eq!(metrics(&group).wakes_premature, 0, "the loop does not spin");

    assert_eq!(read_all(&mut peer), vec![7; ANSWER]);
    wait_until("the work has finished", || {
        pool.metrics().finished == 1 && the_loop(&group).connections() == 0
    });
    end(&group);
}

/// T-18: if the worker pool is full, the loop does not wait either.
#[test]
fn t_18_without_a_free_worker_it_closes_without_lingering() {
    let pool = WorkerPool::builder().threads(1).max_pending(1).build().unwrap();
    let (release, released) = mpsc::channel::<()>();
    pool.execute(move || released.recv_timeout(PATIENCE)).unwrap();
    wait_until("the work runs", || pool.metrics().running == 1);
    pool.execute(|| ()).unwrap();
    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let options = TcpOptions::new().linger(VERY_LONG).send_buffer(4 * ANSWER);
    let (server, events) = serve(&group, with(options), answer_and_close);
    let mut peer = narrow(server.local_address());
    peer.write_all(b"?").unwrap();
    events.until_inactive();
    // The socket is closed after the handler's last callback.
    wait_until("the work is refused", || pool.metrics().refused == 1);
    wait_until("the end", || the_loop(&group).connections() == 0);
    // The kernel delivers the remaining bytes by itself.
    assert_eq!(read_all(&mut peer), vec![7; ANSWER]);
    drop(release);
    end(&group);
}

/// T-25: with linger set, input is still received after the write half was shut down.
#[test]
fn t_25_with_linger_input_is_received_after_the_write_half_is_shut_down() {
    let group = one_loop();
    let settings = Settings {
        channel: ChannelOptions::new().half_close(true),
        tcp: TcpOptions::new().linger(Duration::from_secs(1)),
    };
    let (server, events) = serve(&group, settings, |ctx, event| {
        if matches!(event, Event::Active(_)) {
            ctx.shutdown_write();
        }
        Ok(())
    });
    let mut peer = connect(server.local_address());
    assert_eq!(read_all(&mut peer), b"");
    peer.write_all(b"still here").unwrap();
    assert_eq!(events.bytes(10), b"still here");
    peer.shutdown(Shutdown::Write).unwrap();
    let told = events.until_inactive();
    assert!(!told.iter().any(|event| matches!(event, Event::Error(_))), "{told:?}");
    end(&group);
}

/// An option that the system knows but refuses fails the connection with an error.
#[cfg(target_os = "linux")]
#[test]
fn an_option_that_the_kernel_refuses_fails_the_connection() {
    let group = one_loop();
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    for options in [TcpOptions::new().congestion("no-such-thing"), TcpOptions::new().device("no-such-device")]
    {
        let client = ClientBootstrap::new(&group)
            .tcp_options(options)
            .pipeline(|_| Pipeline::codec(netwheel::codec::RawBytes).handler(crate::support::servers::Quiet));
        let failed = done(client.connect(listener.local_addr().unwrap())).unwrap_err();
        assert!(failed.to_string().starts_with("setting a socket's options failed"), "{failed}");
    }
    end(&group);
}
