//! Servers in memory.

use crate::{
    channel::ChannelOptions,
    error::{Error, Result},
    http::{Part, Request, Response, server::HttpServer, settings::HttpSettings},
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
};
use std::{cell::RefCell, rc::Rc};

/// What a handler has read: a text for each part, with the pieces of a body joined.
pub(super) type Received = Rc<RefCell<Vec<String>>>;

/// Called with each head.
type OnHead = Box<dyn FnMut(&mut Context<'_, Site>, &Request) -> Result>;

/// Records the parts of requests, and answers as the test says.
pub(super) struct Site {
    received: Received,
    on_head: OnHead,
    on_end: OnHead,
    head: Option<Request>,
}

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        match part {
            Part::Head(head) => {
                self.received.borrow_mut().push(format!("{} {}", head.method(), head.target()));
                let result = (self.on_head)(ctx, &head);
                self.head = Some(head);
                result
            }
            Part::Body(bytes) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let mut received = self.received.borrow_mut();
                match received.last_mut() {
                    Some(last) if last.starts_with('"') => last.push_str(&text),
                    _ => received.push(format!("\"{text}")),
                }
                Ok(())
            }
            Part::End(trailers) => {
                let text = if trailers.is_empty() { "end".into() } else { format!("end {trailers:?}") };
                self.received.borrow_mut().push(text);
                let head = self.head.take().expect("a head precedes the end");
                (self.on_end)(ctx, &head)
            }
        }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.received.borrow_mut().push(format!("error: {error:#}"));
        ctx.close();
        Ok(())
    }
}

/// A server and the messages that its handler has read.
pub(super) struct Server {
    pub(super) channel: EmbeddedChannel<Part<Response>>,
    pub(super) received: Received,
}

impl Server {
    /// Answers each request at its end with 200 and its path.
    pub(super) fn new() -> Self {
        Self::with(HttpSettings::new())
    }

    pub(super) fn with(settings: HttpSettings) -> Self {
        Self::answering(
            settings,
            |_, _| Ok(()),
            |ctx, head| ctx.write(Response::ok(head.path().to_owned()).into()),
        )
    }

    /// Answers at the head.
    pub(super) fn at_head(on_head: impl FnMut(&mut Context<'_, Site>, &Request) -> Result + 'static) -> Self {
        Self::answering(HttpSettings::new(), on_head, |_, _| Ok(()))
    }

    pub(super) fn answering(
        settings: HttpSettings,
        on_head: impl FnMut(&mut Context<'_, Site>, &Request) -> Result + 'static,
        on_end: impl FnMut(&mut Context<'_, Site>, &Request) -> Result + 'static,
    ) -> Self {
        Self::with_options(settings, ChannelOptions::new(), on_head, on_end)
    }

    pub(super) fn with_options(
        settings: HttpSettings,
        options: ChannelOptions,
        on_head: impl FnMut(&mut Context<'_, Site>, &Request) -> Result + 'static,
        on_end: impl FnMut(&mut Context<'_, Site>, &Request) -> Result + 'static,
    ) -> Self {
        let received = Received::default();
        let (on_head, on_end) = (Box::new(on_head), Box::new(on_end));
        let site = Site { received: received.clone(), on_head, on_end, head: None };
        let pipeline = HttpServer::with(settings).unwrap().pipeline().handler(site);
        let channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
        Server { channel, received }
    }

    /// Passes input, and returns the output without the dates.
    pub(super) fn send(&mut self, input: impl AsRef<[u8]>) -> String {
        // Input after a close is refused.
        let _ = self.channel.write_inbound(input.as_ref());
        self.output()
    }

    /// Returns the output without the dates.
    pub(super) fn output(&mut self) -> String {
        let output = String::from_utf8(self.channel.read_outbound().to_vec()).unwrap();
        let lines = output.split_inclusive("\r\n").filter(|line| !line.starts_with("Date: "));
        lines.collect()
    }

    pub(super) fn take(&self) -> Vec<String> {
        self.received.take()
    }
}

/// Returns the status code of a response.
pub(super) fn status(response: &str) -> u16 {
    let code = response.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    code.unwrap_or_else(|| panic!("no response: {response:?}")).parse().unwrap()
}

pub(super) const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

pub(super) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Returns the head of a request with a body of this length.
pub(super) fn post(length: usize, headers: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{headers}\r\n")
}
