//! A handler that fails: the client gets an answer, unless one has begun.

use crate::{
    channel::{
        CloseCause,
        filter::{Filter, FilterContext, FilterState},
    },
    error::{Error, PeerError, Result},
    http::{
        Body, Call, FullMessage, Part, Request, Response, StatusCode, client::HttpClient, content::Aggregate,
        error::HttpError, server::HttpServer, settings::HttpSettings,
    },
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
};
use std::{cell::RefCell, rc::Rc, time::Duration};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    Err,
    Panic,
    Backend(&'static str),
    AfterTheHead,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Reaction {
    Close,
    Err,
    OwnPage,
}

struct Fails {
    failure: Failure,
    reaction: Reaction,
}

impl Handler for Fails {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        if let Part::Head(_) = part {
            return Ok(());
        }
        if self.failure == Failure::AfterTheHead {
            ctx.write(Response::ok(Body::Sized(9)).into())?;
        }
        assert!(self.failure != Failure::Panic, "on purpose");
        match self.failure {
            Failure::Backend(response) => Err(backend_error(response)),
            _ => Err("on purpose".into()),
        }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        match self.reaction {
            Reaction::Close => ctx.close(),
            Reaction::Err => return Err(error),
            Reaction::OwnPage => {
                ctx.write(Response::new(StatusCode::SERVICE_UNAVAILABLE).into())?;
                ctx.close();
            }
        }
        Ok(())
    }
}

/// A response whose body is too long.
const TOO_LONG: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
const MALFORMED: &str = "HTTP/1.1 200 OK\r\nA : b\r\n\r\n";

/// Returns the error of a call to a server that responds in this way.
fn backend_error(response: &str) -> Error {
    let (call, reply) = Call::new(Request::get("/"));
    let mut channel = EmbeddedChannel::new(HttpClient::new().host("backend").calls(8));
    channel.channel().write(call).unwrap();
    channel.run_pending();
    let _ = channel.write_inbound(response.as_bytes());
    let error = reply.wait().unwrap_err();
    assert!(HttpError::of(&error).is_some(), "{error:#}");
    error
}

/// Returns the output of a server whose handler fails.
fn output(failure: Failure, reaction: Reaction) -> String {
    let handler = Fails { failure, reaction };
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(handler));
    let closed = channel.channel().closed();
    channel.write_inbound(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(channel.is_closed());
    assert_eq!(closed.wait().unwrap(), CloseCause::Failed);
    String::from_utf8(channel.read_outbound().to_vec()).unwrap()
}

#[test]
fn a_failing_or_panicking_handler_answers_500_unless_it_has_answered() {
    let of_backends = [Failure::Backend(TOO_LONG), Failure::Backend(MALFORMED)];
    for failure in [Failure::Err, Failure::Panic].into_iter().chain(of_backends) {
        for reaction in [Reaction::Close, Reaction::Err] {
            let got = output(failure, reaction);
            assert!(got.starts_with("HTTP/1.1 500 "), "{failure:?}, {reaction:?}: {got:?}");
            assert!(got.contains("\r\nConnection: close\r\n"), "{got:?}");
            assert_eq!(got.matches("HTTP/1.1").count(), 1, "{got:?}");
        }
        let own = output(failure, Reaction::OwnPage);
        assert!(own.starts_with("HTTP/1.1 503 "), "{own:?}");
        assert_eq!(own.matches("HTTP/1.1").count(), 1, "{own:?}");
    }
    let begun = output(Failure::AfterTheHead, Reaction::Err);
    assert!(begun.starts_with("HTTP/1.1 200 ") && !begun.contains(" 500 "), "{begun:?}");
}

/// Returns the output of a server with pages of its own, whose handler answers with an invalid
/// header.
fn page(make: fn(StatusCode) -> Response, input: &[u8]) -> String {
    let http = HttpServer::with(HttpSettings::new().max_body(8)).unwrap().error_pages(make);
    let pipeline = http
        .pipeline()
        .stage(Aggregate::max(4))
        .on_read(|ctx, _| ctx.write(Response::ok("").header("X-A", "b\r\nX-Smuggled: c").into()));
    let mut channel = EmbeddedChannel::new(pipeline);
    let _ = channel.write_inbound(input);
    assert!(channel.is_closed(), "{}", input.escape_ascii());
    String::from_utf8(channel.read_outbound().to_vec()).unwrap()
}

const ERRORS: [(&str, u16); 6] = [
    ("GET / HTTP/1.1\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", 413),
    ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello", 413),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", 413),
    ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
    // The handler fails: an invalid header is not sent.
    ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 500),
];

#[test]
fn the_program_sets_the_pages_of_all_errors() {
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    for (input, status) in ERRORS.into_iter().chain([(&*long, 431)]) {
        let got =
            page(|status| Response::ok(format!("page {status}")).header("X-Page", "own"), input.as_bytes());
        assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{got}");
        assert!(got.contains("\r\nX-Page: own\r\n") && got.contains("\r\nConnection: close\r\n"), "{got}");
        assert!(got.ends_with(&format!("\r\n\r\npage {status}")), "{got}");
        assert_eq!(got.matches("HTTP/1.1").count(), 1, "{got}");
    }
}

