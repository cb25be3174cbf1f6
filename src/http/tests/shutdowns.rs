//! A shutdown while a request is in progress.

use super::support::GET;
use crate::{
    bootstrap::ServerBootstrap,
    error::Result,
    event_loop::ShutdownOptions,
    group::EventLoopGroup,
    http::{Body, Part, Request, Response, content::ServerSentEvent, server::HttpServer},
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

/// Begins a streamed response or a stream of events, and ends it when the loop shuts down. Has the
/// default `shutdown`.
struct Streams;

impl Handler for Streams {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        if request.path() == "/events" {
            ctx.write(Response::event_stream().into())?;
            return ctx.write(ServerSentEvent::data("begun").into_part()?);
        }
        ctx.write(Response::ok(Body::Streamed).into())?;
        ctx.write(Part::Body("begun".into()))?;
        Self::end(self, ctx)
    }
}

impl Streams {
    fn end(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if ctx.shutdown_cause().is_none() {
            ctx.schedule(Duration::from_millis(1), Self::end);
            return Ok(());
        }
        ctx.write(Part::Body(", complete".into()))?;
        ctx.write(Part::end())
    }
}

/// A client takes such a body for complete at the end of the connection, so the default `shutdown`
/// must not cut it.
#[test]
fn a_shutdown_does_not_cut_a_body_that_ends_with_the_connection() {
    for (path, expected) in [("/", "begun, complete"), ("/events", "data: begun\n\n")] {
        let group = EventLoopGroup::builder().threads(1).build().unwrap();
        let http = HttpServer::new();
        let server = ServerBootstrap::new(&group)
            .pipeline(move |_peer| http.pipeline().handler(Streams))
            .bind("127.0.0.1:0")
            .unwrap();
        let mut client = TcpStream::connect(server.local_address().to_string()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        let (mut output, mut byte) = (Vec::new(), [0]);
        while !output.windows(5).any(|bytes| bytes == b"begun") {
            client.read_exact(&mut byte).unwrap();
            output.extend_from_slice(&byte);
        }
        let ended = group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE));
        client.read_to_end(&mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        assert_eq!(output.split_once("\r\n\r\n").unwrap().1, expected);
        wait_until("the loop ends without force", || ended.is_done());
    }
}
