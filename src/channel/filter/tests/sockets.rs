//! Filters over TCP.

use super::{
    memory::stack,
    xor::{Peer, Xor},
};
use crate::{
    bootstrap::ServerBootstrap,
    channel::Pipeline,
    codec::Line,
    event_loop::ShutdownOptions,
    group::EventLoopGroup,
    pipeline::{Context, Handler},
    testing::wait::{PATIENCE, wait_until},
};
use bytes::Bytes;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

struct Lines(Sender<String>);

impl Handler for Lines {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> crate::error::Result {
        let _ = self.0.send("active".into());
        ctx.write("welcome".into())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> crate::error::Result {
        ctx.write(line)
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: crate::error::Error) -> crate::error::Result {
        let _ = self.0.send(format!("{error:#}"));
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> crate::error::Result {
        let _ = self.0.send("inactive".into());
        Ok(())
    }
}

fn serve(filters: usize) -> (EventLoopGroup, SocketAddr, Receiver<String>) {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (sender, events) = channel();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let pipeline = Pipeline::codec(Line::new()).handler(Lines(sender.clone()));
            pipeline.filters(stack(filters, Xor::server))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    (group, server.local_address(), events)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads plaintext until it ends with `end`.
fn read_until(stream: &mut TcpStream, peer: &mut Peer, end: &str) -> String {
    let mut plain = Vec::new();
    let mut wire = vec![0; 64 * 1024];
    while !plain.ends_with(end.as_bytes()) {
        let n = stream.read(&mut wire).unwrap();
        assert!(n > 0, "the stream ended after {} bytes", plain.len());
        plain.extend(peer.open(&wire[..n]));
        stream.write_all(&peer.take()).unwrap();
    }
    String::from_utf8(plain).unwrap()
}

#[test]
fn a_filtered_connection_echoes_and_ends_cleanly() {
    for filters in 1..=2 {
        let (group, address, events) = serve(filters);
        let mut stream = connect(address);
        let mut peer = Peer::new(filters);
        stream.write_all(&peer.take()).unwrap();
        assert_eq!(read_until(&mut stream, &mut peer, "welcome\n"), "welcome\n");
        assert_eq!(events.recv_timeout(PATIENCE).unwrap(), "active");
        let long = format!("{}\n", "x".repeat(50_000));
        for line in ["one\n", "two\n", &long] {
            stream.write_all(&peer.seal(line.as_bytes())).unwrap();
            assert_eq!(read_until(&mut stream, &mut peer, "\n"), line);
        }
        stream.write_all(&peer.end()).unwrap();
        let mut wire = Vec::new();
        stream.read_to_end(&mut wire).unwrap();
        assert!(peer.open(&wire).is_empty() && peer.has_ended());
        assert_eq!(events.recv_timeout(PATIENCE).unwrap(), "inactive");
        group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE)).wait().unwrap();
    }
}

#[test]
fn a_truncated_connection_ends_with_an_error() {
    let (group, address, events) = serve(1);
    let mut stream = connect(address);
    let mut peer = Peer::new(1);
    stream.write_all(&peer.take()).unwrap();
    read_until(&mut stream, &mut peer, "welcome\n");
    drop(stream);
    assert_eq!(events.recv_timeout(PATIENCE).unwrap(), "active");
    let error = events.recv_timeout(PATIENCE).unwrap();
    assert!(error.contains("cut off"), "{error}");
    assert_eq!(events.recv_timeout(PATIENCE).unwrap(), "inactive");
    group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE)).wait().unwrap();
}

/// The handler is never called, and the connection is closed.
#[test]
fn a_connection_that_fails_its_handshake_is_closed_without_a_callback() {
    let (group, address, events) = serve(1);
    let mut stream = connect(address);
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert!(matches!(stream.read(&mut [0; 100]), Ok(0) | Err(_)));
    group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE)).wait().unwrap();
    assert!(events.try_recv().is_err());
}

/// A peer that does not read blocks the server. The whole of a long reply arrives once it reads.
#[test]
fn a_reply_that_blocks_the_socket_arrives_whole() {
    let (group, address, _events) = serve(1);
    let mut stream = connect(address);
    let mut peer = Peer::new(1);
    stream.write_all(&peer.take()).unwrap();
    read_until(&mut stream, &mut peer, "welcome\n");
    let line = format!("{}\n", "y".repeat(8_000));
    let lines = 1_000;
    let wire = peer.seal(line.repeat(lines).as_bytes());
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&wire).unwrap());
    // The server reads until its output has blocked.
    wait_until("the output blocks", || group.next().metrics().writes_blocked > 0);
    let mut received = 0;
    let mut wire = vec![0; 64 * 1024];
    while received < line.len() * lines {
        let n = stream.read(&mut wire).unwrap();
        assert!(n > 0);
        received += peer.open(&wire[..n]).len();
    }
    writing.join().unwrap();
    assert_eq!(received, line.len() * lines);
    group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE)).wait().unwrap();
}
