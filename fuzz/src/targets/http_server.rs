//! Requests to a server: heads, bodies, chunks, pipelining.

use crate::support::{
    Cuts,
    http_limits::{DEFAULT, SMALL},
    input,
};
use arbitrary::Arbitrary;
use netwheel::{
    Context, Error, Handler, Pipeline, Result,
    http::{Body, Headers, HttpClient, HttpServer, HttpSettings, Part, Request, Response},
    testing::EmbeddedChannel,
};
use std::{cell::RefCell, rc::Rc};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cuts: Cuts,
    is_small: bool,
    answers_at_head: bool,
    stream: &'a [u8],
}

/// What a handler has received, with the parts of a body joined.
#[derive(Debug, Clone, PartialEq)]
enum Event {
    Head(Request),
    Body(Vec<u8>),
    End(Headers),
    Error(String),
}

/// All effects of a stream.
#[derive(Debug, PartialEq)]
struct Conversation {
    events: Vec<Event>,
    output: Vec<String>,
    is_open: bool,
}

pub fn http_server(data: &[u8]) {
    let Some(input) = input::<Input<'_>>(data) else { return };
    let limits = if input.is_small { SMALL } else { DEFAULT };
    let settings = limits.settings();
    let serve = |pieces| serve(&settings, input.answers_at_head, pieces);
    let mut ways = input.cuts.ways(input.stream).into_iter().map(serve);
    let whole = ways.next().expect("one way at least");
    for pieces in ways {
        assert_eq!(whole, pieces, "the conversation depends on the pieces");
    }
    for event in &whole.events {
        match event {
            Event::Head(request) => {
                assert!(request.method().len() + request.target().len() <= limits.start_line);
                assert!(request.headers().len() <= limits.headers);
            }
            Event::Body(bytes) => assert!(bytes.len() as u64 <= limits.body),
            Event::End(trailers) => assert!(trailers.len() <= limits.headers),
            Event::Error(_) => {}
        }
    }
    for request in whole.events.split_inclusive(|event| matches!(event, Event::End(_))) {
        forward(request);
    }
}

/// Answers each request, at its head or at its end.
struct Site {
    events: Rc<RefCell<Vec<Event>>>,
    answers_at_head: bool,
}

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let is_time = match &part {
            Part::Head(_) => self.answers_at_head,
            Part::Body(_) => false,
            Part::End(_) => !self.answers_at_head,
        };
        let mut events = self.events.borrow_mut();
        match (part, events.last_mut()) {
            (Part::Body(bytes), Some(Event::Body(body))) => body.extend_from_slice(&bytes),
            (Part::Body(bytes), _) => events.push(Event::Body(bytes.to_vec())),
            (Part::Head(request), _) => events.push(Event::Head(request)),
            (Part::End(trailers), _) => events.push(Event::End(trailers)),
        }
        drop(events);
        if is_time { ctx.write(Response::ok("done").into()) } else { Ok(()) }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.events.borrow_mut().push(Event::Error(format!("{error:#}")));
        ctx.close();
        Ok(())
    }
}

fn serve(settings: &HttpSettings, answers_at_head: bool, pieces: Vec<&[u8]>) -> Conversation {
    let events = Rc::default();
    let site = Site { events: Rc::clone(&events), answers_at_head };
    let server = HttpServer::with(settings.clone()).expect("settings in range");
    let mut channel = EmbeddedChannel::new(server.pipeline().handler(site));
    for piece in pieces {
        // Refused after the channel has closed.
        let _ = channel.write_inbound(piece);
    }
    let is_open = channel.is_open();
    let output = channel.read_outbound();
    let text = std::str::from_utf8(&output).expect("text");
    // An interim response is sent only if the handler waits for the body.
    let text = text.replace("HTTP/1.1 100 Continue\r\n\r\n", "");
    let mut events = events.take();
    drop_incomplete_body(&mut events);
    let lines = text.lines().filter(|line| !line.starts_with("Date: "));
    Conversation { events, output: lines.map(str::to_owned).collect(), is_open }
}

/// How much of a body is delivered before an error depends on the pieces.
fn drop_incomplete_body(events: &mut Vec<Event>) {
    if let [.., Event::Body(_), Event::Error(_)] = events[..] {
        events.remove(events.len() - 2);
    }
}

/// A proxy forwards a complete request, and the next server reads the same.
fn forward(events: &[Event]) {
    let [Event::Head(head), .., Event::End(trailers)] = events else { return };
    let body = events.iter().find_map(|event| match event {
        Event::Body(body) => Some(body.clone()),
        _ => None,
    });
    let body = body.unwrap_or_default();
    let pipeline = HttpClient::new().pipeline().on_read(|_, _: Part<Response>| Ok(()));
    let mut client = EmbeddedChannel::new(pipeline);
    let mut parts = vec![Part::Head(head.clone())];
    if head.announced_body().is_streamed() {
        parts.push(Part::Body(body.clone().into()));
        parts.push(Part::End(trailers.clone()));
    } else {
        assert_eq!((&head.announced_body(), body.len()), (&&Body::Empty, 0));
    }
    for part in parts {
        let Ok(sent) = client.channel().write_tracked(part) else { return };
        client.run_pending();
        if sent.wait().is_err() {
            // For example, a request of HTTP/1.0 may have no host.
            return;
        }
    }
    let wire = client.read_outbound();
    let events = Rc::default();
    let site = Site { events: Rc::clone(&events), answers_at_head: false };
    // The headers that the sender adds may exceed the default.
    let next = HttpServer::with(HttpSettings::new().max_headers(256).max_head(32 * 1024))
        .expect("settings in range");
    let pipeline: Pipeline<Part<Response>> = next.pipeline().handler(site);
    EmbeddedChannel::new(pipeline).write_inbound(&wire).expect("an open channel");
    let events = events.take();
    let Some(Event::Head(again)) = events.first() else { panic!("no head in {wire:?}: {events:?}") };
    assert_eq!((again.method(), again.target()), (head.method(), head.target()));
    // The sender writes the framing, and `Connection: close` for a request that ends the
    // connection.
    let own = ["connection", "content-length", "transfer-encoding"];
    let headers = |request: &Request| -> Vec<(String, Vec<u8>)> {
        let headers = request
            .headers()
            .iter()
            .filter(|(name, _)| own.iter().all(|own| !name.eq_ignore_ascii_case(own)));
        headers.map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
    };
    let mut again_headers = headers(again);
    if head.headers().get("host").is_none() {
        // The sender adds the authority of the target.
        let authority = head.authority().expect("a host").as_bytes().to_vec();
        assert_eq!(again_headers.remove(0), ("Host".to_owned(), authority), "{wire:?}");
    }
    assert_eq!(again_headers, headers(head), "{wire:?}");
    let same = |event: &Event| match event {
        Event::Body(bytes) => *bytes == body,
        Event::End(again) => again == trailers,
        _ => false,
    };
    assert!(events[1..].iter().all(same), "{events:?} in {wire:?}");
    assert_eq!(events.len(), 2 + usize::from(!body.is_empty()), "{events:?} in {wire:?}");
}
