//! What socket options lead to, as the peer sees it; that each is set and read back is proved beside `TcpOptions`.

use crate::support::{
    loops::{end, metrics, one_loop, some_turns, the_loop},
    recorder::{Event, Recorder, silent},
    servers::{Settings, dial, serve},
    tcp::{ANY_PORT, connect, patient, read_all},
    wait::{PATIENCE, done},
};
use netwheel::{ChannelOptions, TcpOptions, WorkerPool, prelude::*};
use socket2::{Domain, Socket, Type};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    time::{Duration, Instant},
};

/// Longer than any test waits: who waits for it hangs.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn with(options: TcpOptions) -> Settings {
    Settings { tcp: options, ..Settings::new() }
}

/// Closes when something is read.
fn close_on_read(ctx: &mut Context<'_, Recorder>, event: &Event) -> Result {
    if matches!(event, Event::Read(_)) {
        ctx.close();
    }
    Ok(())
}

/// A connection whose other end can send next to nothing before this one reads.
fn narrow(to: std::net::SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    patient(&stream);
    stream
}

#[track_caller]
fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain");
        std::thread::yield_now();
    }
}

/// What a client hears when the server, with these options, closes.
fn heard_by_a_peer(options: TcpOptions) -> Vec<Event> {
    let group = one_loop();
    let (server, events) = serve(&group, with(options), close_on_read);
    let (channel, heard) = dial(&group, server.local_address(), Settings::new(), silent);
    channel.write("close, please".into()).unwrap();
    let heard = heard.until_inactive();
    assert!(!events.until_inactive().iter().any(|event| matches!(event, Event::Error(_))), "of the server");
    end(&group);
    heard
}

/// T-17: with a linger of zero a close is a reset: the peer hears of an error, then of the end.
#[test]
fn t_17_with_a_linger_of_zero_the_peer_gets_a_reset() {
    let heard = heard_by_a_peer(TcpOptions::new().linger(Duration::ZERO));
    let errors: Vec<_> = heard.iter().filter(|event| matches!(event, Event::Error(_))).collect();
    assert!(matches!(&errors[..], [Event::Error(e)] if e.starts_with("reading: ")), "{heard:?}");
    assert_eq!(heard.last(), Some(&Event::Inactive));
}

/// T-17: without it there is no error.
#[test]
fn t_17_without_linger_the_peer_hears_of_no_error() {
    let heard = heard_by_a_peer(TcpOptions::new());
    assert!(!heard.iter().any(|event| matches!(event, Event::Error(_))), "{heard:?}");
}

/// T-17: likewise where the client is the one who closes.
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

/// What a server answers, and does not wait for its peer to take: more than a narrow one does, less than the kernel.
const ANSWER: usize = 64 * 1024;

fn answer_and_close(ctx: &mut Context<'_, Recorder>, event: &Event) -> Result {
    if matches!(event, Event::Read(_)) {
        ctx.write(vec![7; ANSWER].into())?;
        ctx.close();
    }
    Ok(())
}

/// T-18: a close that waits for the peer does so on a worker; the loop goes on.
#[test]
fn t_18_a_close_that_lingers_does_not_hold_up_the_loop() {
    let pool = WorkerPool::builder().threads(1).build().unwrap();
    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let options = TcpOptions::new().linger(FOR_EVER).send_buffer(4 * ANSWER);
    let (server, events) = serve(&group, with(options), answer_and_close);
    let mut peer = narrow(server.local_address());
    peer.write_all(b"?").unwrap();
    let channel = events.channel();
    events.until_inactive();
    done(channel.closed()).unwrap();
    some_turns(&group);
    until(|| pool.metrics().running == 1);
    assert_eq!(pool.metrics().finished, 0, "it waits for its peer");
    assert_eq!(the_loop(&group).connections(), 1, "its socket is still open");
    assert_eq!(metrics(&group).wakes_premature, 0, "nothing spins");

    assert_eq!(read_all(&mut peer), vec![7; ANSWER]);
    until(|| pool.metrics().finished == 1 && the_loop(&group).connections() == 0);
    end(&group);
}

/// T-18: whatever is in the way of that, the loop does not wait.
#[test]
fn t_18_without_a_worker_it_closes_without_lingering() {
    let pool = WorkerPool::builder().threads(1).max_pending(1).build().unwrap();
    let (release, released) = mpsc::channel::<()>();
    pool.execute(move || released.recv_timeout(PATIENCE)).unwrap();
    until(|| pool.metrics().running == 1);
    pool.execute(|| ()).unwrap();
    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let options = TcpOptions::new().linger(FOR_EVER).send_buffer(4 * ANSWER);
    let (server, events) = serve(&group, with(options), answer_and_close);
    let mut peer = narrow(server.local_address());
    peer.write_all(b"?").unwrap();
    events.until_inactive();
    // The socket is closed after the handler's last call.
    until(|| pool.metrics().refused == 1);
    until(|| the_loop(&group).connections() == 0);
    // The kernel goes on alone.
    assert_eq!(read_all(&mut peer), vec![7; ANSWER]);
    drop(release);
    end(&group);
}

/// T-25: with a linger, and our output ended, the peer is still heard.
#[test]
fn t_25_with_linger_what_the_peer_sends_after_our_end_is_received() {
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

/// An option that the system knows and does not allow costs the connection, and is told.
#[cfg(target_os = "linux")]
#[test]
fn an_option_that_the_kernel_refuses_fails_the_connection() {
    let group = one_loop();
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    for options in [TcpOptions::new().congestion("no-such-thing"), TcpOptions::new().device("no-such-device")]
    {
        let client = ClientBootstrap::new(&group)
            .options(options)
            .pipeline(|_| Pipeline::codec(netwheel::codec::RawBytes).handler(crate::support::servers::Quiet));
        let failed = done(client.connect(listener.local_addr().unwrap())).unwrap_err();
        assert!(failed.to_string().starts_with("setting a socket's options failed"), "{failed}");
    }
    end(&group);
}
