//! A shutdown while a request is in progress.

use super::support::GET;
use crate::{
    bootstrap::ServerBootstrap,
    error::Result,
    event_loop::ShutdownOptions,
    group::EventLoopGroup,
    http::{Part, Request, Response, server::HttpServer},
    pipeline::{Context, Handler},
    testing::wait::{PATIENCE, wait_until},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::mpsc::{Sender, channel},
    time::Duration,
};

/// Answers each head at once, and tells of the shutdown.
struct Early(Sender<()>);

impl Handler for Early {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        match part {
            Part::Head(_) => ctx.write(Response::ok("early").into()),
            _ => Ok(()),
        }
    }

    fn shutdown(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.send(()).unwrap();
        Ok(())
    }
}

#[test]
fn a_shutdown_ends_a_connection_whose_request_arrives_behind_its_response() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (notified, notices) = channel();
    let http = HttpServer::new();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| http.pipeline().handler(Early(notified.clone())))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut client = TcpStream::connect(server.local_address().to_string()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc").unwrap();
    let (mut output, mut buffer) = (Vec::new(), [0; 1024]);
    while !output.ends_with(b"early") {
        let n = client.read(&mut buffer).unwrap();
        output.extend_from_slice(&buffer[..n]);
    }
    let ended = group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE));
    notices.recv_timeout(PATIENCE).unwrap();
    client.write_all(b"def").unwrap();
    // The connection may have ended.
    let _ = client.write_all(GET.as_bytes());
    while let Ok(n @ 1..) = client.read(&mut buffer) {
        output.extend_from_slice(&buffer[..n]);
    }
    assert_eq!(String::from_utf8(output).unwrap().matches("200 OK").count(), 1);
    wait_until("the loop ends without force", || ended.is_done());
}
