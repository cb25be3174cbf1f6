//! Responses to a client.

use crate::support::{
    Cuts,
    http_limits::{DEFAULT, SMALL},
    input,
};
use arbitrary::Arbitrary;
use netwheel::{
    Context, Error, Handler, Result,
    http::{Headers, HttpClient, HttpSettings, Part, Request, Response},
    testing::EmbeddedChannel,
};
use std::{cell::RefCell, rc::Rc};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cuts: Cuts,
    is_small: bool,
    ends: bool,
    requests: [Option<Method>; 3],
    stream: &'a [u8],
}

/// What is asked for, which decides on the framing of the response.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Method {
    Get,
    Head,
    Connect,
    Upgrade,
}

/// What a handler has received, with the parts of a body joined.
#[derive(Debug, PartialEq)]
enum Event {
    Head(Response),
    Body(Vec<u8>),
    End(Headers),
    Error(String),
}

pub fn http_client(data: &[u8]) {
    let Some(input) = input::<Input<'_>>(data) else { return };
    let limits = if input.is_small { SMALL } else { DEFAULT };
    let settings = limits.settings();
    let mut ways = input.cuts.ways(input.stream).into_iter().map(|pieces| receive(&settings, &input, pieces));
    let whole = ways.next().expect("one way at least");
    for pieces in ways {
        assert_eq!(whole, pieces, "the responses depend on the pieces");
    }
    let (mut heads, mut ends) = (0, 0);
    for event in &whole.0 {
        match event {
            Event::Head(head) => {
                assert!(head.headers().len() <= limits.headers);
                heads += usize::from(!head.status().is_informational() || head.status() == 101);
            }
            Event::Body(bytes) => assert!(bytes.len() as u64 <= limits.body),
            Event::End(trailers) => {
                assert!(trailers.len() <= limits.headers);
                ends += 1;
            }
            Event::Error(_) => {}
        }
        assert!(ends <= heads && heads <= ends + 1, "parts in the wrong order: {:?}", whole.0);
    }
    assert!(heads <= input.requests.iter().flatten().count(), "a response without a request");
}

struct Recorder(Rc<RefCell<Vec<Event>>>);

impl Handler for Recorder {
    type Read = Part<Response>;
    type Write = Part<Request>;

    fn read(&mut self, _: &mut Context<'_, Self>, part: Part<Response>) -> Result {
        let mut events = self.0.borrow_mut();
        match (part, events.last_mut()) {
            (Part::Body(bytes), Some(Event::Body(body))) => body.extend_from_slice(&bytes),
            (Part::Body(bytes), _) => events.push(Event::Body(bytes.to_vec())),
            (Part::Head(response), _) => events.push(Event::Head(response)),
            (Part::End(trailers), _) => events.push(Event::End(trailers)),
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.0.borrow_mut().push(Event::Error(format!("{error:#}")));
        ctx.close();
        Ok(())
    }
}

/// Returns the events, and whether the channel is open before the end of the stream.
fn receive(settings: &HttpSettings, input: &Input<'_>, pieces: Vec<&[u8]>) -> (Vec<Event>, bool) {
    let events = Rc::default();
    let client = HttpClient::with(settings.clone()).expect("settings in range").host("example.org");
    let mut channel = EmbeddedChannel::new(client.pipeline().handler(Recorder(Rc::clone(&events))));
    for method in input.requests.iter().flatten() {
        let request = match method {
            Method::Get => Request::get("/"),
            Method::Head => Request::new("HEAD", "/"),
            Method::Connect => Request::new("CONNECT", "example.org:443"),
            Method::Upgrade => {
                Request::get("/").header("Connection", "Upgrade").header("Upgrade", "websocket")
            }
        };
        // Requests behind one that asks for another protocol may be refused.
        let _ = channel.channel().write(request.into());
        channel.run_pending();
    }
    events.borrow_mut().clear();
    for piece in pieces {
        // Refused after the channel has closed.
        let _ = channel.write_inbound(piece);
    }
    let is_open = channel.is_open();
    if input.ends {
        channel.end_inbound();
    }
    drop(channel);
    let mut events = events.take();
    // How much of a body is delivered before an error depends on the pieces.
    if let [.., Event::Body(_), Event::Error(_)] = events[..] {
        events.remove(events.len() - 2);
    }
    (events, is_open)
}
