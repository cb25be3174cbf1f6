//! Our reading of a stream, by the pipeline of a server.

use super::parsers::{End, Reading, Seen};
use netwheel::{
    http::{Headers, HttpServer, Part, Request, Response, StatusCode, Version},
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{cell::RefCell, rc::Rc};

/// Records requests, and answers each with 404 when it is complete.
struct Recorder(Rc<RefCell<Vec<Seen>>>);

impl Handler for Recorder {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let mut requests = self.0.borrow_mut();
        match part {
            Part::Head(request) => requests.push(seen(&request)),
            Part::Body(bytes) => requests.last_mut().unwrap().body += &latin1(&bytes),
            Part::End(trailers) => {
                let request = requests.last_mut().unwrap();
                request.trailers = text(&trailers);
                request.is_complete = true;
                return ctx.write(Response::new(StatusCode::NOT_FOUND).into());
            }
        }
        Ok(())
    }
}

fn seen(request: &Request) -> Seen {
    Seen {
        method: request.method().to_owned(),
        target: request.target().to_owned(),
        version: if request.version() == Version::Http10 { "1.0" } else { "1.1" }.to_owned(),
        headers: text(request.headers()),
        body: String::new(),
        trailers: Vec::new(),
        is_complete: false,
    }
}

fn text(headers: &Headers) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| (name.to_owned(), latin1(value))).collect()
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// Reads a stream that arrives in these pieces.
pub(crate) fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Reading {
    let requests = Rc::new(RefCell::new(Vec::new()));
    let recorder = Recorder(requests.clone());
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(recorder));
    for piece in pieces {
        if channel.write_inbound(piece).is_err() {
            break;
        }
    }
    let answers = String::from_utf8(channel.read_outbound().to_vec()).unwrap();
    let last = answers.rsplit("HTTP/1.1 ").next().unwrap_or_default();
    let status = last.get(..3).unwrap_or_default();
    let end = match status {
        "" | "100" | "404" if channel.is_open() => End::Waiting,
        "404" => End::Closed,
        _ => End::Refused,
    };
    let reason = if end == End::Refused { status.to_owned() } else { String::new() };
    let requests = requests.take();
    Reading { requests, end, reason }
}
