//! The code of docs/guide/websocket.md.

use netwheel::{
    http::{HttpServer, Part, Request, Response},
    prelude::*,
    reconnect::{Backoff, ReconnectingChannel},
    testing::EmbeddedChannel,
    websocket::{
        Accepted, CloseCode, HandshakeError, Message, WebSocketClient, WebSocketServer, WebSocketSettings,
    },
};
use std::net::SocketAddr;

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

/// A client that says hello.
struct Guest;

impl Handler for Guest {
    type Read = Message;
    type Write = Message;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(Message::text("hello"))
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
        ctx.write(message)
    }
}

fn join(
    group: &EventLoopGroup,
    websocket: WebSocketClient,
    address: SocketAddr,
) -> Result<ReconnectingChannel<Message>> {
    let client = ClientBootstrap::new(group)
        .websocket(websocket, "/chat", |accepted| accepted.into_parts().1.handler(Guest))
        .reconnect(Backoff::new())
        .retry_if(HandshakeError::is_retryable)
        .connect(address)?;
    Ok(client)
}

#[test]
fn a_client_gives_up_when_the_server_refuses_it() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (room, http) = (ChannelGroup::new(), HttpServer::new());
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            http.pipeline().handler(Site { websocket: settings().unwrap(), room: room.clone() })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let client = WebSocketClient::new("localhost").header("Origin", "https://evil.example");
    let client = join(&group, client, server.local_address()).unwrap();
    let error = client.closed().wait_timeout(crate::support::wait::PATIENCE).unwrap().unwrap_err();
    assert_eq!(HandshakeError::of(&error).unwrap().status().unwrap().as_u16(), 403);
}

#[cfg(feature = "json")]
#[test]
fn messages_are_serde_types() {
    use netwheel::stage::Json;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    enum Event {
        Left { name: String },
    }

    fn pipeline(accepted: Accepted) -> Pipeline<Event> {
        let frames = accepted.into_parts().1.stage(Json::<Event, Event, Message>::new());
        frames.on_read(|ctx, event: Event| ctx.write(event))
    }

    let _: fn(Accepted) -> Pipeline<Event> = pipeline;
}

#[cfg(feature = "json")]
#[test]
fn an_event_closes_with_a_code() {
    use netwheel::error::PeerError;

    #[derive(serde::Deserialize)]
    enum Command {
        Move(i32),
    }

    #[derive(serde::Serialize)]
    enum Event {
        Moved(i32),
        /// The reason why the player has to leave, as a Close frame.
        Kicked(String),
    }

    /// Converts text messages to commands and events.
    struct Events;

    impl Stage for Events {
        type ReadIn = Message;
        type ReadOut = Command;
        type WriteIn = Event;
        type WriteOut = Message;

        fn read(&mut self, _: &mut StageContext<'_, Self>, message: Message) -> Result<Option<Command>> {
            let Some(text) = message.as_text() else { return Ok(None) };
            let command = serde_json::from_str(text);
            Ok(Some(command.map_err(|error| PeerError::Malformed(error.to_string().into()))?))
        }

        fn write(&mut self, ctx: &mut StageContext<'_, Self>, event: Event) -> Result {
            ctx.write(match event {
                Event::Kicked(reason) => Message::close(CloseCode::POLICY_VIOLATION, reason),
                event => Message::text(serde_json::to_string(&event).map_err(Error::other)?),
            })
        }

        fn encoding_key(&self) -> Option<u64> {
            Some(0) // a broadcast is encoded once for all members
        }
    }

    let pipeline = WebSocketServer::new().pipeline().stage(Events).on_read(|ctx, command| match command {
        Command::Move(0) => ctx.write(Event::Kicked("idle".to_owned())),
        Command::Move(by) => ctx.write(Event::Moved(by)),
    });
    let mut player = EmbeddedChannel::new(pipeline);
    // A client masks its frames; here with zeros.
    player.write_inbound(b"\x81\x8a\0\0\0\0{\"Move\":7}").unwrap();
    assert_eq!(player.read_outbound(), &b"\x81\x0b{\"Moved\":7}"[..]);
    player.write_inbound(b"\x81\x8a\0\0\0\0{\"Move\":0}").unwrap();
    assert_eq!(player.read_outbound(), &b"\x88\x06\x03\xf0idle"[..]);
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
