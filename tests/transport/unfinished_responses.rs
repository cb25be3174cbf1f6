//! HTTP responses whose handler fails in the middle of the body: the client can tell that the rest
//! is missing, however the end of the body is marked.

use crate::support::{journal::Journal, logs::quiet_panics, loops::end, tls_peer, wait::done};
use bytes::Bytes;
use netwheel::{
    channel::CloseCause,
    codec::RawBytes,
    http::{Body, HttpServer, Part, Request, Response},
    prelude::*,
    tls::{TlsClient, TlsRoots, TlsServer},
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    Err,
    Panic,
    /// `error` panics too.
    PanicTwice,
    /// `error` closes the channel.
    Closes,
    /// The handler ends the body before its announced length, and ignores the error.
    TooShort,
    None,
}

#[derive(Clone)]
struct Fails {
    failure: Failure,
    body: Body,
}

impl Handler for Fails {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        if let Part::Head(_) = part {
            return Ok(());
        }
        ctx.write(Response::ok(self.body.clone()).into())?;
        ctx.write(Part::Body(Bytes::from_static(b"a part")))?;
        match self.failure {
            Failure::Panic | Failure::PanicTwice => panic!("on purpose"),
            Failure::Err | Failure::Closes => Err("on purpose".into()),
            Failure::TooShort => {
                assert!(ctx.write(Part::end()).is_err());
                Ok(())
            }
            Failure::None => {
                ctx.write(Part::end())?;
                ctx.close();
                Ok(())
            }
        }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        match self.failure {
            Failure::PanicTwice => panic!("on purpose"),
            Failure::Closes => {
                ctx.close();
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Keeps its input.
struct Client(Journal<Bytes>);

impl Handler for Client {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        self.0.push(bytes);
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, _: Error) -> Result {
        ctx.close();
        Ok(())
    }
}

/// Returns the bytes that a client gets, and how its connection ends.
fn ends(
    group: &EventLoopGroup,
    tls: Option<&(TlsServer, TlsClient)>,
    fails: &Fails,
    version: &str,
) -> (String, CloseCause) {
    let (mut server, mut client) = (ServerBootstrap::new(group), ClientBootstrap::new(group));
    if let Some((of_server, of_client)) = tls {
        (server, client) = (server.tls(of_server.clone()), client.tls(of_client.clone()));
    }
    let (http, fails) = (HttpServer::new(), fails.clone());
    let server =
        server.pipeline(move |_| http.pipeline().handler(fails.clone())).bind("127.0.0.1:0").unwrap();
    let got = Journal::new();
    let parts = Journal::clone(&got);
    let client = client.pipeline(move |_| Pipeline::codec(RawBytes).handler(Client(parts.clone())));
    let channel = done(client.connect(server.local_address())).unwrap();
    channel.write(Bytes::from(format!("GET / HTTP/1.{version}\r\nHost: a\r\n\r\n"))).unwrap();
    let cause = done(channel.closed()).unwrap();
    (String::from_utf8(got.all().concat()).unwrap(), cause)
}

#[test]
fn a_client_can_tell_a_response_whose_handler_failed_from_a_complete_one() {
    quiet_panics();
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (certificate, root) = tls_peer::certificate();
    let roots = TlsRoots::from_der([root]).unwrap();
    let tls = (
        TlsServer::builder(certificate).build().unwrap(),
        TlsClient::builder(roots).server_name("localhost").build().unwrap(),
    );
    for (body, version) in [(Body::Streamed, "0"), (Body::Streamed, "1"), (Body::Sized(100), "1")] {
        for tls in [None, Some(&tls)] {
            for failure in [Failure::Err, Failure::Panic, Failure::PanicTwice, Failure::Closes] {
                let fails = Fails { failure, body: body.clone() };
                let (got, cause) = ends(&group, tls, &fails, version);
                let case = format!("{failure:?}, {body:?}, 1.{version}, over TLS: {}", tls.is_some());
                assert!(got.starts_with("HTTP/1.1 200 ") && got.contains("a part"), "{case}: {got:?}");
                assert_eq!(cause, CloseCause::Reset, "{case}");
            }
        }
    }
    let too_short = Fails { failure: Failure::TooShort, body: Body::Sized(100) };
    assert_eq!(ends(&group, None, &too_short, "1").1, CloseCause::Reset);
    for (body, version) in [(Body::Streamed, "0"), (Body::Streamed, "1"), (Body::Sized(6), "1")] {
        for tls in [None, Some(&tls)] {
            let completes = Fails { failure: Failure::None, body: body.clone() };
            let (got, cause) = ends(&group, tls, &completes, version);
            assert!(got.contains("a part"), "{got:?}");
            assert_eq!(cause, CloseCause::Clean, "{body:?}, 1.{version}, over TLS: {}", tls.is_some());
        }
    }
    end(&group);
}
