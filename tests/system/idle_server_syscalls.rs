//! An idle server makes no system calls: none in ten seconds, with a thousand connections that have
//! idle timeouts.
//!
//! Linux only. Where strace is missing or may not attach, the test says so and passes, except where
//! `CI=true`.

#![cfg(target_os = "linux")]

use crate::support::{
    loops::{end, metrics},
    process::{Output, Process, play, plays, skip, strace_works, thread_of},
    resources::raise_descriptor_limit,
    servers::Echo,
    tcp::{ANY_PORT, connect, ping},
};
use netwheel::{codec::LengthField, prelude::*};
use std::{
    io::{self, Read},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const CONNECTIONS: usize = 1000;

/// Descriptors for the connections and some spare ones.
const DESCRIPTORS: usize = 1200;

/// The child: a server with idle timeouts on its connections. Runs until the end of its input.
#[test]
fn idle_server() {
    if !plays("idle_server") {
        return;
    }
    raise_descriptor_limit();
    let minute = Duration::from_secs(60);
    let idle = IdleTimeouts::new().reader(minute).writer(minute).all(minute);
    let group = EventLoopGroup::builder().threads(1).name("idle").build().unwrap();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(LengthField::u32()).idle(idle).handler(Echo))
        .bind(ANY_PORT)
        .unwrap();
    println!("listening on {}", server.local_address());
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    println!("watched {}", metrics(&group).wheel_pending);
    end(&group);
}

/// Has one frame echoed, and returns the trace of it up to the loop's next sleep.
fn poke(stream: &mut TcpStream, trace: &mut Output) -> String {
    ping(stream, b"\0\0\0\x04poke");
    trace.wait_until("the echo, and the next sleep", |text| {
        let sent = text.find("poke\"").and_then(|read| Some(read + 5 + text[read + 5..].find("poke\"")?))?;
        let asleep =
            sent + ["epoll_wait(", "epoll_pwait("].iter().find_map(|call| text[sent..].find(call))?;
        // A call that blocks is shown without its results.
        let shown = asleep + text[asleep..].find(", ")? + 2;
        Some((text[..shown].to_owned(), shown))
    })
}

#[test]
fn ten_seconds_of_a_thousand_idle_connections_make_no_system_call() {
    if !strace_works(&[]) {
        return;
    }
    if raise_descriptor_limit() < DESCRIPTORS {
        skip(&format!("fewer than {DESCRIPTORS} descriptors are allowed"));
        return;
    }
    let mut server = Process::start(&play("idle_server"));
    let address: SocketAddr = server.stdout.wait_for("listening on ").parse().unwrap();
    let mut connections: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(address)).collect();
    for connection in &mut connections {
        ping(connection, b"\0\0\0\x01x");
    }

    // `env` has become the server, so the process id is right.
    let its_loop = thread_of(server.id(), "idle-0");
    let Some(mut strace) = Process::attach(&[], &its_loop) else { return };
    let trace = poke(&mut connections[0], &mut strace.stderr);
    assert!(trace.contains("sendto(") || trace.contains("write("), "{trace}");

    let calls = strace.stderr.within(Duration::from_secs(10));
    assert_eq!(calls, "", "system calls of an idle loop");

    // Shows that strace was attached all the time, and that the idle timeouts were armed.
    poke(&mut connections[CONNECTIONS - 1], &mut strace.stderr);
    drop(strace);
    drop(server.take_stdin());
    assert_eq!(server.stdout.wait_for("watched ").trim(), CONNECTIONS.to_string());
    server.succeed();
}
