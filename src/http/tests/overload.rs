//! Requests that an overloaded loop refuses.

use super::support::{GET, get};
use crate::{
    http::{Part, Request, Response, server::HttpServer},
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
};
use std::{cell::RefCell, rc::Rc};

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// Records the paths of requests, and answers with 200.
struct Site(Rc<RefCell<Vec<String>>>);

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> crate::error::Result {
        let Part::Head(request) = part else { return Ok(()) };
        self.0.borrow_mut().push(request.path().to_owned());
        ctx.write(Response::ok("fine").into())
    }
}

struct Overloaded {
    channel: EmbeddedChannel<Part<Response>>,
    paths: Rc<RefCell<Vec<String>>>,
}

impl Overloaded {
    fn new(http: &HttpServer) -> Self {
        let paths = Rc::default();
        let mut channel = EmbeddedChannel::new(http.pipeline().handler(Site(Rc::clone(&paths))));
        channel.set_overloaded(true);
        Overloaded { channel, paths }
    }

    fn send(&mut self, input: &str) -> String {
        self.channel.write_inbound(input.as_bytes()).unwrap();
        String::from_utf8(self.channel.read_outbound().to_vec()).unwrap()
    }
}

/// Returns the value of `Retry-After` of a 503.
#[track_caller]
fn retry_after(response: &str) -> u64 {
    assert!(response.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{response}");
    let (_, value) = response.split_once("Retry-After: ").expect("the header");
    value.split_once("\r\n").expect("its end").0.parse().expect("seconds")
}

#[test]
fn requests_that_open_a_websocket_are_refused_and_the_connection_stays_open() {
    let mut site = Overloaded::new(&HttpServer::new());
    let refused = site.send(UPGRADE);
    assert_eq!(retry_after(&refused), 1, "the first hint is at most 0.3 s, rounded up");
    assert!(!refused.contains("Connection: close"), "{refused}");
    assert!(site.send(GET).ends_with("\r\n\r\nfine"), "other requests are served");
    assert_eq!(site.paths.take(), ["/"], "the handler does not receive a refused request");
    site.channel.set_overloaded(false);
    assert!(site.send(UPGRADE).ends_with("\r\n\r\nfine"));
}

#[test]
fn the_program_selects_requests_and_their_bodies_are_discarded() {
    let http = HttpServer::new().deferrable(|request| request.path() != "/health");
    let mut site = Overloaded::new(&http);
    let post = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    retry_after(&site.send(&format!("{post}hello")));
    retry_after(&site.send(post));
    assert_eq!(site.send("hel"), "");
    // The end of the body, and two more requests in one read.
    let output = site.send(&["lo", &get("/b"), &get("/health")].concat());
    assert!(output.starts_with("HTTP/1.1 503 ") && output.ends_with("\r\n\r\nfine"), "{output}");
    let chunked = "PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    retry_after(&site.send(chunked));
    let head = site.send("HEAD /d HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n"), "no body in the answer to HEAD: {head}");
    retry_after(&head);
    assert_eq!(site.paths.take(), ["/health"]);
    assert!(site.channel.is_open());
}

#[test]
fn a_client_that_waits_for_continue_gets_the_refusal_at_once() {
    let http = HttpServer::new().deferrable(|_| true);
    let mut site = Overloaded::new(&http);
    let expecting = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let refused = site.send(expecting);
    retry_after(&refused);
    // It may not send the body, so nothing can follow.
    assert!(refused.contains("Connection: close") && !site.channel.is_open(), "{refused}");
}

#[test]
fn a_client_that_closes_is_refused_and_closed() {
    let http = HttpServer::new().deferrable(|_| true);
    let mut site = Overloaded::new(&http);
    let refused = site.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    retry_after(&refused);
    assert!(refused.contains("Connection: close") && !site.channel.is_open(), "{refused}");
}

#[test]
fn the_page_is_the_programs_and_a_predicate_that_panics_refuses_nothing() {
    let http = HttpServer::new()
        .error_pages(|status| Response::new(status).body("patience"))
        .deferrable(|request| if request.path() == "/panic" { panic!("on purpose") } else { true });
    let mut site = Overloaded::new(&http);
    let refused = site.send(GET);
    retry_after(&refused);
    assert!(refused.ends_with("\r\n\r\npatience"), "{refused}");
    assert!(site.send(&get("/panic")).ends_with("\r\n\r\nfine"));
}
