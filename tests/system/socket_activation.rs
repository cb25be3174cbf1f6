//! A listening socket that a service manager opens and passes by its descriptor number
//! (`LISTEN_FDS`, as systemd does).

#![cfg(unix)]

use crate::support::{
    process::{play, plays},
    servers::Echo,
    tcp::connect,
    wait::PATIENCE,
};
use netwheel::{codec::RawBytes, prelude::*, shutdown::ShutdownOptions};
use std::{
    io::{Read, Write},
    net::TcpListener,
    os::fd::OwnedFd,
    process::{Command, Stdio},
    time::Duration,
};

/// The child: serves on the socket that it inherited, until it is killed.
#[test]
fn activated_echo_server() {
    if !plays("activated_echo_server") {
        return;
    }
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let handed_over =
        listenfd::ListenFd::from_env().take_tcp_listener(0).unwrap().expect("a socket was passed");
    let bootstrap = ServerBootstrap::new(&group).pipeline(|_| Pipeline::codec(RawBytes).handler(Echo));
    let server = bootstrap.adopt(handed_over).unwrap();
    server.closed().wait_timeout(PATIENCE).unwrap_or(Ok(())).unwrap();
}

#[test]
fn an_inherited_socket_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The connection waits in the backlog. Clients are not refused while the server starts.
    let mut peer = connect(address);
    peer.write_all(b"hello").unwrap();

    // The first inherited descriptor is number 3, and LISTEN_PID has the process id of the
    // receiver.
    let shell = "export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$@\" 3<&0 </dev/null";
    let mut child = Command::new("sh")
        .args(["-c", shell, "sh"])
        .args(play("activated_echo_server"))
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut back = [0; 5];
    let echoed = peer.read_exact(&mut back);
    child.kill().unwrap();
    child.wait().unwrap();
    echoed.unwrap();
    assert_eq!(&back, b"hello");
}

#[test]
fn a_descriptor_that_the_program_owns_is_adopted() {
    let owned = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let bootstrap = ServerBootstrap::new(&group).pipeline(|_| Pipeline::codec(RawBytes).handler(Echo));
    let server = bootstrap.adopt(TcpListener::from(owned)).unwrap();
    let mut peer = connect(server.local_address());
    peer.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    peer.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
    let end =
        group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)));
    end.wait_timeout(PATIENCE).expect("the server ends").expect("the server has not failed");
}