#[test]
fn a_page_that_cannot_be_sent_is_replaced_by_the_default_page() {
    let bad: [fn(StatusCode) -> Response; 4] = [
        |_| panic!("on purpose"),
        |status| Response::new(status).body(Body::Streamed),
        |status| Response::new(status).header("X", "\n"),
        |status| Response::new(status).header("Content-Length", "4"),
    ];
    for make in bad {
        for (input, status) in ERRORS {
            let got = page(make, input.as_bytes());
            assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{got}");
            assert!(got.contains("Content-Type: text/plain"), "{got}");
        }
    }
}

#[test]
fn the_response_to_head_has_no_page_but_its_length() {
    let got = page(|status| Response::new(status).body("12345"), b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(got.contains("\r\nContent-Length: 5\r\n") && got.ends_with("\r\n\r\n"), "{got}");
}

#[test]
fn errors_of_a_request_that_is_not_complete_do_not_reach_the_handler_of_whole_requests() {
    struct Whole;

    impl Handler for Whole {
        type Read = FullMessage<Request>;
        type Write = Part<Response>;

        fn read(&mut self, _: &mut Context<'_, Self>, _: FullMessage<Request>) -> Result {
            panic!("no request is complete");
        }

        fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
            panic!("{error:#}");
        }
    }

    for (input, status) in ERRORS.into_iter().filter(|(_, status)| *status != 500) {
        let pipeline = HttpServer::new().pipeline().stage(Aggregate::max(4)).handler(Whole);
        let mut channel = EmbeddedChannel::new(pipeline);
        let _ = channel.write_inbound(input.as_bytes());
        let output = channel.read_outbound();
        assert!(output.starts_with(format!("HTTP/1.1 {status} ").as_bytes()), "{output:?}");
    }
}

#[test]
fn the_error_of_a_backend_reaches_a_handler_whose_next_request_is_arriving() {
    /// Responds at once, and fails with the error of a backend a second later.
    struct Late(Rc<RefCell<Vec<Option<HttpError>>>>);

    impl Handler for Late {
        type Read = FullMessage<Request>;
        type Write = Part<Response>;

        fn read(&mut self, ctx: &mut Context<'_, Self>, _: FullMessage<Request>) -> Result {
            ctx.schedule(Duration::from_secs(1), |_, _| Err(backend_error(TOO_LONG)));
            ctx.write(Response::ok("").into())
        }

        fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
            self.0.borrow_mut().push(HttpError::of(&error));
            Err(error)
        }
    }

    let seen = Rc::default();
    let pipeline = HttpServer::new().pipeline().stage(Aggregate::max(4)).handler(Late(Rc::clone(&seen)));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.write_inbound(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(channel.read_outbound().starts_with(b"HTTP/1.1 200 "));
    channel.write_inbound(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1").unwrap();
    channel.advance(Duration::from_secs(1));
    let output = channel.read_outbound();
    assert!(output.starts_with(b"HTTP/1.1 500 "), "{output:?}");
    assert_eq!(seen.take(), [Some(HttpError::BodyTooLong)]);
}

/// Finds each stream truncated, as TLS does without `close_notify`.
struct Unmarked;

impl Filter for Unmarked {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn end_of_input(&mut self, _: &mut FilterContext<'_>, _: usize) -> Result {
        Err(PeerError::Truncated.into())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

/// Many clients end the TCP connection only, also with TLS.
#[test]
fn the_end_of_an_idle_connection_without_the_mark_of_its_filter_is_no_error() {
    /// Records errors. Responds to `/`.
    struct Site(Rc<RefCell<Vec<String>>>);

    impl Handler for Site {
        type Read = Part<Request>;
        type Write = Part<Response>;

        fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
            match part {
                Part::Head(head) if head.path() == "/" => ctx.write(Response::ok("").into()),
                _ => Ok(()),
            }
        }

        fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
            self.0.borrow_mut().push(error.to_string());
            Err(error)
        }
    }

    for (input, has_error) in [
        ("", false),
        ("GET / HT", false),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT", false),
        ("POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1", true),
    ] {
        let errors = Rc::default();
        let pipeline = HttpServer::new().pipeline().handler(Site(Rc::clone(&errors)));
        let mut channel = EmbeddedChannel::builder(pipeline).filter(Unmarked).build().unwrap();
        let closed = channel.channel().closed();
        channel.write_inbound(input.as_bytes()).unwrap();
        channel.end_inbound();
        assert_eq!(closed.wait().unwrap(), CloseCause::Cut, "{input}");
        assert_eq!(!errors.borrow().is_empty(), has_error, "{input}: {errors:?}");
    }
}
