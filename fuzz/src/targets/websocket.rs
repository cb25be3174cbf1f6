//! WebSocket frames to a server and to a client, with and without compression.

use crate::support::{Cuts, input};
use arbitrary::Arbitrary;
use netwheel::{
    Context, Error, Handler, Pipeline, Result,
    http::{HttpServer, Part, Request},
    testing::EmbeddedChannel,
    websocket::{Deflate, Message, WebSocketClient, WebSocketPipeline, WebSocketServer, WebSocketSettings},
};
use std::{cell::RefCell, rc::Rc, time::Duration};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cuts: Cuts,
    is_client: bool,
    is_small: bool,
    compression: Compression,
    stream: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Arbitrary)]
enum Compression {
    Off,
    PerMessage,
    WithContext,
}

/// All effects of a stream.
#[derive(Debug, PartialEq)]
struct Conversation {
    messages: Vec<Message>,
    errors: Vec<String>,
    /// The answers. Those of a client are masked with random keys, so only their length is known.
    output: Vec<u8>,
    is_open: bool,
}

const MAX_MESSAGE: usize = 64;

pub fn websocket(data: &[u8]) {
    let Some(input) = input::<Input<'_>>(data) else { return };
    let mut ways = input.cuts.ways(input.stream).into_iter().map(|pieces| receive(&input, pieces));
    let whole = ways.next().expect("one way at least");
    for pieces in ways {
        assert_eq!(whole, pieces, "the conversation depends on the pieces");
    }
    assert!(whole.errors.len() <= 1, "{:?}", whole.errors);
    let mut data = Vec::new();
    for message in whole.messages {
        let length = match &message {
            Message::Text(text) => text.len(),
            Message::Binary(bytes) => bytes.len(),
            Message::Ping(bytes) | Message::Pong(bytes) => {
                assert!(bytes.len() <= 125);
                continue;
            }
            _ => continue,
        };
        assert!(!input.is_small || length <= MAX_MESSAGE, "a message of {length} bytes");
        data.push(message);
    }
    resend(input.is_client, input.compression, &data);
}

/// Returns the pipelines of a server and a client after their handshake.
fn pair(is_small: bool, compression: Compression) -> (WebSocketPipeline, WebSocketPipeline) {
    let settings = WebSocketSettings::new().ping_interval(Duration::ZERO);
    let settings = if is_small { settings.max_message(MAX_MESSAGE).max_fragments(3) } else { settings };
    let mut server = WebSocketServer::with(settings.clone()).expect("settings in range");
    let mut client = WebSocketClient::new("localhost").with(settings).expect("settings in range");
    if compression == Compression::Off {
        return (server.pipeline(), client.connected());
    }
    let deflate = Deflate::new().threshold(1).context_takeover(compression == Compression::WithContext);
    server = server.deflate(deflate.clone()).expect("settings in range");
    client = client.deflate(deflate).expect("settings in range");
    let handshake = client.handshake();
    let accepted = server.accept(&as_read(&handshake.request("/"))).expect("the handshake is accepted");
    let (response, server) = accepted.into_parts();
    let accepted = handshake.check(response).expect("the answer fits");
    assert!(accepted.is_compressed());
    (server, accepted.into_parts().1)
}

/// Returns a request as a server reads it.
fn as_read(request: &Request) -> Request {
    let mut text = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n", request.target());
    for (name, value) in request.headers().iter() {
        text += &format!("{name}: {}\r\n", String::from_utf8_lossy(value));
    }
    let read = Rc::new(RefCell::new(None));
    let found = Rc::clone(&read);
    let pipeline = HttpServer::new().pipeline().on_read(move |_, part| {
        if let Part::Head(request) = part {
            *found.borrow_mut() = Some(request);
        }
        Ok(())
    });
    EmbeddedChannel::new(pipeline).write_inbound(format!("{text}\r\n").as_bytes()).expect("an open channel");
    read.take().expect("a request")
}

#[derive(Clone, Default)]
struct Recorder {
    messages: Rc<RefCell<Vec<Message>>>,
    errors: Rc<RefCell<Vec<String>>>,
}

impl Handler for Recorder {
    type Read = Message;
    type Write = Message;

    fn read(&mut self, _: &mut Context<'_, Self>, message: Message) -> Result {
        self.messages.borrow_mut().push(message);
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.errors.borrow_mut().push(format!("{error:#}"));
        ctx.close();
        Ok(())
    }
}

fn receive(input: &Input<'_>, pieces: Vec<&[u8]>) -> Conversation {
    let (server, client) = pair(input.is_small, input.compression);
    let recorder = Recorder::default();
    let pipeline = if input.is_client { client } else { server };
    let mut channel = EmbeddedChannel::new(pipeline.handler(recorder.clone()));
    for piece in pieces {
        // Refused after the channel has closed.
        let _ = channel.write_inbound(piece);
    }
    let output = channel.read_outbound();
    let output = if input.is_client { vec![0; output.len()] } else { output.to_vec() };
    let (messages, errors) = (recorder.messages.take(), recorder.errors.take());
    Conversation { messages, errors, output, is_open: channel.is_open() }
}

/// Sends messages that one side has read, and reads them on that side again.
fn resend(is_client: bool, compression: Compression, messages: &[Message]) {
    let (server, client) = pair(false, compression);
    let (from, to) = if is_client { (server, client) } else { (client, server) };
    let (from, recorder): (Pipeline<Message>, _) = (from.on_read(|_, _| Ok(())), Recorder::default());
    let mut from = EmbeddedChannel::new(from);
    let mut to = EmbeddedChannel::new(to.handler(recorder.clone()));
    for message in messages {
        from.channel().write(message.clone()).expect("an open channel");
    }
    from.run_pending();
    to.write_inbound(&from.read_outbound()).expect("an open channel");
    assert_eq!(*recorder.messages.borrow(), messages);
    assert_eq!(*recorder.errors.borrow(), [""; 0]);
}
