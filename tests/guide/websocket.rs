//! The code of docs/guide/websocket.md.

use netwheel::{
    http::{HttpServer, Part, Request, Response},
    prelude::*,
    testing::EmbeddedChannel,
    websocket::{CloseCode, Message, WebSocketServer, WebSocketSettings},
};

/// Accepts the handshake of every request.
struct Site {
    websocket: WebSocketServer,
    room: ChannelGroup<Message>,
}

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        match self.websocket.accept(&request) {
            Ok(accepted) => {
                let room = self.room.clone();
                let (response, pipeline) = accepted.into_parts();
                ctx.write(response.into())?;
                ctx.replace_pipeline(pipeline.handler(Member { room }))
            }
            Err(refusal) => ctx.write((*refusal).into()),
        }
    }
}

/// A member of a chat room.
struct Member {
    room: ChannelGroup<Message>,
}

impl Handler for Member {
    type Read = Message;
    type Write = Message;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.room.join(ctx.channel());
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
        match message {
            Message::Text(text) if text == "/quit" => ctx.write(Message::close(CloseCode::NORMAL, "goodbye")),
            Message::Text(_) => {
                self.room.broadcast(message)?;
                Ok(())
            }
            Message::Binary(_) => ctx.write(Message::close(CloseCode::UNSUPPORTED_DATA, "only text")),
            _ => Ok(()),
        }
    }
}

fn settings() -> Result<WebSocketServer> {
    let settings = WebSocketSettings::new().max_message(16 * 1024);
    let websocket =
        WebSocketServer::with(settings)?.origins(["https://chat.example.org"]).protocols(["chat.v1"])?;
    Ok(websocket)
}

#[test]
fn messages_reach_the_room_and_quit_closes() {
    let request = b"GET / HTTP/1.1\r\nHost: example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Origin: https://chat.example.org\r\nSec-WebSocket-Protocol: chat.v1\r\n\r\n";
    let room = ChannelGroup::new();
    let mut members = [0; 2].map(|_| {
        let site = Site { websocket: settings().unwrap(), room: room.clone() };
        let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(site));
        channel.write_inbound(request).unwrap();
        let response = channel.read_outbound();
        assert!(response.starts_with(b"HTTP/1.1 101 "));
        channel
    });
    // A client masks its frames; here with zeros.
    members[0].write_inbound(b"\x81\x82\0\0\0\0hi").unwrap();
    for member in &mut members {
        member.run_pending();
        assert_eq!(member.read_outbound(), &b"\x81\x02hi"[..]);
    }
    members[1].write_inbound(b"\x81\x85\0\0\0\0/quit").unwrap();
    assert_eq!(members[1].read_outbound(), &b"\x88\x09\x03\xe8goodbye"[..]);
    members[1].write_inbound(b"\x88\x82\0\0\0\0\x03\xe8").unwrap();
    assert!(members[1].is_closed());
}
