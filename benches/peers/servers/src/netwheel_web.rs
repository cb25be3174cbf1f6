//! netwheel with HTTP and WebSocket, with default settings. Messages are compressed for clients
//! that offer it.

mod options;
mod web;

use netwheel::{
    http::{Headers, HttpServer, Part, Request, Response},
    net::ListenerOptions,
    prelude::*,
    websocket::{Deflate, Message, WebSocketServer},
};
use options::{Mode, Options};

/// Answers each request.
struct Site {
    headers: Headers,
}

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        match part {
            Part::Head(_) => ctx.write(Response::ok(web::BODY).with_headers(self.headers.clone()).into()),
            _ => Ok(()),
        }
    }
}

/// Accepts the handshakes of clients that will echo, or that join the room.
struct Entrance {
    websocket: WebSocketServer,
    room: Option<ChannelGroup<Message>>,
}

impl Handler for Entrance {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        match self.websocket.accept(&request) {
            Ok(accepted) => {
                let (response, pipeline) = accepted.into_parts();
                ctx.write(response.into())?;
                match self.room.take() {
                    Some(room) => ctx.replace_pipeline(pipeline.handler(Member { room })),
                    None => ctx.replace_pipeline(pipeline.handler(Echo)),
                }
            }
            Err(refusal) => ctx.write((*refusal).into()),
        }
    }
}

struct Echo;

impl Handler for Echo {
    type Read = Message;
    type Write = Message;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
        match message {
            Message::Text(_) | Message::Binary(_) => ctx.write(message),
            _ => Ok(()),
        }
    }
}

/// A member of the room: every message it sends is broadcast to all members.
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

    fn read(&mut self, _: &mut Context<'_, Self>, message: Message) -> Result {
        if !message.is_control() {
            self.room.broadcast(message)?;
        }
        Ok(())
    }
}

fn main() -> Result {
    let options = Options::of(64, &[Mode::Http, Mode::Ws, Mode::WsBroadcast])?;
    let group = EventLoopGroup::builder().threads(options.threads()).build()?;
    let server = ServerBootstrap::new(&group).listener_options(ListenerOptions::new().backlog(4096));
    let http = HttpServer::new();
    let server = if options.mode == Mode::Http {
        let headers = Headers::new().with("Content-Type", web::CONTENT_TYPE).shared();
        server
            .pipeline(move |_| http.pipeline().handler(Site { headers: headers.clone() }))
            .bind(options.address())?
    } else {
        let websocket = WebSocketServer::new().deflate(Deflate::new())?;
        let room = (options.mode == Mode::WsBroadcast).then(ChannelGroup::new);
        let entrance = move || Entrance { websocket: websocket.clone(), room: room.clone() };
        server.pipeline(move |_| http.pipeline().handler(entrance())).bind(options.address())?
    };
    server.closed().wait()
}
